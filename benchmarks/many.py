"""Measure many sessions at once in one process: saves per second, and the slowest saves.

1, 10, 100 and 1,000 sessions share a store. Each takes 20 turns of two messages and saves durably
after each, all at the same time. The peers do the same with their own stores: `AsyncSqliteSaver`
and `AsyncPostgresSaver` of LangGraph, which write a checkpoint per turn, and `SQLiteSession` of
OpenAI Agents, which only appends. A few sessions run in several rounds, so that there are enough
saves to tell the slowest. `--smoke` runs a few sessions on SQLite, `--only sqlite` one database.
Run: make bench-many
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from benchmarks.harness import ROOT, Row, format_table, keep, progress, shuffle
from benchmarks.peers.many_sessions import Sessions
from benchmarks.peers.workload import make_message

sys.path.insert(0, str(ROOT / "tests"))

OURS = "holdfast"
MICRO, MILLI = 1e6, 1e3
TURNS = 20
LEAST_SAVES = 400
SQLITE, POSTGRESQL = "sqlite", "postgresql"
# Targets: a peer's time divided by ours, or the time of one session by that of a hundred.
FASTER = {(SQLITE, 100): 5, (POSTGRESQL, 1): 1.2, (POSTGRESQL, 100): 3}
SCALES, SLOWEST = 3, 1 / 5


# Imported when needed, because some take seconds.
HOLDFAST = "many_sessions:HoldfastSessions"
CONTESTANTS = {
    SQLITE: {
        OURS: HOLDFAST,
        "AsyncSqliteSaver": "many_savers:SqliteThreads",
        "OpenAI SQLiteSession": "many_openai:OpenAISessions",
    },
    POSTGRESQL: {OURS: HOLDFAST, "AsyncPostgresSaver": "many_postgres:PostgresThreads"},
}


def create(database: str, name: str) -> Sessions:
    """Return a new contestant."""
    module, _, kind = CONTESTANTS[database][name].partition(":")
    sessions: Sessions = getattr(import_module(f"benchmarks.peers.{module}"), kind)()
    return sessions


@dataclass(slots=True)
class Seen:
    """The saves of one contestant with one number of sessions, in seconds."""

    per_save: float = math.inf
    """The time of a run divided by its saves, at best."""
    slowest: float = math.inf
    """The 99th percentile of the latency, at best."""
    latencies: list[float] = field(default_factory=list)


async def run(sessions: Sessions, place: tuple[Path, str], count: int, turns: int) -> Seen:
    """Run all sessions at once, and return what their saves took."""
    dice = random.Random("many")
    work = [
        [make_message(dice, role, turn) for role in ("user", "assistant")] for turn in range(turns)
    ]
    await sessions.open(*place, count)
    seen = Seen()

    async def converse(session: int) -> None:
        for messages in work:
            start = time.perf_counter()
            await sessions.save(session, messages)
            seen.latencies.append(time.perf_counter() - start)

    gc.collect()
    os.sync()  # Flush what others wrote, so that it does not count here.
    start = time.perf_counter()
    await asyncio.gather(*map(converse, range(count)))
    seen.per_save = (time.perf_counter() - start) / (count * turns)
    await sessions.close()
    return seen


def measure(
    database: str, names: list[str], counts: list[int], turns: int, new_url: Callable[[], str]
) -> dict[tuple[str, int], Seen]:
    """Run all contestants in rounds of random order."""
    dice, found = random.Random("order"), {}
    for name in names:  # The first save imports modules.
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            asyncio.run(run(create(database, name), (Path(folder), new_url()), 1, 1))
    for count in counts:
        able = [name for name in names if create(database, name).most >= count]
        rounds = 1 if turns < TURNS else max(3, LEAST_SAVES // (count * turns))
        runs: dict[str, list[Seen]] = {name: [] for name in able}
        for number in range(rounds):
            for name in shuffle(able, dice):
                progress(f"{database}, {count:,} sessions, {number + 1} of {rounds}: {name}")
                with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                    sessions, place = create(database, name), (Path(folder), new_url())
                    runs[name].append(asyncio.run(run(sessions, place, count, turns)))
        for name, seen in runs.items():
            found[name, count] = Seen(min(each.per_save for each in seen), summarize(seen))
    return found


def summarize(runs: Sequence[Seen]) -> float:
    """Return the best 99th percentile, or that of all runs together if they are short."""
    if len(runs[0].latencies) < LEAST_SAVES:
        return percentile([latency for run in runs for latency in run.latencies])
    return min(percentile(run.latencies) for run in runs)


def percentile(values: Sequence[float]) -> float:
    """Return the value that 99 of 100 do not exceed."""
    return sorted(values)[math.ceil(len(values) * 0.99) - 1]


def rows_of(database: str, counts: list[int], found: dict[tuple[str, int], Seen]) -> list[Row]:
    """Return the figures of each peer beside ours, and ours with many beside ours with one."""
    rows = []
    for (name, count), seen in found.items():
        if name == OURS:
            continue
        ours = found[OURS, count]
        is_main = name.startswith("Async")
        label = f"{database}, {count:,} sessions, {name}"
        target = FASTER.get((database, count)) if is_main else None
        times = {"peer": seen.per_save * MICRO, OURS: ours.per_save * MICRO}
        rows.append(Row(f"{label}: a save, on average", "µs", times, target))
        times = {"peer": seen.slowest * MILLI, OURS: ours.slowest * MILLI}
        rows.append(Row(f"{label}: p99 of a save", "ms", times))
    one = found[OURS, counts[0]]
    for count in counts[1:]:
        many, is_main = found[OURS, count], (database, count) == (SQLITE, 100)
        label = f"{database}, 1 session beside {count:,}"
        times = {"peer": one.per_save * MICRO, OURS: many.per_save * MICRO}
        rows.append(Row(f"{label}: a save, on average", "µs", times, SCALES if is_main else None))
        times = {"peer": one.slowest * MILLI, OURS: many.slowest * MILLI}
        rows.append(Row(f"{label}: p99 of a save", "ms", times, SLOWEST if is_main else None))
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few sessions")
    parser.add_argument("--only", choices=list(CONTESTANTS), help="one database")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 10, 100, 1000])
    options = parser.parse_args()
    databases = [options.only] if options.only else list(CONTESTANTS)
    counts, turns = options.sessions, TURNS
    if options.smoke:
        databases, counts, turns = [SQLITE], [1, 4], 2
    rows = []
    with ExitStack() as stack:
        for database in databases:
            names = list(CONTESTANTS[database])[: 2 if options.smoke else None]
            new_url = create_databases(stack) if database == POSTGRESQL else str
            found = measure(database, names, counts, turns, new_url)
            for (name, count), seen in found.items():
                print(f"{database}, {count:,} sessions, {name}: {1 / seen.per_save:,.0f} saves/s")
            rows += rows_of(database, counts, found)
    print(format_table(f"{turns} turns of each session", rows, "peer", [OURS]))
    if not options.smoke and options.only is None:
        keep("many", rows, turns=turns)


def create_databases(stack: ExitStack) -> Callable[[], str]:
    """Run a server, and return a function that creates a database."""
    from servers.postgres import PostgresServer  # noqa: PLC0415 - slow to import

    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
    server = stack.enter_context(PostgresServer(folder))
    numbers = itertools.count(1)

    def create_database() -> str:
        name = f"many_{next(numbers)}"
        server.execute(f"CREATE DATABASE {name}", "CHECKPOINT")
        return str(server.url(name))

    return create_database


if __name__ == "__main__":
    main()
