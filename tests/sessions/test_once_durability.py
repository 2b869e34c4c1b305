"""The result of an effect survives conflicts, failures, cancellations and reloads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import BlockingSession, ConflictError, StateStoreError, UnsupportedValueError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.conversations import (
    Effect,
    add_messages,
    list_contents,
    list_types,
    open_session,
    open_two_writers,
    reopen_session,
)
from support.faults import WAYS, Fault, FaultyStateStore
from support.observed_store import ObservedStore

SRC = str(Path(__file__).parents[2] / "src")


async def commit_values(session, **values):
    """Commit values in another process."""
    other = await reopen_session(session)
    for key, value in values.items():
        other.set(key, value)
    await other.commit()


# --------------------------------------------------------------------------------- conflicts


@async_test
async def test_a_conflict_on_another_key_during_the_effect_does_not_lose_its_result():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    effect = Effect()

    async def pay():
        session.set("plan", "mine")
        await commit_values(session, plan="theirs")
        return effect()

    assert await session.once("pay", pay) == "paid"
    assert session.is_dirty
    assert await (await reopen_session(session)).once("pay", effect) == "paid"
    assert await session.once("pay", effect) == "paid"
    for on_conflict in ("raise", "rebase"):
        with pytest.raises(ConflictError):
            await session.commit(on_conflict=on_conflict)
    assert await session.once("pay", effect) == "paid"
    await session.reload()
    assert session.get("plan") == "theirs"
    assert await session.once("pay", effect) == "paid"
    assert effect.times == 1
    assert list_types(session.events).count("once.done") == 1
    assert (await session.verify()).ok


@async_test
async def test_pending_events_are_committed_before_the_effect():
    session = await open_session(MemoryStateStore())
    session.add_message("user", "pay")
    seen = []

    async def pay():
        seen.extend(list_contents(await reopen_session(session)))
        raise RuntimeError("no money")

    with pytest.raises(RuntimeError, match="no money"):
        await session.once("pay", pay)
    assert seen == ["pay"]
    assert not session.is_dirty


@async_test
async def test_a_conflict_of_pending_events_is_raised_before_the_effect():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    session.set("plan", "mine")
    await commit_values(session, plan="theirs")
    pay = Effect()
    with pytest.raises(ConflictError):
        await session.once("pay", pay)
    assert pay.times == 0
    await session.reload()
    assert await session.once("pay", pay) == "paid"
    assert pay.times == 1


@async_test
async def test_events_recorded_during_the_effect_stay_pending_on_top_of_the_result():
    session = await add_messages(await open_session(MemoryStateStore()), "a")

    async def pay():
        session.add_message("user", "b")
        session.set("plan", "mine")
        await commit_values(session, other="theirs")
        await add_messages(await reopen_session(session), "theirs")
        session.add_message("user", "c")
        return "paid"

    assert await session.once("pay", pay) == "paid"
    assert session.is_dirty
    assert list_contents(await reopen_session(session)) == ["a", "theirs"]
    assert list_contents(session) == ["a", "theirs", "b", "c"]
    assert session.message_count == 4
    await session.commit()
    again = await reopen_session(session)
    assert list_contents(again) == ["a", "theirs", "b", "c"]
    assert again.state == {"plan": "mine", "other": "theirs"}
    assert await again.once("pay", Effect("never")) == "paid"
    assert again.snapshot().digest == session.snapshot().digest
    assert (await again.verify()).ok


@async_test
async def test_a_key_that_is_done_writes_nothing():
    store = ObservedStore()
    session = await open_session(store)
    await session.once("pay", Effect())
    session.set("plan", 1)
    store.forget()
    assert await session.once("pay", Effect("never")) == "paid"
    assert store.calls == []
    assert session.is_dirty


@async_test
async def test_an_effect_costs_one_listing_and_one_write():
    store = ObservedStore()
    session = await add_messages(await open_session(store), "a")
    store.forget()
    await session.once("pay", Effect())
    assert store.calls == ["list", "put_many"]
    assert len(store.written) == 1


@async_test
async def test_concurrent_effects_of_two_processes_have_one_result():
    one, other = await open_two_writers(MemoryStateStore())
    mine = Effect("mine")

    async def pay():
        one.set("plan", "mine")
        await other.once("pay", Effect("theirs"))
        await commit_values(other, plan="theirs")
        return mine()

    with pytest.raises(ConflictError) as lost:
        await one.once("pay", pay)
    assert lost.value.conflicts == [("once", "pay")]
    with pytest.raises(ConflictError):
        await one.once("pay", mine)
    await one.reload()
    assert await one.once("pay", mine) == "theirs"
    assert mine.times == 1


# -------------------------------------------------------------------------- failures of the store


@pytest.mark.parametrize("then", ["once", "reload", "commit", "save", "rollback", "message"])
@pytest.mark.parametrize(("kind", "is_done"), [way for way in WAYS if way[0] != "crash"])
@async_test
async def test_a_result_that_could_not_be_committed_is_kept(kind, is_done, then):
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    mark, pay = session.snapshot(), Effect()
    store.plan(Fault(1, kind, is_done))
    with pytest.raises((StateStoreError, asyncio.CancelledError)):
        await session.once("pay", pay)
    assert session.is_dirty
    if then == "reload":
        await session.reload()
    elif then == "commit":
        await session.commit()
        assert not session.is_dirty
    elif then == "save":
        await session.save()
    elif then == "rollback":
        session.rollback(mark)
    elif then == "message":
        session.add_message("user", "b")
        await commit_values(session, other=1)
    assert await session.once("pay", pay) == "paid"
    assert pay.times == 1
    await session.commit(on_conflict="rebase")
    again = await reopen_session(session)
    assert await again.once("pay", pay) == "paid"
    assert pay.times == 1
    assert list_types(again.events).count("once.done") == 1
    assert again.snapshot().digest == session.snapshot().digest
    assert (await again.verify()).ok


@async_test
async def test_a_lost_response_of_a_result_is_recognized_behind_other_commits():
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    pay = Effect()

    async def overtaken():
        session.set("plan", "mine")
        await commit_values(session, plan="theirs")
        store.plan(Fault(2, "unknown", done=True))
        return pay()

    with pytest.raises(StateStoreError):
        await session.once("pay", overtaken)
    assert await session.once("pay", pay) == "paid"
    await session.reload()
    assert await session.once("pay", pay) == "paid"
    assert pay.times == 1
    assert list_types(session.events).count("once.done") == 1


@async_test
async def test_a_result_survives_a_cancellation_before_its_commit():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    pay, was_done = Effect(), asyncio.Event()

    def function():
        was_done.set()
        return pay()

    session._effects.prepare = lambda _: asyncio.sleep(0)
    async with session._lock:  # held by another task
        task = asyncio.create_task(session.once("pay", function))
        await was_done.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await session.once("pay", pay) == "paid"
    assert await (await reopen_session(session)).once("pay", pay) == "paid"
    assert pay.times == 1


@async_test
async def test_an_effect_whose_result_cannot_be_stored_counts_as_done_after_a_failed_commit():
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    odd = Effect(result=object())
    store.plan(Fault(1, "error"))
    with pytest.raises(StateStoreError):
        await session.once("pay", odd)
    for _ in range(2):
        with pytest.raises(UnsupportedValueError, match="could not be stored"):
            await session.once("pay", odd)
    assert odd.times == 1


@async_test
async def test_a_fork_gets_results_that_are_not_committed():
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    saved = await session.save()
    pay = Effect()
    store.plan(Fault(1, "error"))
    with pytest.raises(StateStoreError):
        await session.once("pay", pay)
    fork = await session.fork("now")
    assert await fork.once("pay", pay) == "paid"
    assert await (await reopen_session(fork)).once("pay", pay) == "paid"
    assert pay.times == 1
    earlier = await session.fork("earlier", at=saved)
    assert await earlier.once("pay", pay) == "paid"
    assert pay.times == 2
    await session.restore(saved.snapshot_id)
    assert await session.once("pay", pay) == "paid"
    assert pay.times == 2


@async_test
async def test_an_effect_that_is_forgotten_is_done_again():
    session = await open_session(MemoryStateStore())
    pay = Effect()
    await session.once("pay", pay)
    session.record("once.forgotten", changes={"set": [], "delete": [("once", "pay")]})
    await session.commit()
    assert await session.once("pay", pay) == "paid"
    assert pay.times == 2


@async_test
async def test_a_kept_result_is_committed_to_a_new_session_after_a_deletion():
    store = FaultyStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")
    pay = Effect()
    store.plan(Fault(1, "error"))
    with pytest.raises(StateStoreError):
        await session.once("pay", pay)
    await session.archive.delete_session(session_id=session.session_id)
    await session.reload()
    assert await session.once("pay", pay) == "paid"
    again = await reopen_session(session)
    assert await again.once("pay", pay) == "paid"
    assert pay.times == 1
    assert list_types(again.events) == ["session.started", "once.done"]


# ------------------------------------------------------------------------------ blocking sessions


def test_a_blocking_session_keeps_a_result_through_a_conflict_and_a_reload():
    store = MemoryStateStore()
    one = BlockingSession.open(store, agent_id="bot", session_id="ses")
    one.commit()
    effect = Effect()

    def pay():
        one.set("plan", "mine")
        with BlockingSession.open(store, agent_id="bot", session_id="ses") as other:
            other.set("plan", "theirs")
        return effect()

    assert one.once("pay", pay) == "paid"
    with pytest.raises(ConflictError):
        one.commit(on_conflict="rebase")
    assert one.once("pay", effect) == "paid"
    one.reload()
    assert one.once("pay", effect) == "paid"
    assert effect.times == 1


def test_a_blocking_session_keeps_a_result_that_could_not_be_committed():
    store = FaultyStateStore(MemoryStateStore())
    session = BlockingSession.open(store, agent_id="bot", session_id="ses")
    session.commit()
    pay = Effect()
    store.plan(Fault(1, "error"))
    with pytest.raises(StateStoreError):
        session.once("pay", pay)
    assert session.is_dirty
    session.reload()
    session.commit()
    assert session.once("pay", pay) == "paid"
    with BlockingSession.open(store, agent_id="bot", session_id="ses") as other:
        assert other.once("pay", pay) == "paid"
    assert pay.times == 1


def test_events_of_threads_during_effects_are_not_lost():
    store = MemoryStateStore()
    times = Counter()
    lock = threading.Lock()
    with BlockingSession.open(store, agent_id="bot", session_id="ses") as session:

        def work(number):
            def effect():
                session.set(f"during {number}", number)
                with lock:
                    times[number] += 1
                return number

            session.set(f"before {number}", number)
            return session.once(str(number % 8), effect)

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(work, range(48)))
    assert sum(times.values()) == 8
    with BlockingSession.open(store, agent_id="bot", session_id="ses") as session:
        assert {f"before {number}" for number in range(48)} <= set(session.state)
        assert {f"during {number}" for number in times} <= set(session.state)
        assert found == [session.once(str(n % 8), Effect("never")) for n in range(48)]
        assert session.verify().ok


# ---------------------------------------------------------------------------------- two processes

WORKER = """
import os, random, sys, time
from holdfast import BlockingSession, ConflictError

