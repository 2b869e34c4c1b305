"""PostgreSQL without an event loop: calls that block their thread and never suspend."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import closing, suppress

import psycopg
import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.local import RUN_INLINE
from holdfast.stores.registry import open_state_store
from stores.remote_faults import through


def run(work):
    """Run a coroutine to its end on this thread; it must not suspend."""
    token = RUN_INLINE.set(True)
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    finally:
        RUN_INLINE.reset(token)
    raise AssertionError("it suspended")


class Inline:
    """A store whose methods block."""

    def __init__(self, url):
        self.store = open_state_store(url)

    def __getattr__(self, name):
        return lambda *args, **options: run(getattr(self.store, name)(*args, **options))

    def keys(self):
        async def collect():
            return [key async for key in self.store.list()]

        return run(collect())

    def close(self):
        asyncio.run(self.store.close())


@pytest.fixture
def store(postgres, table):
    with closing(Inline(postgres.url(table=table, application_name=table))) as store:
        yield store


def test_all_calls_work_and_conflicts_are_reported(store):
    etag = store.put("a", b"1")
    held = Condition("a", etag)
    store.put_many([Put("b", b"1" * 500_000), Put("c", b"1", if_absent=True)], conditions=[held])
    assert store.get("a") == Entry(b"1", etag)
    assert store.get_many(["a", "b"]).keys() == {"a", "b"}
    assert store.keys() == ["a", "b", "c"]
    assert store.delete("c")
    with pytest.raises(ConflictError) as caught:
        store.put_many([Put("d", b"1"), Put("b", b"1", if_match="0")])
    assert caught.value.key == "b"
    with pytest.raises(ConflictError):
        store.delete("a", if_match="0")
    large = b"x" * 30_000_000  # more than the socket takes at once
    assert store.get("large") is None
    store.put("large", large)
    assert store.get("large").value == large


def test_calls_with_and_without_an_event_loop_share_a_store(store):
    etag = store.put("a", b"1")
    assert asyncio.run(store.store.get("a")) == Entry(b"1", etag)
    assert store.get("a") == Entry(b"1", etag)


def test_threads_use_connections_of_their_own(store):
    store.put("a", b"0")

    def increment():
        for _ in range(10):
            while True:
                entry = store.get("a")
                with suppress(ConflictError):
                    store.put("a", b"%d" % (int(entry.value) + 1), if_match=entry.etag)
                    break

    threads = [threading.Thread(target=increment) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("a").value == b"60"


def test_a_lost_connection_is_replaced_and_a_lost_response_is_resolved(
    postgres, proxy, table, store
):
    with closing(Inline(through(proxy, postgres.url(table=table), postgres))) as proxied:
        etag = proxied.put("a", b"1")
        proxy.lose_next_response(after=b"_write\x00\x00")
        etag = proxied.put("a", b"2", if_match=etag)
        assert proxied.get("a") == Entry(b"2", etag)
        proxy.cut()
        time.sleep(0.05)
        assert proxied.get("a") == Entry(b"2", etag)
        assert proxy.lost == 1


def test_a_blocked_call_times_out_and_is_cancelled_on_the_server(postgres, table):
    url = postgres.url(table=table, timeout=0.3, patience=0, pool=1)
    with closing(Inline(url)) as store:
        etag = store.put("a", b"1")
        with psycopg.connect(postgres.url()) as other:
            other.execute(f"LOCK TABLE {table}")
            with pytest.raises(StateStoreError, match="did not respond") as caught:
                store.put("a", b"2")
            assert caught.value.unknown
        assert store.get("a") == Entry(b"1", etag)


def test_an_interrupted_call_leaves_nothing_behind(postgres, table, store, monkeypatch):
    etag = store.put("a", b"1")
    (client,) = store.store._inline_clients.values()
    (connection,) = client.pool._idle
    with psycopg.connect(postgres.url()) as other:
        other.execute(f"LOCK TABLE {table}")
        with monkeypatch.context() as patch:
            wait_for = connection._wait_for
            calls = iter([KeyboardInterrupt()])

            def interrupt(answer, seconds):
                if (error := next(calls, None)) is not None:
                    raise error
                wait_for(answer, seconds)

            patch.setattr(connection, "_wait_for", interrupt)
            with pytest.raises(KeyboardInterrupt):
                store.put("a", b"2")
    assert store.get("a") == Entry(b"1", etag)


def test_a_forked_child_has_connections_of_its_own(store):
    store.put("a", b"1")
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            store.put("b", store.get("a").value)
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert store.get("b").value == b"1"


def test_a_closed_store_has_no_connections(postgres, table):
    store = Inline(postgres.url(table=table, application_name=table))
    store.put("a", b"1")
    store.close()
    with pytest.raises(StateStoreError, match="closed"):
        store.get("a")
    sessions = f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{table}'"
    for _ in range(100):
        if not postgres.execute(sessions):
            return
        time.sleep(0.05)
    raise AssertionError("a session is left")


def test_an_unusable_server_fails_at_once(postgres, table):
    with closing(Inline(postgres.url(table=table).replace("s3cret", "wrong"))) as store:
        for _ in range(2):
            with pytest.raises(StateStoreError, match="password") as caught:
                store.put("a", b"1")
            assert not caught.value.unknown
