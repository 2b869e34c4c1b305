"""Full disks: a small file system in memory, or a limit on the size of files.

A session commits until it fails. It must fail with one clear ``StateStoreError``, lose nothing that
was acknowledged, and continue when there is space again, with the same object and with a new one.
Files that the CLI writes to such a disk are complete or absent.
"""

from __future__ import annotations

import asyncio
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast import Session, SnapshotLocation, StateStoreError, open_state_store
from trials.commands import command
from trials.hardship import Skipped
from trials.kills.stores import stray_files
from trials.tokens import Tokens, find_problems

AGENT, SESSION = "agent", "session"
LOCATION = SnapshotLocation(SESSION, scope_id=AGENT)
MOST = 400
"""Commits after which the disk should be full."""


@contextmanager
def small_disk(folder: Path, size: str = "2m") -> Iterator[Path]:
    """Mount an empty file system of this size, in memory."""
    disk = folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Skipped("cannot mount a file system here") from error
    if done.returncode:
        raise Skipped(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield disk
    except BaseException as error:
        for why in unmount(disk):
            error.add_note(why)
        raise
    left = unmount(disk)
    if left:
        raise OSError("; ".join(left))


def unmount(disk: Path) -> list[str]:
    """Unmount a file system, lazily if it is busy; return the error, if any."""
    failed: list[str] = []
    for command_ in (["umount", str(disk)], ["umount", "-l", str(disk)]):
        done = subprocess.run(command_, capture_output=True, text=True, check=False)
        if not done.returncode:
            break
        failed.append(f"{' '.join(command_)}: {done.stderr.strip()}")
    return failed


@contextmanager
def small_files(size: int = 200_000) -> Iterator[Callable[[], None]]:
    """Limit the size of files until the yielded function is called; needs no mount."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def relieve() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield relieve
    finally:
        relieve()


def url_in(folder: Path, backend: str) -> str:
    """Return the URL of a store in a folder."""
    return f"sqlite:///{folder}/state.db" if backend == "sqlite" else f"file://{folder}/state"


def full_disk(folder: Path, backend: str) -> list[str]:
    """Fill a disk."""
    with small_disk(folder) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(1_400_000))
        url = url_in(disk, backend)
        filling = Filling(url, growth=1.0)
        problems = asyncio.run(filling.run(lambda: command_problems(folder, url), ballast.unlink))
        for more in ((), ("--verify",)):
            code, words = command("backup", str(disk / "backup"), *more, "--store", url)
            problems += [f"with room, the backup failed: {words}"] if code else []
        return problems + stray_files(disk / "state") + stray_files(disk / "backup")


def limited_files(folder: Path, backend: str) -> list[str]:
    """Limit the size of files."""
    with small_files() as relieve:
        filling = Filling(url_in(folder, backend), growth=1.5)
        return asyncio.run(filling.run(list, relieve)) + stray_files(folder / "state")


class Filling:
    """A session that commits until it fails, and checks what must hold then."""

    def __init__(self, url: str, growth: float) -> None:
        self.url = url
        self.growth = growth
        """The factor by which each commit is larger than the one before."""
        self.tokens = Tokens()
        self.problems: list[str] = []
        self.dice = random.Random(0)
        self.size = 12_000.0

    async def run(
        self, during: Callable[[], list[str]], relieve: Callable[[], object]
    ) -> list[str]:
        """Run everything; ``relieve`` makes space."""
        async with open_state_store(self.url) as store:
            session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
            await self.fill(session)
            # A second attempt must fail as well.
            if await self.try_commit(session) is None:
                self.problems.append("there was space after all")
            self.problems += await find_problems(store, LOCATION, self.tokens)
            self.problems += await asyncio.to_thread(during)
            relieve()
            await session.commit()
            self.tokens.acknowledged.append(self.tokens.begun[-1])
            await self.go_on(session)
            await self.go_on(await Session.open(store, agent_id=AGENT, session_id=SESSION))
            self.problems += await find_problems(store, LOCATION, self.tokens)
        async with open_state_store(self.url) as store:
            self.problems += await find_problems(store, LOCATION, self.tokens)
        return self.problems

    async def fill(self, session: Session) -> None:
        """Commit until it fails."""
        for _ in range(MOST):
            self.record(session)
            error = await self.try_commit(session)
            if error is not None:
                return
            self.tokens.acknowledged.append(self.tokens.begun[-1])
        self.problems.append("the disk was never full")

    def record(self, session: Session) -> None:
        """Record something new of the current size."""
        token = f"token-{len(self.tokens.begun)}"
        self.tokens.begun.append(token)
        session.add_message("user", token)
        session.set("bulk", self.dice.randbytes(int(self.size)))
        self.size *= self.growth

    async def try_commit(self, session: Session) -> StateStoreError | None:
        """Commit, and return the error if it fails."""
        try:
            await session.commit()
        except StateStoreError as error:
            text = str(error)
            if "\n" in text or not ("full" in text or "larger" in text):
                self.problems.append(f"unclear error: {text}")
            if not session.is_dirty:
                self.problems.append("events that could not be written are not pending any more")
            return error
        return None

    async def go_on(self, session: Session) -> None:
        """Commit, which must succeed."""
        self.size = 100
        self.record(session)
        await session.commit()
        self.tokens.acknowledged.append(self.tokens.begun[-1])


def command_problems(folder: Path, url: str) -> list[str]:
    """Return what is wrong with commands on a full disk: each fails, and leaves no file."""
    disk = folder / "disk"
    document = folder / "document.json"
    export = ("state", "export", AGENT, "--session", SESSION, "--store", url, "--output")
    code, words = command(*export, str(document))
    problems = [] if not code else [f"the export to another disk failed: {words}"]
    before = sorted(disk.iterdir())
    for words_ in (
        (*export, str(disk / "document.json")),
        (*export, str(disk / "document.json.gz")),
        ("backup", str(disk / "backup"), "--store", url),
        ("state", "import", str(document), "--session", "other", "--store", url),
    ):
        code, words = command(*words_)
        lines = words.splitlines()
        if code != 1 or len(lines) != 2 or not lines[0].startswith("error: "):
            problems.append(f"{' '.join(words_)} ended with {code}: {words}")
        elif "full" not in lines[0] and "No space left" not in lines[0]:
            problems.append(f"{' '.join(words_)} does not say why: {words}")
    left = [path for path in sorted(disk.iterdir()) if path not in before]
    return problems + [f"{path} was left" for path in left if path.name != "backup"]
