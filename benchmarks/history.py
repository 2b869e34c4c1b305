"""Measure reading a long history: many snapshots of one session, many sessions of one agent.

Histories of growing sizes are built in one database, and each question is asked of all of them in
turn, so that other load does not look like growth. The peer is a plain table with an index and one
JSON document per snapshot, which checks nothing and is the limit. The cost should be flat.
`--smoke` runs on a small scale, `--only sqlite` on one backend. Run: make bench-history
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import asdict, dataclass, field
from operator import methodcaller
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import holdfast
from benchmarks.harness import ROOT, Row, format_table, keep, progress
from benchmarks.peers.plain_table import Database, OnPostgres, OnSqlite, PlainTable

sys.path.insert(0, str(ROOT / "tests"))

from servers.postgres import PostgresServer

PEER, OURS = "plain table", "holdfast"
BACKENDS = ["sqlite", "postgresql"]
PAGE = 100
SPREAD = 9
"""Snapshots to load, spread over the history."""
MILLI = 1e3
FLAT = 1 / 1.5
"""What counts as flat on a noisy machine: time at the smallest size over that at the largest."""
WORDS = ["agent", "reads", "report", "writes", "found", "user", "plan", "later", "tool", "answer"]


class Side(Protocol):
    """A contestant."""

    async def page(self, session: str, limit: int) -> object: ...
    async def ids(self, session: str, after: str, limit: int) -> object: ...
    async def sessions(self, limit: int) -> object: ...
    async def latest(self) -> object: ...
    async def one(self, session: str, id_: str) -> object: ...


class Ours:
    """The archive and the catalog."""

    def __init__(self, state_store: holdfast.StateStore, agent: str) -> None:
        self.archive = holdfast.SnapshotArchive(state_store)
        self.catalog = holdfast.Catalog(state_store)
        self.agent = agent

    def location(self, session: str) -> holdfast.SnapshotLocation:
        """Return the location of a session."""
        return holdfast.SnapshotLocation(session, scope_id=self.agent)

    async def page(self, session: str, limit: int) -> object:
        return await self.archive.list_snapshots(location=self.location(session), limit=limit)

    async def ids(self, session: str, after: str, limit: int) -> object:
        location = self.location(session)
        return await self.archive.list_snapshot_ids(
            location=location, limit=limit, start_after=after
        )

    async def sessions(self, limit: int) -> object:
        return await self.catalog.sessions(self.agent, limit=limit)

    async def latest(self) -> object:
        entry = await self.catalog.latest_session(self.agent)
        if entry is None:
            raise LookupError(self.agent)
        return await self.archive.load_snapshot(location=self.location(entry.session_id))

    async def one(self, session: str, id_: str) -> object:
        return await self.archive.load_snapshot(location=self.location(session), snapshot_id=id_)


Ask = Callable[[Side], Awaitable[object]]


@dataclass(slots=True)
class Scale:
    """Sizes, and the number of rounds."""

    snapshots: list[int]
    sessions: list[int]
    rounds: int


@dataclass(slots=True)
class Question:
    """A question to both sides, in one call or in several of similar cost."""

    text: str
    calls: list[Ask]
    sides: dict[str, Side]
    best: dict[tuple[str, int], float] = field(default_factory=dict)

    async def ask(self, who: str, number: int) -> None:
        """Time one call."""
        start = time.perf_counter()
        found = await self.calls[number](self.sides[who])
        spent = time.perf_counter() - start
        if not found:
            raise LookupError(f"{who} found nothing: {self.text}")
        self.best[who, number] = min(spent, self.best.get((who, number), spent))

    def row(self) -> Row:
        """Return the best time of a call, or the median of the best times of several calls.

        A load reads what was logged since the last keyframe, which varies.
        """
        numbers = range(len(self.calls))
        return Row(
            self.text,
            "ms",
            {who: median(self.best[who, at] for at in numbers) * MILLI for who in self.sides},
        )


@dataclass(slots=True)
class Bench:
    """One backend."""

    name: str
    state_store: holdfast.StateStore
    database: Database

    def sides(self, agent: str) -> tuple[Ours, PlainTable]:
        """Return both sides for an agent."""
        return Ours(self.state_store, agent), PlainTable(self.database, agent)

    async def save(self, agent: str, session_id: str, numbers: Sequence[int]) -> list[str]:
        """Save snapshots of a session."""
        session = await holdfast.Session.open(
            self.state_store, agent_id=agent, session_id=session_id
        )
        ids = []
        for number in numbers:
            if number % PAGE == 0:
                progress(f"{self.name}: {agent}, snapshot {number:,}")
            session.set("plan", make_state(number))
            ids.append((await session.save()).snapshot_id)
        return ids

    async def snapshots(self, size: int) -> list[Question]:
        """Build one session with this many snapshots, and return its questions."""
        agent, session = f"{size:,} snapshots", f"ses_{size}"
        ours, plain = self.sides(agent)
        ids = await self.save(agent, session, range(size))
        plain.add_sessions([session])
        plain.add_snapshots(zip([session] * size, ids, map(make_state, range(size)), strict=True))
        some = ids[size // SPREAD // 2 : -1 : size // SPREAD]
        start = ids[max(0, min(size // 2, size - PAGE - 1))]
        calls: dict[str, list[Ask]] = {
            f"a page of {PAGE}": [methodcaller("page", session, PAGE)],
            f"{PAGE} ids from inside": [methodcaller("ids", session, start, PAGE)],
            "the agent's latest": [methodcaller("latest")],
            "one by its id": [methodcaller("one", session, id_) for id_ in some],
        }
        return self.questions(agent, calls, ours, plain)

    async def sessions(self, size: int) -> list[Question]:
        """Build this many sessions of one agent, and return their questions."""
        agent = f"{size:,} sessions"
        ours, plain = self.sides(agent)
        names = [f"ses_of_{size}_{number:06}" for number in range(size)]
        ids = [(await self.save(agent, name, [at]))[0] for at, name in enumerate(names)]
        plain.add_sessions(names)
        plain.add_snapshots(zip(names, ids, map(make_state, range(size)), strict=True))
        some = list(zip(names, ids, strict=True))[size // SPREAD // 2 :: max(1, size // SPREAD)]
        calls: dict[str, list[Ask]] = {
            f"a page of {PAGE}": [methodcaller("sessions", PAGE)],
            "the agent's latest": [methodcaller("latest")],
            "one snapshot by its id": [methodcaller("one", name, id_) for name, id_ in some],
        }
        return self.questions(agent, calls, ours, plain)

    def questions(
        self, what: str, calls: dict[str, list[Ask]], ours: Side, plain: Side
    ) -> list[Question]:
        """Return each question with both sides."""
        return [
            Question(f"{self.name}, {what}: {text}", asked, {OURS: ours, PEER: plain})
            for text, asked in calls.items()
        ]


async def ask_all(questions: list[Question], rounds: int) -> list[Row]:
    """Ask all questions, in random order per round."""
    rng = random.Random("history")
    calls = [
        (question, who, number)
        for question in questions
        for who in question.sides
        for number in range(len(question.calls))
    ]
    for turn in range(rounds):
        progress(f"{questions[0].text}, and all the others: round {turn + 1} of {rounds}")
        for question, who, number in rng.sample(calls, len(calls)):
            await question.ask(who, number)
    return [question.row() for question in questions]


@asynccontextmanager
async def open_bench(name: str, folder: Path) -> AsyncIterator[Bench]:
    """Open an empty backend."""
    database: Database
    if name == "sqlite":
        url = f"sqlite:///{folder}/ours.db"
        with closing(OnSqlite(folder / "plain.db")) as database:
            async with holdfast.open_state_store(url) as state_store:
                yield Bench(name, state_store, database)
        return
    with PostgresServer(folder) as server:
        # Only reads are measured, so building need not wait for the disk.
        server.execute("ALTER DATABASE postgres SET synchronous_commit = off")
        with closing(OnPostgres(server.url())) as database:
            async with holdfast.open_state_store(server.url()) as state_store:
                yield Bench(name, state_store, database)


def make_state(number: int) -> dict[str, Any]:
    """Return a small state that differs each time."""
    rng = random.Random(number)
    return {"step": number, "goal": " ".join(rng.choices(WORDS, k=8)), "open": [number, 7]}


def compare_growth(rows: list[Row], sizes: list[int], what: str) -> list[Row]:
    """Return our time at the smallest size over that at the largest, and from the second on.

    The smallest has no keyframe yet, so its loads read less than later ones.
    """
    times = {row.question: row.times[OURS] for row in rows}
    most = f"{sizes[-1]:,} {what}"
    made = []
    for size in sizes[:2]:
        few = f", {size:,} {what}"
        for question, time_then in times.items():
            if few in question and size < sizes[-1]:
                seen = {"fewer": time_then, "most": times[question.replace(few, f", {most}")]}
                named = question.replace(few, f", from {size:,} to {most}")
                made.append(Row(named, "ms", seen, FLAT))
    return made


async def main() -> None:
    """Measure all backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that writes no results")
    parser.add_argument("--only", default=",".join(BACKENDS))
    options = parser.parse_args()
    scale = Scale([100, 1000, 10_000, 100_000], [100, 1000, 10_000], 30)
    if options.smoke:
        scale = Scale([10, 20], [5, 10], 2)
    rows: list[Row] = []
    flat: list[Row] = []
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            async with open_bench(name, Path(folder)) as place:
                questions = [
                    each for size in scale.snapshots for each in await place.snapshots(size)
                ]
                questions += [
                    each for size in scale.sessions for each in await place.sessions(size)
                ]
                # Servers gather statistics in time; they need them to use the index.
                place.database.analyze()
                found = await ask_all(questions, scale.rounds)
        rows += found
        flat += compare_growth(found, scale.snapshots, "snapshots")
        flat += compare_growth(found, scale.sessions, "sessions")
    print(format_table("reading a long history", rows, PEER, [OURS]), end="\n\n")
    print(format_table("how holdfast grows", flat, "fewer", ["most"]))
    print(f"load of the machine: {os.getloadavg()[1]:.1f}")
    if not options.smoke and options.only == ",".join(BACKENDS):
        grown = [asdict(row) for row in flat]
        print(f"written to {keep('history', rows, growth=grown, load=os.getloadavg())}")


if __name__ == "__main__":
    asyncio.run(main())
