"""Checkpoints as snapshots of a session: saving, listing, deleting, and what is written."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    CheckpointStorage,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowMessage,
)

from adapters.agent_framework.workflows import exact
from holdfast import Catalog, IntegrityError, Session, SnapshotArchive, SnapshotManager
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.backends import make_opener
from support.observed_store import ObservedStore


def make(number, *, workflow="flow", **more):
    return WorkflowCheckpoint(
        workflow_name=workflow,
        graph_signature_hash="abc",
        checkpoint_id=f"c{number}",
        timestamp=f"2026-11-16T12:00:{number:02}+00:00",
        iteration_count=number,
        **more,
    )


def message(text):
    return Message("user", [text])


async def open_session(store, session_id="flow", agent_id="agent-framework"):
    return await Session.open(store, agent_id=agent_id, session_id=session_id, must_exist=True)


@async_test
async def test_checkpoints_come_back_on_every_backend(new_state_store):
    async with HoldfastCheckpointStorage(new_state_store()) as storage:
        saved = [
            make(
                number,
                state={"plan": list(range(number * 5)), "_internal": (1, {2}), "when": b"x"},
                messages={"a": [WorkflowMessage(message("hi"), "a")] * number},
                previous_checkpoint_id=f"c{number - 1}" if number else None,
                metadata={"reason": "test"},
            )
            for number in range(3)
        ]
        for each in saved:
            assert await storage.save(each) == each.checkpoint_id
    async with HoldfastCheckpointStorage(new_state_store()) as storage:
        assert await storage.list_checkpoint_ids(workflow_name="flow") == ["c0", "c1", "c2"]
        found = await storage.list_checkpoints(workflow_name="flow")
        assert exact(found) == exact(saved)
        assert exact(await storage.load("c1")) == exact(saved[1])
        assert exact(await storage.get_latest(workflow_name="flow")) == exact(saved[2])
        assert await storage.delete("c2") is True
        assert await storage.delete("c2") is False
        assert exact(await storage.get_latest(workflow_name="flow")) == exact(saved[1])
        assert await storage.get_latest(workflow_name="other") is None
        assert await storage.list_checkpoint_ids(workflow_name="other") == []
        with pytest.raises(WorkflowCheckpointException, match="No checkpoint found with ID c2"):
            await storage.load("c2")
        session = await open_session(storage.state_store)
        assert (await session.verify()).ok


def test_it_has_the_methods_of_the_protocol():
    names = [name for name in vars(CheckpointStorage) if not name.startswith("_")]
    assert len(names) == 6
    assert all(callable(getattr(HoldfastCheckpointStorage, name)) for name in names)


@async_test
async def test_a_checkpoint_writes_only_what_changed():
    store = ObservedStore()
    storage = HoldfastCheckpointStorage(store)
    conversation = [message(f"message {number} {'x' * 500}") for number in range(100)]
    state = {
        "big": "y" * 50_000,
        "_executor_state": {"writer": {"full_conversation": conversation, "cache": []}},
    }
    await storage.save(make(0, state=state))
    store.forget()
    conversation.append(message("one more"))
    await storage.save(make(1, state={**state, "small": 1}))
    assert store.bytes_written < 4000
    session = await open_session(store)
    event = [each async for each in session.log.read()][-1]
    assert event.type == "agent_framework.checkpoint"
    assert {(space, key) for space, key, _ in event.changes["set"]} == {
        ("state", "small"),
        ("agent_framework", "checkpoint"),
        ("agent_framework/items/executors/writer/full_conversation", "000000000100"),
    }
    assert exact((await storage.load("c1")).state["_executor_state"]) == exact(
        state["_executor_state"]
    )


@async_test
async def test_what_a_checkpoint_does_not_have_is_removed_and_what_the_user_added_stays():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    await storage.save(make(0, state={"a": 1, "b": list(range(20)), "_c": 3}))
    async with await open_session(storage.state_store) as session:
        session.set("note", "mine")
    await storage.save(make(1, state={"b": list(range(10))}))
    session = await open_session(storage.state_store)
    assert session.get("note") == "mine"
    assert (await storage.load("c1")).state == {"b": list(range(10))}
    assert (await storage.load("c0")).state == {"a": 1, "b": list(range(20)), "_c": 3}
    assert session.get("a") is None


@async_test
async def test_two_checkpoints_can_be_compared():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    await storage.save(make(0, state={"a": 1}))
    await storage.save(make(1, state={"a": 2, "b": 1}))
    archive, here = SnapshotArchive(storage.state_store), storage.location("flow")
    old, new = [
        (await archive.load_snapshot(location=here, snapshot_id=each)).snapshot
        for each in ("c0", "c1")
    ]
    diff = new.diff(old)
    assert diff["added"] == [("state", "b")]
    assert ("state", "a") in diff["changed"]
    infos = (await archive.list_snapshots(location=here)).snapshots
    assert [info.tags["iteration"] for info in infos] == ["0", "1"]


@async_test
async def test_a_restored_session_continues_from_the_checkpoint():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    for number in range(3):
        await storage.save(make(number, state={"n": number}))
    async with await open_session(storage.state_store) as session:
        await session.restore("c1")
    latest = await storage.get_latest(workflow_name="flow")
    assert (latest.checkpoint_id, latest.state) == ("c1", {"n": 1})
    await storage.save(make(4, state={"n": 4}, previous_checkpoint_id="c1"))
    assert (await storage.get_latest(workflow_name="flow")).checkpoint_id == "c4"
    assert (await storage.load("c2")).state == {"n": 2}


@async_test
async def test_a_value_that_was_changed_in_the_session_reaches_the_workflow():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    await storage.save(make(0, state={"n": 1, "gone": 2}))
    async with await open_session(storage.state_store) as session:
        session.set("n", 5)
        session.delete("gone")
    assert (await storage.get_latest(workflow_name="flow")).state == {"n": 5}


@async_test
async def test_forks_and_imported_sessions_continue_from_their_checkpoint():
    store, other = MemoryStateStore(), MemoryStateStore()
    storage = HoldfastCheckpointStorage(store)
    await storage.save(make(0, state={"n": 0}))
    await storage.save(make(1, state={"n": 1}))
    session = await open_session(store)
    await session.fork("what-if", at="c0")
    forked = HoldfastCheckpointStorage(store, session_id="what-if")
    assert (await forked.get_latest(workflow_name="flow")).state == {"n": 0}
    assert (await forked.load("c0")).state == {"n": 0}
    assert await forked.list_checkpoint_ids(workflow_name="flow") == ["c0"]
    await forked.save(make(2, state={"n": 2}, previous_checkpoint_id="c0"))
    assert (await forked.get_latest(workflow_name="flow")).checkpoint_id == "c2"
    assert (await storage.get_latest(workflow_name="flow")).checkpoint_id == "c1"

    await SnapshotManager(other).import_session(await session.export())
    copy = HoldfastCheckpointStorage(other)
    assert (await copy.load("c1")).state == {"n": 1}
    assert await copy.delete("c1") is True
    with pytest.raises(WorkflowCheckpointException):
        await copy.load("c1")


@async_test
async def test_workflows_are_sessions_of_an_agent_or_share_one():
    store = MemoryStateStore()
    storage = HoldfastCheckpointStorage(store, agent_id="shop")
    await storage.save(make(0, workflow="a/b"))
    await storage.save(make(1, workflow="c"))
    page = await Catalog(store).sessions("shop")
    assert {each.session_id for each in page.sessions} == {"a/b", "c"}
    assert (await storage.load("c0")).workflow_name == "a/b"

    order = HoldfastCheckpointStorage(store, agent_id="shop", session_id="order-7")
    await order.save(make(5, workflow="a/b", state={"x": 1}))
    await order.save(make(6, workflow="c", state={"x": 2}))
    assert await order.list_checkpoint_ids(workflow_name="c") == ["c6"]
    latest = await order.get_latest(workflow_name="a/b")
    assert (latest.checkpoint_id, latest.state) == ("c5", {"x": 1})
    assert await storage.list_checkpoint_ids(workflow_name="c") == ["c1"]


@async_test
async def test_the_status_of_the_session_follows():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    await storage.save(make(0, messages={"a": [WorkflowMessage("x", "a")]}))
    assert (await open_session(storage.state_store)).status == "running"
    await storage.save(make(1))
    assert (await open_session(storage.state_store)).status == "completed"


@async_test
async def test_checkpoint_ids_of_any_form():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    for name in ("ordinary", "with/slash", "x" * 300, "ü ☃"):
        checkpoint = make(0, state={"name": name})
        checkpoint.checkpoint_id = name
        await storage.save(checkpoint)
        assert (await storage.load(name)).state == {"name": name}
    assert len(await storage.list_checkpoint_ids(workflow_name="flow")) == 4


@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgresql"])
@async_test
async def test_two_storages_on_one_workflow_lose_nothing(backend, request):
    new_state_store = make_opener(backend, request)
    first, second = (HoldfastCheckpointStorage(new_state_store()) for _ in range(2))

    async def save(storage, offset):
        for number in range(offset, offset + 8):
            await storage.save(make(number, state={"n": number, f"k{offset}": 1}))

    await asyncio.gather(save(first, 0), save(second, 20))
    found = await first.list_checkpoints(workflow_name="flow")
    assert sorted(each.checkpoint_id for each in found) == sorted(
        f"c{number}" for number in (*range(8), *range(20, 28))
    )
    for each in found:
        offset = 0 if each.iteration_count < 20 else 20
        assert each.state == {"n": each.iteration_count, f"k{offset}": 1}
    assert (await second.get_latest(workflow_name="flow")).checkpoint_id == "c27"
    assert (await (await open_session(first.state_store)).verify()).ok
    await first.aclose()
    await second.aclose()


@pytest.mark.parametrize(
    ("space", "key", "value"),
    [
        ("agent_framework", "checkpoint", "text"),
        ("agent_framework", "checkpoint", {"id": "c0"}),
        ("agent_framework/messages", "a", ["no message"]),
        ("agent_framework/messages", "a", [{"agent_framework": "WorkflowMessage"}]),
        ("agent_framework/messages", "a", [{"agent_framework": "WorkflowMessage", "fields": {}}]),
        ("agent_framework/messages", "a", [{"agent_framework": "MessageType", "value": "odd"}]),
        ("agent_framework/values", "_v", {"agent_framework": "list", "space": 5}),
        ("agent_framework/values", "_v", {"agent_framework": "dict", "items": 5}),
        ("agent_framework/values", "_v", {"agent_framework": "type", "args": []}),
        ("agent_framework/values", "_v", {"agent_framework": "Message", "value": {}}),
        (
            "agent_framework/values",
            "_v",
            {"agent_framework": "WorkflowErrorDetails", "fields": {"evil": 1}},
        ),
    ],
)
@async_test
async def test_damaged_entries_are_told(space, key, value):
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    await storage.save(make(0, state={"_v": 1}, messages={"a": [WorkflowMessage("x", "a")]}))
    async with await open_session(storage.state_store) as session:
        session.record("edited", changes={"set": [(space, key, value)], "delete": []})
    with pytest.raises(IntegrityError, match=r"restore the|has the wrong fields"):
        await storage.get_latest(workflow_name="flow")


@async_test
async def test_a_missing_entry_is_told():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    await storage.save(make(0, state={"_v": 1}))
    async with await open_session(storage.state_store) as session:
        changes = {"set": [], "delete": [("agent_framework/values", "_v")]}
        session.record("edited", changes=changes)
    with pytest.raises(IntegrityError, match="no entry '_v'"):
        await storage.get_latest(workflow_name="flow")


@async_test
async def test_timestamps_that_cannot_be_compared():
    storage = HoldfastCheckpointStorage(MemoryStateStore())
    await storage.save(make(0))
    odd = make(1)
    odd.timestamp = "2026-11-16T12:00:00"
    await storage.save(odd)
    with pytest.raises(ValueError, match="time zone"):
        await storage.get_latest(workflow_name="flow")
    assert (await storage.load("c1")).timestamp == odd.timestamp
