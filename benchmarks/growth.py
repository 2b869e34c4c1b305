"""Measure how operations grow with what is stored, and print the exponent of each.

One session of growing length, and stores with growing numbers of small sessions. The exponent is
the slope of the time over the size, both logarithmic: 0 is flat, 1 linear, 2 quadratic. In
``messages`` the state grows with the log: most events append a message. In ``log`` the state stays
small and only the log grows. An operation whose result grows, such as an export, is linear at best.

Everything is built in memory and copied to the backend, without waiting for the disk. Commands run
in this process, as a user types them. `--smoke` runs on a small scale, `--only files` on one
backend, `--max 50000` up to a size. Run: make bench-growth
"""

from __future__ import annotations

import argparse
import asyncio
import io
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, mean, median
from typing import Any
from unittest.mock import patch

import typer.main

import holdfast
from benchmarks.harness import ROOT, Row, figure, keep, progress
from holdfast.cli.main import app
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.stores.entries import Put

sys.path.insert(0, str(ROOT / "tests"))

from servers.postgres import PostgresServer

COMMAND = typer.main.get_command(app)  # built once: slower than most commands
BACKENDS = ["sqlite", "files", "postgresql"]
AGENT, SESSION = "research-bot", "ses_0000000"
UNKNOWN = "019a8b5e-6f00-7000-8000-000000000000"
TEXT = "the agent reads a report and writes what it found for the user " * 4
COMMIT = 50
"""Events per commit of a long session."""
SAVES = 10
MAX_BACKUP = 5_000
"""Sessions beyond which a backup takes too long: it syncs each file to the disk."""
MILLI = 1e3


@dataclass(slots=True)
class Scale:
    """Sizes, and the number of rounds."""

    events: list[int]
    sessions: list[int]
    rounds: int
    saves: int
    """Enough for a keyframe to be among them."""


