"""Calls that are queued at the same time share a transaction, and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import Counter
from contextlib import contextmanager, suppress

import pytest

from holdfast import Condition, ConflictError, Put, StateStoreError
from holdfast.stores.local import RUN_INLINE
from holdfast.stores.sqlite import SqliteStateStore, group_commit
from holdfast.stores.sqlite.write_calls import write_alone
from holdfast.testing.checks import collect_keys
from stores.sqlite.one_entry import connections, during_transaction
from support.async_tests import run_async


@pytest.fixture
def grouped(path):
    """Run calls of one store as one group; return their outcomes and the number of commits."""

    async def run(store, calls, prepare=lambda _: None):
        await store.put("first", b"1")  # connects
        database = store._connections.writing()
        prepare(database)
        statements = Counter()
        database.set_trace_callback(lambda text: statements.update([text]))
        with store._group_commit._lock:
            tasks = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(0)  # all are queued
            assert len(store._group_commit._queue) == len(tasks)
            for task, call in zip(tasks, calls, strict=True):
                if call.__name__ == "cancelled":
                    task.cancel()
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        # The callback stays: removing it waits, with the interpreter's lock, for the thread that
        # may be in the middle of a statement and needs that lock to call it.
        return outcomes, statements["COMMIT"]

    def use(make_calls, **options):
        async def work():
            async with SqliteStateStore(path) as store:
                calls = await make_calls(store)
                outcomes, commits = await run(store, calls, **options)
                keys = await collect_keys(store.list())
                entries = await store.get_many(keys)
                return outcomes, commits, {key: entry.value for key, entry in entries.items()}

        return run_async(work())

    return use


def test_queued_calls_share_one_transaction(grouped):
    async def make_calls(store):
        return [store.put(f"{number:03}", b"1") for number in range(100)]

    outcomes, commits, stored = grouped(make_calls)
    assert len(set(outcomes)) == 100
    assert len(stored) == 101
    assert commits == 1


@pytest.mark.parametrize(("limit", "size"), [("MAX_CALLS", 10), ("MAX_BYTES", 1000)])
def test_a_group_has_a_limited_number_of_calls_and_bytes(grouped, monkeypatch, limit, size):
    monkeypatch.setattr(group_commit, limit, size)

    async def make_calls(store):
        return [store.put(f"{number:03}", b"x" * 100) for number in range(30)]

    outcomes, commits, _ = grouped(make_calls)
    assert all(isinstance(outcome, str) for outcome in outcomes)
    assert commits == 3


def test_a_call_that_fails_leaves_the_others_of_its_group_alone(grouped):
    async def make_calls(store):
        old = await store.put("old", b"1")
        gone = await store.put("gone", b"1")

        async def cancelled():
            await store.put("cancelled", b"1")

        return [
            store.put("a", b"1"),
            store.put_many([Put("half", b"1"), Put("old", b"2", if_match="other")]),
            store.put("old", b"2", if_match=old),
            store.put("old", b"3", if_match=old),  # the call before it changed the etag
            cancelled(),
            store.delete("gone", if_match=gone),
            store.put_many([Put("b", b"1")], conditions=[Condition("gone", gone)]),
            store.put("large", b"x" * 5000),
            store.put("gone", b"2", if_absent=True),
            store.delete("gone"),
            store.delete("gone"),
            store.put("c", b"1", if_absent=True),
            store.put("c", b"2", if_absent=True),
        ]

    def limit_length(database):
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4000)

    outcomes, _, stored = grouped(make_calls, prepare=limit_length)
    assert [type(outcome) for outcome in outcomes] == [
        str,
        ConflictError,
        str,
        ConflictError,
        asyncio.CancelledError,
        bool,
        ConflictError,
        StateStoreError,
        str,
        bool,
        bool,
        str,
        ConflictError,
    ]
    assert outcomes[1].key == "old"
    assert outcomes[6].key == "gone"
    assert "1 GB" in str(outcomes[7])
    assert [outcomes[at] for at in (5, 9, 10)] == [True, True, False]
    assert stored == {"a": b"1", "c": b"1", "first": b"1", "old": b"2"}


def test_conflicts_need_no_second_transaction(grouped):
    async def make_calls(store):
        return [store.put("same", b"%d" % number, if_absent=True) for number in range(20)]

    outcomes, commits, stored = grouped(make_calls)
    assert [type(outcome) for outcome in outcomes] == [str] + [ConflictError] * 19
    assert stored["same"] == b"0"
    assert commits == 1


def test_later_calls_of_a_group_replace_what_earlier_ones_wrote(grouped):
    async def make_calls(store):
        return [
            store.put("a", b"1"),
            store.put("a", b"2" * 5000),
            store.put("b", b"1"),
            store.delete("b"),
            store.put("c", b"1"),
            store.delete("c"),
            store.put("c", b"2"),
        ]

    outcomes, _, stored = grouped(make_calls)
    assert [outcomes[at] for at in (3, 5)] == [True, True]
    assert stored == {"a": b"2" * 5000, "c": b"2", "first": b"1"}


def fail_with(code):
    """Return what fails within a transaction with a result code of SQLite."""

    def fail(_, calls):
        if any(put.key == "bad" for call in calls for put in call.puts):
            error = sqlite3.OperationalError("it failed")
            error.sqlite_errorcode = code
            raise error

    return fail


async def put_three(store):
    return [store.put(key, b"1") for key in ("a", "bad", "b")]


def test_a_full_disk_fails_only_the_calls_that_do_not_fit(grouped, monkeypatch):
    during_transaction(monkeypatch, fail_with(sqlite3.SQLITE_FULL))
    outcomes, commits, stored = grouped(put_three)
    assert [type(outcome) for outcome in outcomes] == [str, StateStoreError, str]
    assert not outcomes[1].unknown
    assert set(stored) == {"a", "b", "first"}
    assert commits == 2


def test_after_an_error_of_the_disk_the_outcome_of_all_is_unknown(grouped, monkeypatch):
    during_transaction(monkeypatch, fail_with(sqlite3.SQLITE_IOERR))
    outcomes, commits, stored = grouped(put_three)
    assert [outcome.unknown for outcome in outcomes] == [True] * 3
    assert len(set(map(id, outcomes))) == 3  # each raises its own
    assert set(stored) == {"first"}
    assert commits == 0


def test_a_lock_held_by_another_process_fails_the_queued_calls_once(path):
    async def use():
        async with SqliteStateStore(path, timeout=0.05) as store:
            await store.put("first", b"1")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            calls = [store.put(f"{number}", b"1") for number in range(50)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            other.close()
            assert all(outcome.transient for outcome in outcomes)
            await store.put("last", b"1")
            assert await collect_keys(store.list()) == ["first", "last"]

    run_async(use())


def test_cancelled_calls_alone_do_not_create_the_file(path):
    async def use():
        async with SqliteStateStore(path) as store:
            with store._group_commit._lock:
                task = asyncio.ensure_future(store.put("a", b"1"))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        assert not path.exists()

    run_async(use())


@pytest.mark.parametrize("count", [1, 3])
def test_calls_that_are_cancelled_while_another_process_writes_are_not_written(path, count):
    async def use():
        async with SqliteStateStore(path) as store:
            await store.put("first", b"1")
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            calls = [store.put(f"{number}", b"1") for number in range(count)]
            tasks = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(0.05)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            other.close()
            await store.put("last", b"1")
            assert await collect_keys(store.list()) == ["first", "last"]

    run_async(use())


def test_a_loop_that_stops_does_not_keep_the_calls_of_others_waiting(path):
    store = SqliteStateStore(path)
    stopped = asyncio.new_event_loop()
    task = stopped.create_task(store.put("a", b"1"))
    stopped.call_soon(stopped.stop)
    stopped.run_forever()
    assert len(store._group_commit._queue) == 1

    async def use():
        await store.put("b", b"1")
        assert await collect_keys(store.list()) == ["a", "b"]

    run_async(use())
    stopped.run_until_complete(task)
    stopped.run_until_complete(store.close())
    stopped.close()


def test_calls_that_are_queued_when_the_store_is_closed_are_written(path):
    async def use():
        store = SqliteStateStore(path)
        tasks = [asyncio.ensure_future(store.put(f"{number}", b"1")) for number in range(3)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*tasks)
        async with SqliteStateStore(path) as again:
            assert await collect_keys(again.list()) == ["0", "1", "2"]

    run_async(use())


def test_a_call_that_is_queued_while_the_store_is_being_closed_fails(path):
    async def use():
        store = SqliteStateStore(path)
        await store.put("a", b"1")
        store._group_commit._thread.shutdown()
        store._closed = True
        for _ in range(2):
            with pytest.raises(StateStoreError, match="closed"):
                await store._put(Put("b", b"1"))
        await store.close()

    run_async(use())


def run_without_loop(work):
    """Run a coroutine that never waits, in this thread."""
    RUN_INLINE.set(True)
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    finally:
        RUN_INLINE.set(False)
    raise AssertionError("it waited for an event loop")


def add_one(store, key):
    """Increment a counter, again if another writer was faster."""
    while True:
        entry = run_without_loop(store.get(key))
        with suppress(ConflictError):
            value = b"%d" % (int(entry.value) + 1)
            return run_without_loop(store.put(key, value, if_match=entry.etag))


@contextmanager
def in_threads(works):
    """Run works in threads; return their errors at the end."""
    errors = []

    def run(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - for the test to look at
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    yield errors
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_inline_calls_of_many_threads_need_no_loop_and_few_connections(path):
    store = SqliteStateStore(path)

    def work(number):
        def write():
            for turn in range(20):
                run_without_loop(store.put(f"own/{number}/{turn}", b"1", if_absent=True))
                add_one(store, "shared")
                run_without_loop(store.get(f"own/{number}/{turn}"))

        return write

    run_without_loop(store.put("shared", b"0"))
    for start in (0, 8, 16):  # new threads reuse the connections
        with in_threads([work(start + number) for number in range(8)]) as errors:
            pass
        assert errors == []
    assert len(connections(store)) <= 1 + 8
    assert run_without_loop(store.get("shared")).value == b"480"

    async def finish():
        assert len(await collect_keys(store.list("own/"))) == 480
        await store.close()

    run_async(finish())


def test_inline_calls_and_calls_of_event_loops_write_for_each_other(path):
    store = SqliteStateStore(path)

    def write_inline():
        for turn in range(30):
            run_without_loop(store.put(f"inline/{turn}", b"1"))

    def write_in_loop(name):
        async def write():
            await asyncio.gather(*(store.put(f"{name}/{turn}", b"1") for turn in range(100)))

        return lambda: run_async(write())

    with in_threads([write_inline, write_in_loop("one"), write_in_loop("two")]) as errors:
        pass
    assert errors == []

    async def finish():
        assert len(await collect_keys(store.list())) == 230
        await store.close()

    run_async(finish())


def test_an_interrupted_writer_leaves_the_calls_of_others_to_the_next(path, monkeypatch):
    store = SqliteStateStore(path)
    groups = []

    def interrupt(_, calls):
        groups.append(len(calls))
        if len(groups) == 1:
            raise KeyboardInterrupt

    run_without_loop(store.put("first", b"1"))
    during_transaction(monkeypatch, interrupt)
    writes = [lambda key=key: run_without_loop(store.put(key, b"1")) for key in "abc"]
    store._group_commit._lock.acquire()
    with in_threads(writes) as errors:
        while len(store._group_commit._queue) < 3:
            time.sleep(0.001)
        store._group_commit._lock.release()
    assert [type(error) for error in errors] == [KeyboardInterrupt]
    assert groups[:2] == [3, 2]

    async def finish():
        assert len(await collect_keys(store.list())) == 1 + 2
        await store.close()

    run_async(finish())


def test_a_call_that_is_alone_takes_one_statement(path):
    store = SqliteStateStore(path)
    etag = run_without_loop(store.put("a", b"1"))
    statements = []
    store._connections._writer.set_trace_callback(statements.append)
    puts = [Put("a", b"2" * 2000, if_match=etag), Put("b", b"1", if_absent=True), Put("c", b"1")]
    run_without_loop(store.put_many(puts))
    large = [Put("d", b"1" * 2000), Put("e", b"1" * 2000)]
    found = run_without_loop(store.get_many(["a", "b"]))
    run_without_loop(
        store.put_many(large, conditions=[Condition(key, found[key].etag) for key in "ab"])
    )
    store._connections._writer.set_trace_callback(None)
    assert [text.split()[0] for text in statements] == ["INSERT", "INSERT"]
    found = run_without_loop(store.get_many(list("abcde")))
    assert [found[key].value[:1] for key in "abcde"] == [b"2", b"1", b"1", b"1", b"1"]
    run_async(store.close())


def test_a_call_that_is_alone_may_be_large_and_have_many_conditions(path):
    store = SqliteStateStore(path)
    keys = [f"{number:04}" for number in range(1100)]
    etags = run_without_loop(store.put_many([Put(key, b"1") for key in keys]))
    statements = []
    store._connections._writer.set_trace_callback(statements.append)
    conditions = [Condition(key, etag) for key, etag in zip(keys, etags, strict=True)]
    run_without_loop(store.put_many([Put("new", b"1")], conditions=conditions))
    # SQLite would copy the rows of one statement, in memory or in a temporary file.
    run_without_loop(store.put("large", b"1" * 3_000_000))
    store._connections._writer.set_trace_callback(None)
    assert statements.count("BEGIN IMMEDIATE") == 2
    assert run_without_loop(store.get_many(["new", "large"])).keys() == {"new", "large"}
    run_async(store.close())


@pytest.mark.parametrize(
    ("puts", "conditions", "key"),
    [
        ([Put("new", b"1"), Put("a", b"2", if_absent=True)], [], "a"),
        ([Put("new", b"1"), Put("a", b"2", if_match="other")], [], "a"),
        ([Put("new", b"1"), Put("b", b"2", if_match="other")], [], "b"),
        ([Put("new", b"1")], [Condition("a", "other")], "a"),
        ([Put("new", b"1")], [Condition("b", "other")], "b"),
    ],
)
def test_a_call_that_is_alone_writes_nothing_if_a_condition_fails(path, puts, conditions, key):
    store = SqliteStateStore(path)
    run_without_loop(store.put("a", b"1"))
    with pytest.raises(ConflictError) as caught:
        run_without_loop(store.put_many(puts, conditions=conditions))
    assert caught.value.key == key
    assert run_without_loop(store.get_many(["a", "b", "new"])).keys() == {"a"}
    run_async(store.close())


def test_an_interrupt_after_a_call_that_is_alone_does_not_repeat_it(path, monkeypatch):
    store = SqliteStateStore(path)

    def write_and_interrupt(*args):
        assert write_alone(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(group_commit, "write_alone", write_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_without_loop(store.put("a", b"1", if_absent=True))
    run_without_loop(store.put("b", b"1"))
    assert not store._group_commit._queue
    assert run_without_loop(store.get_many(["a", "b"])).keys() == {"a", "b"}
    run_async(store.close())


def test_stores_on_the_same_file_share_a_connection_until_the_last_is_closed(path):
    async def use():
        one, two = SqliteStateStore(path), SqliteStateStore(path)
        await asyncio.gather(*(store.put(name, b"1") for name, store in (("a", one), ("b", two))))
        assert len(connections(one)) == 1
        await one.close()
        await one.close()
        assert connections(two)
        await two.put("c", b"1")
        with pytest.raises(StateStoreError, match="closed"):
            await one.put("d", b"1")
        three = SqliteStateStore(path)
        await two.close()
        assert await collect_keys(three.list()) == ["a", "b", "c"]
        await three.close()
        assert connections(three) == []

    run_async(use())


def test_a_store_that_was_never_closed_does_not_keep_the_file_open(path):
    async def use():
        store = SqliteStateStore(path)
        await store.put("a", b"1")
        SqliteStateStore(path)  # gone at once
        await store.close()
        assert connections(store) == []

    run_async(use())


def test_a_new_store_does_not_share_the_connections_to_a_file_that_was_replaced(path):
    async def use():
        async with SqliteStateStore(path) as old:
            await old.put("a", b"1")
            for file in path.parent.iterdir():
                file.unlink()
            async with SqliteStateStore(path) as new:
                await new.put("b", b"1")
                with pytest.raises(StateStoreError, match="removed or replaced"):
                    await old.put("c", b"1")
                assert await collect_keys(new.list()) == ["b"]

    run_async(use())
