"""Rolling threads back to a time."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Command

from adapters.langgraph.graphs import at, build_agent, build_steps, user_message
from adapters.langgraph.test_write_conflicts import put
from holdfast import Session
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.adapters.langgraph.lifecycle import record_deletion
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async

LONG_AGO = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def now():
    return dt.datetime.now(dt.UTC)


def contents(graph, thread):
    return [each.content for each in graph.get_state(at(thread)).values.get("messages", [])]


def test_threads_are_rolled_back_to_a_time_with_an_outcome_each(saver):
    graph = build_agent(saver)
    for thread in ("a", "b"):
        graph.invoke(user_message("monday", "1"), at(thread))
    then = {thread: graph.get_state(at(thread)) for thread in "ab"}
    to = now()
    graph.invoke(user_message("tuesday", "2"), at("a"))
    later = graph.get_state(at("a"))
    graph.invoke(user_message("sunday", "1"), at("c"))
    results = {each.thread_id: each for each in saver.rollback_threads(["a", "b", "c", "d"], to=to)}
    assert {name: each.outcome for name, each in results.items()} == {
        "a": "rolled_back",
        "b": "unchanged",
        "c": "started_later",
        "d": "not_found",
    }
    assert results["a"].checkpoint_id == then["a"].config["configurable"]["checkpoint_id"]
    assert results["a"].previous_checkpoint_id == later.config["configurable"]["checkpoint_id"]
    for thread in "ab":
        assert graph.get_state(at(thread)) == then[thread]
    assert contents(graph, "c")[0] == "sunday"
    # The old branch is still there, and a new one starts.
    assert graph.get_state(later.config).values == later.values
    assert len(list(graph.get_state_history(at("a")))) == 10
    graph.invoke(user_message("wednesday", "3"), at("a"))
    assert contents(graph, "a")[4] == "wednesday"
    other = build_agent(HoldfastSaver(saver.state_store))
    assert run_async(other.aget_state(at("a"))).values == graph.get_state(at("a")).values


def test_rolling_back_to_the_time_of_a_state_restores_it(saver):
    graph = build_steps(saver)
    graph.invoke({"log": ["in"]}, at())
    graph.invoke(Command(resume="yes"), at())
    states = list(graph.get_state_history(at()))
    for state in [*states, *reversed(states)]:
        (result,) = saver.rollback_threads(["t"], to=state.created_at)
        assert result.checkpoint_id == state.config["configurable"]["checkpoint_id"]
        found = graph.get_state(at())
        assert (found.values, found.next, found.config) == (state.values, state.next, state.config)


def test_a_rolled_back_interrupt_can_be_resumed(saver):
    graph = build_steps(saver)
    graph.invoke({"log": ["in"]}, at())
    to = now()
    graph.invoke(Command(resume="yes"), at())
    assert saver.rollback_threads(["t"], to=to)[0].outcome == "rolled_back"
    assert [each.value for each in graph.get_state(at()).interrupts] == ["really?"]
    assert graph.invoke(Command(resume="no"), at())["log"] == ["in", "one", "answer no", "two"]


def test_a_rollback_can_be_undone_by_another_rollback(saver):
    graph = build_agent(saver)
    graph.invoke(user_message("monday", "1"), at())
    first = now()
    graph.invoke(user_message("tuesday", "2"), at())
    second = graph.get_state(at())
    saver.rollback_threads(["t"], to=first)
    assert len(contents(graph, "t")) == 4
    session = run_async(opened(saver))
    (restored,) = [each for each in session.events if each.type == "state.restored"]
    assert restored.data["to"] == first.isoformat()
    assert run_async(session.verify()).ok
    saver.rollback_threads(["t"], to=second.created_at)
    assert graph.get_state(at()).values == second.values


async def opened(saver):
    return await Session.open(saver.state_store, agent_id="langgraph", session_id="t")


def test_all_threads_are_rolled_back_by_default(saver):
    graph = build_agent(saver)
    for thread in ("a", "b", "c"):
        graph.invoke(user_message("monday", "1"), at(thread))
    to = now()
    for thread in ("a", "b", "c"):
        graph.invoke(user_message("tuesday", "2"), at(thread))
    results = saver.rollback_threads(None, to=to)
    assert sorted(each.thread_id for each in results) == ["a", "b", "c"]
    assert {each.outcome for each in results} == {"rolled_back"}
    assert {len(contents(graph, thread)) for thread in "abc"} == {4}


@async_test
async def test_a_rollback_skips_deleted_checkpoints():
    saver = HoldfastSaver(MemoryStateStore())
    await put(saver, "first", 1, value="a")
    first = (await saver.aget_tuple(at())).config["configurable"]["checkpoint_id"]
    await put(saver, "second", 2, value="b", run_id="x")
    to = now()
    await put(saver, "third", 3, value="c")
    found = [each async for each in saver.alist(at(), filter={"writer": "second"})]
    thread = saver.thread("t")
    async with thread.lock:
        ids = [("", found[0].config["configurable"]["checkpoint_id"])]
        await record_deletion(thread, ids, {})
    (result,) = await saver.arollback_threads(["t"], to=to)
    assert (result.outcome, result.checkpoint_id) == ("rolled_back", first)
    assert await saver.aget_tuple(found[0].config) is None
    assert len([each async for each in saver.alist(at())]) == 2


@async_test
async def test_a_time_before_the_pruned_log_is_reported():
    saver = HoldfastSaver(MemoryStateStore())
    await put(saver, "one", 1)
    to = now()
    for number in range(2, 5):
        await put(saver, "one", number)
    await saver.aprune(["t"])
    before = await saver.aget_tuple(at())
    (result,) = await saver.arollback_threads(["t"], to=to)
    assert result.outcome == "pruned"
    assert await saver.aget_tuple(at()) == before
    await put(saver, "one", 5)
    (result,) = await saver.arollback_threads(["t"], to=before.checkpoint["ts"])
    assert result.outcome == "rolled_back"
    assert (await saver.aget_tuple(at())).checkpoint == before.checkpoint


@async_test
async def test_a_thread_that_fails_does_not_affect_the_others():
    store = MemoryStateStore()
    saver = HoldfastSaver(store)
    graph = build_agent(saver)
    for thread in ("a", "b"):
        await graph.ainvoke(user_message("monday", "1"), at(thread))
    to = now()
    for thread in ("a", "b"):
        await graph.ainvoke(user_message("tuesday", "2"), at(thread))
    keys = [key async for key in store.list("sessions/a/") if "/log/" in key]
    await store.put(keys[2], b"broken")
    results = await HoldfastSaver(store).arollback_threads(["a", "b"], to=to)
    assert [each.outcome for each in results] == ["failed", "rolled_back"]
    assert keys[2] in str(results[0].error)


@async_test
async def test_a_rollback_succeeds_while_another_writer_commits():
    store = MemoryStateStore()
    one, other = HoldfastSaver(store), HoldfastSaver(store)
    await put(one, "one", 1)
    to = now()

    async def write():
        for number in range(2, 12):
            await put(other, "other", number)

    await asyncio.gather(write(), one.arollback_threads(["t"], to=to))
    await one.arollback_threads(["t"], to=to)
    for saver in (one, other):
        assert (await saver.aget_tuple(at())).metadata["step"] == 1
        assert len([each async for each in saver.alist(at())]) == 11


@pytest.mark.parametrize(
    ("time", "error"),
    [
        (dt.datetime(2026, 1, 1), ValueError),
        ("2026-01-01T00:00:00", ValueError),
        ("yesterday", ValueError),
        (1767225600, TypeError),
        (None, TypeError),
    ],
)
def test_a_time_needs_a_time_zone(saver, time, error):
    with pytest.raises(error):
        saver.rollback_threads(["t"], to=time)


def test_threads_are_rolled_back_on_every_store(new_durable_saver):
    saver = new_durable_saver()
    graph = build_agent(saver)
    graph.invoke(user_message("monday", "1"), at())
    to = now()
    graph.invoke(user_message("tuesday", "2"), at())
    assert [each.outcome for each in saver.rollback_threads(["t"], to=LONG_AGO)] == [
        "started_later"
    ]
    assert [each.outcome for each in saver.rollback_threads(["t"], to=to)] == ["rolled_back"]
    assert len(contents(build_agent(new_durable_saver()), "t")) == 4


@async_test
async def test_writes_stored_before_their_checkpoint_keep_their_time():
    saver = HoldfastSaver(MemoryStateStore())
    await put(saver, "one", 1)
    checkpoint = empty_checkpoint()
    config = at(checkpoint_ns="", checkpoint_id=checkpoint["id"])
    times = {}
    for task, channel in (("first", "log"), ("second", "__interrupt__")):
        await asyncio.sleep(0.001)
        times[task] = now()
        await asyncio.sleep(0.001)
        await saver.aput_writes(config, [(channel, task)], task)
    # LangGraph stores checkpoints in the background, so writes of tasks may come first.
    await saver.aput(at(checkpoint_ns=""), checkpoint, {"source": "loop", "step": 2}, {})
    for to, tasks, status in (
        (checkpoint["ts"], [], "running"),
        (times["second"], ["first"], "running"),
        (now(), ["first", "second"], "waiting"),
        (times["first"], [], "running"),
    ):
        (result,) = await saver.arollback_threads(["t"], to=to)
        assert result.checkpoint_id == checkpoint["id"]
        found = await saver.aget_tuple(at())
        assert [value for _, _, value in found.pending_writes] == tasks
        session = await opened(saver)
        assert session.status == status
