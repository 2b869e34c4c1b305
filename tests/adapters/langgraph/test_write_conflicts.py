"""Concurrent writers of one thread: each makes progress, and none loses a checkpoint."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from adapters.langgraph.graphs import at
from holdfast import ConflictError, RetentionPolicy, Session, SnapshotArchive
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.sessions import backoff
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.backends import SharedMemory, make_opener


async def put(saver, name, number, **values):
    """Put the next checkpoint of one of several writers."""
    values = {"who": name, **values}
    versions = dict.fromkeys(values, f"{number:08}.{name}")
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    metadata = {"source": "loop", "step": number, "writer": name}
    return await saver.aput(at(checkpoint_ns=""), checkpoint, metadata, versions)


async def steps_by_writer(saver):
    """The steps of the thread's checkpoints by writer, in order."""
    found = {}
    async for each in saver.alist(at()):
        found.setdefault(each.metadata["writer"], []).append(each.metadata["step"])
    return {name: sorted(steps) for name, steps in found.items()}


# NATS is slowest at listing and losing attempts; SQLite has the fastest commits.
@pytest.mark.parametrize("backend", ["sqlite", "nats"])
def test_eight_concurrent_writers_all_make_progress(backend, request):
    run_async(check_eight(make_opener(backend, request)))


async def check_eight(new_state_store):
    stores = [new_state_store() for _ in range(8)]
    savers = {name: HoldfastSaver(store) for name, store in zip("abcdefgh", stores, strict=True)}
    counts = dict.fromkeys(savers, 0)

    async def write(name):
        while min(counts.values()) < 3:
            await put(savers[name], name, counts[name])
            counts[name] += 1

    await asyncio.gather(*map(write, savers))
    assert await steps_by_writer(savers["a"]) == {
        name: list(range(count)) for name, count in counts.items()
    }
    session = await Session.open(stores[0], agent_id="langgraph", session_id="t")
    assert (await session.verify()).ok
    for store in stores:
        await store.close()


PROCESS = """
import json, sys
sys.path += {path}
from adapters.langgraph.test_write_conflicts import put
from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import run_async

async def work(url, name):
    failed = []
    async with HoldfastSaver.from_url(url) as saver:
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(60):
            try:
                await put(saver, name, number)
            except Exception as error:
                failed.append(repr(error))
    print(json.dumps(failed))

run_async(work(*sys.argv[1:]))
"""


def test_concurrent_processes_lose_no_checkpoints(tmp_path):
    path = [each for each in sys.path if each.endswith("tests")]
    url = f"sqlite:///{tmp_path}/state.db"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS.format(path=path), url, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    for each in running:
        assert each.stdout.readline() == "ready\n"
    for each in running:
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in running:
        assert json.loads(each.communicate(timeout=120)[0]) == []
    run_async(check_processes(url))


async def check_processes(url):
    async with HoldfastSaver.from_url(url) as saver:
        assert await steps_by_writer(saver) == {name: list(range(60)) for name in "abc"}


class ReadRecorder(SharedMemory):
    """A store in memory that records which keys were read."""

    def __init__(self, content):
        super().__init__(content)
        self.keys = []

    async def get_many(self, keys):
        keys = list(keys)
        self.keys += keys
        return await super().get_many(keys)


@async_test
async def test_only_new_segments_are_read_after_a_commit_of_another_writer():
    content = MemoryStateStore()
    store = ReadRecorder(content)
    one, other = HoldfastSaver(store), HoldfastSaver(SharedMemory(content))
    for number in range(40):
        await put(one, "one", number, messages=list(range(number)))
    await put(other, "other", 1)
    actions = [lambda: put(one, "one", 40, messages=list(range(40))), lambda: one.aget_tuple(at())]
    for action in actions:
        store.keys.clear()
        await action()
        read = {key for key in store.keys if "/log/" in key or "/keyframes/" in key}
        assert len(read) <= 3
    await put(other, "other", 2, messages=["theirs", 1, 2, 3])
    store.keys.clear()
    found = await one.aget_tuple(at())
    assert found.checkpoint["channel_values"]["messages"] == ["theirs", 1, 2, 3]
    assert len({key for key in store.keys if "/log/" in key}) <= 3


