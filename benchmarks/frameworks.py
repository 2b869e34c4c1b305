"""Measure a turn of an agent framework on its own store and on ours, in threads of some length.

OpenAI Agents: a turn reads all items and adds three, on `SQLiteSession` and on `HoldfastSession`.
Both sync every commit of a SQLite database. Strands: a turn adds three messages and saves the whole
agent, on `LocalFileStorage` with an fsync added and on `HoldfastStorage`. A round takes 20 turns in
short threads, one after the other, or all turns of a long one. `--smoke` runs a few turns.
Run: make bench-frameworks
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
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
SHORT = 20
"""Turns of a round, at least."""
ROUNDS = {1: 15, 5: 15, 20: 15, 200: 5}
CONTESTANTS: dict[str, dict[str, type[FrameworkSessions]]] = {
    "OpenAI Agents": {"peer": OpenAIOwn, OURS: OpenAIHoldfast},
    "Strands": {"peer": StrandsOwn, OURS: StrandsHoldfast},
}
TARGETS = {
    "OpenAI Agents": {1: 0.8, 5: 0.8, 20: 0.8, 200: 1.2},
    "Strands": {5: 1.2, 20: 1.2, 200: 1.2},
}
"""The lengths of threads, and how many times faster than the peer they should be."""


async def run(sessions: FrameworkSessions, folder: Path, turns: int, threads: int) -> float:
    """Return the seconds of some threads of this many turns, one after the other."""
    work = make_conversation(turns)
    await sessions.open(folder)
    await sessions.prepare("first")
    await sessions.start("first")
    await sessions.turn(work[0])  # creates the database
    spent = 0.0
    gc.collect()
    os.sync()  # Flush what others wrote, so that it does not count here.
    for number in range(threads):
        name = f"thread-{number}"
        await sessions.prepare(name)
        start = time.perf_counter()
        await sessions.start(name)
        for turn in work:
            await sessions.turn(turn)
        spent += time.perf_counter() - start
    found = await sessions.count()
    await sessions.close()
    if found != turns * len(SIZES):
        raise SystemExit(f"{type(sessions).__name__} has {found} messages after {turns} turns")
    return spent


def measure(framework: str, turns: int, rounds: int) -> Row:
    """Return the milliseconds of a turn in threads of this length."""
    dice = random.Random("order")
    row = Row(f"{framework}: {turns} turns", "ms", target=TARGETS[framework][turns])
    threads = max(1, SHORT // turns)
    for number in range(rounds):
        for who in shuffle(list(CONTESTANTS[framework]), dice):
            progress(f"{row.question}, {number + 1} of {rounds}: {who}")
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                sessions = CONTESTANTS[framework][who]()
                seconds = asyncio.run(run(sessions, Path(folder), turns, threads))
            row.offer(who, seconds / turns / threads * MILLI)
    return row


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few turns")
    parser.add_argument("--only", choices=list(CONTESTANTS), help="one framework")
    options = parser.parse_args()
    rows = [
        measure(framework, turns, 1 if options.smoke else ROUNDS[turns])
        for framework in ([options.only] if options.only else CONTESTANTS)
        for turns in TARGETS[framework]
        if turns <= SHORT or not options.smoke
    ]
    print(format_table("a turn in threads of", rows, "peer", [OURS]))
    if not options.smoke and options.only is None:
        keep("frameworks", rows)


if __name__ == "__main__":
    main()
