"""A short soak, what its check reports, and regressions that it found."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt

import pytest

from holdfast import (
    ConflictError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    open_state_store,
)
from holdfast.ids import new_id
from holdfast.log.timeline import Timeline
from holdfast.snapshots.prune import record_cutoff
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.base import WrappedStateStore
from support.async_tests import async_test
from support.backends import SharedMemory
from support.observed_store import InterruptedStore
from trials.soak.__main__ import soak_store
from trials.soak.check import check_store
from trials.soak.memory import ALLOWED, Memory
from trials.soak.notes import Notes, location_of, session_id_of
from trials.tokens import Ledger

LOCATION = SnapshotLocation("ses", scope_id="bot")


def test_concurrent_processes_and_a_server_lose_nothing(tmp_path):
    report = soak_store(
        f"sqlite:///{tmp_path}/state.db",
        tmp_path,
        name="sqlite",
        seconds=2.4,
        processes=2,
        sessions=4,
        seed=7,
    )
    assert report.problems == []
    for name in ("commits", "saves", "tokens found", "sessions verified", "HTTP requests"):
        assert report.counts[name] > 0, report.table
    assert report.counts["MB of the server in the last third"] > 0


@pytest.fixture
def soak_run(tmp_path):
    """A store with one session of two tokens and a snapshot, and the records of its worker."""
    session_id = session_id_of(0, 0)
    url = f"sqlite:///{tmp_path}/state.db"
    ledger, notes = Ledger(tmp_path / "0.ledger"), Notes(tmp_path / "0.notes")

    async def write():
        async with open_state_store(url) as store:
            agent = location_of(session_id).scope_id
            session = await Session.open(store, agent_id=agent, session_id=session_id)
            for token in ("0-1", "0-2"):
                ledger.begin(session_id, token)
                session.add_message("user", token)
                snapshot = await session.save()
                ledger.done(session_id, token)
            notes.note("snapshot", session_id, snapshot.snapshot_id, snapshot.digest)
            notes.note("state", session_id, str(session.log.head.seq), snapshot.digest)
            await session.once("key-1", lambda: "0-3")
            notes.note("once", session_id, "key-1", "0-3")

    asyncio.run(write())
    yield Recorded(url, tmp_path, session_id, ledger, notes)
    ledger.close()
    notes.close()


class Recorded:
    def __init__(self, url, folder, session_id, ledger, notes):
        self.url, self.folder, self.session_id = url, folder, session_id
        self.ledger, self.notes = ledger, notes

    @property
    def problems(self):
        return "\n".join(check_store(self.url, self.folder).problems)


def test_the_check_accepts_an_intact_store(soak_run):
    assert soak_run.problems == ""


def test_the_check_reports_lost_refused_changed_and_repeated_writes(soak_run):
    session_id = soak_run.session_id
    soak_run.ledger.begin(session_id, "0-9")
    soak_run.ledger.done(session_id, "0-9")
    soak_run.notes.note("refused", session_id, "0-2")
    soak_run.notes.note("state", session_id, "2", "sha256:another")
    soak_run.notes.note(
        "snapshot", session_id, "019a8b5e-6f00-7000-8000-000000000000", "sha256:any"
    )
    soak_run.notes.note("once", session_id, "key-1", "0-4")
    soak_run.notes.note("copy", "fork-0-5", "fork", "sha256:any")
    found = soak_run.problems
    assert "0-9 was acknowledged but is lost" in found
    assert "0-2 was refused but is stored" in found
    assert "state 2 was sha256:another" in found
    assert "snapshot 019a8b5e-6f00-7000-8000-000000000000 was sha256:any" in found
    assert "once key-1 gave 0-4" in found
    assert "fork-0-5: copy fork was sha256:any" in found
    assert "the catalog: fork-0-5 is not listed" in found


def test_a_process_that_grows_in_the_last_third_is_reported():
    memory = Memory({"worker 0": 1, "worker 1": 2})
    memory.samples["worker 0"] = [[0], [100 * ALLOWED], [101 * ALLOWED]]
    memory.samples["worker 1"] = [[0], [100 * ALLOWED], [101 * ALLOWED + 1]]
    (problem,) = memory.problems()
    assert problem.startswith("worker 1 grew")


class SlowStore(WrappedStateStore):
    """A store that waits before it writes a keyframe."""

    def __init__(self, inner):
        super().__init__(inner)
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def put(self, key, value, **condition):
        if "/keyframes/" in key:
            self.reached.set()
            await self.go.wait()
        return await super().put(key, value, **condition)


@async_test
async def test_concurrent_prunes_with_different_policies_lose_nothing():
    store = MemoryStateStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for number in range(4):
        session.add_message("user", f"message {number}")
        await session.save()

    async def prune(where, last):
        policy = RetentionPolicy(last=last)
        await SnapshotArchive(where).prune(location=session.location, policy=policy)

    slow, slower = SlowStore(store), SlowStore(store)
    two = asyncio.create_task(prune(slow, 2))
    await slow.reached.wait()
    await prune(store, 3)
    one = asyncio.create_task(prune(slower, 1))
    await slower.reached.wait()
    slow.go.set()
    await two
    slower.go.set()
    await one
    again = await Session.open(store, agent_id="bot", session_id="ses")
    assert again.message_count == 4
    assert (await again.verify()).ok


class InterruptedRead(WrappedStateStore):
    """A store that calls a function right before a segment is first read."""

    def __init__(self, inner, happens):
        super().__init__(inner)
        self.happens = happens

    async def get_many(self, keys):
        wanted = list(keys)
        if self.happens is not None and any("/log/" in key for key in wanted):
            happens, self.happens = self.happens, None
            await happens()
        return await super().get_many(wanted)


@async_test
async def test_events_can_be_read_during_a_prune():
    store = MemoryStateStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for number in range(5):
        session.add_message("user", f"message {number}")
        await session.save()
    session.add_message("user", "the last")
    await session.commit()

    async def prune(*lasts):
        for last in lasts:
            policy = RetentionPolicy(last=last)
            await SnapshotArchive(store).prune(location=session.location, policy=policy)

    await prune(3)
    seq = session.log.head.seq
    busy = InterruptedRead(store, lambda: prune(2, 1))
    timeline = Timeline(busy, session.location.prefix, session._committer.incarnation.id)
    assert [event.seq async for event in timeline.events(seq)] == [seq]
    assert busy.happens is None


@async_test
async def test_a_rebase_succeeds_among_busy_writers():
    content = MemoryStateStore()
    theirs = await Session.open(SharedMemory(content), agent_id="bot", session_id="ses")
    ours = await Session.open(SharedMemory(content), agent_id="bot", session_id="ses")

    async def be_busy():
        while True:
            theirs.record("tick")
            await theirs.commit(on_conflict="rebase")
            await asyncio.sleep(0.001)

    busy = asyncio.create_task(be_busy())
    for _ in range(5):
        await asyncio.sleep(0.01)
        ours.record("tock")
        await ours.commit(on_conflict="rebase")
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)


@pytest.mark.parametrize("way", ["a session", "an archive", "the latest"])
def test_a_snapshot_of_an_old_state_saved_during_a_prune_loads_or_conflicts(way):
    async def prepare():
        store = MemoryStateStore()
        idle = await Session.open(store, agent_id="bot", session_id="ses")
        idle.add_message("user", "first")
        first = await idle.save()
        other = await Session.open(store, agent_id="bot", session_id="ses")
        for number in range(3):
            other.add_message("user", f"message {number}")
            await other.save()
        return store, idle, first

    async def prune(where):
        policy = RetentionPolicy(last=1)
        await SnapshotArchive(where).prune(location=LOCATION, policy=policy)

    async def save_again(store, idle, first):
        if way == "a session":
            return (await idle.save()).snapshot_id
        id_, is_latest = new_id(), way == "the latest"
        await SnapshotArchive(store).save_snapshot(
            location=LOCATION, snapshot_id=id_, is_latest=is_latest, snapshot=first
        )
        return None if is_latest else id_

    async def run():
        counting = InterruptedStore((await prepare())[0], 0, None)
        await prune(counting)
        for at in range(1, counting.calls + 1):
            store, idle, first = await prepare()
            found = []

            async def save(store=store, idle=idle, first=first, found=found):
                with contextlib.suppress(ConflictError):
                    found.append(await save_again(store, idle, first))

            await prune(InterruptedStore(store, at, save))
            archive = SnapshotArchive(store)
            assert (await archive.verify(location=LOCATION)).damage == [], at
            listed = await archive.list_snapshot_ids(location=LOCATION)
            for each in found:
                if each is None or each in listed:
                    loaded = await archive.load_snapshot(location=LOCATION, snapshot_id=each)
                    assert [m["content"] for m in loaded.state.messages] == ["first"], at

    asyncio.run(run())


@async_test
async def test_the_furthest_pending_log_start_stays_until_it_is_reached():
    store = MemoryStateStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    positions = []
    for number in range(3):
        session.add_message("user", f"message {number}")
        positions.append((await session.save()).position)
    low, _, high = positions

    async def record(log_start, *, is_reached):
        moment = dt.datetime.now(dt.UTC)
        before = await SnapshotArchive(store).load_manifest(location=LOCATION)
        await record_cutoff(store, LOCATION, before, log_start, moment, is_reached=is_reached)
        known = await SnapshotArchive(store).load_manifest(location=LOCATION)
        return known.log_start.seq, known.pending_log_start and known.pending_log_start.seq

    assert await record(high, is_reached=False) == (0, high.seq)
    assert await record(low, is_reached=False) == (0, high.seq)
    assert await record(low, is_reached=True) == (low.seq, high.seq)
    assert await record(high, is_reached=True) == (high.seq, None)
