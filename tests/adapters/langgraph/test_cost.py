"""What a turn of a short thread costs: calls of the store, and function calls."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from adapters.langgraph.graphs import at, build_agent, build_steps, user_message
from holdfast.adapters.langgraph import HoldfastSaver, thread
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async

MAX_FUNCTION_CALLS = 1080
"""Per turn of an agent with five puts and four calls of put_writes, a little above what it
takes: calls of functions in the packages below, all of them interpreted."""
PACKAGES = (
    "/holdfast/adapters/",
    "/holdfast/sessions/",
    "/holdfast/snapshots/",
    "/holdfast/stores/",
)


class CountingStore(MemoryStateStore):
    """A store in memory that counts its calls."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    async def get_many(self, keys):
        self.calls["get_many"] += 1
        return await super().get_many(keys)

    async def get(self, key):
        self.calls["get"] += 1
        return await super().get(key)

    async def put_many(self, puts, *, conditions=()):
        self.calls["put_many"] += 1
        return await super().put_many(puts, conditions=conditions)

    def list(self, prefix="", *, start_after="", limit=None):
        self.calls["list"] += 1
        return super().list(prefix, start_after=start_after, limit=limit)


@pytest.fixture
def patient(monkeypatch):
    """Writes of tasks wait long enough for the next checkpoint, however slow the machine is."""
    monkeypatch.setattr(thread, "LINGER_SECONDS", 5.0)


def put_count(checkpointer):
    """How many checkpoints the first two turns of the agent put."""
    graph = build_agent(checkpointer)
    for number in range(2):
        graph.invoke(user_message("monday", str(number)), at())
    return len(list(checkpointer.list(at())))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_turn_reads_once_and_commits_once_per_checkpoint(patient, is_async):
    puts = put_count(InMemorySaver()) // 2
    store = CountingStore()
    graph = build_agent(HoldfastSaver(store))

    async def invoke_async(number):
        await graph.ainvoke(user_message("monday", str(number)), at())

    async def run_all():
        for number in range(3):
            store.calls.clear()
            await invoke_async(number)
            # A new thread costs one read too: that of its manifest.
            assert store.calls == {"get_many": 1, "put_many": puts}

    if is_async:
        run_async(run_all())
        return
    for number in range(3):
        store.calls.clear()
        graph.invoke(user_message("monday", str(number)), at())
        # Each call has its own thread here: writes that arrive after the checkpoint that would
        # have carried them get a commit of their own.
        assert store.calls.keys() == {"get_many", "put_many"}
        assert store.calls["get_many"] == 1
        assert puts <= store.calls["put_many"] <= puts + 2


def test_the_current_and_recent_checkpoints_are_read_with_one_call():
    store = CountingStore()
    saver = HoldfastSaver(store)
    graph = build_agent(saver)
    for number in range(4):
        graph.invoke(user_message("monday", str(number)), at())
    configs = [each.config for each in saver.list(at(checkpoint_ns=""))]
    for config in (at(checkpoint_ns=""), configs[0], configs[9]):
        store.calls.clear()
        assert saver.get_tuple(config) is not None
        assert store.calls == {"get_many": 1}


def test_an_old_checkpoint_is_read_without_the_rest_of_the_log():
    store = CountingStore()
    graph = build_steps(HoldfastSaver(store))
    for number in range(120):
        graph.update_state(at(), {"log": [number]}, as_node="one")
    configs = [each.config for each in HoldfastSaver(store).list(at(checkpoint_ns=""))]
    fresh = HoldfastSaver(store)
    fresh.get_tuple(at())
    read = []

    async def get_many(keys):
        read.extend(keys := list(keys))
        return await CountingStore.get_many(store, keys)

    store.get_many = get_many
    found = fresh.get_tuple(configs[-3])
    assert found.checkpoint["channel_values"]["log"] == [0, 1, 2]
    assert len(read) < 30
    read.clear()
    again = fresh.get_tuple(configs[-3])
    assert again.checkpoint == found.checkpoint
    assert len(read) == 2  # the manifest, and whether there is a new segment
    read.clear()
    (newest,) = fresh.list(at(checkpoint_ns=""), limit=1)
    assert newest.config == configs[0]
    assert len(read) < 10


def test_a_turn_takes_a_bounded_number_of_function_calls(patient):
    saver = HoldfastSaver(MemoryStateStore())
    calls = Counter()
    for name in ("put", "put_writes", "get_tuple"):
        setattr(saver, name, counted(getattr(saver, name), calls))
    graph = build_agent(saver)
    graph.invoke(user_message("monday", "first"), at())
    calls.clear()
    for number in range(5):
        graph.invoke(user_message("monday", str(number)), at())
    assert 100 < calls["all"] / 5 < MAX_FUNCTION_CALLS


def counted(method, calls):
    """A method that counts the function calls it makes on its thread."""

    def call(*arguments):
        def profile(frame, event, argument):
            if event == "call" and any(each in frame.f_code.co_filename for each in PACKAGES):
                calls["all"] += 1

        sys.setprofile(profile)
        try:
            return method(*arguments)
        finally:
            sys.setprofile(None)

    return call
