"""What the tests of Dapr share: a stand-in for the sidecar, and a namespace each."""

from __future__ import annotations

import uuid
from urllib.parse import urlencode

import pytest

from servers.process import needs


@pytest.fixture
def sidecar(dapr_stand_in, monkeypatch):
    """The stand-in, where the SDK looks for a sidecar."""
    for name, value in dapr_stand_in.environment.items():
        monkeypatch.setenv(name, value)
    yield dapr_stand_in
    dapr_stand_in.forget_faults()


@pytest.fixture(scope="session")
def elsewhere(dapr_stand_in):
    """Another sidecar with the same components, whose calls nobody disturbs."""
    from servers.dapr_stand_in import DaprStandIn

    with DaprStandIn(dapr_stand_in.folder) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"test {uuid.uuid4()}"


@pytest.fixture(params=["statestore", "redisstore"])
def component(request) -> str:
    """One whose transactions are all or nothing, and one whose are not."""
    return request.param


@pytest.fixture
def open_store(sidecar, namespace):
    """Opens stores on one empty namespace."""
    from holdfast.stores.dapr import open_url
    from holdfast.stores.urls import StoreURL

    def opened(component: str = "statestore", **options: object):
        query = urlencode({"namespace": namespace, **options})
        return open_url(StoreURL(f"dapr://{component}?{query}"))

    return opened


@pytest.fixture(scope="session")
def daprd(request, tmp_path_factory):
    """The real sidecar, where there is one."""
    from servers.daprd import Daprd, needs_daprd

    program = needs_daprd()
    needs("dapr")
    redis = request.getfixturevalue("redis_server")
    with Daprd(tmp_path_factory.mktemp("daprd"), program, redis) as server:
        yield server
