"""Measure a turn of an agent framework on its own store and on ours, in threads of some length.

OpenAI Agents: a turn reads all items and adds three, on `SQLiteSession` and on `HoldfastSession`.
Both sync every commit of a SQLite database. Strands: a turn adds three messages and saves the whole
agent, with its manager on `LocalFileStorage` with an fsync added, and with `HoldfastSessionManager`
on `HoldfastStorage`. The contestants take each turn one after the other, in many threads; of each
turn the fastest counts. `--smoke` runs few.
Run: make bench-frameworks
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import math
import random
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Row, format_table, keep, progress, shuffle
from benchmarks.peers.framework_sessions import (
    FrameworkSessions,
    OpenAIHoldfast,
    OpenAIOwn,
    StrandsHoldfast,
    StrandsOwn,
)
from benchmarks.peers.workload import SIZES, make_conversation

OURS = "holdfast"
MILLI = 1e3
THREADS = {1: 60, 5: 30, 20: 12, 200: 5}
"""The number of threads of each length."""
CONTESTANTS: dict[str, dict[str, type[FrameworkSessions]]] = {
    "OpenAI Agents": {"peer": OpenAIOwn, OURS: OpenAIHoldfast},
    "Strands": {"peer": StrandsOwn, OURS: StrandsHoldfast},
}
TARGETS = {
    "OpenAI Agents": {1: 0.8, 5: 0.8, 20: 0.8, 200: 1.2},
    "Strands": {5: 1.2, 20: 1.2, 200: 1.2},
}
"""The lengths of threads, and how many times faster than the peer they should be."""


async def run(framework: str, folder: Path, turns: int, threads: int) -> dict[str, float]:
    """Return the seconds of a turn of each contestant, on average over a thread."""
    dice, work = random.Random("order"), make_conversation(turns)
    contestants = {who: create() for who, create in CONTESTANTS[framework].items()}
    best = {who: [math.inf] * turns for who in contestants}
    for who, sessions in contestants.items():
        (folder / who).mkdir()
        await sessions.open(folder / who)
        await sessions.prepare("first")
        await sessions.start("first")
        await sessions.turn(work[0])  # creates the database
    for number in range(threads):
        progress(f"{framework}, {turns} turns: {number + 1} of {threads}")
        for sessions in contestants.values():
            await sessions.prepare(f"thread-{number}")
        gc.collect()
        for position, turn in enumerate(work):
            for who in shuffle(list(contestants), dice):
                start = time.perf_counter()
                if position == 0:
                    await contestants[who].start(f"thread-{number}")
                await contestants[who].turn(turn)
                spent = time.perf_counter() - start
                best[who][position] = min(best[who][position], spent)
    for who, sessions in contestants.items():
        found = await sessions.count()
        await sessions.close()
        if found != turns * len(SIZES):
            raise SystemExit(f"{who} has {found} messages after {turns} turns")
    return {who: statistics.mean(times) for who, times in best.items()}


def measure(framework: str, turns: int, threads: int) -> Row:
    """Return the milliseconds of a turn in threads of this length."""
    row = Row(f"{framework}: {turns} turns", "ms", target=TARGETS[framework][turns])
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for who, seconds in asyncio.run(run(framework, Path(folder), turns, threads)).items():
            row.offer(who, seconds * MILLI)
    return row


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few turns")
    parser.add_argument("--only", choices=list(CONTESTANTS), help="one framework")
    options = parser.parse_args()
    rows = [
        measure(framework, turns, 2 if options.smoke else THREADS[turns])
        for framework in ([options.only] if options.only else CONTESTANTS)
        for turns in TARGETS[framework]
        if turns < 20 or not options.smoke
    ]
    print(format_table("a turn in threads of", rows, "peer", [OURS]))
    if not options.smoke and options.only is None:
        keep("frameworks", rows)


if __name__ == "__main__":
    main()
