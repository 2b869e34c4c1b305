"""Services on every backend. These tests need the environment of make test-adk."""

from __future__ import annotations

import pytest


def pytest_pycollect_makemodule(module_path, parent):
    """Skip the tests in this folder where ADK is not installed."""
    return AdkModule.from_parent(parent, path=module_path)


class AdkModule(pytest.Module):
    """A module of tests that is skipped without ADK."""

    def collect(self):
        pytest.importorskip("google.adk", reason="runs in make test-adk")
        return super().collect()


@pytest.fixture
def new_service(new_state_store):
    """Run a test on every backend: opens session services on one empty store."""
    from holdfast.adapters.adk import HoldfastSessionService

    return lambda **options: HoldfastSessionService(new_state_store(), **options)


@pytest.fixture
def new_artifacts(new_state_store):
    """Run a test on every backend: opens artifact services on one empty store."""
    from holdfast.adapters.adk import HoldfastArtifactService

    return lambda: HoldfastArtifactService(new_state_store())
