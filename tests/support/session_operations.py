"""Operations on sessions and their preparation, to be interrupted at any of their writes."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

from holdfast import (
    RetentionPolicy,
    Session,
    SessionSnapshot,
    SnapshotArchive,
    SnapshotLocation,
    Store,
)
from holdfast.log import timeline
from support.faults import FaultyStateStore

AGENT = "bot"
MAIN = SnapshotLocation("ses", "agent", AGENT)
SHARED = SnapshotLocation("ses", "multi_agent", "crew")
FORK = SnapshotLocation("fork", "agent", AGENT)
LOCATIONS = (MAIN, SHARED, FORK)


class Process:
    """One process: its connection to the store, and the session that it works on."""

    def __init__(self, disk, *, atomic):
        self.store = FaultyStateStore(disk, atomic=atomic)
        self.archive = SnapshotArchive(self.store)
        self.session = None

    async def open(self, location=MAIN):
        self.session = await Session.open(
            self.store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        return self.session


class Operation:
    """An operation, and what is stored and done in its process before it."""

    limits: ClassVar[dict[str, int]] = {}
    """When a keyframe is due, if not by default."""

    async def prepare(self, process):
        session = await process.open()
        for number in range(3):
            session.add_message("user", f"question {number}")
            session.record("step.before", number)
            session.set("count", number)
            await session.save(tags={"number": str(number)})

    async def begin(self, process):
        await process.open()

    async def do(self, process):
        raise NotImplementedError

    def may_be_seen(self, before, after):
        """Return the intermediate states that a failure may leave."""
        return []

    def may_be_seen_repeated(self, after):
        """Return the states other than ``after`` that a repetition of a lost success may leave."""
        return []


class Commit(Operation):
    async def begin(self, process):
        session = await process.open()
        session.add_message("assistant", "answer", model="m")
        session.record("step.now", 1)
        session.delete("count")
        session.status = "running"

    async def do(self, process):
        await process.session.commit()


class FirstCommit(Commit):
    async def prepare(self, process):
        pass


class CommitAfterAnother(Commit):
    async def begin(self, process):
        await super().begin(process)
        other = await Session.open(process.store.inner, agent_id=AGENT, session_id="ses")
        if other.get("other") is None:
            other.add_message("user", "by the way")
            other.set("other", 1)
            await other.commit()

    async def do(self, process):
        await process.session.commit(on_conflict="rebase")


class CommitWithKeyframe(Commit):
    limits: ClassVar = {"MAX_SEGMENTS": 1}

    async def prepare(self, process):
        await Operation.prepare(self, process)
        await write_keyframe(process)


class Save(Commit):
    async def do(self, process):
        await process.session.save(tags={"now": "yes"})

    def may_be_seen(self, before, after):
        return [drop_last_snapshot(after)]

    def may_be_seen_repeated(self, after):
        return [repeat_last_snapshot(after)]


class FirstSave(Save):
    async def prepare(self, process):
        pass


class SaveWithoutChanges(Save):
    async def begin(self, process):
        await process.open()


class Update(Operation):
    async def do(self, process):
        def change(session):
            session.set("count", "updated")
            session.status = "running"

        await process.session.update(change)


class Restore(Operation):
    async def do(self, process):
        ids = await process.archive.list_snapshot_ids(location=MAIN)
        await process.session.restore(ids[0])


class Fork(Commit):
    async def do(self, process):
        await process.session.fork("fork")


class ForkOfSnapshot(Operation):
    async def do(self, process):
        ids = await process.archive.list_snapshot_ids(location=MAIN)
        await process.session.fork("fork", at=ids[1])


class Once(Commit):
    async def do(self, process):
        assert await process.session.once("mail", lambda: "sent") == "sent"

    def may_be_seen(self, before, after):
        # Events before the effect are committed first.
        state = [entry for entry in after[MAIN]["state"] if entry[0] != "once"]
        return [{**after, MAIN: {**after[MAIN], "state": state}}]


class Prune(Operation):
    limits: ClassVar = {"MAX_CHAIN": 2}
    days = 0

    async def prepare(self, process):
        await super().prepare(process)
        await save_whole(process, "latest", is_latest=True)
        session = await process.open()
        for number in range(3, 8):
            session.add_message("user", f"question {number}")
            session.record("step.later", number)
            await write_keyframe(process)
            if number % 2:
                await session.save(tags={"number": str(number)})
        session.set("last", "word")
        await session.commit()

    async def do(self, process):
        await prune_session(process, days=self.days)

    def may_be_seen(self, before, after):
        return [
            replace_snapshots(state, snapshots)
            for state in (before, after)
            for snapshots in list_partial_prunes(before, after)
        ]


class PruneOldTombstones(Prune):
    days = 2

    async def prepare(self, process):
        await super().prepare(process)
        await prune_session(process)
        session = await process.open()
        session.record("step.last", 1)
        await session.save()


class DeleteSnapshot(Operation):
    async def prepare(self, process):
        await super().prepare(process)
        await save_whole(process, "given", is_latest=False)
        await save_whole(process, "given", is_latest=True)

    async def do(self, process):
        await process.archive.delete_snapshot(location=MAIN, snapshot_id="given")

    def may_be_seen(self, before, after):
        return [drop_last_snapshot(before)]


class Delete(Operation):
    async def prepare(self, process):
        await super().prepare(process)
        await write_keyframe(process)
        await save_whole(process, "latest", is_latest=True)
        shared = await process.open(SHARED)
        shared.agent("one").add_message("user", "hello")
        await shared.save()

    async def begin(self, process):
        pass

    async def do(self, process):
        await process.archive.delete_session(session_id="ses")


class SaveWhole(Operation):
    is_latest = False

    async def begin(self, process):
        pass

    async def do(self, process):
        await save_whole(process, "given", is_latest=self.is_latest)

    def may_be_seen(self, before, after):
        return [drop_last_snapshot(after)]


class SaveWholeWithKeyframe(SaveWhole):
    limits: ClassVar = {"MAX_SEGMENTS": 1}
    prepare = CommitWithKeyframe.prepare


class SaveWholeFirst(SaveWhole):
    async def prepare(self, process):
        pass


class SaveWholeAsLatest(SaveWhole):
    is_latest = True

    async def prepare(self, process):
        await super().prepare(process)
        await save_whole(process, "latest", is_latest=True, value="before")

    def may_be_seen(self, before, after):
        return [{**after, MAIN: {**after[MAIN], "latest": before[MAIN]["latest"]}}]


OPERATIONS = [
    Commit,
    FirstCommit,
    CommitAfterAnother,
    CommitWithKeyframe,
    Save,
    FirstSave,
    SaveWithoutChanges,
    Update,
    Restore,
    Fork,
    ForkOfSnapshot,
    Once,
    Prune,
    PruneOldTombstones,
    DeleteSnapshot,
    Delete,
    SaveWhole,
    SaveWholeWithKeyframe,
    SaveWholeFirst,
    SaveWholeAsLatest,
]


async def save_whole(process, snapshot_id, *, is_latest, value="whole"):
    """Save a whole state to the archive, without a log."""
    state = Store()
    state.set("state", "whole", value)
    state.set("messages", "000000000000", {"role": "user", "content": "from elsewhere"})
    snapshot = SessionSnapshot.from_snapshot(
        state.snapshot(), agent_id=AGENT, session_id="ses", tags={"whole": value}
    )
    await process.archive.save_snapshot(
        location=MAIN, snapshot_id=snapshot_id, is_latest=is_latest, snapshot=snapshot
    )


async def prune_session(process, *, days=0):
    """Prune as if it were some days later."""
    await process.archive.prune(
        location=MAIN,
        policy=RetentionPolicy(last=1, protected={"number": "1"}),
        now=dt.datetime.now(dt.UTC) + dt.timedelta(days=days),
    )


async def write_keyframe(process):
    """Commit so that a keyframe is written."""
    process.session.set("keyframe", process.session.get("keyframe", 0) + 1)
    most, timeline.MAX_SEGMENTS = timeline.MAX_SEGMENTS, 1
    try:
        await process.session.commit()
    finally:
        timeline.MAX_SEGMENTS = most


def replace_snapshots(state, snapshots):
    return {**state, MAIN: {**state[MAIN], "snapshots": snapshots}}


def drop_last_snapshot(state):
    return replace_snapshots(state, state[MAIN]["snapshots"][:-1])


def repeat_last_snapshot(state):
    snapshots = state[MAIN]["snapshots"]
    return replace_snapshots(state, [*snapshots, *snapshots[-1:]])


def list_partial_prunes(before, after):
    """Yield the snapshots that are left after each deletion of a prune, oldest first."""
    left = list(before[MAIN]["snapshots"])
    for snapshot in before[MAIN]["snapshots"]:
        if snapshot not in after[MAIN]["snapshots"]:
            left.remove(snapshot)
            yield list(left)
