"""LangGraph's conformance suite for checkpointers passes, as the docs claim."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import run_async
from support.backends import make_opener

PAGE = Path(__file__).parents[3] / "docs" / "adapters" / "langgraph.md"


async def report(new_state_store):
    """The report of the suite for savers on new stores."""

    @checkpointer_test(name=f"HoldfastSaver {uuid.uuid4()}")
    async def savers():
        async with HoldfastSaver(new_state_store()) as saver:
            yield saver

    return await validate(savers)


# The suite tests the saver. Backends have their own tests, and time travel runs on all of them.
@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgresql"])
def test_the_conformance_suite_passes(backend, request):
    run_async(check(make_opener(backend, request)))


async def check(new_state_store):
    found = await report(new_state_store)
    assert {each.value for each in Capability} <= found.results.keys()
    for name, result in found.results.items():
        assert result.detected, name
        assert result.passed, result.failures
        assert result.tests_passed
        assert not result.tests_skipped


def test_the_docs_claim_conformance_without_numbers():
    text = PAGE.read_text().partition("## Conformance")[2]
    assert "passes every test of every capability" in text
    assert not re.search(r"\d+ of \d+", text)
