"""Follow the sessions of a store."""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import aclosing

import pytest

from holdfast import Catalog, RetentionPolicy, Session, SnapshotArchive, SnapshotLocation
from holdfast.snapshots import incarnation
from holdfast.snapshots.catalog import follow
from holdfast.snapshots.keys import index_key
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.watch import HUB
from support.async_tests import async_test
from support.backends import SharedMemory
from support.observed_store import ObservedStore


async def commit(store, session_id="ses_1", agent_id="bot", *, value=1):
    session = await Session.open(store, agent_id=agent_id, session_id=session_id)
    session.set("value", value)
    await session.commit()
    return session


async def receive(changes, count=1):
    """Return the next changes as texts, within a time."""
    async with asyncio.timeout(20):
        found = [await anext(changes) for _ in range(count)]
    return [f"{each.kind} {each.agent_id}/{each.session_id} {each.seq}" for each in found]


async def start(changes, count=1):
    """Start to receive, and return the task once the follower waits."""
    task = asyncio.create_task(receive(changes, count))
    await asyncio.sleep(0.02)
    return task


@pytest.fixture
def polling(monkeypatch):
    """Lose all wake-ups, and poll often."""
    monkeypatch.setattr(HUB, "report", lambda keys: None)
    monkeypatch.setattr(follow, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(follow, "MAX_PAUSE", 0.02)
    monkeypatch.setattr(follow, "MAX_SHARE", 0.9)


@async_test
async def test_changes_of_this_process():
    async with MemoryStateStore() as store:
        await commit(store, "old")
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes)
            await commit(store)
            assert await task == ["created bot/ses_1 2"]
            session = await commit(store, value=2)
            assert await receive(changes) == ["committed bot/ses_1 3"]
            await session.save()
            session.set("value", 3)
            await session.commit()
            assert await receive(changes) == ["committed bot/ses_1 4"]
            await commit(store, "old", value=2)
            assert await receive(changes) == ["committed bot/old 3"]
            await SnapshotArchive(store).delete_session(session_id="ses_1")
            assert await receive(changes) == ["deleted bot/ses_1 0"]
            await commit(store)
            assert await receive(changes) == ["created bot/ses_1 2"]
        assert not HUB.watches


@async_test
async def test_commit_costs_a_few_reads_however_large_the_store(monkeypatch):
    monkeypatch.setattr(follow, "FIRST_PAUSE", 5.0)
    store = ObservedStore()
    async with store:
        for number in range(30):
            await commit(store, f"ses_{number}", f"agent {number % 7}")
        session = await commit(store)
        for number in range(50):
            session.set("value", number)
            await session.commit()
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes)
            store.forget()
            session.set("value", "new")
            await session.commit()
            assert await task == ["committed bot/ses_1 53"]
            assert store.calls[0] == "put_many"
            assert len(store.calls) <= 6


@async_test
async def test_agent_filter():
    async with MemoryStateStore() as store:
        async with aclosing(Catalog(store).follow("bot")) as changes:
            task = await start(changes)
            await commit(store, "a", "other")
            await commit(store, "b")
            assert await task == ["created bot/b 2"]
            await commit(store, "a", "other", value=2)
            await commit(store, "b", value=2)
            assert await receive(changes) == ["committed bot/b 3"]
        with pytest.raises(ValueError, match="agent_id"):
            Catalog(store).follow("")


@pytest.mark.usefixtures("polling")
@async_test
async def test_changes_of_other_processes_are_polled():
    content = MemoryStateStore()
    async with SharedMemory(content) as store, SharedMemory(content) as other:
        await commit(other, "old")
        for agent in (None, "bot"):
            async with aclosing(Catalog(store).follow(agent)) as changes:
                task = await start(changes)
                name = f"ses_{agent}"
                session = await commit(other, name)
                assert await task == [f"created bot/{name} 2"]
                for number in range(3):  # within the resolution of the index
                    session.set("value", f"{number}")
                    await session.commit()
                    assert await receive(changes) == [f"committed bot/{name} {number + 3}"]


