"""Savers in memory and on every backend."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

pytest.importorskip("langgraph")

from holdfast import open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from support.backends import make_opener


@pytest.fixture
def saver():
    """A saver on an empty store in memory."""
    with HoldfastSaver(open_state_store("memory:")) as found:
        yield found


@contextmanager
def open_savers(new_state_store):
    """A function that opens savers on one store, which are closed at the end."""
    savers = []

    def new(**options):
        savers.append(HoldfastSaver(new_state_store(), **options))
        return savers[-1]

    yield new
    for each in savers:
        each.close()


@pytest.fixture
def new_saver(new_state_store):
    """Runs a test on every backend: opens savers on one empty store."""
    with open_savers(new_state_store) as new:
        yield new


@pytest.fixture(params=["sqlite", "files", "postgresql"])
def new_durable_saver(request):
    """Runs a test on each kind of durable store: inline, without batches, and with a server."""
    with open_savers(make_opener(request.param, request)) as new:
        yield new


@pytest.fixture(params=["memory", "sqlite"])
def new_local_saver(request):
    """Runs a test on the fastest backends: opens savers on one empty store."""
    with open_savers(make_opener(request.param, request)) as new:
        yield new
