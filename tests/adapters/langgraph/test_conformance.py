"""The conformance suite of LangGraph's checkpointers, and what the docs say of it."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import run_async
from support.backends import opener

PAGE = Path(__file__).parents[3] / "docs" / "adapters" / "langgraph.md"


async def report(new_state_store):
    """What the suite says of savers on new stores."""

    @checkpointer_test(name=f"HoldfastSaver {uuid.uuid4()}")
    async def savers():
        async with HoldfastSaver(new_state_store()) as saver:
            yield saver

    return await validate(savers)


# The suite is about what a saver does: the others have their own, and time travel runs on all.
@pytest.mark.parametrize("backend", ["memory", "sqlite", "files", "postgresql", "redis"])
def test_every_capability_is_there_and_passes(backend, request):
    run_async(check(opener(backend, request)))


async def check(new_state_store):
    found = await report(new_state_store)
    assert {each.value for each in Capability} <= found.results.keys()
    for name, result in found.results.items():
        assert result.detected, name
        assert result.passed, result.failures
        assert result.tests_passed
        assert not result.tests_skipped


def test_the_docs_say_that_all_passes_without_a_list_that_grows_old():
    text = PAGE.read_text().partition("## Conformance")[2]
    assert "passes every test of every capability" in text
    assert not re.search(r"\d+ of \d+", text)
