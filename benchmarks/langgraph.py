"""Measure what a checkpointer costs a whole LangGraph graph.

Short threads first, as most users have them: an agent with two nodes, message objects and a small
dict, blocking and async, in threads of 1 to 300 turns, the same number of turns in total for the
short ones. Then reads of a thread with 900 checkpoints. Then one conversation of 500 turns with
plain dicts: the latest checkpoint is read with everything reopened, and a new process resumes the
thread for one turn. The same graphs run on LangGraph's own savers, on swarmstate's saver, and on
ours, over the same databases. `--smoke` runs a few turns on SQLite, `--only sqlite` one database,
`--short` the short threads and the reads alone.
Run: make bench-langgraph
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from langchain_core.runnables import RunnableConfig

from benchmarks.harness import ROOT, Row, format_table, keep, progress, shuffle
from benchmarks.peers.graphs import SAVERS, Graph, open_graph
from benchmarks.peers.langgraph_saver import measure_database
from benchmarks.peers.threads import (
    ASYNC_SAVERS,
    THREAD_SAVERS,
    AgentGraph,
    AsyncOpen,
    Open,
    thread_config,
)
from benchmarks.peers.workload import make_conversation, measure_folder

sys.path.insert(0, str(ROOT / "tests"))

from servers.postgres import PostgresServer

OURS = "holdfast"
MILLI, MEGA = 1e3, 1e6
FASTER, SMALLER, NO_SLOWER = 2.5, 100, 1
REPEATS = 20
SHORT = {1: 1.0, 5: 1.1, 20: 1.3, 100: 2.0, 300: 2.5}
"""The numbers of turns of short threads, and how many times faster than the peer they should be."""
# Runs in a new process: open, read the thread, take one more turn.
RESUME = "import sys; from benchmarks.langgraph import resume; resume(*sys.argv[1:])"


@dataclass(slots=True)
class Results:
    """The best results of one saver."""

    total: float = float("inf")
    size: int = 0
    get_tuple: float = float("inf")
    resume: float = float("inf")
    halves: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Location:
    """Where a run stores its data: a folder, or a PostgreSQL database."""

    folder: Path
    url: str = ""

    def size(self) -> int:
        """Return the bytes stored."""
        return measure_database(self.url) if self.url else measure_folder(self.folder)


def run(saver: str, place: Location, turns: int, results: Results) -> None:
    """Run one conversation, and record the results."""
    work = make_conversation(turns + 1)
    with open_graph(saver, str(place.folder), place.url) as graph:
        start = time.perf_counter()
        for turn in work[:turns]:
            graph.turn(turn)
        results.total = min(results.total, time.perf_counter() - start)
    results.size = place.size()
    with open_graph(saver, str(place.folder), place.url) as graph:
        results.get_tuple = min(results.get_tuple, time_get_tuple(graph, turns * 3))
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", RESUME, saver, str(place.folder), place.url, str(turns)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    results.resume = min(results.resume, json.loads(done.stdout)["seconds"])


def time_get_tuple(graph: Graph, expected: int) -> float:
    """Return the seconds of the fastest get_tuple of several."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        found = graph.latest()
        best = min(best, time.perf_counter() - start)
        if len(found) != expected:
            raise SystemExit(f"{len(found)} messages, expected {expected}")
    return best


def resume(saver: str, folder: str, url: str, turns: str) -> None:
    """In a new process, continue the thread for one turn, and print the seconds it took."""
    turn = make_conversation(int(turns) + 1)[-1]
    start = time.perf_counter()
    with open_graph(saver, folder, url) as graph:
        graph.turn(turn)
        count = len(graph.latest())
    spent = time.perf_counter() - start
    if count != (int(turns) + 1) * 3:
        raise SystemExit(f"the thread has {count} messages")
    print(json.dumps({"seconds": spent}))


# --------------------------------------------------------------------------- short threads


def run_threads(make: Open, place: Location, turns: int, threads: int) -> float:
    """Return the seconds of some threads of this many turns, one after the other."""
    work = make_conversation(turns)
    with make(str(place.folder), place.url) as saver:
        graph = AgentGraph(saver)
        graph.turn("first", work[0])
        start = time.perf_counter()
        for number in range(threads):
            for turn in work:
                graph.turn(f"thread-{number}", turn)
        return time.perf_counter() - start


async def run_threads_async(make: AsyncOpen, place: Location, turns: int, threads: int) -> float:
    """Return the seconds of the same in an event loop."""
    work = make_conversation(turns)
    async with make(str(place.folder), place.url) as saver:
        graph = AgentGraph(saver)
        await graph.aturn("first", work[0])
        start = time.perf_counter()
        for number in range(threads):
            for turn in work:
                await graph.aturn(f"thread-{number}", turn)
        return time.perf_counter() - start


