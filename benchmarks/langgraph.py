"""Measure what a checkpointer costs a whole LangGraph graph, saved three times per turn.

500 turns of a conversation, 1,500 messages; a user message goes in, and one node answers. The same
graph runs on SqliteSaver and PostgresSaver, on swarmstate's saver, and on ours, over the same
databases. Then the latest checkpoint is read with everything reopened, and a new process resumes
the thread for one turn. `--smoke` runs a few turns on SQLite, `--only sqlite` one database.
Run: make bench-langgraph
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

from benchmarks.harness import ROOT, Row, format_table, keep, progress, shuffle
from benchmarks.peers.graphs import SAVERS, Graph, open_graph
from benchmarks.peers.langgraph_saver import measure_database
from benchmarks.peers.workload import make_conversation, measure_folder

sys.path.insert(0, str(ROOT / "tests"))

from servers.postgres import PostgresServer

OURS = "holdfast"
MILLI, MEGA = 1e3, 1e6
FASTER, SMALLER, NO_SLOWER = 5, 50, 1
REPEATS = 20
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
    options = parser.parse_args()
    turns, rounds = (4, 1) if options.smoke else (500, 2)
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
        for number in range(rounds):
            for name in shuffle(names, rng):
                progress(f"round {number + 1} of {rounds}: {name}")
                place = folder / f"{number}-{names.index(name)}"
                place.mkdir()
                url = databases() if SAVERS[name].database == "postgresql" else ""
                run(name, Location(place, url), turns, results[name])
    rows: list[Row] = []
    for name in names:
        if not name.startswith(OURS):
            rows += build_rows(SAVERS[name].database, name, results)
    print(format_table(f"{turns} turns of a graph", rows, "peer", [OURS]))
    if not options.smoke:
        keep("langgraph", rows, turns=turns)


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
