"""Stores in memory, and clients of the app on them."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.server import create_app
from support.async_tests import run_async
from support.rest_api import TOKENS, connect, connect_app, dump_store, fill_store


@pytest.fixture
def store():
    """An empty store."""
    return holdfast.open_state_store("memory://")


@pytest.fixture
def api(store):
    """A client on this machine."""
    return connect(store)


@pytest.fixture
def remote_api(store):
    """A client on another machine, without a token, of an app that requires one."""
    return connect(store, address=("203.0.113.7", 1234), tokens=TOKENS)


@pytest.fixture(scope="session")
def sample_app():
    """A filled store that no test changes, the app on it, and a copy of its content."""
    store = holdfast.open_state_store("memory://")
    run_async(fill_store(store))
    return store, create_app(store), run_async(dump_store(store))


@pytest.fixture
def connect_readonly(sample_app):
    """A function that makes clients of that app; fails if their requests change the store."""
    store, app, before = sample_app
    yield lambda **options: connect_app(app, **options)
    assert run_async(dump_store(store)) == before
