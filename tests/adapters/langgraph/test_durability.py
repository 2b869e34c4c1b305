"""With durability="async", `put` may return before its commit, which nothing can overtake."""

from __future__ import annotations

import subprocess
import sys

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from adapters.langgraph.graphs import at, build_agent, user_message
from adapters.langgraph.test_cost import CountingStore
from holdfast import StateStoreError
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.faults import Fault, FaultyStateStore


def put(saver, number, durability=None):
    """Put a checkpoint and a write of a task after it."""
    chosen = {} if durability is None else {"__pregel_durability": durability}
    versions = {"x": f"{number:08}.0"}
    checkpoint = {
        **empty_checkpoint(),
        "id": f"1f1e0000-0000-6000-8000-{number:012}",
        "channel_values": {"x": number},
        "channel_versions": versions,
    }
    metadata = {"source": "loop", "step": number}
    config = saver.put(at(checkpoint_ns="", **chosen), checkpoint, metadata, versions)
    config["configurable"].update(chosen)
    saver.put_writes(config, [("x", number)], "task")


def steps(saver):
    return [each.metadata["step"] for each in saver.list(at(checkpoint_ns=""))]


@pytest.fixture
def never_flushed(monkeypatch):
    """Nothing is committed in the background."""
    monkeypatch.setattr(HoldfastSaver, "_flush_later", lambda saver, thread: True)


@pytest.mark.parametrize("durability", [None, "sync", "exit", "unheard of"])
def test_other_puts_return_durable(never_flushed, durability):
    saver = HoldfastSaver(CountingStore())
    put(saver, 1, durability)
    assert saver.state_store.calls["put_many"] == 2
    assert steps(HoldfastSaver(saver.state_store)) == [1]


def test_deferred_puts_share_a_commit_before_the_next_read(never_flushed):
    saver = HoldfastSaver(CountingStore())
    for number in range(1, 5):
        put(saver, number, "async")
    assert saver.state_store.calls == {}
    found = saver.get_tuple(at(checkpoint_ns=""))
    assert found.checkpoint["channel_values"] == {"x": 4}
    assert found.pending_writes == [("task", "x", 4)]
    assert saver.state_store.calls["put_many"] == 1
    for reader in (saver, HoldfastSaver(saver.state_store)):
        assert [each.pending_writes[0][2] for each in reader.list(at())] == [4, 3, 2, 1]


def test_an_async_reader_of_the_saver_sees_what_is_deferred(never_flushed):
    saver = HoldfastSaver(MemoryStateStore())
    put(saver, 1, "async")
    found = run_async(saver.aget_tuple(at(checkpoint_ns="")))
    assert found.metadata["step"] == 1


def test_another_saver_on_the_store_sees_what_is_deferred(tmp_path):
    with HoldfastSaver.from_url(f"sqlite:///{tmp_path}/state.db") as saver:
        for number in range(1, 30):
            put(saver, number, "async")
            assert steps(HoldfastSaver(saver.state_store))[0] == number


def test_a_durable_put_takes_the_deferred_ones_along(never_flushed):
    saver = HoldfastSaver(MemoryStateStore())
    put(saver, 1, "async")
    put(saver, 2, "sync")
    assert steps(HoldfastSaver(saver.state_store)) == [2, 1]


def test_a_full_queue_makes_the_caller_wait(never_flushed):
    saver = HoldfastSaver(MemoryStateStore())
    for number in range(1, 41):
        put(saver, number, "async")
    assert len(steps(HoldfastSaver(saver.state_store))) >= 32
    saver.close()


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_everything_is_durable_when_the_saver_is_closed(tmp_path, durability):
    url = f"sqlite:///{tmp_path}/state.db"
    with HoldfastSaver.from_url(url) as saver:
        graph = build_agent(saver)
        for number in range(5):
            graph.invoke(user_message("monday", str(number)), at(), durability=durability)
            assert len(graph.get_state(at()).values["messages"]) == 4 * (number + 1)
        graph.invoke(user_message("monday", "last"), at(), durability=durability)
    with HoldfastSaver.from_url(url) as saver:
        assert len(build_agent(saver).get_state(at()).values["messages"]) == 24


NOT_CLOSED = """
import sys
sys.path += {path}
from adapters.langgraph.test_durability import put
from holdfast.adapters.langgraph import HoldfastSaver
saver = HoldfastSaver.from_url("sqlite:///state.db")
for number in range(1, 30):
    put(saver, number, "async")
"""


def test_everything_is_durable_at_the_end_of_the_process(tmp_path):
    path = [each for each in sys.path if each.endswith("tests")]
    subprocess.run([sys.executable, "-c", NOT_CLOSED.format(path=path)], cwd=tmp_path, check=True)
    with HoldfastSaver.from_url(f"sqlite:///{tmp_path}/state.db") as saver:
        assert steps(saver) == list(range(29, 0, -1))


def test_the_error_of_a_deferred_put_is_raised_by_the_next_call(never_flushed):
    store = FaultyStateStore(MemoryStateStore())
    saver = HoldfastSaver(store)
    put(saver, 1)
    store.plan(Fault(1, "error"))
    put(saver, 2, "async")
    with pytest.raises(StateStoreError):
        saver.get_tuple(at())
    store.plan(None)
    put(saver, 3, "async")
    assert steps(saver) == [3, 1]


def test_the_error_of_a_deferred_put_is_raised_by_close(never_flushed):
    store = FaultyStateStore(MemoryStateStore())
    saver = HoldfastSaver(store)
    put(saver, 1)
    store.plan(Fault(1, "error"))
    put(saver, 2, "async")
    with pytest.raises(StateStoreError):
        saver.close()
