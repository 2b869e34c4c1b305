"""Follow a session: live, from any position, in any process."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import aclosing

import pytest

from holdfast import (
    BlockingSession,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    Put,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
)
from holdfast.log.segment import decode_segment
from holdfast.snapshots import follow
from holdfast.snapshots.follow import follow_events
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.watch import HUB, StoreWatch
from support.async_tests import async_test
from support.observed_store import ObservedStore

LOCATION = SnapshotLocation("ses_1", scope_id="bot")


def open_session(store):
    return Session.open(store, agent_id="bot", session_id="ses_1")


async def commit_values(session, *values):
    """Commit each value by itself."""
    for value in values:
        session.set("value", value)
        await session.commit()


async def receive(events, count):
    """Return the numbers of the next events, within a time."""
    async with asyncio.timeout(20):
        return [(await anext(events)).seq for _ in range(count)]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Poll often, so that tests of polling are quick."""
    monkeypatch.setattr(follow, "MAX_PAUSE", 0.05)


@async_test
async def test_follow_on_every_backend(new_state_store):
    async with (
        new_state_store() as store,
        new_state_store() as other,
        aclosing(follow_events(other, LOCATION, 0)) as events,
    ):
        first = asyncio.create_task(receive(events, 1))
        await asyncio.sleep(0)
        session = await open_session(store)
        await commit_values(session, 1, 2, 3)
        assert await first == [1]
        assert await receive(events, 3) == [2, 3, 4]
        await commit_values(session, 4)
        assert await receive(events, 1) == [5]
        await SnapshotArchive(store).delete_session(session_id="ses_1")
        with pytest.raises(NotFoundError, match="was deleted"):
            await receive(events, 1)


@async_test
async def test_events_are_complete_and_verified():
    async with MemoryStateStore() as store:
        session = await open_session(store)
        events = session.follow()
        session.add_message("user", "hello")
        session.record("llm.called", {"model": "m"})
        await session.commit()
        async with aclosing(events):
            found = [await anext(events) for _ in range(3)]
        assert found == list(session.events)
        assert [event.type for event in found] == [
            "session.started",
            "message.appended",
            "llm.called",
        ]


@async_test
async def test_start_positions():
    async with MemoryStateStore() as store:
        session = await open_session(store)
        for number in range(5):
            session.set("a", number)
            session.set("b", number)
            await session.commit()  # 3 events, then 2 each
        last = len(session.events)
        assert last == 11
        for after in range(last):
            async with aclosing(session.follow(after)) as events:
                assert await receive(events, last - after) == list(range(after + 1, last + 1))
        from_head, from_session = follow_events(store, LOCATION), session.follow()
        at_end = session.follow(last)
        waiting = asyncio.create_task(receive(from_head, 1))
        await asyncio.sleep(0.01)
        await commit_values(session, 1)
        assert await waiting == [12]
        assert await receive(from_session, 1) == [12]
        assert await receive(at_end, 1) == [12]
        for each in (from_head, from_session, at_end):
            await each.aclose()
        with pytest.raises(NotFoundError, match="has no event 99; its last event is 12"):
            await anext(session.follow(99))
        assert not HUB.watches


@async_test
async def test_head_and_positions_behind_keyframes(monkeypatch):
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 4)
    async with MemoryStateStore() as store:
        session = await open_session(store)
        await commit_values(session, *range(17))
        for after in range(18):
            async with aclosing(session.follow(after)) as events:
                assert await receive(events, 18 - after) == list(range(after + 1, 19))
        starts = [session.follow(18), follow_events(store, LOCATION)]
        waiting = [asyncio.create_task(receive(each, 1)) for each in starts]
        await asyncio.sleep(0.01)
        await commit_values(session, 99)
        assert await asyncio.gather(*waiting) == [[19], [19]]


@pytest.mark.parametrize(
    ("after", "error"), [(-1, ValueError), ("1", TypeError), (True, TypeError), (1.5, TypeError)]
)
@async_test
async def test_invalid_after(after, error):
    async with MemoryStateStore() as store:
        session = await open_session(store)
        with pytest.raises(error, match="after must"):
            session.follow(after)
        with pytest.raises(error, match="after must"):
            follow_events(store, LOCATION, after)


