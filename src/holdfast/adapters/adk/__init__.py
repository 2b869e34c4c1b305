"""Google ADK in Holdfast: ``Runner(…, session_service=…, artifact_service=…)``."""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first release with StaleSessionError and get_user_state.
require_version("google-adk", "2.13", "adk", before="3")

from holdfast.adapters.adk.artifact_service import HoldfastArtifactService  # noqa: E402
from holdfast.adapters.adk.services import (  # noqa: E402
    open_artifact_service,
    open_session_service,
    register_services,
)
from holdfast.adapters.adk.session_service import HoldfastSessionService  # noqa: E402

__all__ = [
    "HoldfastArtifactService",
    "HoldfastSessionService",
    "open_artifact_service",
    "open_session_service",
    "register_services",
]
