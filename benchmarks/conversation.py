"""Measure saving a growing session every turn, with a durable snapshot of each.

500 turns of a conversation, 1,500 messages, 1.5 MB. Each system makes every turn durable and takes
a snapshot of it; then the latest and that of turn 250 are loaded, and all ids are listed. Fast
systems run in rounds of varying order, and the best round counts; slow ones run once. `--smoke`
runs a few turns, `--only sqlite,postgresql` some backends, `--plot` sets the path of the plot.
Run: make bench-conversation
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

import holdfast
from benchmarks.harness import ROOT, Row, keep, progress, shuffled, table

sys.path.insert(0, str(ROOT / "tests"))

from benchmarks.peers import strands_files
from benchmarks.peers.holdfast_session import HoldfastSession, entries_size
from benchmarks.peers.langgraph_graph import WholeGraph, with_delta_channel
from benchmarks.peers.langgraph_saver import PostgresSaverPut, SqliteSaverPut, database_size
from benchmarks.peers.openai_session import OpenAISession
from benchmarks.peers.orjson_files import OrjsonFiles
from benchmarks.peers.report import aligned, draw, kept, systems
from benchmarks.peers.swarmstate_saver import SwarmstatePut
from benchmarks.peers.workload import Contestant, Run, best, conversation, drive, quietest
from servers.nats_server import NatsServer
from servers.postgres import PostgresServer
from servers.redis_server import RedisServer
from servers.seaweed import SeaweedServer

PEER, OURS = "peer", "holdfast"
MILLI, MEGA = 1e3, 1e6
BACKENDS = ["sqlite", "postgresql", "files", "s3", "redis", "nats", "long"]
QUICKLY_THERE = ["sqlite", "files"]
OPENAI = "OpenAI SQLiteSession, appends only"
DELTA = "LangGraph, whole graph with DeltaChannel"
GRAPH = "LangGraph, whole graph"
SQLITE_PUT = "LangGraph SqliteSaver, put alone"
POSTGRES_PUT = "LangGraph PostgresSaver, put alone"
STRANDS = "Strands snapshots on files"
SWARMSTATE = "swarmstate saver on disk"
ORJSON = "orjson of the whole state"
NOTES = {
    OPENAI: "no snapshots",
    STRANDS: "no fsync",
    SWARMSTATE: "no fsync at a save",
    GRAPH: "3 checkpoints a turn",
    DELTA: "3 checkpoints a turn",
}
COLOURS = {
    "holdfast, sqlite": "#1a7f64",
    OPENAI: "#777777",
    SQLITE_PUT: "#c2571a",
    GRAPH: "#8a2be2",
    DELTA: "#2b6cb0",
    STRANDS: "#b7950b",
    ORJSON: "#c0392b",
}
# Targets: a figure of the peer, or the limit, divided by ours.
NO_SLOWER, FLAT, LOAD, POSTGRES = 1 / 1.5, 1 / 1.3, 1 / 2, 10
LARGEST, LONGEST_LISTING = 3.0, 5.0


@dataclass(slots=True)
class Entrant:
    """A contestant, and its number of rounds."""

    name: str
    make: Callable[[Path], Contestant]
    rounds: int
    logged: Callable[[], int] = lambda: 0
    """Returns the bytes that its server has written to its log."""
    after: Callable[[Any], Awaitable[None]] | None = None
    """Called when its conversation is over."""


@dataclass(slots=True)
class Scale:
    """The size of a run."""

    turns: int
    rounds: tuple[int, int]
    """Rounds of fast contestants, and of slow ones."""
    repeats: int
    long: int


@dataclass(slots=True)
class Seen:
    """All runs, and the rows that compare a load with orjson."""

    scale: Scale
    runs: dict[str, list[Run]] = field(default_factory=dict)
    loads: list[Row] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        middle = self.scale.turns // 2
        self.loads = [
            Row("load the latest, beside orjson.loads of its document", "ms", target=LOAD),
            Row(f"load turn {middle}, beside orjson.loads of its document", "ms", target=LOAD),
        ]


async def race(entrants: list[Entrant], seen: Seen, turns: int, repeats: int) -> None:
    """Run the same conversation with every contestant, in rounds."""
    rng, said = random.Random("race"), conversation(turns)
    seen.runs.update({entrant.name: [] for entrant in entrants})
    for number in range(max(entrant.rounds for entrant in entrants)):
        ready = {entrant.name: entrant for entrant in entrants if entrant.rounds > number}
        for name in shuffled(list(ready), rng):
            entrant = ready[name]
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                os.sync()  # Flush what others wrote, so that it does not count here.
                contestant, logged = entrant.make(Path(folder)), entrant.logged()

                def told(turn: int, what: str = f"{name}, round {number + 1}") -> None:
                    progress(f"{what}: turn {turn:,} of {turns:,}")

                run = await drive(contestant, said, repeats, told)
                run.log = entrant.logged() - logged
                if entrant.after is not None:
                    await entrant.after(contestant)
                await contestant.close()
            seen.runs[name].append(run)


def beside_orjson(seen: Seen) -> Callable[[Any], Awaitable[None]]:
    """Alternate loading the snapshot with parsing the same document by orjson."""

    async def compare(ours: HoldfastSession) -> None:
        rng = random.Random("loads")
        whole = await ours.document()
        half = holdfast.Document.from_snapshot(await ours.snapshot(ours.marked)).to_dict()
        half["events"] = whole["events"][: half["event_log_count"]]
        for row, document, snapshot_id in zip(
            seen.loads, (whole, half), (None, ours.marked), strict=True
        ):
            text = orjson.dumps(document)
            for _ in range(seen.scale.repeats):
                for who in shuffled([PEER, OURS], rng):
                    start = time.perf_counter()
                    if who == PEER:
                        orjson.loads(text)
                    else:
                        await ours.load(snapshot_id)
                    row.offer(who, (time.perf_counter() - start) * MILLI)

    return compare


def on_sqlite(folder: Path) -> Contestant:
    """Run Holdfast on SQLite."""
    return HoldfastSession(folder, f"sqlite:///{folder}/ours.db")


async def sqlite(seen: Seen) -> None:
    """Compare Holdfast on SQLite with all peers that need no server."""
    scale = seen.scale
    quick, slow = scale.rounds
    entrants = [
        Entrant(ours("sqlite"), on_sqlite, quick, after=beside_orjson(seen)),
        Entrant(OPENAI, OpenAISession, quick),
        Entrant(ORJSON, OrjsonFiles, slow),
        Entrant(SQLITE_PUT, SqliteSaverPut, slow),
        Entrant(SWARMSTATE, SwarmstatePut, slow),
        Entrant(GRAPH, WholeGraph, 1),
    ]
    try:
        delta = with_delta_channel()
    except ImportError as error:
        seen.skipped.append(f"{DELTA}: {error}")
    else:
        entrants.append(Entrant(DELTA, lambda folder: WholeGraph(folder, delta), 1))
    await race(entrants, seen, scale.turns, scale.repeats)
    python = strands_files.interpreter()
    if python is None:
        seen.skipped.append(
            f"{STRANDS}: set {strands_files.VARIABLE} to a Python that has strands-agents"
        )
        return
    progress(STRANDS)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        os.sync()
        run = strands_files.elsewhere(python, Path(folder), scale.turns, scale.repeats)
        seen.runs[STRANDS] = [run]


async def postgresql(seen: Seen, server: Any) -> None:
    """Compare Holdfast with PostgresSaver, each run in a new database."""
    numbers = itertools.count(1)

    def fresh() -> str:
        name = f"run_{next(numbers)}"
        server.execute(f"CREATE DATABASE {name}", "CHECKPOINT")
        return str(server.url(name))

    def logged() -> int:
        return int(server.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")[0][0])

    async def measured(url: str) -> int:
        return database_size(url)

    scale = seen.scale
    entrants = [
        Entrant(
            ours("postgresql"),
            lambda folder: HoldfastSession(folder, fresh(), measured),
            scale.rounds[1],
            logged,
        ),
        Entrant(
            POSTGRES_PUT,
            lambda folder: PostgresSaverPut(folder, fresh()),
            scale.rounds[1],
            logged,
        ),
    ]
    await race(entrants, seen, scale.turns, scale.repeats)


async def alone(name: str, seen: Seen, url: Callable[[Path, int], str], server: bool) -> None:
    """Run Holdfast alone on another backend. Bytes are those of entries if a server stores them."""
    numbers = itertools.count(1)
    measure = entries_size if server else None

    def make(folder: Path) -> Contestant:
        return HoldfastSession(folder, url(folder, next(numbers)), measure)

    entrant = Entrant(ours(name), make, seen.scale.rounds[1])
    await race([entrant], seen, seen.scale.turns, seen.scale.repeats)


async def measure(backend: str, seen: Seen, folder: Path) -> None:
    """Measure one backend, and run its server."""
    with ExitStack() as stack:
        match backend:
            case "sqlite":
                await sqlite(seen)
            case "postgresql":
                await postgresql(seen, stack.enter_context(PostgresServer(folder)))
            case "files":
                await alone("files", seen, lambda place, _: f"file://{place}/ours", server=False)
            case "s3":
                server: Any = stack.enter_context(SeaweedServer(folder))
                await alone("s3", seen, lambda _, run: str(server.url(f"run{run}")), server=True)
            case "redis":
                server = stack.enter_context(RedisServer(folder))
                await alone("redis", seen, lambda _, run: str(server.url(run)), server=True)
            case "nats":
                server = stack.enter_context(NatsServer(folder))
                await alone("nats", seen, lambda _, run: str(server.url(f"run{run}")), server=True)
            case _:
                long = Entrant(ours("sqlite", seen.scale.long), on_sqlite, seen.scale.rounds[1])
                await race([long], seen, seen.scale.long, seen.scale.repeats)


def ours(backend: str, turns: int | None = None) -> str:
    """Return the name of our row."""
    return f"{OURS}, {backend}" + (f", {turns:,} turns" if turns else "")


def rows(seen: Seen) -> list[Row]:
    """Return the peers' figures over ours, and our own targets."""
    found = {name: best(runs) for name, runs in seen.runs.items()}
    home, turns = ours("sqlite"), seen.scale.turns
    made = []
    for name, run in found.items():
        if not name.startswith(OURS):
            medium = ours("postgresql") if name == POSTGRES_PUT else home
            wanted = {OPENAI: NO_SLOWER, POSTGRES_PUT: POSTGRES}.get(name)
            times = {PEER: run.total, OURS: found[medium].total}
            made.append(Row(f"{turns:,} turns: {name}", "s", times, wanted))
    for name, runs in seen.runs.items():
        if name.startswith(OURS):
            first, last = (value * MILLI for value in quietest(runs).ends())
            times = {PEER: first, OURS: last}
            made.append(Row(f"a turn, the first tenth beside the last: {name}", "ms", times, FLAT))
    if home in found:
        size, listing = found[home].size / MEGA, (found[home].listing or 0) * MILLI
        made += [
            Row(f"bytes at the end, of {LARGEST:g}", "MB", {PEER: LARGEST, OURS: size}, 1),
            *seen.loads,
            Row(
                f"list {found[home].listed:,} ids, of {LONGEST_LISTING:g}",
                "ms",
                {PEER: LONGEST_LISTING, OURS: listing},
                1,
            ),
        ]
    if home in found and (long := found.get(ours("sqlite", seen.scale.long))):
        a_turn = {PEER: found[home].size / turns, OURS: long.size / len(long.turns)}
        question = f"bytes of a turn, of {turns:,} beside {seen.scale.long:,}"
        made.append(Row(question, "bytes", a_turn, 0.9))
    return made