@dataclass(slots=True)
class Place:
    """A store of one size on one backend."""

    url: str
    folder: Path
    size: int
    saves: int

    def command(self, *words: str, fails: bool = False) -> float:
        """Return the seconds of a command, as a user types it."""
        return self.plain_command(*words, "--store", self.url, fails=fails)

    def plain_command(self, *words: str, fails: bool = False) -> float:
        """Return the seconds of a command that names its stores itself."""
        output = io.TextIOWrapper(io.BytesIO())
        start = time.perf_counter()
        with redirect_stdout(output), redirect_stderr(output):
            try:
                COMMAND.main(list(words), prog_name="holdfast")
            except SystemExit as ended:
                code = ended.code
        spent = time.perf_counter() - start
        if bool(code) != fails:
            output.seek(0)
            raise RuntimeError(f"{' '.join(words)}: {output.read()}")
        return spent

    def call(self, work: Callable[[holdfast.StateStore], Awaitable[float]]) -> float:
        """Return the seconds that work reports, with an open store."""

        async def run() -> float:
            async with holdfast.open_state_store(self.url) as state_store:
                await state_store.get("nothing")  # connected
                return await work(state_store)

        return asyncio.run(run())

    def fresh(self, name: str) -> Path:
        """Return a path at which nothing exists."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        for each in self.folder.glob(f"{name}*"):
            each.unlink()
        return path


Operation = Callable[[Place], float]


async def timed(work: Awaitable[object]) -> float:
    """Return the seconds that work takes."""
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def open_session(state_store: holdfast.StateStore) -> holdfast.Session:
    """Open the session that all operations use."""
    return await holdfast.Session.open(
        state_store, agent_id=AGENT, session_id=SESSION, must_exist=True
    )


# ------------------------------------------------------------------------------ one long session


async def save_first(state_store: holdfast.StateStore) -> float:
    """Measure the first save after opening."""
    session = await open_session(state_store)
    session.add_message("user", "hello")
    return await timed(session.save())


async def save_again(state_store: holdfast.StateStore) -> float:
    """Measure the saves that follow, in their median."""
    return median(await time_saves(state_store, SAVES))


def save_often(place: Place) -> float:
    """Measure the saves that follow, in their mean, with the keyframes among them."""

    async def save(state_store: holdfast.StateStore) -> float:
        return mean(await time_saves(state_store, place.saves))

    return place.call(save)


async def time_saves(state_store: holdfast.StateStore, count: int) -> list[float]:
    """Return the seconds of each save of one message after the first."""
    session = await open_session(state_store)
    times = []
    for _ in range(count + 1):
        session.add_message("user", "hello")
        times.append(await timed(session.save()))
    return times[1:]


async def summarize(state_store: holdfast.StateStore) -> float:
    """Measure a summary, as the viewer lists it."""
    return await timed(Catalog(state_store).summaries(AGENT, limit=20))


def diff(place: Place) -> float:
    """Compare two states ten events apart."""
    names = [f"{SESSION}@{place.size - 10}", f"{SESSION}@{place.size}"]
    return place.command("state", "diff", *names, "--no-pager")


def replay(place: Place) -> float:
    """Replay the last ten events."""
    first, last = str(place.size - 9), str(place.size)
    return place.command("replay", SESSION, "--from", first, "--to", last)


def export(place: Place) -> float:
    """Export to a file."""
    path = place.fresh("document.json")
    return place.command("state", "export", SESSION, "--output", str(path))


def import_(place: Place) -> float:
    """Import the file into a new store."""
    document = place.folder / "document.json"
    if not document.exists():
        export(place)
    target = f"sqlite:///{place.fresh('imported.db')}"
    return place.plain_command("state", "import", str(document), "--store", target)


EVENT_OPERATIONS: dict[str, Operation] = {
    "open": lambda place: place.call(lambda store: timed(open_session(store))),
    "a summary": lambda place: place.call(summarize),
    "diff of 10 events": diff,
    "replay of the last 10": replay,
    "export": export,
    "import": import_,
    "save, first after open": lambda place: place.call(save_first),
    "save": lambda place: place.call(save_again),
    "save, mean with keyframes": save_often,
}

# -------------------------------------------------------------------------------- many sessions


def prune(place: Place) -> float:
    """Prune all sessions, with nothing to delete."""
    return place.command("state", "prune", "--all", "--last", "10", "--yes")


def show_unknown(place: Place) -> float:
    """Ask for a snapshot that does not exist."""
    return place.command("state", "show", UNKNOWN, fails=True)


def back_up(place: Place) -> float:
    """Back up all sessions to a new folder."""
    return place.command("backup", str(place.fresh("backup")))


def copy_back(place: Place) -> float:
    """Copy all sessions of the backup to a new database."""
    backup, target = place.folder / "backup", place.fresh("restored.db")
    return place.plain_command("copy", backup.as_uri(), f"sqlite:///{target}")


SESSION_OPERATIONS: dict[str, Operation] = {
    "open one": lambda place: place.call(lambda store: timed(open_session(store))),
    "a page of 20 summaries": lambda place: place.call(summarize),
    "prune --all, nothing to do": prune,
    "an unknown snapshot id": show_unknown,
    "backup to a folder": back_up,
    "copy of the folder": copy_back,
}

# -------------------------------------------------------------------------------------- building


async def build_events(events: int, *, grows: bool) -> holdfast.StateStore:
    """Return a session of this many events in memory."""
    state_store = holdfast.open_state_store("memory:")
    session = await holdfast.Session.open(state_store, agent_id=AGENT, session_id=SESSION)
    for number in range(2, events + 1):
        if number % 5 == 0:
            session.record("tool.called", {"tool": "search", "number": number})
        elif number % 5 == 1 or not grows:
            session.set(f"plan {number % 100}", {"step": number, "text": TEXT})
        else:
            session.add_message("user", f"{number} {TEXT}")
        if number % COMMIT == 0:
            await session.commit()
    await session.save()
    return state_store


async def build_sessions(sessions: int) -> holdfast.StateStore:
    """Return a store with this many small sessions in memory."""
    state_store = holdfast.open_state_store("memory:")
    for number in range(sessions):
        session = await holdfast.Session.open(
            state_store, agent_id=AGENT, session_id=f"ses_{number:07}"
        )
        session.add_message("user", TEXT)
        await session.save()
    return state_store


async def read_entries(state_store: holdfast.StateStore) -> AsyncIterator[list[Put]]:
    """Yield all entries of a store in batches."""
    keys = [key async for key in state_store.list("")]
    for start in range(0, len(keys), 500):
        found = await state_store.get_many(keys[start : start + 500])
        yield [Put(key, entry.value) for key, entry in found.items()]


@dataclass(slots=True)
class Backend:
    """Makes stores of one kind."""

    name: str
    folder: Path
    server: PostgresServer | None = None
    number: int = 0

    def make(self, source: holdfast.StateStore, size: int, saves: int = 0) -> Place:
        """Return a new store with all entries of another."""
        self.number += 1
        folder = self.folder / str(self.number)
        folder.mkdir()
        place = Place(self.make_url(folder), folder, size, saves)

        async def fill() -> None:
            async with holdfast.open_state_store(place.url) as state_store:
                async for puts in read_entries(source):
                    await state_store.put_many(puts)

        with patch("os.fsync", lambda _: None):
            asyncio.run(fill())
        if self.server is not None:
            self.server.execute("ANALYZE", database=f"bench{self.number}")
        return place

    def make_url(self, folder: Path) -> str:
        """Return the URL of a new store."""
        if self.server is not None:
            self.server.execute(f"CREATE DATABASE bench{self.number}")
            return str(self.server.url(f"bench{self.number}"))
        return f"sqlite:///{folder}/state.db" if self.name == "sqlite" else f"file://{folder}/state"


@contextmanager
def open_backend(name: str) -> Iterator[Backend]:
    """Start a backend."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        server = None
        if name == "postgresql":
            server = stack.enter_context(PostgresServer(folder))
            server.execute("ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")
        yield Backend(name, folder, server)


