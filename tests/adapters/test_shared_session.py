"""Sessions that adapters share: calls from several event loops and threads, and after a failure."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from holdfast import Session
from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.shared_session import SessionPool, session_exists
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.portal import sync

HERE = SnapshotLocation("ses_1", "agent", "a1")


def add(text):
    return lambda session: session.add_message("user", text)


def texts(session):
    return [each["content"] for each in session.snapshot().values("messages")]


def test_a_session_is_created_by_the_first_update(new_state_store):
    async def main():
        async with new_state_store() as store:
            pool = SessionPool(store)
            assert not await pool.read(HERE, session_exists)
            await pool.update(HERE, add("one"))
            assert await pool.read(HERE, session_exists)
            assert await pool.read(HERE, texts) == ["one"]

    asyncio.run(main())


def test_every_call_starts_from_the_last_commit(new_state_store):
    async def main():
        async with new_state_store() as store, new_state_store() as other_store:
            pool, other = SessionPool(store), SessionPool(other_store)
            await pool.update(HERE, add("one"))
            await other.update(HERE, add("two"))
            await pool.update(HERE, add("three"), must_refresh=False)
            assert await other.read(HERE, texts) == ["one", "two", "three"]

    asyncio.run(main())


def test_event_loops_and_threads_share_a_pool(new_state_store):
    store = new_state_store()
    pool = SessionPool(store)

    def work(number):
        if number % 2:
            pool.update_blocking(HERE, add(f"{number}"))
        else:
            asyncio.run(pool.update(HERE, add(f"{number}")))

    if store.runs_inline:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:  # its connections belong to one event loop
        for number in range(6):
            pool.update_blocking(HERE, add(f"{number}"))
    assert sorted(pool.read_blocking(HERE, texts)) == [*map(str, range(6))]
    sync(store.close())


def test_a_failed_update_leaves_nothing_pending(new_state_store):
    async def main():
        async with new_state_store() as store:
            pool = SessionPool(store)

            def fail(session):
                session.add_message("user", "lost")
                raise LookupError("no")

            with pytest.raises(LookupError):
                await pool.update(HERE, fail)
            assert not await pool.read(HERE, session_exists)
            await pool.update(HERE, add("kept"))
            assert await pool.read(HERE, texts) == ["kept"]

    asyncio.run(main())


def test_sessions_that_are_not_used_are_dropped(new_state_store):
    async def main():
        async with new_state_store() as store:
            pool = SessionPool(store, max_sessions=2)
            places = [SnapshotLocation(f"ses_{number}", "agent", "a1") for number in range(5)]
            await asyncio.gather(*(pool.update(each, add("x")) for each in places))
            for each in places:
                assert await pool.read(each, texts) == ["x"]
            assert len(pool._sessions()) == 2

    asyncio.run(main())


def test_a_session_deleted_by_another_writer_is_empty(new_state_store):
    async def main():
        async with new_state_store() as store:
            pool = SessionPool(store)
            await pool.update(HERE, add("one"))
            session = await Session.open(store, agent_id="a1", session_id="ses_1")
            await session.archive.delete_session(session_id="ses_1")
            assert not await pool.read(HERE, session_exists)
            await pool.update(HERE, add("two"))
            assert await pool.read(HERE, texts) == ["two"]

    asyncio.run(main())


def test_an_adapter_takes_a_store_or_a_url(tmp_path):
    with pytest.raises(TypeError, match="state_store must be a StateStore"):
        StoreAdapter("sqlite:///agents.db")

    async def main():
        async with StoreAdapter.from_url(f"sqlite:///{tmp_path}/agents.db") as adapter:
            await SessionPool(adapter.state_store).update(HERE, add("one"))

    asyncio.run(main())
    assert (tmp_path / "agents.db").exists()


class GatedStore(MemoryStateStore):
    """A store that does not work on the calling thread, and writes when it is told to."""

    runs_inline = False

    def __init__(self):
        super().__init__()
        self.is_writing, self.gate = asyncio.Event(), asyncio.Event()

    async def put_many(self, puts, **conditions):
        self.is_writing.set()
        await self.gate.wait()
        return await super().put_many(puts, **conditions)


def test_a_cancelled_update_ends_before_its_caller_and_a_waiting_one_does_not_start():
    async def main():
        store = GatedStore()
        pool = SessionPool(store)
        first, second = (asyncio.create_task(pool.update(HERE, add(x))) for x in ("one", "two"))
        await store.is_writing.wait()
        for task in (first, second):
            task.cancel()
        await asyncio.wait({second})
        assert not first.done()
        store.gate.set()
        await asyncio.wait({first})
        assert first.cancelled()
        assert second.cancelled()
        assert await pool.read(HERE, texts) == ["one"]

    asyncio.run(main())
    gc.collect()  # a coroutine that was not awaited is reported here


def test_sessions_of_closed_event_loops_are_dropped():
    class RemoteStore(MemoryStateStore):
        runs_inline = False

    pool, loops = SessionPool(RemoteStore()), []

    async def work(number):
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await pool.update(HERE, add(f"{number}"))

    for number in range(4):
        asyncio.run(work(number))
    gc.collect()
    assert [each() is None for each in loops] == [True, True, True, False]
    assert asyncio.run(pool.read(HERE, texts)) == ["0", "1", "2", "3"]
