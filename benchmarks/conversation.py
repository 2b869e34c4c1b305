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
from benchmarks.harness import ROOT, Row, format_table, keep, progress, shuffle

sys.path.insert(0, str(ROOT / "tests"))

from benchmarks.peers import strands_files
from benchmarks.peers.holdfast_session import HoldfastSession, measure_entries
from benchmarks.peers.langgraph_graph import WholeGraph, make_delta_state
from benchmarks.peers.langgraph_saver import PostgresSaverPut, SqliteSaverPut, measure_database
from benchmarks.peers.openai_session import OpenAISession
from benchmarks.peers.orjson_files import OrjsonFiles
from benchmarks.peers.report import align_columns, draw, format_systems, results_to_json
from benchmarks.peers.swarmstate_saver import SwarmstatePut
from benchmarks.peers.workload import (
    Contestant,
    Run,
    make_conversation,
    merge_fastest_turns,
    run_conversation,
    select_best,
)
from servers.nats_server import NatsServer
from servers.postgres import PostgresServer
from servers.redis_server import RedisServer
from servers.seaweed import SeaweedServer

PEER, OURS = "peer", "holdfast"
MILLI, MEGA = 1e3, 1e6
BACKENDS = ["sqlite", "postgresql", "files", "s3", "redis", "nats", "long"]
SMOKE_BACKENDS = ["sqlite", "files"]
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
    GRAPH: "3 checkpoints per turn",
    DELTA: "3 checkpoints per turn",
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
NO_SLOWER, FLAT, LOAD, POSTGRES = 1 / 1.25, 1 / 1.1, 1 / 1.5, 15
LARGEST, LONGEST_LISTING = 2.5, 5.0


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
class Results:
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


async def race(entrants: list[Entrant], results: Results, turns: int, repeats: int) -> None:
    """Run the same conversation with every contestant, in rounds."""
    rng, work = random.Random("race"), make_conversation(turns)
    results.runs.update({entrant.name: [] for entrant in entrants})
    for number in range(max(entrant.rounds for entrant in entrants)):
        ready = {entrant.name: entrant for entrant in entrants if entrant.rounds > number}
        for name in shuffle(list(ready), rng):
            entrant = ready[name]
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                os.sync()  # Flush what others wrote, so that it does not count here.
                contestant, logged = entrant.make(Path(folder)), entrant.logged()

                def report(turn: int, what: str = f"{name}, round {number + 1}") -> None:
                    progress(f"{what}: turn {turn:,} of {turns:,}")

                run = await run_conversation(contestant, work, repeats, report)
                run.log = entrant.logged() - logged
                if entrant.after is not None:
                    await entrant.after(contestant)
                await contestant.close()
            results.runs[name].append(run)


def compare_with_orjson(results: Results) -> Callable[[Any], Awaitable[None]]:
    """Alternate loading the snapshot with parsing the same document by orjson."""

    async def compare(ours: HoldfastSession) -> None:
        rng = random.Random("loads")
        whole = await ours.document()
        half = holdfast.Document.from_snapshot(await ours.snapshot(ours.marked)).to_dict()
        half["events"] = whole["events"][: half["event_log_count"]]
        for row, document, snapshot_id in zip(
            results.loads, (whole, half), (None, ours.marked), strict=True
        ):
            text = orjson.dumps(document)
            for _ in range(results.scale.repeats):
                for who in shuffle([PEER, OURS], rng):
                    start = time.perf_counter()
                    if who == PEER:
                        orjson.loads(text)
                    else:
                        await ours.load(snapshot_id)
                    row.offer(who, (time.perf_counter() - start) * MILLI)

    return compare


def make_sqlite_session(folder: Path) -> Contestant:
    """Run Holdfast on SQLite."""
    return HoldfastSession(folder, f"sqlite:///{folder}/ours.db")


async def race_on_sqlite(results: Results) -> None:
    """Compare Holdfast on SQLite with all peers that need no server."""
    scale = results.scale
    quick, slow = scale.rounds
    entrants = [
        Entrant(
            name_ours("sqlite"), make_sqlite_session, quick, after=compare_with_orjson(results)
        ),
        Entrant(OPENAI, OpenAISession, quick),
        Entrant(ORJSON, OrjsonFiles, slow),
        Entrant(SQLITE_PUT, SqliteSaverPut, slow),
        Entrant(SWARMSTATE, SwarmstatePut, slow),
        Entrant(GRAPH, WholeGraph, 1),
    ]
    try:
        delta = make_delta_state()
    except ImportError as error:
        results.skipped.append(f"{DELTA}: {error}")
    else:
        entrants.append(Entrant(DELTA, lambda folder: WholeGraph(folder, delta), 1))
    await race(entrants, results, scale.turns, scale.repeats)
    python = strands_files.find_interpreter()
    if python is None:
        results.skipped.append(
            f"{STRANDS}: set {strands_files.VARIABLE} to a Python that has strands-agents"
        )
        return
    progress(STRANDS)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        os.sync()
        run = strands_files.run_in_process(python, Path(folder), scale.turns, scale.repeats)
        results.runs[STRANDS] = [run]


