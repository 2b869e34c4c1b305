"""Captures and restores of a workspace that a kill interrupts."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
from pathlib import Path

from holdfast import Session, SnapshotLocation, StateStore, Workspace, open_state_store
from trials.kills.stores import Stores
from trials.kills.tasks import AGENT, WORK, Kind, Task, retry_call
from trials.tokens import Ledger

LARGE = 700_000
"""More than one chunk of a blob."""
TREES: dict[str, dict[str, bytes]] = {
    "one": {
        "same": b"same",
        "a": b"a of one",
        "folder/b": b"b of one",
        "swap": b"a file in one",
        "deep/er/c": b"c of one" * 1000,
        "large": b"1" * LARGE,
    },
    "two": {
        "same": b"same",
        "a": b"a of two",
        "folder": b"a file in two",
        "swap/inside": b"a folder in two",
        "d": b"d of two" * 1000,
        "large": b"2" * LARGE,
    },
}
"""Two versions of a folder, with files in the place of folders and the other way round."""
FILES = 6


class OnWorkspace(Kind):
    """Operations on a session with a folder of its own. They take longer than others."""

    spreads = (0.003, 0.03, 0.1, 0.3)

    def __init__(self, stores: Stores) -> None:
        super().__init__(stores)
        self.folders = stores.folder / f"folders-{self.name}"
        self.folders.mkdir()

    def task(self, number: int) -> Task:
        """Return the task of the next worker."""
        folder = self.folders / f"{number:05}"
        folder.mkdir()
        name = f"{self.name}-{number}"
        url = self.stores.url("written")
        return Task(self.name, number, self.ledger(number), "written", url, name, str(folder))

    async def export(
        self, files: Workspace, folder: Path, at: int | None = None
    ) -> dict[str, bytes]:
        """Return the files that the store has, read with all their blobs."""
        target = folder.with_name(f"{folder.name}-exported")
        shutil.rmtree(target, ignore_errors=True)
        await files.export(target, at=at)
        return read_files(target)


def use_cache_of(task: Task) -> None:
    """Keep the cache beside the folder, not with the user's."""
    os.environ["HOLDFAST_CACHE"] = f"{task.target}-cache"


async def open_workspace(store: StateStore, task: Task) -> tuple[Session, Workspace]:
    """Open the session of a task, with its folder."""
    session = await Session.open(store, agent_id=AGENT, session_id=task.session)
    return session, session.workspace(task.target)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Capture(OnWorkspace):
    """Change all files of a folder, and capture it."""

    name = "capture"
    operations = 6

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Capture until killed."""
        use_cache_of(task)
        asyncio.run(capture_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """Check that the last capture is whole, and capture what the kill left."""
        use_cache_of(task)
        folder = Path(task.target)
        notes = self.operations_of(task)
        async with open_state_store(task.url) as store:
            session, files = await open_workspace(store, task)
            problems = await find_damage(session)
            stored = await self.export(files, folder)
            versions = {int(content.split(b" ")[0]) for content in stored.values()}
            if len(versions) > 1 or len(stored) not in (0, FILES):
                problems.append(f"{task.session}: a capture is stored in part: {versions}")
            newest = max(versions, default=-1)
            if newest < len(notes.acknowledged) - 1:
                problems.append(f"{task.session}: capture {len(notes.acknowledged) - 1} is lost")
            await files.capture()
            if await files.diff() or await self.export(files, folder) != read_files(folder):
                problems.append(f"{task.session}: captured again, it has not what is in the folder")
            problems += await find_damage(session)
        return problems + self.stores.strays(task.store)


async def capture_for_ever(task: Task, ledger: Ledger) -> None:
    """Change and capture a folder until killed; each file starts with the number of the capture."""
    dice = random.Random(task.number)
    folder = Path(task.target)
    async with open_state_store(task.url) as store:
        _, files = await open_workspace(store, task)
        for number in itertools.count():
            for each in range(FILES):
                size = dice.choice([10, 1000, 100_000, LARGE])
                write_file(
                    folder / f"file{each}", b"%d " % number + dice.randbytes(8) * (size // 8)
                )
            ledger.begin(WORK, str(number))
            await retry_call(files.capture)
            ledger.done(WORK, str(number))


def write_file(path: Path, content: bytes) -> None:
    """Write a file."""
    path.write_bytes(content)


class Restore(OnWorkspace):
    """Restore a folder to one of two versions, in turn."""

    name = "restore"
    operations = 8

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Restore until killed."""
        use_cache_of(task)
        asyncio.run(restore_for_ever(task, ledger))

    async def check(self, task: Task) -> list[str]:
        """Check that each file is old or new, and that another restore completes it."""
        use_cache_of(task)
        folder = Path(task.target)
        notes = self.operations_of(task)
        async with open_state_store(task.url) as store:
            session, files = await open_workspace(store, task)
            problems = await find_damage(session)
            for path, content in read_files(folder).items():
                if not path.startswith(".holdfast-restore-") and content not in [
                    tree.get(path) for tree in TREES.values()
                ]:
                    problems.append(f"{task.session}: {path} is neither old nor new")
            # The interrupted restore, then the other one. Neither is forced.
            events = find_events(session)
            first = notes.begun[-1].split("-")[1]
            for name in (first, "two" if first == "one" else "one", "one"):
                await files.restore(at=events[name])
                if read_files(folder) != TREES[name]:
                    problems.append(f"{task.session}: restored again, it is not {name}")
                if await self.export(files, folder) != TREES[name]:
                    problems.append(f"{task.session}: the session does not have {name}")
            problems += await find_damage(session)
        return problems + self.stores.strays(task.store)


async def restore_for_ever(task: Task, ledger: Ledger) -> None:
    """Capture both versions, and restore them in turn until killed."""
    folder = Path(task.target)
    async with open_state_store(task.url) as store:
        session, files = await open_workspace(store, task)
        for name, tree in TREES.items():
            await asyncio.to_thread(replace_tree, folder, tree)
            session.set("version", name)
            await retry_call(files.capture)
        events = find_events(session)
        for number in itertools.count():
            name = list(TREES)[number % 2]
            ledger.begin(WORK, f"{number}-{name}")
            await retry_call(lambda: files.restore(at=events[name]))  # noqa: B023
            ledger.done(WORK, f"{number}-{name}")


def find_events(session: Session) -> dict[str, int]:
    """Return the events that captured the two versions: the first two captures."""
    captured = [event.seq for event in session.events if event.type == "files.captured"]
    return dict(zip(TREES, captured[:2], strict=True))


def replace_tree(folder: Path, tree: dict[str, bytes]) -> None:
    """Write a version to the folder."""
    shutil.rmtree(folder)
    for path, content in tree.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


async def find_damage(session: Session) -> list[str]:
    """Verify a session; return what is damaged."""
    location = SnapshotLocation(session.session_id, scope_id=AGENT)
    found = await session.archive.verify(location=location)
    return [f"{each.key}: {each.problem}" for each in found.damage]
