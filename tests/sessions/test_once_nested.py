"""Functions of `once` may use the session, start tasks and wait for threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from holdfast import BlockingSession
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.conversations import Effect, open_session, reopen_session


@async_test
async def test_an_effect_that_was_never_committed_is_done_again_after_a_reload():
    session = await open_session(MemoryStateStore())
    effect, commit = Effect(), session.commit

    async def reloaded_before(**options):
        session.commit = commit
        await session.reload()
        await commit(**options)

    session.commit = reloaded_before
    assert await session.once("pay", effect) == "paid"
    assert await (await reopen_session(session)).once("pay", effect) == "paid"
    assert effect.times == 1


@async_test
async def test_a_task_started_by_the_function_may_use_the_same_key_later():
    session, effect, left = await open_session(MemoryStateStore()), Effect(), []

    async def again():
        await asyncio.sleep(0.01)
        return await session.once("pay", effect)

    def begin():
        left.append(asyncio.create_task(again()))
        return effect()

    await session.once("pay", begin)
    assert await left[0] == "paid"
    assert effect.times == 1


def test_a_blocking_session_awaits_an_async_function():
    effect = Effect()
    with BlockingSession.open("memory:", agent_id="bot") as session:
        assert [session.once("pay", effect.slowly) for _ in range(2)] == ["paid", "paid"]
    assert effect.times == 1


def test_the_function_of_an_effect_may_wait_for_other_threads():
    with BlockingSession.open("memory:", agent_id="bot") as session:

        def batch():
            with ThreadPoolExecutor(2) as pool:
                parts = [pool.submit(session.once, f"part {n}", lambda n=n: n) for n in range(4)]
                session.set("begun", True)
                return [part.result(timeout=10) for part in parts]

        assert session.once("batch", batch) == [0, 1, 2, 3]
        assert session.state["begun"] is True
