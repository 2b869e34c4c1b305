"""Real workflows with checkpoints in Holdfast: resumed, paused for a person, in other processes."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

pytest.importorskip("agent_framework")

from agent_framework import InMemoryCheckpointStorage, WorkflowBuilder, WorkflowExecutor

from adapters.agent_framework.workflows import (
    Order,
    build_agents,
    build_asker,
    build_count,
    exact,
)
from holdfast import Session, open_state_store
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test

ROOT = Path(__file__).parent.parent.parent.parent
OPTIONS = ["--kills", "2", "--seed", "8"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    # Its clients warn that they do not call functions.
    logging.getLogger("agent_framework").setLevel(logging.ERROR)


@async_test
async def test_a_workflow_resumes_from_every_checkpoint(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    async with HoldfastCheckpointStorage(open_state_store(url)) as storage:
        result = await build_count(storage).run(5)
        assert result.get_outputs() == ["seen [5, 4, 3, 2, 1, 0]"]
    async with HoldfastCheckpointStorage(open_state_store(url)) as storage:
        ids = await storage.list_checkpoint_ids(workflow_name="count-down")
        assert len(ids) == 7
        for checkpoint_id in ids[:-1]:
            result = await build_count(storage).run(checkpoint_id=checkpoint_id)
            assert result.get_outputs() == ["seen [5, 4, 3, 2, 1, 0]"]
        latest = await storage.get_latest(workflow_name="count-down")
        assert latest.state["last"] == 0


@async_test
async def test_agents_in_a_workflow_have_the_checkpoints_of_the_frameworks_storage():
    expected, found = InMemoryCheckpointStorage(), HoldfastCheckpointStorage(MemoryStateStore())
    for storage in (expected, found):
        result = await build_agents(storage).run("Write")
        assert [each.text for each in result.get_outputs()] == ["1 messages", "2 messages"]
    one = await expected.list_checkpoints(workflow_name="agents")
    two = await found.list_checkpoints(workflow_name="agents")
    assert len(one) == len(two) == 4
    for ours, theirs in zip(two, one, strict=True):
        for name in ("writer", "critic"):
            state, wanted = (each.state["_executor_state"][name] for each in (ours, theirs))
            wanted["agent_session"]["session_id"] = state["agent_session"]["session_id"]
            assert exact(state) == exact(wanted)
        assert exact(ours.messages) == exact(theirs.messages)


@async_test
async def test_a_workflow_waits_for_a_person_and_continues_elsewhere():
    store = MemoryStateStore()
    storage = HoldfastCheckpointStorage(store, types=[Order])
    await build_asker(storage).run("soup")
    session = await Session.open(store, agent_id="agent-framework", session_id="ask")
    assert session.status == "waiting"
    latest = await storage.get_latest(workflow_name="ask")
    (request,) = latest.pending_request_info_events.values()
    assert (request.data, request.response_type) == (Order("soup"), bool)

    again = HoldfastCheckpointStorage(store, types=[Order])
    result = await build_asker(again).run(
        checkpoint_id=latest.checkpoint_id, responses={request.request_id: True}
    )
    assert result.get_outputs() == ["soup for 2: True"]
    await session.refresh()
    assert session.status == "completed"


@async_test
async def test_a_workflow_in_a_workflow():
    storage = HoldfastCheckpointStorage(MemoryStateStore())

    def build():
        flow = build_count(None, name="inner")
        inner = WorkflowExecutor(flow, id="inner", allow_direct_output=True)
        return WorkflowBuilder(
            start_executor=inner, checkpoint_storage=storage, name="outer"
        ).build()

    assert (await build().run(9)).get_outputs() == [f"seen {list(range(9, -1, -1))}"]
    first, last = (await storage.list_checkpoints(workflow_name="outer"))[::1]
    inner = last.state["_executor_state"]["inner"]["sub_workflow_checkpoint"]
    assert inner.workflow_name == "inner"
    assert inner.state["_executor_state"]["count"]["seen"] == list(range(9, -1, -1))
    result = await build().run(checkpoint_id=first.checkpoint_id)
    assert result.get_outputs() == [f"seen {list(range(9, -1, -1))}"]


@async_test
async def test_a_value_that_is_not_data_is_logged_by_the_framework(caplog):
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    logging.getLogger("agent_framework").setLevel(logging.WARNING)
    await build_asker(storage).run("soup")
    assert "Order is not data, at $.pending_request_info_events" in caplog.text
