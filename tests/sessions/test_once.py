"""Side effects are done once per key, across processes, callers, rollbacks and lost responses."""

from __future__ import annotations

import asyncio
import enum
import threading

import pytest

from holdfast import (
    BlockingSession,
    ConflictError,
    StateStoreError,
    UnsupportedValueError,
    open_state_store,
)
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.conversations import (
    Effect,
    add_messages,
    capture_state,
    list_contents,
    list_types,
    open_session,
    open_two_writers,
    reopen_session,
)
from support.faults import Fault, FaultyStateStore
from support.sample_values import SAMPLES, is_identical


@async_test
async def test_an_effect_is_done_once_and_its_result_returned_from_then_on():
    session = await open_session(MemoryStateStore())
    pay = Effect({"receipt": (1, 2)})
    for _ in range(3):
        assert await session.once("pay/42", pay) == {"receipt": (1, 2)}
    assert pay.times == 1
    assert not session.is_dirty
    assert list_types(session.events) == ["session.started", "once.done"]
    assert session.events[-1].data == {"key": "pay/42"}
    assert await session.once("pay/43", pay) == {"receipt": (1, 2)}
    assert pay.times == 2


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
@async_test
async def test_an_effect_is_not_done_again_by_the_next_process(url, tmp_path):
    async with open_state_store(url.format(tmp_path)) as store:
        session = await open_session(store)
        session.add_message("user", "pay")
        first, second = Effect("first"), Effect("second")
        assert await session.once("pay", first) == "first"
        other = await reopen_session(session)
        assert list_contents(other) == ["pay"]
        assert await other.once("pay", second) == "first"
        assert (first.times, second.times) == (1, 0)


@async_test
async def test_the_function_of_an_effect_may_be_async():
    session = await open_session(MemoryStateStore())
    pay = Effect()
    assert await session.once("a", pay.slowly) == "paid"
    assert await session.once("a", pay.slowly) == "paid"
    assert await session.once("b", lambda: asyncio.sleep(0, "slept")) == "slept"
    assert pay.times == 1


@async_test
async def test_concurrent_callers_get_the_same_result():
    session = await open_session(MemoryStateStore())
    pay = Effect()
    results = await asyncio.gather(*(session.once("pay", pay.slowly) for _ in range(10)))
    assert results == ["paid"] * 10
    assert pay.times == 1
    others = [Effect(number) for number in range(5)]
    results = await asyncio.gather(*(session.once(str(e.result), e.slowly) for e in others))
    assert results == list(range(5))
    assert (await session.verify()).ok


@async_test
async def test_results_are_copies():
    session = await open_session(MemoryStateStore())
    (await session.once("k", lambda: {"list": [1]}))["list"].append(2)
    assert await session.once("k", dict) == {"list": [1]}


@async_test
async def test_a_result_may_have_any_supported_type():
    session = await open_session(MemoryStateStore())
    for name, value in SAMPLES.items():
        assert is_identical(await session.once(name, lambda value=value: value), value)
    other = await reopen_session(session)
    for name, value in SAMPLES.items():
        assert is_identical(await other.once(name, dict), value)


@async_test
async def test_an_effect_that_raised_is_done_by_the_next_call():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    failing = Effect(error=RuntimeError("no money"))
    before = capture_state(session)
    for function in (failing, failing.slowly):
        with pytest.raises(RuntimeError, match="no money"):
            await session.once("pay", function)
    assert capture_state(session) == before
    assert await session.once("pay", Effect()) == "paid"
    assert failing.times == 2


@async_test
async def test_an_effect_whose_result_cannot_be_stored_is_not_repeated():
    session = await open_session(MemoryStateStore())
    odd = Effect(result={"connection": object()})
    with pytest.raises(UnsupportedValueError, match="could not be stored") as caught:
        await session.once("pay", odd)
    assert "result.connection" in str(caught.value)
    assert "is not repeated" in str(caught.value)
    for again in (session, await reopen_session(session)):
        with pytest.raises(UnsupportedValueError, match="could not be stored"):
            await again.once("pay", odd)
    assert odd.times == 1


