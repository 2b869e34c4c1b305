"""`FaultyStateStore` injects each fault at the call it is planned for."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from holdfast import ConflictError, Put, Session, StateStoreError
from holdfast.stores.files.store import FileStateStore
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.retry import RetryingStateStore
from holdfast.testing import Crash, Fault, FaultyStateStore, StateStoreSuite
from support.async_tests import async_test, run_async


class TestWithoutFaults(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: FaultyStateStore(MemoryStateStore(), remember=3)


class TestOneByOne(StateStoreSuite):
    @pytest.fixture
    def new_store(self):
        return lambda: FaultyStateStore(MemoryStateStore(), atomic=False)


def make_faulty_store(*plan, **options):
    return FaultyStateStore(MemoryStateStore(), plan, **options)


async def read_inner(store):
    """Return the values of the inner store."""
    keys = [key async for key in store.inner.list()]
    return {key: entry.value for key, entry in (await store.inner.get_many(keys)).items()}


# ----------------------------------------------------------------------------------- writes


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (Fault(2, "error"), StateStoreError),
        (Fault(2, "unknown"), StateStoreError),
        (Fault(2, "unknown", done=True), StateStoreError),
        (Fault(2, "cancelled"), asyncio.CancelledError),
        (Fault(2, "cancelled", done=True), asyncio.CancelledError),
        (Fault(2, "crash"), Crash),
        (Fault(2, "crash", done=True), Crash),
    ],
    ids=str,
)
@async_test
async def test_planned_write_fault(fault, raised):
    for write in (
        lambda store: store.put("b", b"2"),
        lambda store: store.put_many([Put("b", b"2")]),
    ):
        store = make_faulty_store(fault)
        await store.put("a", b"1")
        with pytest.raises(raised) as caught:
            await write(store)
        assert await read_inner(store) == {"a": b"1", **({"b": b"2"} if fault.done else {})}
        assert store.faults == [fault]
        assert store.counts == {fault.kind: 1}
        if raised is StateStoreError:
            assert caught.value.transient
            assert caught.value.unknown == (fault.kind == "unknown")
            assert str(fault) in str(caught.value)


@async_test
async def test_delete_with_a_lost_response_is_done():
    store = make_faulty_store(Fault(2, "unknown", done=True))
    await store.put("a", b"1")
    with pytest.raises(StateStoreError):
        await store.delete("a")
    assert await read_inner(store) == {}
    assert not await store.delete("a")


@async_test
async def test_lost_response_hides_a_conflict():
    store = make_faulty_store(Fault(2, "unknown", done=True))
    await store.put("a", b"1")
    with pytest.raises(StateStoreError) as caught:
        await store.put("a", b"2", if_absent=True)
    assert caught.value.unknown
    assert await read_inner(store) == {"a": b"1"}


@pytest.mark.parametrize(("is_done", "left"), [(False, "ab"), (True, "abc")])
@async_test
async def test_fault_tears_a_batch_that_is_not_atomic(is_done, left):
    batch = [Put(key, b"") for key in "abcd"]
    store = make_faulty_store(Fault(3, "crash", is_done), atomic=False)
    with pytest.raises(Crash):
        await store.put_many(batch)
    assert "".join(await read_inner(store)) == left
    whole = make_faulty_store(Fault(1, "crash", is_done))
    with pytest.raises(Crash):
        await whole.put_many(batch)
    assert "".join(await read_inner(whole)) == ("abcd" if is_done else "")


@async_test
async def test_crashed_store_raises_until_it_is_wrapped_again():
    store = make_faulty_store(Fault(1, "crash", done=True))
    with pytest.raises(Crash):
        await store.put("a", b"1")
    for call in (
        lambda: store.get("a"),
        lambda: store.get_many(["a"]),
        lambda: store.put("a", b"2"),
        lambda: store.delete("a"),
        lambda: anext(store.list()),
    ):
        with pytest.raises(Crash):
            await call()
    assert (await FaultyStateStore(store.inner).get("a")).value == b"1"
    await store.close()


# ------------------------------------------------------------------------------------ reads


@pytest.mark.parametrize("kind", ["error", "unknown"])
@async_test
async def test_planned_read_fault_is_never_unknown(kind):
    store = make_faulty_store(*(Fault(at, kind, of="reads") for at in (1, 2, 3)))
    await store.put("a", b"1")
    for call in (
        lambda: store.get("a"),
        lambda: store.get_many(["a"]),
        lambda: anext(store.list()),
    ):
        with pytest.raises(StateStoreError) as caught:
            await call()
        assert caught.value.transient
        assert not caught.value.unknown
    assert (store.reads, store.writes) == (3, 1)
    assert (await store.get("a")).value == b"1"


@async_test
async def test_listing_fails_before_or_after_its_keys():
    for is_done in (False, True):
        store = make_faulty_store(Fault(1, "error", is_done, of="reads"))
        await store.put_many([Put(key, b"") for key in "abc"])
        seen = []
        with pytest.raises(StateStoreError):
            async for key in store.list():
                seen.append(key)
        assert seen == (["a", "b", "c"] if is_done else [])


@async_test
async def test_stale_read_returns_earlier_data():
    def stale(at, behind):
        return Fault(at, "stale", of="reads", behind=behind)

    async def keys(store, **bounds):
        return [key async for key in store.list(**bounds)]

    store = make_faulty_store(remember=3)
    await store.put_many([Put("a", b"1"), Put("b", b"1")])
    await store.put("a", b"2")
    await store.delete("b")
    await store.put("c", b"1")
    store.plan(*(stale(at, at) for at in (1, 2, 3)))
    assert [(await store.get("a")).value for _ in range(4)] == [b"2", b"2", b"1", b"2"]
    store.plan(stale(1, 1), stale(2, 2), stale(3, 3))
    assert [await keys(store) for _ in range(4)] == [["a"], ["a", "b"], ["a", "b"], ["a", "c"]]
    store.plan(stale(1, 3), stale(2, 3))
    assert await keys(store, start_after="a", limit=1) == ["b"]
    found = await store.get_many(["c", "b", "a"])
    assert {key: entry.value for key, entry in found.items()} == {"b": b"1", "a": b"1"}


@async_test
async def test_condition_is_checked_against_current_data():
    store = make_faulty_store(Fault(1, "stale", of="reads"), Fault(2, "stale", of="reads"))
    await store.put("a", b"1")
    assert await store.get("a") is None
    with pytest.raises(ConflictError):
        await store.put("a", b"2", if_absent=True)
    await store.put("a", b"3")
    old = await store.get("a")
    with pytest.raises(ConflictError):
        await store.put("a", b"4", if_match=old.etag)


@async_test
async def test_session_opened_by_a_stale_read_gets_a_conflict():
    store = make_faulty_store(remember=1)
    first = await Session.open(store, agent_id="bot", session_id="ses")
    first.add_message("user", "one")
    await first.commit()
    first.add_message("user", "two")
    await first.commit()
    store.plan(*(Fault(at, "stale", of="reads") for at in range(1, 20)))
    late = await Session.open(store, agent_id="bot", session_id="ses")
    assert len(late.messages) == 1
    store.plan()
    late.add_message("user", "three")
    with pytest.raises(ConflictError):
        await late.commit()
    await late.commit(on_conflict="rebase")
    assert [each["content"] for each in late.messages] == ["one", "two", "three"]


# ------------------------------------------------------------------------- delays and chance


@pytest.mark.parametrize("is_done", [False, True])
@async_test
async def test_delay_before_or_after_the_write(is_done):
    store = make_faulty_store(Fault(1, "delay", is_done, seconds=0.05))
    begun = time.monotonic()
    work = asyncio.create_task(store.put("a", b"1"))
    await asyncio.sleep(0.01)
    assert bool(await read_inner(store)) == is_done
    await work
    assert time.monotonic() - begun >= 0.05
    assert await read_inner(store) == {"a": b"1"}


async def run_faults(**options):
    store = make_faulty_store(rate=0.3, longest_delay=0, **options)
    for number in range(100):
        for call in (store.put(f"{number}", b""), store.get(f"{number}")):
            try:
                await call
            except StateStoreError:
                continue
    return store


@async_test
async def test_seed_determines_the_faults():
    one, same, other = [await run_faults(seed=seed) for seed in (7, 7, 8)]
    assert one.faults == same.faults != other.faults
    assert set(one.counts) == {"error", "unknown", "delay"}
    assert 30 <= len(one.faults) <= 90
    chosen = await run_faults(seed=7, kinds=["stale"])
    assert set(chosen.counts) == {"stale"}
    assert {fault.of for fault in chosen.faults} == {"reads"}


@async_test
async def test_rate_0_stops_random_faults():
    store = make_faulty_store(rate=1.0, kinds=["error"])
    with pytest.raises(StateStoreError):
        await store.put("a", b"1")
    store.rate = 0.0
    await store.put("a", b"1")
    assert store.counts == {"error": 1}


@async_test
async def test_retrying_store_hides_faults():
    store = RetryingStateStore(make_faulty_store(rate=0.2, seed=3, kinds=["error"]), 9, 0, 0)
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        for number in range(20):
            session.add_message("user", f"hello {number}")
            await session.commit()
    assert store.inner.counts["error"] > 0
    again = await Session.open(store.inner.inner, agent_id="bot", session_id="ses")
    assert len(again.messages) == 20


# ----------------------------------------------------------------------------- invalid arguments


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"at": 0}, "at must be 1 or more"),
        ({"kind": "flood"}, "one of error, unknown"),
        ({"of": "calls"}, 'of must be "writes" or "reads"'),
        ({"done": True}, "cannot be done"),
        ({"kind": "stale"}, 'of="reads"'),
        ({"behind": 0}, "behind must be 1 or more"),
    ],
)
def test_invalid_fault_is_refused(change, problem):
    with pytest.raises(ValueError, match=problem):
        replace(Fault(1, "error"), **change)


def test_invalid_options_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is not atomic"):
        FaultyStateStore(FileStateStore(tmp_path), atomic=True)
    with pytest.raises(ValueError, match="from 0 to 1"):
        make_faulty_store(rate=2)
    with pytest.raises(ValueError, match="must be of error, unknown"):
        make_faulty_store(kinds=["flood"])
    with pytest.raises(ValueError, match="remember=3"):
        make_faulty_store(remember=1).plan(Fault(1, "stale", of="reads", behind=3))
    run_async(make_faulty_store().close())