@async_test
async def test_items_changed_by_another_writer_are_written_again():
    content = MemoryStateStore()
    one, other = HoldfastSaver(content), HoldfastSaver(SharedMemory(content))
    items = [{"number": number} for number in range(20)]
    await put(one, "one", 1, messages=items, others=items)
    await put(other, "other", 1, messages=[*items[:5], "theirs"], others=[*items[:18], "x", "y"])
    await put(one, "one", 2, messages=items, others=items)
    for saver in (one, other, HoldfastSaver(content)):
        found = (await saver.aget_tuple(at())).checkpoint["channel_values"]
        assert found["messages"] == found["others"] == items


@async_test
async def test_more_commits_of_another_writer_than_fit_in_memory_are_applied():
    content = MemoryStateStore()
    one, other = HoldfastSaver(content), HoldfastSaver(SharedMemory(content))
    items = [{"number": number} for number in range(20)]
    await put(one, "one", 1, messages=items)
    await put(other, "other", 0, messages=["theirs", *items[1:]])
    for number in range(1, 1100):
        await put(other, "other", number, messages=["theirs", *items[1:]])
    await put(one, "one", 2, messages=items)
    for saver in (one, other):
        assert (await saver.aget_tuple(at())).checkpoint["channel_values"]["messages"] == items


@async_test
async def test_a_thread_created_and_deleted_concurrently_is_created_again():
    content = MemoryStateStore()
    store = LosingStore(content)
    saver, rival = HoldfastSaver(store), HoldfastSaver(SharedMemory(content))
    assert await saver.aget_tuple(at()) is None
    store.rival, store.then_deleted = rival, True
    await put(saver, "late", 1, plan="x")
    for each in (saver, rival, HoldfastSaver(content)):
        assert await steps_by_writer(each) == {"late": [1]}
        found = await each.aget_tuple(at())
        assert found.checkpoint["channel_values"] == {"who": "late", "plan": "x"}
    session = await Session.open(content, agent_id="langgraph", session_id="t")
    assert (await session.verify()).ok
    assert [event.type async for event in session.events][:2] == [
        "session.started",
        "langgraph.checkpoint",
    ]


class LosingStore(SharedMemory):
    """A store on which a rival always commits first."""

    rival = None
    lost = 0
    then_deleted = False

    async def put_many(self, items, *, conditions=()):
        if self.rival is None:
            return await super().put_many(items, conditions=conditions)
        self.lost += 1
        await put(self.rival, "rival", self.lost)
        try:
            return await super().put_many(items, conditions=conditions)
        finally:
            if self.then_deleted:
                rival, self.rival = self.rival, None
                await rival.adelete_thread("t")


@async_test
async def test_a_writer_gives_up_after_a_time_limit(monkeypatch):
    monkeypatch.setattr(backoff, "GIVE_UP_AFTER", 0.7)
    content = MemoryStateStore()
    store = LosingStore(content)
    saver = HoldfastSaver(store)
    await put(saver, "late", 1)
    store.rival = HoldfastSaver(SharedMemory(content))
    start = time.monotonic()
    with pytest.raises(ConflictError, match="thread 't' could not be written: other writers"):
        await put(saver, "late", 2)
    assert 0.7 <= time.monotonic() - start < 5
    assert store.lost > 16
    store.rival = None
    await put(saver, "late", 3)
    assert (await steps_by_writer(saver))["late"] == [1, 3]


@async_test
async def test_a_thread_pruned_by_another_writer_is_still_listed():
    content = MemoryStateStore()
    saver = HoldfastSaver(content)
    for number in range(6):
        await put(saver, "one", number)
    archive = SnapshotArchive(SharedMemory(content))
    await archive.prune(location=saver.location("t"), policy=RetentionPolicy(last=2))
    assert await steps_by_writer(saver) == {"one": [4, 5]}
    await put(saver, "one", 6)
    assert await steps_by_writer(saver) == {"one": [4, 5, 6]}