@pytest.mark.parametrize("key", [None, 7, "\ud800"])
@async_test
async def test_an_invalid_key_is_rejected_before_the_effect(key):
    session = await open_session(MemoryStateStore())
    pay = Effect()
    with pytest.raises(TypeError):
        await session.once(key, pay)
    assert pay.times == 0


class Name(str):
    __slots__ = ()


class Step(str, enum.Enum):
    PAY = "pay"


@pytest.mark.parametrize("key", [Name("pay"), Step.PAY])
@async_test
async def test_a_key_that_is_a_str_subclass_becomes_a_plain_str(key):
    session = await open_session(MemoryStateStore())
    pay = Effect()
    assert await session.once(key, pay) == "paid"
    assert await (await reopen_session(session)).once("pay", pay) == "paid"
    assert pay.times == 1


# ------------------------------------------------------------------------- rollbacks and restores


@async_test
async def test_rollbacks_and_restores_keep_effects():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    saved, mark = await session.save(), session.snapshot()
    pay = Effect()
    await session.once("pay", pay)
    await add_messages(session, "b")
    session.rollback(mark)
    assert list_contents(session) == ["a"]
    assert await session.once("pay", pay) == "paid"
    await session.restore(saved.snapshot_id)
    assert await session.once("pay", pay) == "paid"
    again = await reopen_session(session)
    assert list_contents(again) == ["a"]
    assert await again.once("pay", pay) == "paid"
    assert pay.times == 1


@async_test
async def test_restoring_a_state_with_more_effects_adopts_them():
    session = await open_session(MemoryStateStore())
    await session.once("both", Effect("session"))
    other = await session.fork("other")
    pay = Effect("other")
    await other.once("pay", pay)
    await session.restore(other.snapshot())
    assert await session.once("pay", Effect("session")) == "other"
    assert await session.once("both", Effect("never")) == "session"


@async_test
async def test_a_fork_has_the_effects_of_its_origin():
    session = await open_session(MemoryStateStore())
    before = session.snapshot()
    pay = Effect()
    await session.once("pay", pay)
    fork = await session.fork("after")
    assert await fork.once("pay", pay) == "paid"
    assert pay.times == 1
    earlier = await session.fork("before", at=before)
    assert await earlier.once("pay", pay) == "paid"
    assert pay.times == 2


# ------------------------------------------------------------------------------ other writers


@async_test
async def test_an_effect_that_another_process_did_is_not_repeated():
    one, other = await open_two_writers(MemoryStateStore())
    await other.once("pay", Effect("theirs"))
    await add_messages(other, "theirs")
    one.add_message("user", "mine")
    pay = Effect("mine")
    assert await one.once("pay", pay) == "theirs"
    assert pay.times == 0
    assert list_contents(one) == ["theirs", "mine"]
    assert one.is_dirty
    await one.commit()
    assert list_contents(await reopen_session(one)) == ["theirs", "mine"]


@async_test
async def test_other_commits_do_not_prevent_an_effect():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(other, "theirs")
    one.add_message("user", "mine")

    def pay():
        return "paid"

    assert await one.once("pay", pay) == "paid"
    assert not one.is_dirty
    assert list_contents(await reopen_session(one)) == ["theirs", "mine"]


@async_test
async def test_an_effect_is_done_in_a_session_that_two_writers_started():
    store = MemoryStateStore()
    one, other = await open_session(store), await open_session(store)
    await add_messages(other, "theirs")
    assert await one.once("pay", Effect()) == "paid"
    assert list_contents(await reopen_session(one)) == ["theirs"]


@async_test
async def test_an_effect_of_another_writer_that_started_the_session_is_not_repeated():
    store = MemoryStateStore()
    one, other = await open_session(store), await open_session(store)
    await other.once("pay", Effect("theirs"))
    pay = Effect("mine")
    assert await one.once("pay", pay) == "theirs"
    assert pay.times == 0


