"""Sessions of the OpenAI Agents SDK in Holdfast: ``Runner.run(…, session=HoldfastSession(…))``.

session.py     HoldfastSession: what the SDK asks of a session, and what Holdfast adds
compaction.py  replacing items by a summary, as the SDK's compaction does
run_items.py   the status of a run, by the items that it added
"""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first one whose sessions have settings.
require_version("openai-agents", "0.8", "openai-agents")

from holdfast.adapters.openai_agents.session import HoldfastSession  # noqa: E402

__all__ = ["HoldfastSession"]
