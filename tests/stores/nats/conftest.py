"""Fixtures for the tests of NATS."""

from __future__ import annotations

import uuid

import pytest

import holdfast
from servers.cutting_proxy import CuttingProxy
from servers.nats_server import Behind, NatsServer
from servers.process import needs


@pytest.fixture(autouse=True)
def driver():
    needs("nats")


@pytest.fixture
def bucket():
    return uuid.uuid4().hex


@pytest.fixture
def new_store(nats_server, bucket):
    return lambda **options: holdfast.open_state_store(nats_server.url(bucket, **options))


@pytest.fixture
def proxy(nats_server):
    with CuttingProxy(nats_server.port) as proxy:
        yield proxy


@pytest.fixture
def own_server(tmp_path):
    """Start servers with their own configuration."""
    servers = []

    def start(more: str = "", **options):
        server = NatsServer(tmp_path / f"nats-{len(servers)}", more, **options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def behind(nats_server, bucket):
    return Behind(nats_server.url(bucket))
