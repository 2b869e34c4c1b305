"""Stores in memory, and those who ask the app on them."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.server import create_app
from support.async_tests import run_async
from support.rest_api import TOKENS, client, client_of, entries, filled


@pytest.fixture
def store():
    """An empty store."""
    return holdfast.open_state_store("memory://")


@pytest.fixture
def api(store):
    """Asks the app on the store from this machine."""
    return client(store)


@pytest.fixture
def guarded(store):
    """Asks an app with tokens, from elsewhere and without one."""
    return client(store, address=("203.0.113.7", 1234), tokens=TOKENS)


@pytest.fixture(scope="session")
def unchanging():
    """A store with sessions that no test changes, the app on it, and all that is in it."""
    found = holdfast.open_state_store("memory://")
    run_async(filled(found))
    return found, create_app(found), run_async(entries(found))


@pytest.fixture
def looking(unchanging):
    """Makes somebody who asks that app; whatever it is, nothing may change."""
    store, app, before = unchanging
    yield lambda **options: client_of(app, **options)
    assert run_async(entries(store)) == before
