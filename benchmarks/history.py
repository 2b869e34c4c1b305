"""What a long history costs to read: many snapshots in one session, many sessions of one agent.

Each question is asked at growing sizes, of ourselves and of a plain table with an index and a whole
JSON document a snapshot, which is the limit: it checks nothing. The cost should be flat. Every
snapshot is made by saving a session, with a change of a small state between two. `--smoke` runs it
all on a small scale, `--only sqlite` on one backend. Run: make bench-history
"""

from __future__ import annotations

import argparse
import asyncio
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
from harness import ROOT, Row, keep, progress, shuffled, table
from peers.plain_table import Database, OnPostgres, OnSqlite, PlainTable

sys.path.insert(0, str(ROOT / "tests"))

from servers.postgres import PostgresServer

PEER, OURS = "plain table", "holdfast"
BACKENDS = ["sqlite", "postgresql"]
PAGE = 100
SPREAD = 9
"""Snapshots, spread over the history, that are looked at."""
MILLI = 1e3
FLAT = 1 / 1.5
"""What counts as flat: the smallest size's time over the largest's, on a noisy machine."""
WORDS = ["agent", "reads", "report", "writes", "found", "user", "plan", "later", "tool", "answer"]


class Side(Protocol):
    """One who is asked."""

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
        """Where a session of the agent is."""
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
    """How much there is, and how often it is asked."""

    snapshots: list[int]
    sessions: list[int]
    calls: int


@dataclass(slots=True)
class Bench:
    """One backend, and what was found."""

    name: str
    state_store: holdfast.StateStore
    database: Database
    calls: int
    rows: list[Row] = field(default_factory=list)
    rng: random.Random = field(default_factory=lambda: random.Random("history"))

    def sides(self, agent: str) -> tuple[Ours, PlainTable]:
        """Both, for an agent."""
        return Ours(self.state_store, agent), PlainTable(self.database, agent)

    async def save(self, agent: str, session_id: str, numbers: Sequence[int]) -> list[str]:
        """Snapshots of a session, one a number."""
        session = await holdfast.Session.open(
            self.state_store, agent_id=agent, session_id=session_id
        )
        ids = []
        for number in numbers:
            if number % PAGE == 0:
                progress(f"{self.name}: {agent}, snapshot {number:,}")
            session.set("plan", state(number))
            ids.append((await session.save()).snapshot_id)
        return ids

    async def ask(
        self, what: str, questions: dict[str, list[Ask]], sides: tuple[Side, Side]
    ) -> None:
        """Each question in turns of both: the best time, or the median of those of several calls.

        A load reads what was logged since the last keyframe, which is now more and now less.
        """
        both = dict(zip((OURS, PEER), sides, strict=True))
        for question, calls in questions.items():
            progress(f"{self.name}, {what}: {question}")
            times = [await self.best(call, both) for call in calls]
            row = Row(f"{self.name}, {what}: {question}", "ms")
            row.times = {who: median(each.times[who] for each in times) for who in both}
            self.rows.append(row)

    async def best(self, call: Ask, both: dict[str, Side]) -> Row:
        """The best time of one call."""
        row = Row("", "ms")
        for _ in range(self.calls):
            for who in shuffled(list(both), self.rng):
                start = time.perf_counter()
                found = await call(both[who])
                spent = time.perf_counter() - start
                if not found:
                    raise LookupError(f"{who} found nothing")
                row.offer(who, spent * MILLI)
        return row


@asynccontextmanager
async def bench(name: str, folder: Path, calls: int) -> AsyncIterator[Bench]:
    """A backend with nothing in it."""
    database: Database
    if name == "sqlite":
        url = f"sqlite:///{folder}/ours.db"
        with closing(OnSqlite(folder / "plain.db")) as database:
            async with holdfast.open_state_store(url) as state_store:
                yield Bench(name, state_store, database, calls)
        return
    with PostgresServer(folder) as server:
        # What is measured is reading: that the building waits for the disk would tell nothing.
        server.execute("ALTER DATABASE postgres SET synchronous_commit = off")
        with closing(OnPostgres(server.url())) as database:
            async with holdfast.open_state_store(server.url()) as state_store:
                yield Bench(name, state_store, database, calls)


