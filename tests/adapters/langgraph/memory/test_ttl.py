"""Items with a TTL: they expire, reads keep them, and sweeps delete them."""

from __future__ import annotations

import datetime as dt
import threading

import pytest

from holdfast import StateStoreError, open_state_store
from holdfast.adapters.langgraph import HoldfastStore
from holdfast.adapters.langgraph.memory import batch, changes
from holdfast.adapters.langgraph.memory.sweeper import Sweeper
from support.http_server import wait_until

USER = ("users", "7")


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves."""

    class Clock:
        now = dt.datetime(2026, 11, 16, 12, 0, tzinfo=dt.UTC)

        def tick(self, minutes):
            self.now += dt.timedelta(minutes=minutes)

    found = Clock()
    for module in (batch, changes):
        monkeypatch.setattr(module, "read_clock", lambda: found.now)
    return found


@pytest.fixture
def kept():
    """A store whose items live for ten minutes after the last access."""
    with HoldfastStore(open_state_store("memory:"), ttl={"default_ttl": 10}) as found:
        yield found


def count_events(memory, namespace=USER):
    return memory.state_store, memory.location(namespace)


def test_an_expired_item_is_never_returned(kept, clock):
    kept.put(USER, "short", {"n": 1})
    kept.put(USER, "long", {"n": 2}, ttl=20)
    kept.put(("other",), "ever", {"n": 3}, ttl=None)
    clock.tick(9.9)
    assert [each.key for each in kept.search((), refresh_ttl=False)] == ["ever", "short", "long"]
    clock.tick(0.2)
    assert kept.get(USER, "short") is None
    assert [each.key for each in kept.search((), refresh_ttl=False)] == ["ever", "long"]
    assert kept.list_namespaces() == [("other",), USER]
    clock.tick(11)
    assert kept.list_namespaces() == [("other",)]


def test_reads_keep_an_item(kept, clock):
    kept.put(USER, "a", {"n": 1})
    for _ in range(5):
        clock.tick(9)
        assert kept.get(USER, "a").value == {"n": 1}
        clock.tick(9)
        assert [each.key for each in kept.search(USER)] == ["a"]
    clock.tick(10.6)
    assert kept.get(USER, "a") is None


def test_reads_do_not_keep_an_item_if_configured(clock):
    config = {"default_ttl": 10, "refresh_on_read": False}
    with HoldfastStore(open_state_store("memory:"), ttl=config) as memory:
        memory.put(USER, "a", {"n": 1})
        clock.tick(9)
        assert memory.get(USER, "a") is not None
        clock.tick(2)
        assert memory.get(USER, "a") is None
        memory.put(USER, "a", {"n": 1})
        clock.tick(9)
        assert memory.get(USER, "a", refresh_ttl=True) is not None
        clock.tick(9)
        assert memory.get(USER, "a") is not None


def test_not_every_read_writes(kept, clock):
    kept.put(USER, "a", {"n": 1})

    def count():
        return len([key for key in kept.state_store._keys if "/log/" in key])

    before = count()
    for _ in range(20):
        clock.tick(0.1)
        assert kept.get(USER, "a") is not None
    assert count() - before == 4


def test_an_item_put_after_its_expiry_is_new(kept, clock):
    kept.put(USER, "a", {"n": 1})
    kept.put(USER, "b", {"n": 1})
    clock.tick(11)
    kept.put(USER, "b", {"n": 2})
    kept.put(USER, "a", {"n": 3}, ttl=None)
    assert [each.key for each in kept.search(USER)] == ["b", "a"]
    assert kept.get(USER, "a").created_at == clock.now
    clock.tick(100)
    assert [each.key for each in kept.search(USER)] == ["a"]


def test_a_sweep_deletes_expired_items_and_keeps_their_history(kept, clock):
    kept.put(USER, "a", {"n": 1})
    kept.put(USER, "b", {"n": 2}, ttl=30)
    kept.put(("x",), "a", {"n": 3}, ttl=None)
    assert kept.sweep_ttl() == 0
    clock.tick(11)
    assert kept.sweep_ttl() == 1
    assert kept.sweep_ttl() == 0
    versions = kept.history(USER, "a")
    assert [(each.type, each.value) for each in versions] == [
        ("memory.put", {"n": 1}),
        ("memory.expired", None),
    ]
    kept.restore(USER, "a", versions[0].seq)
    clock.tick(9)
    assert kept.get(USER, "a").value == {"n": 1}


def test_the_sweeper_runs_until_it_is_stopped(monkeypatch):
    config = {"default_ttl": 1e-6, "sweep_interval_minutes": 1e-4}
    with HoldfastStore(open_state_store("memory:"), ttl=config) as memory:
        memory.put(USER, "a", {"n": 1})
        future = memory.start_ttl_sweeper()
        assert memory.start_ttl_sweeper() is future
        wait_until(lambda: memory.history(USER, "a")[-1].value is None)
        assert memory.stop_ttl_sweeper(5)
        assert future.result(timeout=5) is None
        again = memory.start_ttl_sweeper()
        again.cancel()
        assert memory.stop_ttl_sweeper(5)
    assert not [each for each in threading.enumerate() if "ttl-sweeper" in each.name]


def test_without_a_configuration_no_sweeper_is_started(memory):
    assert memory.start_ttl_sweeper().done()
    memory.put(USER, "a", {"n": 1}, ttl=5)
    assert memory.get(USER, "a") is not None


def test_an_item_that_had_expired_is_not_part_of_the_past(memory):
    memory.put(USER, "old", {"n": 1}, ttl=-1)
    memory.put(USER, "a", {"n": 2}, ttl=60)
    at = dt.datetime.now(dt.UTC)
    memory.put(USER, "a", {"n": 3})
    assert memory.get_at(USER, "old", at) is None
    memory.restore_namespace(USER, at)
    assert [(each.key, each.value) for each in memory.search(USER)] == [("a", {"n": 2})]


def test_items_with_a_ttl_are_read_from_a_read_only_store(tmp_path):
    url = f"sqlite:///{tmp_path}/memory.db"
    with HoldfastStore.from_url(url) as memory:
        memory.put(USER, "a", {"n": 1}, ttl=60)
    with HoldfastStore.from_url(f"{url}?read_only=1") as memory:
        assert memory.get(USER, "a").value == {"n": 1}
        assert [each.key for each in memory.search(())] == ["a"]


def test_a_sweep_that_is_stopped_by_a_close_logs_no_error(caplog):
    began, closed = threading.Event(), threading.Event()

    def sweep():
        began.set()
        assert closed.wait(5)
        raise StateStoreError("closed")

    sweeper = Sweeper(sweep)
    sweeper.start(1e-6)
    assert began.wait(5)
    sweeper.stop(timeout=0)
    closed.set()
    assert sweeper.stop(timeout=5)
    assert not caplog.records