url, line, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = BlockingSession.open(url, agent_id="bot", session_id="ses")
out = os.open(line, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def effect(key):
    def run():
        session.set("shared", random.random())
        os.write(out, f"{os.getpid()} {key}\\n".encode())
        time.sleep(random.uniform(0, 0.003))
        return f"{os.getpid()} {key}"
    return run

for key in range(keys):
    while True:
        session.set("shared", random.random())
        try:
            result = session.once(f"key-{key}", effect(key))
            session.commit()
        except ConflictError:
            session.reload()
            continue
        break
    assert result.endswith(f" {key}"), result
session.close()
"""


def test_two_processes_under_load_do_each_effect_at_most_once_each(tmp_path):
    url, lines, keys = f"sqlite:///{tmp_path}/state.db", tmp_path / "effects", 60
    BlockingSession.open(url, agent_id="bot", session_id="ses").__exit__(None, None, None)
    command = [sys.executable, "-c", WORKER, url, str(lines), str(keys)]
    processes = [subprocess.Popen(command, env={"PYTHONPATH": SRC}) for _ in range(2)]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    times = Counter(lines.read_text().splitlines())
    assert max(times.values()) == 1, times.most_common(3)
    done = {line.split()[1] for line in times}
    assert done == {str(key) for key in range(keys)}
    with BlockingSession.open(url, agent_id="bot", session_id="ses") as session:
        for key in range(keys):
            assert session.once(f"key-{key}", Effect("never")) in times
        assert session.verify().ok
