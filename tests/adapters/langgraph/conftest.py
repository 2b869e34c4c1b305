"""A saver in memory, savers on every backend, and the place where other tests find both."""

from __future__ import annotations

import pytest

pytest.importorskip("langgraph")

from holdfast import open_state_store
from holdfast.adapters.langgraph import HoldfastSaver


@pytest.fixture
def saver():
    """A saver on an empty store in memory."""
    with HoldfastSaver(open_state_store("memory:")) as found:
        yield found


@pytest.fixture
def new_saver(new_state_store):
    """Runs a test on every backend: a function that makes savers on one empty place."""
    made = []

    def new(**options):
        made.append(HoldfastSaver(new_state_store(), **options))
        return made[-1]

    yield new
    for each in made:
        each.close()
