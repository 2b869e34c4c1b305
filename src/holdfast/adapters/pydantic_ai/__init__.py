"""Conversations of Pydantic AI in Holdfast: ``HoldfastConversationStore(state_store)``."""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first release with conversation stores.
require_version("pydantic-ai-slim", "2.66", "pydantic-ai", before="3")

from holdfast.adapters.pydantic_ai.store import HoldfastConversationStore  # noqa: E402

__all__ = ["HoldfastConversationStore"]
