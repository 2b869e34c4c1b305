"""Sessions of the Claude Agent SDK in Holdfast: ``ClaudeAgentOptions(session_store=…)``."""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first tested release. Until 1.0, a minor release may change the store's methods.
require_version("claude-agent-sdk", "0.2.180", "claude-agent", before="0.3")

from holdfast.adapters.claude_agent.store import HoldfastSessionStore  # noqa: E402
from holdfast.adapters.claude_transcript import to_transcript, write_transcript  # noqa: E402

__all__ = ["HoldfastSessionStore", "to_transcript", "write_transcript"]