@pytest.mark.usefixtures("polling")
@async_test
async def test_commit_to_an_old_session_moves_its_index_entry(monkeypatch):
    monkeypatch.setattr(incarnation, "ACTIVITY_RESOLUTION", dt.timedelta(0))
    monkeypatch.setattr(follow, "ACTIVE_SECONDS", 0.0)
    monkeypatch.setattr(follow, "TOP_SIZE", 2)
    content = MemoryStateStore()
    async with SharedMemory(content) as store, SharedMemory(content) as other:
        for number in range(7):
            await commit(other, f"old_{number}")
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes, 3)
            for number in (0, 3, 5):
                await commit(other, f"old_{number}", value=2)
            assert sorted(await task) == [f"committed bot/old_{number} 3" for number in (0, 3, 5)]


@pytest.mark.usefixtures("polling")
@async_test
async def test_stale_index_key_counts_once():
    content = MemoryStateStore()
    store = ObservedStore()
    store._entries, store._keys, store._lock = content._entries, content._keys, content._lock
    async with store:
        session = await commit(content)
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes)
            later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
            await content.put(index_key(session.location, later), b"{}")
            await asyncio.sleep(0.1)
            manifest = session.location.manifest_key
            store.forget()
            await asyncio.sleep(0.1)
            assert manifest not in store.read
            await commit(content, "ses_2")
            assert await task == ["created bot/ses_2 2"]


@pytest.mark.usefixtures("polling")
@async_test
async def test_whole_index_shows_deletions_and_forks(monkeypatch):
    monkeypatch.setattr(follow, "WHOLE_SECONDS", 0.0)
    content = MemoryStateStore()
    async with SharedMemory(content) as store, SharedMemory(content) as other:
        session = await commit(other, "old")
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes)
            await session.fork("fork", at=1)
            assert await task == ["created bot/fork 1"]
            await SnapshotArchive(other).delete_session(session_id="old")
            assert await receive(changes) == ["deleted bot/old 0"]


@async_test
async def test_unknown_keys_make_it_poll():
    content = MemoryStateStore()
    async with SharedMemory(content) as store, aclosing(Catalog(store).follow()) as changes:
        task = await start(changes)
        watches = [each for some in HUB.watches.values() for each in some]
        await commit(store)
        for watch in watches:
            watch.take_keys()
            watch.notify(None)
        assert await task == ["created bot/ses_1 2"]


@async_test
async def test_commits_after_a_restore_from_a_backup():
    async with MemoryStateStore() as store:
        session = await commit(store)
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes)
            session.set("value", 2)
            await session.commit()
            assert await task == ["committed bot/ses_1 3"]
            await store.delete(session.committer.timeline.log.key(3))
            assert await receive(changes) == ["committed bot/ses_1 2"]
            await commit(store, value="other")
            assert await receive(changes) == ["committed bot/ses_1 3"]


@pytest.mark.usefixtures("polling")
@async_test
async def test_store_that_refuses_to_notify_is_polled(monkeypatch):
    monkeypatch.setattr(follow, "SAFETY_PAUSE", 1000.0)
    content = MemoryStateStore()
    async with SharedMemory(content) as store, SharedMemory(content) as other:
        store.wakes_other_processes = True
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes)
            await asyncio.sleep(0.05)
            await commit(other)
            assert await task == ["created bot/ses_1 2"]


@async_test
async def test_damaged_sessions_do_not_end_it():
    location = SnapshotLocation("ses_1", scope_id="bot")
    async with MemoryStateStore() as store:
        session = await commit(store)
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes, 2)
            session.set("value", 2)
            await session.commit()
            await asyncio.sleep(0.05)
            await store.put(session.committer.timeline.log.key(4), b"{")
            assert (await task)[1] == "committed bot/ses_1 4"
            await store.put(location.manifest_key, b"{")
            await asyncio.sleep(0.05)
            await commit(store, "ses_2")
            assert await receive(changes) == ["created bot/ses_2 2"]


@async_test
async def test_prune_is_not_a_commit_of_a_session_that_was_read():
    async with MemoryStateStore() as store:
        session = await commit(store)
        await session.save()
        session.set("value", 2)
        await session.save()
        async with aclosing(Catalog(store).follow()) as changes:
            task = await start(changes)
            await SnapshotArchive(store).prune(
                location=session.location, policy=RetentionPolicy(last=1)
            )
            await asyncio.sleep(0.05)
            await commit(store, "ses_2")
            assert await task == ["created bot/ses_2 2"]
