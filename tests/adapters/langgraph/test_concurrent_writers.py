"""Concurrent writers of a thread, and writers that fail or die."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Command

from adapters.langgraph.graphs import at, build_agent, build_fan_out, build_steps, user_message
from holdfast import Session, StateStoreError, open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.portal import run_inline
from support.async_tests import async_test, run_async
from support.faults import RAISED, WAYS, Fault, FaultyStateStore


def checkpoint(number, values):
    versions = dict.fromkeys(values, f"{number:08}.{number:08x}")
    return {
        **empty_checkpoint(),
        "id": f"1f1e0000-0000-6000-8000-{number:012}",
        "channel_values": values,
        "channel_versions": versions,
    }, versions


async def put(saver, number, **values):
    config = at(checkpoint_ns="")
    kept, versions = checkpoint(number, values)
    return await saver.aput(config, kept, {"source": "loop", "step": number}, versions)


@async_test
async def test_two_savers_on_one_thread_lose_no_checkpoints(new_state_store):
    async with new_state_store() as one, new_state_store() as two:
        savers = [HoldfastSaver(one), HoldfastSaver(two)]

        async def work(which):
            for number in range(which, 12, 2):
                config = await put(savers[which], number, messages=[number], plan=which)
                await savers[which].aput_writes(config, [("plan", number)], f"task {number}")

        await asyncio.gather(work(0), work(1))
        for saver in savers:
            found = [each async for each in saver.alist(at())]
            steps = {each.metadata["step"]: each for each in found}
            assert sorted(steps) == list(range(12))
            for number, each in steps.items():
                assert each.checkpoint["channel_values"] == {
                    "messages": [number],
                    "plan": number % 2,
                }
                assert each.pending_writes == [(f"task {number}", "plan", number)]
        session = await Session.open(one, agent_id="langgraph", session_id="t")
        assert (await session.verify()).ok


@async_test
async def test_concurrent_writes_and_writes_before_their_checkpoint_are_stored(new_state_store):
    async with new_state_store() as store:
        saver = HoldfastSaver(store)

        async def write(number, task):
            config = at(checkpoint_ns="", checkpoint_id=checkpoint(number, {})[0]["id"])
            await saver.aput_writes(config, [("plan", task), ("log", [task])], f"task {task}")

        for number in range(1, 4):
            calls = [write(number, task) for task in range(8)]
            calls.insert(2 * number, put(saver, number, plan=number))
            await asyncio.gather(*calls)
        for reader in (saver, HoldfastSaver(store)):
            for number, each in enumerate([each async for each in reader.alist(at())][::-1], 1):
                assert each.metadata["step"] == number
                assert each.pending_writes == [
                    (f"task {task}", channel, value)
                    for task in range(8)
                    for channel, value in (("plan", task), ("log", [task]))
                ]
                assert (await reader.aget_tuple(each.config)).pending_writes == each.pending_writes


@async_test
async def test_parallel_tasks_of_an_async_graph_are_all_stored(new_state_store):
    async def worker(piece):
        await asyncio.sleep(0)
        return {"done": [piece]}

    async with new_state_store() as store:
        graph = build_fan_out(HoldfastSaver(store), worker)
        await asyncio.gather(
            *(graph.ainvoke({"work": list(range(20))}, at(thread)) for thread in "abc")
        )
        for thread in "abc":
            kept = await build_fan_out(HoldfastSaver(store), worker).aget_state(at(thread))
            assert kept.values["done"] == list(range(20))
            session = await Session.open(store, agent_id="langgraph", session_id=thread)
            assert (await session.verify()).ok


def test_threads_of_one_process_share_a_saver(saver):
    graph = build_agent(saver)
    problems = []

    def work(name):
        try:
            for number in range(5):
                graph.invoke(user_message("monday", str(number)), at(name))
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "a")]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert problems == []
    assert len(graph.get_state(at("b")).values["messages"]) == 20


@pytest.mark.parametrize(("kind", "is_done"), WAYS)
def test_a_thread_continues_after_any_failed_write(kind, is_done):
    for number in range(1, 30):
        content = MemoryStateStore()
        store = FaultyStateStore(content)
        store.plan(Fault(number, kind, is_done))
        happened = run_async(interrupted(store))
        run_async(check_continues(content))
        if not happened:
            return
    raise AssertionError("the run took more writes than expected")


async def interrupted(store):
    graph = build_steps(HoldfastSaver(store))
    try:
        await graph.ainvoke({"log": ["in"]}, at(), durability="sync")
        await graph.ainvoke(Command(resume="yes"), at(), durability="sync")
    except RAISED:
        pass
    return store.happened is not None


async def check_continues(content):
    graph = build_steps(HoldfastSaver(content))
    state = await graph.aget_state(at())
    if not state.values.get("log"):
        state = None
        await graph.ainvoke({"log": ["in"]}, at(), durability="sync")
    else:
        await graph.ainvoke(None, at(), durability="sync")
    if (await graph.aget_state(at())).interrupts:
        await graph.ainvoke(Command(resume="yes"), at(), durability="sync")
    assert (await graph.aget_state(at())).values["log"] == ["in", "one", "answer yes", "two"]
    session = await Session.open(content, agent_id="langgraph", session_id="t")
    found = await session.verify()
    assert found.ok, found.damage


@async_test
async def test_a_failed_put_is_not_written_by_the_next_one():
    store = FaultyStateStore(MemoryStateStore())
    saver = HoldfastSaver(store)
    await put(saver, 1, plan="first")
    store.plan(Fault(1, "error"))
    with pytest.raises(StateStoreError):
        await put(saver, 2, plan="failed")
    store.plan(None)
    await put(saver, 3, plan="third")
    steps = [each.metadata["step"] async for each in saver.alist(at())]
    assert steps == [3, 1]


CRASHES = """
import os, sys
from adapters.langgraph.graphs import at, build_fan_out
from holdfast.adapters.langgraph import HoldfastSaver

