"""Fixtures for the tests of Redis: namespaces, servers to kill, a proxy."""

from __future__ import annotations

import itertools

import pytest

from servers.cutting_proxy import CuttingProxy
from servers.process import needs

NUMBERS = itertools.count()


@pytest.fixture
def namespace():
    return f"n{next(NUMBERS)}"


@pytest.fixture
def own_server(tmp_path):
    """Start servers that a test may kill, freeze and misconfigure."""
    needs("redis")
    from servers.redis_server import RedisServer

    started = []

    def start(**settings):
        server = RedisServer(tmp_path / f"redis{len(started)}", **settings)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def proxy(redis_server):
    with CuttingProxy(redis_server.port) as proxy:
        yield proxy
