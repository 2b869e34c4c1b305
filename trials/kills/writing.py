"""Commits, saves and prunes that are cut short by a kill, all on one store."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from pathlib import Path

from holdfast import (
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    StateStore,
    open_state_store,
)
from trials.kills.tasks import AGENT, WORK, Kind, Task, bulk, insist
from trials.truth import Ledger, Told, problems_of

SAME_SESSION = 5
"""So many victims work on one session before the next has a new one."""
POLICY = RetentionPolicy(last=3)
SAVES_A_PRUNE = 5
LOADED = 4


class OnSharedSession(Kind):
    """Work on a session that some victims share, one after another."""

    def task(self, number: int) -> Task:
        """The next victim's."""
        session = f"{self.name}-{number // SAME_SESSION}"
        url = self.places.url("written")
        return Task(self.name, number, self.ledger(number), "written", url, session)


class Commit(OnSharedSession):
    """One message and one value a commit."""

    name = "commit"
    operations = 12

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Commit."""
        asyncio.run(commit_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """What was acknowledged is there once; what was not is committed again, if it is not."""
        location = SnapshotLocation(task.session, scope_id=AGENT)
        async with open_state_store(task.url) as store:
            problems = await problems_of(store, location, self.told()[task.session])
            problems += await self.check_snapshots(store, location)
            await self.repeat(store, task)
            problems += await problems_of(store, location, self.told()[task.session])
            problems += await self.check_snapshots(store, location)
        return problems + self.places.strays(task.store)

    async def repeat(self, store: StateStore, task: Task) -> None:
        """Do what was interrupted: whoever is next sees whether it was done, and does it."""
        ledger = Ledger(Path(f"{task.ledger}-again"))
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        there = {message["content"] for message in session.messages}
        begun = self.told()[task.session].begun
        for token in (begun[-1], f"again-{task.number}"):
            ledger.begin(task.session, token)
            if token not in there:
                session.add_message("user", token)
            await self.write(session, token)
            ledger.done(task.session, token)
        ledger.close()

    async def write(self, session: Session, token: str) -> None:  # noqa: ARG002 - a save tells it
        """Make it durable."""
        await session.commit()

    async def check_snapshots(self, store: StateStore, location: SnapshotLocation) -> list[str]:  # noqa: ARG002
        """What is wrong with the snapshots: a commit makes none."""
        return []


async def commit_for_ever(task: Task, ledger: Ledger) -> None:
    """Commit, and note it."""
    dice = random.Random(task.number)
    async with open_state_store(task.url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        for number in itertools.count():
            token = f"{task.number}-{number}"
            ledger.begin(task.session, token)
            session.add_message("user", token)
            session.set("bulk", bulk(dice))
            ledger.begin(WORK, token)
            await insist(session.commit)
            ledger.done(WORK, token)
            ledger.done(task.session, token)


class Save(Commit):
    """A durable snapshot a message, tagged with what it is to hold."""

    name = "save"

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Save."""
        asyncio.run(save_for_ever(task, ledger))

    async def write(self, session: Session, token: str) -> None:
        """Save it, unless that was done."""
        page = await session.archive.list_snapshots(location=session.location)
        if token not in {info.tags["token"] for info in page.snapshots}:
            await session.save(tags={"token": token})

    async def check_snapshots(self, store: StateStore, location: SnapshotLocation) -> list[str]:
        """Each acknowledged save is listed once, in its order; the last ones load."""
        return await save_problems(store, location, self.told()[location.session_id])


async def save_for_ever(task: Task, ledger: Ledger) -> None:
    """Save, and note it."""
    dice = random.Random(task.number)
    async with open_state_store(task.url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        for number in itertools.count():
            token = f"{task.number}-{number}"
            ledger.begin(WORK, token)
            await save_one(session, token, dice, ledger)
            ledger.done(WORK, token)


async def save_one(session: Session, token: str, dice: random.Random, ledger: Ledger) -> None:
    """One snapshot that holds a message and is tagged with its text."""
    ledger.begin(session.session_id, token)
    session.add_message("user", token)
    session.set("bulk", bulk(dice))
    await insist(lambda: session.save(tags={"token": token}))
    ledger.done(session.session_id, token)


async def save_problems(store: StateStore, location: SnapshotLocation, told: Told) -> list[str]:
    """What is wrong with the snapshots that were not pruned."""
    name = location.session_id
    page = await SnapshotArchive(store).list_snapshots(location=location)
    tokens = [info.tags["token"] for info in page.snapshots]
    acknowledged = [token for token in told.acknowledged if token in told.begun]
    problems = [
        f"{name}: the snapshot of {token} was acknowledged and is lost"
        for token in acknowledged
        if token not in tokens
    ]
    problems += [
        f"{name}: the snapshot of {token} is there {times} times"
        for token, times in Counter(tokens).items()
        if times > 1
    ]
    return problems + await load_problems(store, location, LOADED)


async def load_problems(store: StateStore, location: SnapshotLocation, last: int) -> list[str]:
    """What is wrong with the last few snapshots of a list: each loads, and holds what it says."""
    archive = SnapshotArchive(store)
    page = await archive.list_snapshots(location=location)
    problems = []
    for info in page.snapshots[-last:]:
        loaded = await archive.load_snapshot(location=location, snapshot_id=info.snapshot_id)
        if loaded is None or loaded.state.messages[-1]["content"] != info.tags["token"]:
            problems.append(f"{location.session_id}: {info.snapshot_id} holds something else")
    return problems


class Prune(OnSharedSession):
    """Some saves, and a prune that keeps the last three."""

    name = "prune"
    operations = 2

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Save and prune."""
        asyncio.run(prune_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """What the policy keeps is there and loads; a second prune leaves that and nothing else."""
        location = SnapshotLocation(task.session, scope_id=AGENT)
        told = self.told()[task.session]
        async with open_state_store(task.url) as store:
            archive = SnapshotArchive(store)
            problems = await problems_of(store, location, told)
            problems += await load_problems(store, location, LOADED)
            page = await archive.list_snapshots(location=location)
            tokens = [info.tags["token"] for info in page.snapshots]
            if told.acknowledged and told.acknowledged[-1] not in tokens:
                problems.append(f"{task.session}: the newest snapshot is lost")
            if len(tokens) < min(3, len(told.acknowledged)):
                problems.append(f"{task.session}: only {tokens} are left")
            await archive.prune(location=location, policy=POLICY)
            page = await archive.list_snapshots(location=location)
            if [info.tags["token"] for info in page.snapshots] != tokens[-3:]:
                problems.append(f"{task.session}: pruned again, it has not what the policy keeps")
            known = await archive.load_manifest(location=location)
            if known.pending_log_start is not None or (len(tokens) > 3 and not known.log_start.seq):
                problems.append(f"{task.session}: pruned again, it did not come to its end")
            problems += await load_problems(store, location, LOADED)
            problems += await problems_of(store, location, told)
        return problems + self.places.strays(task.store)


async def prune_for_ever(task: Task, ledger: Ledger) -> None:
    """Save some and prune, and note both."""
    dice = random.Random(task.number)
    location = SnapshotLocation(task.session, scope_id=AGENT)
    async with open_state_store(task.url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        for number in itertools.count():
            for each in range(SAVES_A_PRUNE):
                token = f"{task.number}-{number * SAVES_A_PRUNE + each}"
                await save_one(session, token, dice, ledger)
            ledger.begin(WORK, f"prune-{number}")
            await insist(lambda: session.archive.prune(location=location, policy=POLICY))
            ledger.done(WORK, f"prune-{number}")