def worker(piece):
    with open("ran", "a") as file:
        file.write(piece)
    if piece == "c":
        import time
        time.sleep(0.7)  # the other tasks are stored in this time
        os._exit(137)
    return {"done": [piece]}

saver = HoldfastSaver.from_url("sqlite:///state.db")
build_fan_out(saver, worker).invoke({"work": ["a", "b", "c"]}, at(), durability=sys.argv[1])
"""


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_new_process_runs_only_the_unfinished_tasks_of_a_killed_one(
    tmp_path, monkeypatch, durability
):
    monkeypatch.chdir(tmp_path)
    path = [each for each in sys.path if each.endswith("tests")]
    died = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path += {path}\n{CRASHES}", durability],
        check=False,
    )
    assert died.returncode == 137
    with HoldfastSaver.from_url("sqlite:///state.db") as saver:
        again = []

        def worker(piece):
            again.append(piece)
            return {"done": [piece]}

        assert build_fan_out(saver, worker).invoke(None, at())["done"] == ["a", "b", "c"]
    assert again == ["c"]
    assert sorted((tmp_path / "ran").read_text()) == ["a", "b", "c"]


def test_a_read_only_store_can_be_read_but_not_written(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    with HoldfastSaver.from_url(url) as saver:
        build_steps(saver).invoke({"log": ["in"]}, at())
    with HoldfastSaver(open_state_store(f"{url}?read_only=true")) as saver:
        graph = build_steps(saver)
        assert graph.get_state(at()).next == ("asking",)
        assert len(list(graph.get_state_history(at()))) == 3
        with pytest.raises(StateStoreError, match="open the store without read_only"):
            graph.invoke(Command(resume="yes"), at())
        with pytest.raises(StateStoreError, match="open the store without read_only"):
            graph.update_state(at(), {"log": ["x"]}, as_node="one")


def test_a_thread_deleted_by_another_process_is_gone_at_once():
    with HoldfastSaver(open_state_store("memory:")) as saver:
        graph = build_steps(saver)
        for _ in range(200):
            graph.update_state(at("thread"), {"log": ["x" * 2000]}, as_node="one")
            writer = run_inline(open_committer(saver))
            if not writer.tail.segments:
                break
        other = HoldfastSaver(saver.state_store)
        other.delete_thread("thread")
        assert saver.get_tuple(at("thread")) is None


async def open_committer(saver):
    """The committer of the saver, opened again."""
    thread = saver.thread("thread")
    thread.reset()
    return await thread.head()
