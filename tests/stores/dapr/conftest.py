"""Fixtures for the tests of Dapr: a stand-in for the sidecar, and namespaces."""

from __future__ import annotations

import uuid
from urllib.parse import urlencode

import pytest

from servers.process import needs


@pytest.fixture
def sidecar(dapr_stand_in, monkeypatch):
    """The stand-in, at the address of the SDK's settings."""
    for name, value in dapr_stand_in.environment.items():
        monkeypatch.setenv(name, value)
    yield dapr_stand_in
    dapr_stand_in.forget_faults()


@pytest.fixture(scope="session")
def elsewhere(dapr_stand_in):
    """Another sidecar with the same components and no faults."""
    from servers.dapr_stand_in import DaprStandIn

    with DaprStandIn(dapr_stand_in.folder) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"test {uuid.uuid4()}"


@pytest.fixture(params=["statestore", "redisstore"])
def component(request) -> str:
    """A component that can roll back transactions, and one that cannot."""
    return request.param


@pytest.fixture
def open_store(sidecar, namespace):
    """Open stores on one empty namespace."""
    from holdfast.stores.dapr import open_url
    from holdfast.stores.urls import StoreURL

    def open_component(component: str = "statestore", **options: object):
        query = urlencode({"namespace": namespace, **options})
        return open_url(StoreURL(f"dapr://{component}?{query}"))

    return open_component


@pytest.fixture(scope="session")
def daprd(request, tmp_path_factory):
    """The real sidecar, if it is installed."""
    from servers.daprd import Daprd, needs_daprd

    program = needs_daprd()
    needs("dapr")
    redis = request.getfixturevalue("redis_server")
    with Daprd(tmp_path_factory.mktemp("daprd"), program, redis) as server:
        yield server