@async_test
async def test_no_event_is_missed_or_repeated_with_concurrent_writers():
    async with MemoryStateStore() as store:
        sessions = [await open_session(store) for _ in range(3)]
        async with aclosing(follow_events(store, LOCATION, 0)) as events:
            received = asyncio.create_task(receive(events, 1 + 3 * 40))

            async def write(session, name):
                for number in range(40):
                    session.set(name, number)
                    await session.commit(on_conflict="rebase")
                    if number % 7 == 0:
                        await asyncio.sleep(0)

            await asyncio.gather(*(write(each, f"w{n}") for n, each in enumerate(sessions)))
            assert await received == list(range(1, 122))


@async_test
async def test_catching_up_reads_pages(monkeypatch):
    store = ObservedStore()
    async with store:
        session = await open_session(store)
        await commit_values(session, *range(100))
        store.forget()
        async with aclosing(session.follow(0)) as events:
            assert await receive(events, 101) == list(range(1, 102))
            # A manifest, some segments, a listing, and then a batch for each page.
            assert len(store.calls) <= 2 + follow.SINGLE_READS + 100 // follow.PAGE_SIZE + 1
            assert store.listings == 1


@async_test
async def test_listed_keys_are_used_up(monkeypatch):
    monkeypatch.setattr(follow, "PAGE_SIZE", 3)
    monkeypatch.setattr(follow, "LIST_SIZE", 7)
    async with MemoryStateStore() as store:
        session = await open_session(store)
        await commit_values(session, *range(30))
        async with aclosing(session.follow(0)) as events:
            assert await receive(events, 20) == list(range(1, 21))
            await commit_values(session, *range(5))
            assert await receive(events, 16) == list(range(21, 37))


@async_test
async def test_one_commit_costs_two_calls_however_long_the_log(monkeypatch):
    monkeypatch.setattr(follow, "FIRST_PAUSE", 5.0)
    monkeypatch.setattr(follow, "MAX_PAUSE", 5.0)
    store = ObservedStore()
    async with store:
        session = await open_session(store)
        await commit_values(session, *range(50))
        async with aclosing(session.follow()) as events:
            waiting = asyncio.create_task(receive(events, 1))
            await asyncio.sleep(0.01)
            await commit_values(session, 1)
            await waiting
            for number in range(3):
                waiting = asyncio.create_task(receive(events, 1))
                await asyncio.sleep(0.01)
                store.forget()
                await commit_values(session, number)
                assert len(await waiting) == 1
                assert store.calls[0] == "put_many"
                assert len(store.calls) <= 3


@async_test
async def test_lost_wake_ups_only_cost_time(monkeypatch):
    monkeypatch.setattr(HUB, "report", lambda keys: None)
    async with MemoryStateStore() as store:
        session = await open_session(store)
        for wakes in (False, True):
            monkeypatch.setattr(StoreWatch, "hears_others", wakes)
            monkeypatch.setattr(follow, "SAFETY_PAUSE", 0.05)
            async with aclosing(session.follow()) as events:
                for number in range(3):
                    waiting = asyncio.create_task(receive(events, 1))
                    await asyncio.sleep(0.01)
                    await commit_values(session, number)
                    assert len(await waiting) == 1
                    if not number and not wakes:
                        await receive(events, 1)  # the first commit has two events


@async_test
async def test_one_of_many_followers_polls_for_all(monkeypatch):
    monkeypatch.setattr(follow, "FIRST_PAUSE", 0.02)
    content = MemoryStateStore()
    store = ObservedStore()
    store._entries, store._keys, store._lock = content._entries, content._keys, content._lock
    async with store:
        session = await open_session(content)
        await commit_values(session, 1)
        followers = [follow_events(store, LOCATION, 0) for _ in range(30)]
        assert await asyncio.gather(*(receive(each, 2) for each in followers)) == [[1, 2]] * 30
        monkeypatch.setattr(HUB, "report", lambda keys, report=HUB.report: None)
        waiting = [asyncio.create_task(receive(each, 1)) for each in followers]
        await asyncio.sleep(0.1)
        store.forget()
        await asyncio.sleep(0.3)
        assert 2 <= len(store.calls) <= 20  # and not 30 times as many
        monkeypatch.undo()
        for key, entry in (await make_next_segment(content)).items():
            content._entries[key] = entry  # without waking anyone
        assert await asyncio.gather(*waiting) == [[3]] * 30
        for each in followers:
            await each.aclose()