def state(number: int) -> dict[str, Any]:
    """A small state, another one each time."""
    rng = random.Random(number)
    return {"step": number, "goal": " ".join(rng.choices(WORDS, k=8)), "open": [number, 7]}


async def many_snapshots(place: Bench, sizes: Sequence[int]) -> None:
    """One session with more and more snapshots."""
    agent, session = "one-session", "ses_long"
    sides = place.sides(agent)
    sides[1].add_sessions([session])
    ids: list[str] = []
    for size in sizes:
        numbers = range(len(ids), size)
        made = await place.save(agent, session, numbers)
        states = map(state, numbers)
        sides[1].add_snapshots(zip([session] * len(made), made, states, strict=True))
        ids += made
        some = ids[size // SPREAD // 2 : -1 : size // SPREAD]
        start = ids[max(0, min(size // 2, size - PAGE - 1))]
        questions: dict[str, list[Ask]] = {
            f"a page of {PAGE}": [methodcaller("page", session, PAGE)],
            f"{PAGE} ids from inside": [methodcaller("ids", session, start, PAGE)],
            "the agent's latest": [methodcaller("latest")],
            "one by its id": [methodcaller("one", session, id_) for id_ in some],
        }
        await place.ask(f"{size:,} snapshots", questions, sides)


async def many_sessions(place: Bench, sizes: Sequence[int]) -> None:
    """More and more sessions of one agent, with one snapshot each."""
    agent = "many-sessions"
    sides = place.sides(agent)
    ids: dict[str, str] = {}
    for size in sizes:
        numbers = range(len(ids), size)
        names = [f"ses_{number:06}" for number in numbers]
        for number, name in zip(numbers, names, strict=True):
            (ids[name],) = await place.save(agent, name, [number])
        sides[1].add_sessions(names)
        sides[1].add_snapshots((name, ids[name], state(int(name[4:]))) for name in names)
        middle = f"ses_{size // 2:06}"
        questions: dict[str, list[Ask]] = {
            f"a page of {PAGE}": [methodcaller("sessions", PAGE)],
            "the agent's latest": [methodcaller("latest")],
            "one snapshot by its id": [methodcaller("one", middle, ids[middle])],
        }
        await place.ask(f"{size:,} sessions", questions, sides)


def growth(rows: list[Row], sizes: list[int], what: str) -> list[Row]:
    """Our time at the smallest size over that at the largest, and the same from the second on.

    The smallest has no keyframe yet, so that its loads read less than a bounded one reads later.
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
    """All backends, one after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that keeps nothing")
    parser.add_argument("--only", default=",".join(BACKENDS))
    options = parser.parse_args()
    scale = Scale([100, 1000, 10_000, 100_000], [100, 1000, 10_000], 30)
    if options.smoke:
        scale = Scale([10, 20], [5, 10], 2)
    rows: list[Row] = []
    flat: list[Row] = []
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            async with bench(name, Path(folder), scale.calls) as place:
                await many_snapshots(place, scale.snapshots)
                await many_sessions(place, scale.sessions)
        rows += place.rows
        flat += growth(place.rows, scale.snapshots, "snapshots")
        flat += growth(place.rows, scale.sessions, "sessions")
    print(table("reading a long history", rows, PEER, [OURS]), end="\n\n")
    print(table("how holdfast grows", flat, "fewer", ["most"]))
    if not options.smoke and options.only == ",".join(BACKENDS):
        print(f"kept in {keep('history', rows, growth=[asdict(row) for row in flat])}")


if __name__ == "__main__":
    asyncio.run(main())
