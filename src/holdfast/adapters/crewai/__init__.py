"""States of CrewAI flows in Holdfast: ``@persist(HoldfastFlowPersistence(…))``."""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first release whose pending feedback has the fields that are stored here.
require_version("crewai", "1.15", "crewai", before="2")

from holdfast.adapters.crewai.persistence import HoldfastFlowPersistence  # noqa: E402

__all__ = ["HoldfastFlowPersistence"]
