"""The conformance suite of LangGraph's checkpointers, and the report of it in the docs."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from backends import opener
from holdfast import open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from loops import done, in_loop

PAGE = Path(__file__).parents[3] / "docs" / "adapters" / "langgraph.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (\d+) of (\d+) \|$", re.MULTILINE)


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
    done(check(opener(backend, request)))


async def check(new_state_store):
    found = await report(new_state_store)
    for capability in Capability:
        result = found.results[capability.value]
        assert result.detected, capability
        assert result.passed, result.failures
        assert result.tests_passed
        assert not result.tests_skipped


@in_loop
async def test_the_report_in_the_docs_is_what_the_suite_says():
    found = await report(lambda: open_state_store("memory:"))
    told = {
        name: (int(passed), int(all_)) for name, _, passed, all_ in ROW.findall(PAGE.read_text())
    }
    assert told == {
        name: (result.tests_passed, result.tests_passed + result.tests_failed)
        for name, result in found.results.items()
    }