def measure_threads(
    database: str, new_place: Callable[[], Location], sizes: list[int], rounds: int, total: int
) -> list[Row]:
    """Return the milliseconds of a turn in threads of these lengths, blocking and async."""
    rng = random.Random(7)
    rows = []
    for is_async in (False, True):
        for turns in sizes:
            mode = "async" if is_async else "sync"
            row = Row(f"{database}, {mode}: {turns} turns", "ms", target=SHORT[turns])
            threads = max(1, total // turns)
            for _ in range(rounds):
                for who in shuffle(list(THREAD_SAVERS[database]), rng):
                    progress(f"{row.question}: {who}")
                    if is_async:
                        make = ASYNC_SAVERS[database][who]
                        seconds = asyncio.run(run_threads_async(make, new_place(), turns, threads))
                    else:
                        seconds = run_threads(
                            THREAD_SAVERS[database][who], new_place(), turns, threads
                        )
                    row.offer(who, seconds / turns / threads * MILLI)
            rows.append(row)
    return rows


def list_reads(
    agent: AgentGraph, here: RunnableConfig, olds: list[RunnableConfig]
) -> dict[str, Callable[[], object]]:
    """Return what is read, by name; of old checkpoints, another one each time."""
    graph, saver = agent.graph, agent.saver
    some, others = iter(olds[::2]), iter(olds[1::2])
    return {
        "get_state": lambda: graph.get_state(here),
        "get_tuple": lambda: saver.get_tuple(here),
        "list(limit=1)": lambda: list(saver.list(here, limit=1)),
        "get_state_history(limit=5)": lambda: list(graph.get_state_history(here, limit=5)),
        "get_tuple of an old one": lambda: saver.get_tuple(next(some)),
        "update_state of an old one": lambda: graph.update_state(
            next(others), {"plan": {}}, as_node="tool"
        ),
    }


def measure_reads(database: str, new_place: Callable[[], Location], turns: int) -> list[Row]:
    """Return the milliseconds of reads of a thread, after all of its turns."""
    rows: dict[str, Row] = {}
    for who in ("peer", OURS):
        place = new_place()
        with THREAD_SAVERS[database][who](str(place.folder), place.url) as saver:
            graph = AgentGraph(saver)
            for turn in make_conversation(turns):
                graph.turn("thread", turn)
            here = thread_config("thread")
            states = [each.config for each in graph.graph.get_state_history(here)]
            olds = states[len(states) // 2 :][: 2 * REPEATS]
            for name, read in list_reads(graph, here, olds).items():
                question = f"{database}, {len(states)} checkpoints: {name}"
                row = rows.setdefault(name, Row(question, "ms", target=NO_SLOWER))
                for _ in range(min(REPEATS, len(olds) // 2)):
                    start = time.perf_counter()
                    read()
                    row.offer(who, (time.perf_counter() - start) * MILLI)
    return list(rows.values())


# ------------------------------------------------------------------------ one conversation


def build_rows(database: str, peer: str, results: dict[str, Results]) -> list[Row]:
    """Return the peer's figures over ours."""
    theirs, ours = results[peer], results[f"{OURS}, {database}"]
    found = []
    for question, unit, scale, target, value in (
        ("total", "s", 1.0, FASTER, "total"),
        ("bytes", "MB", 1 / MEGA, SMALLER, "size"),
        ("get_tuple after reopening", "ms", MILLI, NO_SLOWER, "get_tuple"),
        ("a turn in a new process", "ms", MILLI, None, "resume"),
    ):
        wanted = target if peer == "SqliteSaver" else None
        row = Row(f"{peer}: {question}", unit, target=wanted)
        row.offer("peer", getattr(theirs, value) * scale)
        row.offer(OURS, getattr(ours, value) * scale)
        found.append(row)
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few turns")
    parser.add_argument("--only", help="one database: sqlite or postgresql")
    parser.add_argument("--short", action="store_true", help="short threads and reads alone")
    options = parser.parse_args()
    turns, rounds = (4, 1) if options.smoke else (500, 2)
    sizes, total = ([1, 5], 5) if options.smoke else (list(SHORT), 100)
    if options.smoke:
        options.only = "sqlite"
    rng = random.Random(7)
    names = [
        name
        for name, each in SAVERS.items()
        if options.only in (None, each.database) and each.is_there()
    ]
    results = {name: Results() for name in names}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        databases = make_database_factory(stack, folder, names)
        places = itertools.count()

        def new_place(database: str) -> Location:
            place = folder / str(next(places))
            place.mkdir()
            return Location(place, databases() if database == "postgresql" else "")

        short: list[Row] = []
        for database in dict.fromkeys(SAVERS[name].database for name in names):
            new = partial(new_place, database)
            short += measure_threads(database, new, sizes, 1 if options.smoke else 3, total)
            short += measure_reads(database, new, 2 if options.smoke else 225)
        print(format_table("short threads", short, "peer", [OURS]))
        for number in range(0 if options.short else rounds):
            for name in shuffle(names, rng):
                progress(f"round {number + 1} of {rounds}: {name}")
                run(name, new_place(SAVERS[name].database), turns, results[name])
    rows: list[Row] = []
    for name in names:
        if not options.short and not name.startswith(OURS):
            rows += build_rows(SAVERS[name].database, name, results)
    if rows:
        print(format_table(f"{turns} turns of a graph", rows, "peer", [OURS]))
    if not options.smoke and not options.short and options.only is None:
        keep("langgraph", [*short, *rows], turns=turns)


def make_database_factory(stack: ExitStack, folder: Path, names: list[str]) -> Callable[[], str]:
    """Yield a function that creates a database, and run a server if needed."""
    if not any(SAVERS[name].database == "postgresql" for name in names):
        return str
    data = folder / "postgres"
    data.mkdir()
    server = stack.enter_context(PostgresServer(data))

    def new_database() -> str:
        name = f"bench_{next(numbers)}"
        server.execute(f"CREATE DATABASE {name}")
        return str(server.url(name))

    numbers = itertools.count()
    return new_database


if __name__ == "__main__":
    main()