async def make_next_segment(content):
    """Return the entry of another commit, which is not in the store."""
    copy = MemoryStateStore()
    await copy_entries(content, copy)
    known = set(copy._entries)
    await commit_values(await open_session(copy), 2)
    return {key: copy._entries[key] for key in set(copy._entries) - known}


@async_test
async def test_pruned_events_are_an_error():
    async with MemoryStateStore() as store:
        session = await open_session(store)
        for number in range(5):
            await commit_values(session, number)
            await session.save()
        behind = session.follow(2)
        assert await receive(behind, 1) == [3]
        await SnapshotArchive(store).prune(location=LOCATION, policy=RetentionPolicy(last=1))
        start = (await SnapshotArchive(store).load_manifest(location=LOCATION)).log_start.seq
        assert start == 6
        with pytest.raises(NotFoundError, match="events up to 6 .* were pruned.*after=6"):
            await receive(behind, 5)
        with pytest.raises(NotFoundError, match="events up to 6 .* were pruned"):
            await anext(session.follow(5))
        for after in (0, 6):  # 0: the beginning of what is there
            async with aclosing(session.follow(after)) as events:
                waiting = asyncio.create_task(receive(events, 1))
                await asyncio.sleep(0.01)
                await session.refresh()
                await commit_values(session, f"after {after}")
                assert await waiting == [7]


@async_test
async def test_replaced_session_is_an_error():
    async with MemoryStateStore() as store:
        session = await open_session(store)
        await commit_values(session, 1)
        waiting = asyncio.create_task(anext(session.follow()))
        await asyncio.sleep(0.01)
        await SnapshotArchive(store).delete_session(session_id="ses_1")
        with pytest.raises(NotFoundError, match="ses_1 of bot was deleted"):
            await waiting
        with pytest.raises(NotFoundError, match="was deleted"):
            await anext(session.follow(0))
        again = await open_session(store)
        await commit_values(again, 1, 2)
        with pytest.raises(NotFoundError, match="was deleted and created again"):
            await anext(session.follow())
        await session.reload()
        assert await receive(session.follow(0), 3) == [1, 2, 3]


@pytest.mark.parametrize("damage", ["digest", "chain", "missing", "manifest", "newer"])
@async_test
async def test_damaged_log_is_an_error_after_the_intact_events(damage, monkeypatch):
    monkeypatch.setattr(follow, "CHECK_SECONDS", 0.0)
    async with MemoryStateStore() as store:
        session = await open_session(store)
        await commit_values(session, 1, 2, 3, 4)
        keys = [key async for key in store.list(f"{LOCATION.prefix}log/")]
        entry = await store.get(keys[2])
        if damage == "digest":
            await store.put(keys[2], entry.value.replace(b'"value"', b'"valve"'))
        elif damage == "chain":
            prev = decode_segment(keys[2], entry.value).prev
            await store.put(keys[2], entry.value.replace(prev.encode(), b"0" * len(prev)))
        elif damage == "missing":
            await store.delete(keys[2])
        elif damage == "newer":
            monkeypatch.setattr(follow, "SINGLE_READS", 0)
            await store.put(keys[2], entry.value.replace(b'"format":', b'"format":9', 1))
        else:
            await store.put(LOCATION.manifest_key, b"{")
        received = []
        with pytest.raises(InvalidDocumentError if damage == "newer" else IntegrityError):
            async with asyncio.timeout(20), aclosing(session.follow(0)) as events:
                async for event in events:
                    received.append(event.seq)
        assert received == ([] if damage == "manifest" else [1, 2, 3])