# ------------------------------------------------------------------------------------- measuring


@dataclass(slots=True)
class Growth:
    """The times of one operation by size, in seconds."""

    question: str
    times: dict[int, float] = field(default_factory=dict)

    @property
    def exponent(self) -> float | None:
        """The slope of the time over the size, both logarithmic."""
        if len(self.times) < 2:
            return None
        sizes, times = map(math.log, self.times), map(math.log, self.times.values())
        return linear_regression(list(sizes), list(times)).slope

    def row(self) -> Row:
        """Return the figures to store."""
        return Row(self.question, "ms", {f"{n:,}": t * MILLI for n, t in self.times.items()})


def measure(
    what: str, places: Sequence[Place], operations: dict[str, Operation], rounds: int
) -> list[Growth]:
    """Time each operation at each size; the best of some rounds counts."""
    found = []
    for text, operation in operations.items():
        growth = Growth(f"{what}: {text}")
        for place in places:
            if operation in (back_up, copy_back) and place.size > MAX_BACKUP:
                continue
            progress(f"{growth.question}, {place.size:,}")
            best = operation(place)
            for _ in range(rounds - 1):
                if best > 1:
                    break  # long enough
                best = min(best, operation(place))
            growth.times[place.size] = best
        found.append(growth)
    return found


def run_backend(backend: Backend, scale: Scale) -> list[Growth]:
    """Measure everything on one backend."""
    found: list[Growth] = []
    for kind, grows in (("messages", True), ("log", False)):
        places = []
        for size in scale.events:
            progress(f"{backend.name}: building {size:,} events, {kind}")
            source = asyncio.run(build_events(size, grows=grows))
            places.append(backend.make(source, size, scale.saves))
        what = f"{backend.name}, {kind}"
        found += measure(what, places, EVENT_OPERATIONS, scale.rounds)
    places = []
    for size in scale.sessions:
        progress(f"{backend.name}: building {size:,} sessions")
        places.append(backend.make(asyncio.run(build_sessions(size)), size))
    found += measure(f"{backend.name}, sessions", places, SESSION_OPERATIONS, scale.rounds)
    return found


def show(found: Sequence[Growth]) -> str:
    """Return a table for each kind of size, with the exponents."""
    progress("")
    tables = []
    for is_sessions in (False, True):
        part = [each for each in found if (", sessions:" in each.question) == is_sessions]
        sizes = sorted({size for each in part for size in each.times})
        heads = ["sessions, ms" if is_sessions else "events, ms", *(f"{n:,}" for n in sizes)]
        lines = [[*heads, "exponent"]]
        for each in part:
            times = [each.times.get(size) for size in sizes]
            cells = [figure(None if t is None else t * MILLI) for t in times]
            exponent = "" if each.exponent is None else f"{each.exponent:.2f}"
            lines.append([each.question, *cells, exponent])
        widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
        tables.append("\n".join(format_line(line, widths) for line in lines))
    return "\n\n".join(tables)


def format_line(cells: list[str], widths: list[int]) -> str:
    """Return the cells of a line, the first aligned left."""
    rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
    return "  ".join([cells[0].ljust(widths[0]), *rest])


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that keeps nothing")
    parser.add_argument("--only", default=",".join(BACKENDS))
    parser.add_argument("--max", type=int, help="the largest size; keeps nothing")
    options = parser.parse_args()
    scale = Scale([10_000, 50_000, 200_000], [100, 1_000, 5_000, 20_000], 3, 300)
    names = options.only.split(",")
    if options.smoke:
        scale, names = Scale([50, 100], [2, 4], 1, 5), ["sqlite"]
    if options.max:
        scale.events = [size for size in scale.events if size <= options.max]
        scale.sessions = [size for size in scale.sessions if size <= options.max]
    found: list[Growth] = []
    for name in names:
        with open_backend(name) as backend:
            found += run_backend(backend, scale)
    print(show(found))
    print(f"load of the machine: {os.getloadavg()[1]:.1f}")
    if not options.smoke and not options.max and names == BACKENDS:
        figures: dict[str, Any] = {each.question: each.exponent for each in found}
        rows = [each.row() for each in found]
        print(f"kept in {keep('growth', rows, exponents=figures, load=os.getloadavg())}")


if __name__ == "__main__":
    main()
