"""Sessions of the OpenAI Agents SDK in Holdfast: ``Runner.run(…, session=HoldfastSession(…))``."""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first release whose sessions have settings.
require_version("openai-agents", "0.8", "openai-agents", before="1")

from holdfast.adapters.openai_agents.session import HoldfastSession  # noqa: E402

__all__ = ["HoldfastSession"]