@pytest.mark.parametrize(
    ("lost", "error", "text"),
    [([3], IntegrityError, "is missing"), ([2, 3, 4], NotFoundError, "lost event 3")],
)
@async_test
async def test_gap_and_lost_end_are_found_while_waiting(lost, error, text, monkeypatch):
    monkeypatch.setattr(follow, "CHECK_SECONDS", 0.0)
    async with MemoryStateStore() as store, MemoryStateStore() as original:
        session = await open_session(original)
        await commit_values(session, 1, 2)
        await copy_entries(original, store)
        async with aclosing(follow_events(store, LOCATION, 0)) as events:
            assert await receive(events, 3) == [1, 2, 3]
            await commit_values(session, 3, 4)
            keys = [key async for key in original.list(f"{LOCATION.prefix}log/")]
            for number in lost:
                await original.delete(keys[number - 1])
                await store.delete(keys[number - 1])
            await copy_entries(original, store)
            with pytest.raises(error, match=text):
                await receive(events, 1)


@pytest.mark.parametrize(("after", "commits"), [(0, 1), (0, 2), (0, 3), (4, 1), (4, 2)])
@async_test
async def test_log_that_continues_from_a_backup_is_an_error(after, commits, monkeypatch):
    """It ends before, at or after the last known event, with other events."""
    monkeypatch.setattr(follow, "CHECK_SECONDS", 0.0)
    async with MemoryStateStore() as store, MemoryStateStore() as backup:
        await commit_values(await open_session(store), 1)
        await copy_entries(store, backup)
        await commit_values(await open_session(backup), *range(commits))
        await commit_values(await open_session(store), "lost", "too")
        async with aclosing(follow_events(store, LOCATION, after)) as events:
            if after:
                waiting = asyncio.create_task(receive(events, 1))
                await asyncio.sleep(0.01)
            else:
                assert await receive(events, 4) == [1, 2, 3, 4]
            log = f"{LOCATION.prefix}log/"
            for key in [key async for key in store.list(log)]:
                await store.delete(key)
            await copy_entries(backup, store)
            with pytest.raises(NotFoundError, match="lost event 4 .* restored from a backup"):
                await (waiting if after else receive(events, 1))


@async_test
async def test_large_value_that_was_pruned_is_an_error_that_says_so(monkeypatch):
    async with MemoryStateStore() as store:
        session = await open_session(store)
        for number in range(10):
            session.set("value", f"{number}" * 70_000)
            await session.save()
        behind = await open_session(store)
        events = behind.follow(0)
        assert await receive(events, 6) == list(range(1, 7))  # it has read a page
        await SnapshotArchive(store).prune(location=LOCATION, policy=RetentionPolicy(last=1))
        with pytest.raises(NotFoundError, match="events up to 11 .* were pruned"):
            await receive(events, 1)


async def copy_entries(source, target):
    """Copy all entries of a store."""
    entries = await source.get_many([key async for key in source.list()])
    await target.put_many([Put(key, entry.value) for key, entry in entries.items()])


@async_test
async def test_cancelled_and_abandoned_followers_clean_up():
    async with MemoryStateStore() as store:
        session = await open_session(store)
        await commit_values(session, 1)
        task = asyncio.create_task(anext(session.follow()))
        await asyncio.sleep(0.01)
        assert HUB.watches
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not HUB.watches
        async for _event in session.follow(0):
            break
        gc.collect()
        await asyncio.sleep(0.01)
        assert not HUB.watches


def test_blocking_follow(tmp_path):
    with BlockingSession.open(
        f"sqlite:///{tmp_path}/state.db", agent_id="bot", session_id="ses_1"
    ) as session:
        session.set("value", 1)
        session.commit()
        events = session.follow(0)
        assert [next(events).seq, next(events).seq] == [1, 2]
        received = []
        thread = threading.Thread(target=lambda: received.append(next(events)))
        thread.start()
        session.set("value", 2)
        session.commit()
        thread.join(20)
        assert [event.seq for event in received] == [3]
        events.close()
        assert list(events) == []
        with session.follow() as live:
            session.set("value", 3)
            session.commit()
            assert next(live).seq == 4
        with pytest.raises(ValueError, match="after must"):
            session.follow(-1)