async def race_on_postgresql(results: Results, server: Any) -> None:
    """Compare Holdfast with PostgresSaver, each run in a new database."""
    numbers = itertools.count(1)

    def fresh() -> str:
        name = f"run_{next(numbers)}"
        server.execute(f"CREATE DATABASE {name}", "CHECKPOINT")
        return str(server.url(name))

    def logged() -> int:
        return int(server.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")[0][0])

    async def measured(url: str) -> int:
        return measure_database(url)

    scale = results.scale
    entrants = [
        Entrant(
            name_ours("postgresql"),
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
    await race(entrants, results, scale.turns, scale.repeats)


async def race_alone(
    name: str, results: Results, url: Callable[[Path, int], str], server: bool
) -> None:
    """Run Holdfast alone on another backend. Bytes are those of entries if a server stores them."""
    numbers = itertools.count(1)
    measure = measure_entries if server else None

    def make(folder: Path) -> Contestant:
        return HoldfastSession(folder, url(folder, next(numbers)), measure)

    entrant = Entrant(name_ours(name), make, results.scale.rounds[1])
    await race([entrant], results, results.scale.turns, results.scale.repeats)


async def measure(backend: str, results: Results, folder: Path) -> None:
    """Measure one backend, and run its server."""
    with ExitStack() as stack:
        match backend:
            case "sqlite":
                await race_on_sqlite(results)
            case "postgresql":
                await race_on_postgresql(results, stack.enter_context(PostgresServer(folder)))
            case "files":
                await race_alone(
                    "files", results, lambda place, _: f"file://{place}/ours", server=False
                )
            case "s3":
                server: Any = stack.enter_context(SeaweedServer(folder))
                await race_alone(
                    "s3", results, lambda _, run: str(server.url(f"run{run}")), server=True
                )
            case "redis":
                server = stack.enter_context(RedisServer(folder))
                await race_alone("redis", results, lambda _, run: str(server.url(run)), server=True)
            case "nats":
                server = stack.enter_context(NatsServer(folder))
                await race_alone(
                    "nats", results, lambda _, run: str(server.url(f"run{run}")), server=True
                )
            case _:
                long = Entrant(
                    name_ours("sqlite", results.scale.long),
                    make_sqlite_session,
                    results.scale.rounds[1],
                )
                await race([long], results, results.scale.long, results.scale.repeats)


def name_ours(backend: str, turns: int | None = None) -> str:
    """Return the name of our row."""
    return f"{OURS}, {backend}" + (f", {turns:,} turns" if turns else "")


def build_rows(results: Results) -> list[Row]:
    """Return the peers' figures over ours, and our own targets."""
    found = {name: select_best(runs) for name, runs in results.runs.items()}
    home, turns = name_ours("sqlite"), results.scale.turns
    made = []
    for name, run in found.items():
        if not name.startswith(OURS):
            medium = name_ours("postgresql") if name == POSTGRES_PUT else home
            wanted = {OPENAI: NO_SLOWER, POSTGRES_PUT: POSTGRES}.get(name)
            times = {PEER: run.total, OURS: found[medium].total}
            made.append(Row(f"{turns:,} turns: {name}", "s", times, wanted))
    for name, runs in results.runs.items():
        if name.startswith(OURS):
            first, last = (value * MILLI for value in merge_fastest_turns(runs).ends())
            times = {PEER: first, OURS: last}
            made.append(Row(f"a turn, the first tenth beside the last: {name}", "ms", times, FLAT))
    if home in found:
        size, listing = found[home].size / MEGA, (found[home].listing or 0) * MILLI
        made += [
            Row(f"bytes at the end, of {LARGEST:g}", "MB", {PEER: LARGEST, OURS: size}, 1),
            *results.loads,
            Row(
                f"list {found[home].listed:,} ids, of {LONGEST_LISTING:g}",
                "ms",
                {PEER: LONGEST_LISTING, OURS: listing},
                1,
            ),
        ]
    if home in found and (long := found.get(name_ours("sqlite", results.scale.long))):
        a_turn = {PEER: found[home].size / turns, OURS: long.size / len(long.turns)}
        question = f"bytes of a turn, of {turns:,} beside {results.scale.long:,}"
        made.append(Row(question, "bytes", a_turn, 0.9))
    return made


async def main() -> None:
    """Measure all backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that writes no results")
    parser.add_argument("--only", help=f"some of {','.join(BACKENDS)}")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs/images/conversation.svg")
    options = parser.parse_args()
    smoke = options.smoke
    backends = (options.only or ",".join(SMOKE_BACKENDS if smoke else BACKENDS)).split(",")
    results = Results(Scale(5, (1, 1), 1, 10) if smoke else Scale(500, (7, 3), 20, 5000))
    print("holdfast is", "compiled" if holdfast.compiled else "interpreted")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for backend in backends:
            await measure(backend, results, Path(folder) / backend)
        if smoke:
            draw(results.runs, COLOURS, Path(folder) / "picture.svg")
    progress("")
    print(align_columns(list(format_systems(results.runs, NOTES))), end="\n\n")
    print(format_table("a conversation, saved every turn", build_rows(results), PEER, [OURS]))
    print(f"load of the machine: {os.getloadavg()[1]:.1f}")
    for line in results.skipped:
        print("skipped:", line)
    if not smoke and backends == BACKENDS:
        figures = {"systems": results_to_json(results.runs), "load": os.getloadavg()}
        print(f"written to {keep('conversation', build_rows(results), **figures)}")
        draw(results.runs, COLOURS, options.plot)


if __name__ == "__main__":
    asyncio.run(main())
