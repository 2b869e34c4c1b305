"""Run CrewAI without a network: it has an environment of its own, see make test-crewai."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

# Read when the package is imported. Other environments run tests of OpenTelemetry.
if find_spec("crewai") is not None:
    os.environ.update(
        CREWAI_DISABLE_TELEMETRY="true",
        CREWAI_DISABLE_TRACKING="true",
        CREWAI_TRACING_ENABLED="false",
        OTEL_SDK_DISABLED="true",
    )


@pytest.fixture
def persistence():
    """A persistence on an empty store in memory."""
    from holdfast.adapters.crewai import HoldfastFlowPersistence

    with HoldfastFlowPersistence.from_url("memory:") as found:
        yield found