async def main() -> None:
    """Measure all backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that keeps nothing")
    parser.add_argument("--only", help=f"some of {','.join(BACKENDS)}")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs/images/conversation.svg")
    options = parser.parse_args()
    smoke = options.smoke
    backends = (options.only or ",".join(QUICKLY_THERE if smoke else BACKENDS)).split(",")
    seen = Seen(Scale(5, (1, 1), 1, 10) if smoke else Scale(500, (7, 3), 20, 5000))
    print("holdfast is", "compiled" if holdfast.compiled else "interpreted")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for backend in backends:
            await measure(backend, seen, Path(folder) / backend)
        if smoke:
            draw(seen.runs, COLOURS, Path(folder) / "picture.svg")
    progress("")
    print(aligned(list(systems(seen.runs, NOTES))), end="\n\n")
    print(table("a conversation, saved every turn", rows(seen), PEER, [OURS]))
    print(f"load of the machine: {os.getloadavg()[1]:.1f}")
    for line in seen.skipped:
        print("skipped:", line)
    if not smoke and backends == BACKENDS:
        figures = {"systems": kept(seen.runs), "load": os.getloadavg()}
        print(f"kept in {keep('conversation', rows(seen), **figures)}")
        draw(seen.runs, COLOURS, options.plot)


if __name__ == "__main__":
    asyncio.run(main())