@async_test
async def test_concurrent_effects_with_different_results_are_a_conflict():
    one, other = await open_two_writers(MemoryStateStore())

    async def pay():
        await other.once("pay", Effect("theirs"))
        return "mine"

    with pytest.raises(ConflictError) as lost:
        await one.once("pay", pay)
    assert lost.value.conflicts == [("once", "pay")]
    await one.reload()
    assert await one.once("pay", Effect("never")) == "theirs"


# ------------------------------------------------------------------------------------ faults


@pytest.mark.parametrize("done", [False, True])
@async_test
async def test_a_result_is_committed_before_it_is_returned_despite_faults(done):
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    store.plan(Fault(1, "unknown", done=done))
    pay = Effect()
    with pytest.raises(StateStoreError):
        await session.once("pay", pay)
    assert await session.once("pay", pay) == "paid"
    assert pay.times == 1
    again = await reopen_session(session)
    assert await again.once("pay", pay) == "paid"
    assert pay.times == 1


@async_test
async def test_an_effect_of_another_writer_after_a_lost_response_is_not_repeated():
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    session.add_message("user", "b")
    store.plan(Fault(1, "unknown", done=True))
    with pytest.raises(StateStoreError):
        await session.commit()
    await (await reopen_session(session)).once("pay", Effect("theirs"))
    pay = Effect("mine")
    assert await session.once("pay", pay) == "theirs"
    assert pay.times == 0


# ------------------------------------------------------------------------------ blocking sessions


def test_a_blocking_session_runs_the_effect_in_the_calling_thread(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    threads = []

    def pay():
        threads.append(threading.current_thread())
        return "paid"

    with BlockingSession.open(url, agent_id="bot", session_id="ses") as session:
        session.add_message("user", "pay")
        assert session.once("pay", pay) == "paid"
        assert not session.is_dirty
        assert session.once("pay", pay) == "paid"
        with pytest.raises(RuntimeError, match="no money"):
            session.once("other", Effect(error=RuntimeError("no money")))
        with pytest.raises(UnsupportedValueError, match="could not be stored"):
            session.once("odd", object)
        with pytest.raises(TypeError, match="key must be a str"):
            session.once(7, pay)
    with BlockingSession.open(url, agent_id="bot", session_id="ses") as session:
        assert session.once("pay", pay) == "paid"
        with pytest.raises(UnsupportedValueError, match="could not be stored"):
            session.once("odd", pay)
    assert threads == [threading.current_thread()]


def test_a_blocking_session_finds_effects_of_other_processes():
    store = MemoryStateStore()
    one = BlockingSession.open(store, agent_id="bot", session_id="ses")
    one.commit()
    other = BlockingSession.open(store, agent_id="bot", session_id="ses")
    other.once("pay", Effect("theirs"))
    pay = Effect("mine")
    assert one.once("pay", pay) == "theirs"
    assert pay.times == 0


def test_threads_that_share_a_blocking_session_do_an_effect_once():
    session = BlockingSession.open(MemoryStateStore(), agent_id="bot")
    pay = Effect()
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(session.once("pay", pay))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["paid"] * 8
    assert pay.times == 1


def test_the_function_of_an_effect_may_record_and_commit():
    session = BlockingSession.open(MemoryStateStore(), agent_id="bot")

    def pay():
        session.record("tool.called", {"tool": "pay"})
        session.commit()
        return "paid"

    assert session.once("pay", pay) == "paid"
    assert list_types(session.events) == ["session.started", "tool.called", "once.done"]


@async_test
async def test_concurrent_effects_with_equal_results_are_a_conflict():
    store = MemoryStateStore()
    one = await open_session(store)
    await one.commit()
    two = await open_session(store)

    async def slowly():
        await one.once("pay", lambda: "paid")
        return "paid"

    with pytest.raises(ConflictError, match="did the same side effect concurrently: pay") as caught:
        await two.once("pay", slowly)
    assert caught.value.conflicts == [("once", "pay")]
    await two.reload()
    assert await two.once("pay", lambda: pytest.fail("a third time")) == "paid"


@async_test
async def test_once_takes_a_function():
    session = await open_session(MemoryStateStore())
    with pytest.raises(TypeError, match="once takes a function"):
        await session.once("pay", "paid")
    assert not session.snapshot().contains("once", "pay")
