"""Imports, copies and backups that a kill interrupts, and their repetition."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from pathlib import Path

from holdfast import (
    Document,
    NotFoundError,
    RetentionPolicy,
    Session,
    SnapshotManager,
    StateStore,
    open_state_store,
)
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_sessions
from trials.commands import command
from trials.kills.stores import Stores, stray_files
from trials.kills.tasks import (
    AGENT,
    WORK,
    Kind,
    Task,
    damage,
    list_locations,
    make_bytes,
    retry_call,
)
from trials.tokens import Ledger

PATIENCE = 30.0
"""Seconds after which a server should be back."""
GROWING = "growing"
"""The session of a source that grows while it is copied."""


class Import(Kind):
    """Import a document as a new session, and again into that session."""

    name = "import"
    operations = 4

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.documents = asyncio.run(write_documents(stores.folder))

    def task(self, number: int) -> Task:
        """Return a task with a whole document or a pruned one, in turn."""
        document = self.documents[number % 2]
        session = f"{self.name}-{number}"
        url = self.stores.url("imported")
        ledger = self.ledger(number)
        return Task(self.name, number, ledger, "imported", url, session, str(document))

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Import until killed."""
        asyncio.run(import_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """Check that every import is complete or absent, and that the last one can be repeated."""
        operations = self.operations_of(task)
        problems = []
        async with open_state_store(task.url) as store:
            manager = SnapshotManager(store)
            document = manager.from_file(task.target)
            for name in dict.fromkeys(each.split("/")[1] for each in operations.begun):
                problems += await half_problems(store, document, name, operations.acknowledged)
            last = operations.begun[-1].split("/")[1]
            await manager.import_session(document, session_id=last)
            problems += await import_problems(store, document, last)
        return problems + self.stores.strays(task.store)


async def write_documents(folder: Path) -> list[Path]:
    """Write a document with all its events, and one of a pruned session."""
    paths = [folder / "whole.json", folder / "pruned.json.gz"]
    async with open_state_store("memory:") as store:
        manager = SnapshotManager(store)
        session = await Session.open(store, agent_id=AGENT, session_id="document")
        await grow(session, "document", saves=6)
        manager.to_file(await manager.export_session(AGENT, "document"), paths[0])
        await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
        manager.to_file(await manager.export_session(AGENT, "document"), paths[1])
    return paths


async def grow(session: Session, name: str, saves: int) -> None:
    """Give a session messages, values, snapshots and keyframes."""
    dice = random.Random(name)
    for number in range(saves):
        session.add_message("user", f"{name} {number}")
        session.set(f"value {number % 3}", make_bytes(dice))
        await session.commit()
        session.record("tool.called", {"tool": "search"})
        await session.save(tags={"number": str(number)})


async def import_for_ever(task: Task, ledger: Ledger) -> None:
    """Import as a new session, commit to it, import into it, and start over."""
    async with open_state_store(task.url) as store:
        manager = SnapshotManager(store)
        document = manager.from_file(task.target)
        for number in itertools.count():
            name = f"{task.session}-{number}"
            for step in ("new", "over"):
                ledger.begin(WORK, f"{step}/{name}")
                await retry_call(lambda: manager.import_session(document, session_id=name))  # noqa: B023
                ledger.done(WORK, f"{step}/{name}")
                session = await Session.open(store, agent_id=AGENT, session_id=name)
                session.add_message("user", "and then")
                await retry_call(session.commit)


async def half_problems(
    store: StateStore, document: Document, name: str, acknowledged: list[str]
) -> list[str]:
    """Return what is wrong with a session whose import may have been interrupted."""
    try:
        session = await Session.open(store, agent_id=AGENT, session_id=name, must_exist=True)
    except NotFoundError:
        done = [each for each in acknowledged if each.endswith(f"/{name}")]
        return [f"{name}: its import was acknowledged and is lost"] if done else []
    verification = await session.verify()
    problems = [f"{name}: {each.key}: {each.problem}" for each in verification.damage]
    return problems + await event_problems(session, document)


async def import_problems(store: StateStore, document: Document, name: str) -> list[str]:
    """Return what is wrong with a session after an import."""
    session = await Session.open(store, agent_id=AGENT, session_id=name, must_exist=True)
    problems = await event_problems(session, document)
    if session.snapshot().digest != document.digest:
        problems.append(f"{name}: imported again, its state is not the document's")
    verification = await session.verify()
    problems += [f"{name}: {each.key}: {each.problem}" for each in verification.damage]
    page = await session.archive.list_snapshots(location=session.location)
    for info in page.snapshots:
        if (
            await session.archive.load_snapshot(
                location=session.location, snapshot_id=info.snapshot_id
            )
            is None
        ):
            problems.append(f"{name}: the snapshot to undo the import is lost")
    return problems


async def event_problems(session: Session, document: Document) -> list[str]:
    """Return events of the document that the session lacks or has twice."""
    ids = Counter([event.id async for event in session.events])
    return [
        f"{session.session_id}: the event {event.seq} is stored {ids[event.id]} times"
        for event in document.events
        if ids[event.id] != 1
    ]


class Copy(Kind):
    """Copy all sessions of a store to an empty one, and again as the source grows."""

    name = "copy"
    operations = 2

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.source = f"source-{self.name}"
        asyncio.run(write_source(stores.url(self.source)))

    def task(self, number: int) -> Task:
        """Return a task with an empty target."""
        name = f"{self.name}-{number}"
        url, target = self.stores.url(self.source), self.stores.url(name)
        return Task(self.name, number, self.ledger(number), name, url, GROWING, target)

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Copy until killed."""
        asyncio.run(copy_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """Check that the target is sound, and equals its source once the copy is repeated."""
        async with open_state_store(task.url) as source, open_state_store(task.target) as target:
            problems = await damage(source) + await damage(target)
            again = await copy_sessions(source, target)
            problems += [f"{name} is not copied: {why}" for name, why in again.failed.items()]
            problems += await copy_problems(source, target)
        return problems + self.strays(task)

    def strays(self, task: Task) -> list[str]:
        """Return stray files in the target."""
        return self.stores.strays(task.store)


async def write_source(url: str) -> None:
    """Write a store with all kinds of sessions: single and multi-agent, pruned, with keyframes."""
    async with open_state_store(url) as store:
        for name, scope in (("plain", "agent"), ("crew", "multi_agent"), ("pruned", "agent")):
            session = await Session.open(store, agent_id=AGENT, session_id=name, scope=scope)
            await grow(session, name, saves=6)
        await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))


async def copy_for_ever(task: Task, ledger: Ledger) -> None:
    """Copy, let the source grow, and copy again."""
    async with open_state_store(task.url) as source, open_state_store(task.target) as target:
        for number in itertools.count():
            await grow_source(source, task, number)
            ledger.begin(WORK, f"copy-{number}")
            await retry_call(lambda: copy_sessions(source, target))
            ledger.done(WORK, f"copy-{number}")


async def grow_source(source: StateStore, task: Task, number: int) -> None:
    """Add a snapshot to the growing session."""
    session = await Session.open(source, agent_id=AGENT, session_id=task.session)
    session.add_message("user", f"{task.number}-{number}")
    await retry_call(session.save)


async def copy_problems(source: StateStore, target: StateStore) -> list[str]:
    """Return what differs between a copy and its source."""
    problems = await compare_stores(source, target)
    for location in await list_locations(source):
        here = {key async for key in source.list(location.prefix)}
        stored = {key async for key in target.list(location.prefix)}
        problems += [f"{key} is not in the source" for key in sorted(stored - here)]
    return problems


class Backup(Copy):
    """Back up with the CLI, to a folder and to another store."""

    name = "backup"

    def task(self, number: int) -> Task:
        """Return a task with a folder or a database, in turn."""
        name = f"{self.name}-{number}"
        target = self.stores.folder / name
        return Task(
            self.name,
            number,
            self.ledger(number),
            name,
            self.stores.url(self.source),
            GROWING,
            str(target) if number % 2 else f"sqlite:///{target}.db",
        )

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Back up until killed."""
        for number in itertools.count():
            asyncio.run(retry_call(lambda: grow_by_url(task, number)))  # noqa: B023
            ledger.begin(WORK, f"backup-{number}")
            back_up(task)
            ledger.done(WORK, f"backup-{number}")

    async def check(self, task: Task) -> list[str]:
        """Check that the target is sound, and that repeating the command completes it."""
        return await asyncio.to_thread(self.by_command, task)

    def by_command(self, task: Task) -> list[str]:
        """Run the commands that a user would run."""
        url = task.target if ":" in task.target else f"file://{task.target}"
        steps = [
            ("state", "verify", "--store", url),
            ("backup", task.target, "--store", task.url),
            ("backup", task.target, "--verify", "--store", task.url),
            ("state", "verify", "--store", task.url),
        ]
        problems = []
        for step in steps:
            code, words = command(*step)
            if code and not (step is steps[0] and "no store at" in words):
                problems.append(f"{' '.join(step)}: {words}")
        return problems + self.strays(task)

    def strays(self, task: Task) -> list[str]:
        """Return stray files in the folder."""
        return [] if ":" in task.target else stray_files(Path(task.target))


def back_up(task: Task) -> None:
    """Back up; while the server is down the command fails with one error, and is repeated."""
    end = time.monotonic() + PATIENCE
    while True:
        code, words = command("backup", task.target, "--store", task.url)
        if not code:
            return
        if code != 1 or not words.startswith("error: ") or time.monotonic() > end:
            raise RuntimeError(words)
        time.sleep(0.05)


async def grow_by_url(task: Task, number: int) -> None:
    """Add a snapshot to the growing session."""
    async with open_state_store(task.url) as source:
        await grow_source(source, task, number)
