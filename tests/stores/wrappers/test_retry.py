"""Retries: calls are repeated if that is safe, and only then."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast import ConflictError, Entry, IntegrityError, Put, StateStoreError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.retry import RetryingStateStore
from holdfast.testing import StateStoreSuite
from stores.wrappers.faulty_stores import (
    FailAfter,
    FailBefore,
    FaultyBatchStore,
    FaultyStore,
    UnreliableBatchStore,
    UnreliableStore,
    add_retries,
    lost_error,
    read_first_key,
    refused_error,
)
from support.async_tests import async_test, run_async


@pytest.fixture
def inner():
    return FaultyStore()


@pytest.fixture
def store(inner):
    return add_retries(inner)


def read_value(inner, key):
    inner.plan, inner.after_failure = [], None
    entry = run_async(inner.get(key))
    return entry and entry.value


class TestOverMemory(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: RetryingStateStore(MemoryStateStore())


class TestOverUnreliableStore(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: add_retries(UnreliableStore(), attempts=40)


class TestOverUnreliableBatchStore(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: add_retries(UnreliableBatchStore(), attempts=40)


# ---- reads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [FailBefore(refused_error()), FailBefore(lost_error()), FailAfter(lost_error())]
)
def test_a_read_is_retried_after_any_transient_failure(inner, store, fault):
    etag = run_async(store.put("a", b"1"))
    inner.plan = [fault] * 4
    assert run_async(store.get("a")) == Entry(b"1", etag)
    inner.plan = [fault] * 4
    assert run_async(store.get_many(key for key in "ab")) == {"a": Entry(b"1", etag)}


def test_the_last_attempts_error_is_raised_unchanged(inner, store):
    last = refused_error("the fifth")
    inner.plan = [FailBefore(refused_error())] * 4 + [FailBefore(last)]
    with pytest.raises(StateStoreError) as caught:
        run_async(store.get("a"))
    assert caught.value is last
    assert inner.calls == 5


def test_a_failed_read_is_never_of_unknown_outcome(inner, store):
    last = refused_error()
    inner.plan = [FailBefore(lost_error())] * 4 + [FailBefore(last)]
    with pytest.raises(StateStoreError) as caught:
        run_async(store.get("a"))
    assert caught.value is last
    assert not caught.value.unknown


@pytest.mark.parametrize(
    "error",
    [
        StateStoreError("wrong password"),
        StateStoreError("half done", unknown=True),
        IntegrityError("damaged"),
        ConflictError("conflict"),
        OSError("not ours"),
        asyncio.CancelledError(),
        KeyboardInterrupt(),
    ],
    ids=repr,
)
@async_test
async def test_a_permanent_error_is_raised_at_once(inner, store, error):
    for call in (
        lambda: store.get("a"),
        lambda: store.get_many(["a"]),
        lambda: store.put("a", b"1"),
        lambda: store.put_many([Put("a", b"1")]),
        lambda: store.delete("a"),
        lambda: read_first_key(store.list()),
    ):
        inner.plan, inner.calls = [FailBefore(error)], 0
        with pytest.raises(type(error)) as caught:
            await call()
        assert caught.value is error
        assert inner.calls == 1


# ---- writes without a condition ------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", [FailBefore(refused_error()), FailBefore(lost_error()), FailAfter(lost_error())]
)
def test_an_unconditional_write_is_retried(inner, store, fault):
    inner.plan = [fault] * 4
    etag = run_async(store.put("a", b"1"))
    assert run_async(store.get("a")) == Entry(b"1", etag)
    inner.plan = [fault] * 4
    etags = run_async(store.put_many([Put("a", b"2"), Put("b", b"2")]))
    assert run_async(store.get_many(list("ab"))) == {
        "a": Entry(b"2", etags[0]),
        "b": Entry(b"2", etags[1]),
    }


@pytest.mark.parametrize(
    "fault", [FailBefore(refused_error()), FailBefore(lost_error()), FailAfter(lost_error())]
)
def test_an_unconditional_batch_is_resumed_where_it_stopped(fault):
    inner = FaultyBatchStore()
    store = add_retries(inner)
    inner.plan = [None, fault, None, fault]
    etags = run_async(store.put_many([Put(key, b"1") for key in "abc"]))
    found = run_async(store.get_many(list("abc")))
    assert list(found.values()) == [Entry(b"1", etag) for etag in etags]


def test_a_write_that_fails_after_a_lost_response_is_of_unknown_outcome(inner, store):
    for last in (refused_error("down"), StateStoreError("wrong password")):
        for call in (
            lambda: store.put("a", b"1"),
            lambda: store.put_many([Put("a", b"1")]),
            lambda: store.delete("a"),
        ):
            inner.plan = (
                [FailAfter(lost_error())] + [FailBefore(refused_error())] * 3 + [FailBefore(last)]
            )
            with pytest.raises(
                StateStoreError, match=f"{last}.*earlier attempt may or may not"
            ) as caught:
                run_async(call())
            assert caught.value.unknown
            assert caught.value.transient == last.transient
            assert caught.value.__cause__ is last


# ---- conditional writes --------------------------------------------------------------------------


@pytest.mark.parametrize("condition", ["absent", "match"])
def test_a_conditional_write_that_was_not_applied_is_retried(inner, store, condition):
    options = {"if_absent": True}
    if condition == "match":
        options = {"if_match": run_async(store.put("a", b"0"))}
    inner.plan = [FailBefore(refused_error())] * 4
    etag = run_async(store.put("a", b"1", **options))
    assert run_async(store.get("a")) == Entry(b"1", etag)
    options = {"if_match": etag} if condition == "match" else {"if_absent": True}
    inner.plan = [FailBefore(refused_error())] * 4
    key = "a" if condition == "match" else "b"
    run_async(store.put_many([Put(key, b"2", **options), Put("c", b"2")]))
    assert read_value(inner, key) == b"2"


@pytest.mark.parametrize(
    "fault", [FailBefore(lost_error()), FailAfter(lost_error())], ids=["not done", "done"]
)
@pytest.mark.parametrize("condition", ["absent", "match"])
@pytest.mark.parametrize("batch", [False, True], ids=["one", "batch"])
def test_a_conditional_write_of_unknown_outcome_is_not_retried(
    inner, store, condition, fault, batch
):
    before, options = None, {"if_absent": True}
    if condition == "match":
        before, options = b"0", {"if_match": run_async(store.put("a", b"0"))}
    inner.calls = 0
    inner.plan = [FailBefore(refused_error()), fault]
    with pytest.raises(StateStoreError) as caught:
        if batch:
            run_async(store.put_many([Put("z", b"1"), Put("a", b"1", **options)]))
        else:
            run_async(store.put("a", b"1", **options))
    assert caught.value is fault.error
    assert inner.calls == 2
    assert read_value(inner, "a") == (b"1" if isinstance(fault, FailAfter) else before)


def test_a_conflict_after_a_refused_attempt_means_another_writer(inner, store):
    async def other():
        await MemoryStateStore._put_many(inner, [Put("a", b"other")])

    inner.plan, inner.after_failure = [FailBefore(refused_error())], other
    with pytest.raises(ConflictError) as caught:
        run_async(store.put("a", b"ours", if_absent=True))
    assert caught.value.key == "a"
    assert read_value(inner, "a") == b"other"


def test_a_resumed_conditional_batch_does_not_conflict_with_itself():
    inner = FaultyBatchStore()
    store = add_retries(inner)
    inner.plan = [
        None,
        FailBefore(refused_error()),
        FailBefore(refused_error()),
        None,
        FailBefore(refused_error()),
    ]
    puts = [Put(key, b"1", if_absent=True) for key in "abc"]
    etags = run_async(store.put_many(puts))
    found = run_async(store.get_many(list("abc")))
    assert list(found.values()) == [Entry(b"1", etag) for etag in etags]


def test_a_conditional_batch_stops_at_a_lost_response():
    inner = FaultyBatchStore()
    store = add_retries(inner)
    inner.plan = [None, FailAfter(lost_error())]
    with pytest.raises(StateStoreError) as caught:
        run_async(store.put_many([Put(key, b"1", if_absent=True) for key in "abc"]))
    assert caught.value.unknown
    assert run_async(store.get_many(list("abc"))).keys() == {"a", "b"}


# ---- deletes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("match", [False, True], ids=["any", "if_match"])
@pytest.mark.parametrize("fault", [FailBefore(refused_error()), FailBefore(lost_error())])
def test_a_delete_that_was_not_applied_is_retried(inner, store, fault, match):
    etag = run_async(store.put("a", b"1"))
    inner.plan = [fault] * 4
    assert run_async(store.delete("a", if_match=etag if match else None)) is True
    assert read_value(inner, "a") is None


def test_a_delete_whose_response_was_lost_counts_as_applied(inner, store):
    run_async(store.put("a", b"1"))
    inner.plan = [FailAfter(lost_error()), FailBefore(refused_error())]
    assert run_async(store.delete("a")) is True
    assert read_value(inner, "a") is None


def test_a_delete_of_an_absent_key_returns_false_after_refused_attempts(inner, store):
    inner.plan = [FailBefore(refused_error())] * 2
    assert run_async(store.delete("a")) is False


def test_a_conditional_delete_whose_response_was_lost_is_of_unknown_outcome(inner, store):
    # It was applied, but a delete by another writer would look the same.
    etag = run_async(store.put("a", b"1"))
    inner.plan = [FailAfter(lost_error("cut off"))]
    with pytest.raises(
        StateStoreError, match="cut off.*'a'.*may or may not have been deleted by this call"
    ) as caught:
        run_async(store.delete("a", if_match=etag))
    assert caught.value.unknown
    assert not caught.value.transient
    assert isinstance(caught.value.__cause__, ConflictError)


def test_a_conditional_delete_never_removes_a_newer_value(inner, store):
    etag = run_async(store.put("a", b"1"))

    async def other():
        await MemoryStateStore._put_many(inner, [Put("a", b"other")])

    inner.plan, inner.after_failure = [FailAfter(lost_error())], other
    with pytest.raises(StateStoreError) as caught:
        run_async(store.delete("a", if_match=etag))
    assert caught.value.unknown
    assert read_value(inner, "a") == b"other"


def test_a_conditional_delete_that_lost_a_race_is_a_conflict(inner, store):
    run_async(store.put("a", b"1"))
    inner.plan = [FailBefore(refused_error())]
    with pytest.raises(ConflictError):
        run_async(store.delete("a", if_match="stale"))


# ---- pauses --------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_longest_with_jitter(inner):
    store = RetryingStateStore(inner, first_pause=0.1, longest_pause=1.0)
    for failures, longest in ((1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (10_000, 1.0)):
        pauses = {store._pause(failures) for _ in range(50)}
        assert len(pauses) > 40
        assert longest / 2 <= min(pauses) <= max(pauses) <= longest


def test_it_waits_between_attempts(inner):
    store = RetryingStateStore(inner, attempts=4, first_pause=0.02, longest_pause=0.04)
    inner.plan = [FailBefore(refused_error())] * 3
    start = time.monotonic()
    run_async(store.get("a"))
    assert time.monotonic() - start >= (0.02 + 0.04 + 0.04) / 2


def test_a_task_cancelled_during_a_pause_ends_at_once(inner):
    store = RetryingStateStore(inner, first_pause=60.0, longest_pause=60.0)

    async def cancelled(work):
        inner.plan, inner.calls = [FailBefore(refused_error())] * 5, 0
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert inner.calls == 1

    run_async(cancelled(store.get("a")))
    run_async(cancelled(store.put("a", b"1")))
    run_async(cancelled(read_first_key(store.list())))


def test_one_attempt_means_no_retry(inner):
    inner.plan = [FailBefore(refused_error())]
    with pytest.raises(StateStoreError):
        run_async(add_retries(inner, attempts=1).get("a"))
    assert inner.calls == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"attempts": 0}, ValueError),
        ({"attempts": True}, TypeError),
        ({"attempts": 2.0}, TypeError),
        ({"first_pause": -1.0}, ValueError),
        ({"first_pause": 3.0}, ValueError),
        ({"longest_pause": float("inf")}, ValueError),
        ({"longest_pause": float("nan")}, ValueError),
    ],
)
def test_invalid_settings_are_rejected(inner, options, error):
    with pytest.raises(error, match=next(iter(options))):
        RetryingStateStore(inner, **options)
