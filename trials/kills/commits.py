"""Commits, saves and prunes that a kill interrupts, all on one store."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from holdfast import (
    ConflictError,
    Put,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    StateStore,
    open_state_store,
)
from trials.kills.tasks import AGENT, WORK, Kind, Task, make_bytes, retry_call
from trials.tokens import Ledger, Tokens, find_problems

SAME_SESSION = 5
"""Number of workers that share a session, one after another."""
POLICY = RetentionPolicy(last=3)
SAVES_A_PRUNE = 5
LOADED = 4
AT_ONCE = 8
REFUSED = "others/refused/"
"""The prefix of keys that only refused calls write."""
LARGE = 9 << 20


class OnSharedSession(Kind):
    """Operations on a session that several workers share."""

    def task(self, number: int) -> Task:
        """Return the task of the next worker."""
        session = f"{self.name}-{number // SAME_SESSION}"
        url = self.stores.url("written")
        return Task(self.name, number, self.ledger(number), "written", url, session)


class Commit(OnSharedSession):
    """Commit a message and a value."""

    name = "commit"
    operations = 12

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Commit until killed."""
        asyncio.run(commit_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """Check that everything acknowledged is stored once, and commit the rest again."""
        location = SnapshotLocation(task.session, scope_id=AGENT)
        async with open_state_store(task.url) as store:
            problems = await find_problems(store, location, self.tokens()[task.session])
            problems += await self.check_snapshots(store, location)
            await self.repeat(store, task)
            problems += await find_problems(store, location, self.tokens()[task.session])
            problems += await self.check_snapshots(store, location)
        return problems + self.stores.strays(task.store)

    async def repeat(self, store: StateStore, task: Task) -> None:
        """Repeat the interrupted operation, unless it was done."""
        ledger = Ledger(Path(f"{task.ledger}-again"))
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        stored = {message["content"] for message in session.messages}
        begun = self.tokens()[task.session].begun
        for token in (begun[-1], f"again-{task.number}"):
            ledger.begin(task.session, token)
            if token not in stored:
                session.add_message("user", token)
            await self.write(session, token)
            ledger.done(task.session, token)
        ledger.close()

    async def write(self, session: Session, token: str) -> None:  # noqa: ARG002 - used by Save
        """Commit."""
        await session.commit()

    async def check_snapshots(self, store: StateStore, location: SnapshotLocation) -> list[str]:  # noqa: ARG002
        """Return what is wrong with the snapshots."""
        return []


async def commit_for_ever(task: Task, ledger: Ledger) -> None:
    """Commit until killed, and record every commit."""
    dice = random.Random(task.number)
    async with open_state_store(task.url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        for number in itertools.count():
            token = f"{task.number}-{number}"
            ledger.begin(task.session, token)
            session.add_message("user", token)
            session.set("bulk", make_bytes(dice))
            ledger.begin(WORK, token)
            await retry_call(session.commit)
            ledger.done(WORK, token)
            ledger.done(task.session, token)


class Save(Commit):
    """Save a snapshot per message, tagged with its token."""

    name = "save"

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Save until killed."""
        asyncio.run(save_for_ever(task, ledger))

    async def write(self, session: Session, token: str) -> None:
        """Save, unless that was done."""
        page = await session.archive.list_snapshots(location=session.location)
        if token not in {info.tags["token"] for info in page.snapshots}:
            await session.save(tags={"token": token})

    async def check_snapshots(self, store: StateStore, location: SnapshotLocation) -> list[str]:
        """Check that each acknowledged save is listed once, and that the last ones load."""
        return await save_problems(store, location, self.tokens()[location.session_id])


async def save_for_ever(task: Task, ledger: Ledger) -> None:
    """Save until killed, and record every save."""
    async with open_state_store(task.url) as store:
        await save_session_for_ever(store, task, ledger)


async def save_session_for_ever(store: StateStore, task: Task, ledger: Ledger) -> None:
    """Save one session until killed."""
    dice = random.Random(task.number)
    session = await Session.open(store, agent_id=AGENT, session_id=task.session)
    for number in itertools.count():
        token = f"{task.number}-{number}"
        ledger.begin(WORK, token)
        await save_one(session, token, dice, ledger)
        ledger.done(WORK, token)


class SaveMany(Save):
    """Save several sessions at once, so that a store groups their writes with those of others.

    The others are refused, cancelled, or too large for a group.
    """

    name = "many"
    operations = 60

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Save until killed."""
        asyncio.run(save_many_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """Check each session that was written, and that nothing of a refused call was."""
        async with open_state_store(task.url) as store:
            problems = [f"{key} was refused" async for key in store.list(REFUSED)]
        for session in names_of(task):
            if session in self.tokens():
                problems += await super().check(replace(task, session=session))
        return problems


def names_of(task: Task) -> list[str]:
    """Return the names of the sessions that are saved at once."""
    return [f"{task.session}-{number}" for number in range(AT_ONCE)]


async def save_many_for_ever(task: Task, ledger: Ledger) -> None:
    """Save all sessions until killed, each without waiting for the others."""
    async with open_state_store(task.url) as store:
        tasks = (replace(task, session=session) for session in names_of(task))
        await asyncio.gather(
            *(save_session_for_ever(store, each, ledger) for each in tasks),
            refuse_for_ever(store),
            cancel_for_ever(store, task.number),
            put_large_for_ever(store),
        )


async def refuse_for_ever(store: StateStore) -> None:
    """Make calls that conflict: nothing of them is written."""
    for number in itertools.count():
        puts = [Put(f"{REFUSED}{number}", b"x"), Put(f"{REFUSED}no", b"x", if_match="none")]
        if not store.atomic_put_many:
            puts.reverse()
        with suppress(ConflictError):
            await retry_call(lambda: store.put_many(puts))  # noqa: B023
        await asyncio.sleep(0)


async def cancel_for_ever(store: StateStore, number: int) -> None:
    """Make calls that are cancelled while they wait or are on their way."""
    dice = random.Random(number)
    while True:
        call = asyncio.create_task(retry_call(lambda: store.put("others/cancelled", b"x" * 3000)))
        await asyncio.sleep(dice.uniform(0, 0.004))
        call.cancel()
        await asyncio.wait([call])


async def put_large_for_ever(store: StateStore) -> None:
    """Make calls that are larger than a group may be."""
    while True:
        await retry_call(lambda: store.put("others/large", b"x" * LARGE))
        await asyncio.sleep(0.05)


async def save_one(session: Session, token: str, dice: random.Random, ledger: Ledger) -> None:
    """Save a snapshot with one more message, tagged with its token."""
    ledger.begin(session.session_id, token)
    session.add_message("user", token)
    session.set("bulk", make_bytes(dice))
    await retry_call(lambda: session.save(tags={"token": token}))
    ledger.done(session.session_id, token)


async def save_problems(store: StateStore, location: SnapshotLocation, tokens: Tokens) -> list[str]:
    """Return what is wrong with the snapshots that were not pruned."""
    name = location.session_id
    page = await SnapshotArchive(store).list_snapshots(location=location)
    saved = [info.tags["token"] for info in page.snapshots]
    acknowledged = [token for token in tokens.acknowledged if token in tokens.begun]
    problems = [
        f"{name}: the snapshot of {token} was acknowledged and is lost"
        for token in acknowledged
        if token not in saved
    ]
    problems += [
        f"{name}: the snapshot of {token} is stored {times} times"
        for token, times in Counter(saved).items()
        if times > 1
    ]
    return problems + await load_problems(store, location, LOADED)


async def load_problems(store: StateStore, location: SnapshotLocation, last: int) -> list[str]:
    """Return what is wrong with the last snapshots: each must load with the message of its tag."""
    archive = SnapshotArchive(store)
    page = await archive.list_snapshots(location=location)
    problems = []
    for info in page.snapshots[-last:]:
        loaded = await archive.load_snapshot(location=location, snapshot_id=info.snapshot_id)
        if loaded is None or loaded.state.messages[-1]["content"] != info.tags["token"]:
            problems.append(f"{location.session_id}: {info.snapshot_id} holds something else")
    return problems


class Prune(OnSharedSession):
    """Save several times, and prune to the last three."""

    name = "prune"
    operations = 2

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Save and prune until killed."""
        asyncio.run(prune_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """Check that kept snapshots load, and that a second prune keeps exactly those."""
        location = SnapshotLocation(task.session, scope_id=AGENT)
        tokens = self.tokens()[task.session]
        async with open_state_store(task.url) as store:
            archive = SnapshotArchive(store)
            problems = await find_problems(store, location, tokens)
            problems += await load_problems(store, location, LOADED)
            page = await archive.list_snapshots(location=location)
            kept = [info.tags["token"] for info in page.snapshots]
            if tokens.acknowledged and tokens.acknowledged[-1] not in kept:
                problems.append(f"{task.session}: the newest snapshot is lost")
            if len(kept) < min(3, len(tokens.acknowledged)):
                problems.append(f"{task.session}: only {kept} are left")
            await archive.prune(location=location, policy=POLICY)
            page = await archive.list_snapshots(location=location)
            if [info.tags["token"] for info in page.snapshots] != kept[-3:]:
                problems.append(f"{task.session}: pruned again, it has not what the policy keeps")
            known = await archive.load_manifest(location=location)
            if known.pending_log_start is not None or (len(kept) > 3 and not known.log_start.seq):
                problems.append(f"{task.session}: pruned again, it did not come to its end")
            problems += await load_problems(store, location, LOADED)
            problems += await find_problems(store, location, tokens)
        return problems + self.stores.strays(task.store)


async def prune_for_ever(task: Task, ledger: Ledger) -> None:
    """Save and prune until killed, and record both."""
    dice = random.Random(task.number)
    location = SnapshotLocation(task.session, scope_id=AGENT)
    async with open_state_store(task.url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        for number in itertools.count():
            for each in range(SAVES_A_PRUNE):
                token = f"{task.number}-{number * SAVES_A_PRUNE + each}"
                await save_one(session, token, dice, ledger)
            ledger.begin(WORK, f"prune-{number}")
            await retry_call(lambda: session.archive.prune(location=location, policy=POLICY))
            ledger.done(WORK, f"prune-{number}")
