"""A growing conversation, the interface of a contestant, and how it is timed.

A turn appends a user message of 200 bytes, an assistant message of 800 and a tool result of 2 KB,
and updates a small dict; then it is made durable, with a snapshot that can be loaded later. Text is
pseudo-English from a seeded list of words. Only the standard library is used, as a peer may run in
another interpreter.
"""

from __future__ import annotations

import gc
import os
import random
import re
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORDS = re.findall(
    r"\w+",
    "the agent reads report writes found user plan later tool answer because table of compares "
    "two numbers and a source which says that revenue grew while costs stayed flat in every "
    "quarter so next step is to ask for details about margin customers region before it drafts",
)
SIZES = {"user": 200, "assistant": 800, "tool": 2000}
PATIENCE = 1.0
"""Seconds after which a load is not repeated."""

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn adds."""

    messages: list[Message]
    plan: dict[str, Any]


def make_conversation(turns: int) -> list[Turn]:
    """Return the same turns for every contestant."""
    rng = random.Random("conversation")
    return [
        Turn(
            [make_message(rng, role, number) for role in SIZES],
            {
                "step": number,
                "goal": make_text(rng, 40),
                "done": number % 3 == 0,
                "open": [number, 7],
            },
        )
        for number in range(turns)
    ]


def make_message(rng: random.Random, role: str, number: int) -> Message:
    """Return a message; a tool result names its call."""
    message = {"role": role, "content": make_text(rng, SIZES[role])}
    if role == "tool":
        message["tool_call_id"] = f"call_{number:06}"
    return message


def make_text(rng: random.Random, size: int) -> str:
    """Return words of this many bytes."""
    words = ""
    while len(words) < size:
        words += " ".join(rng.choices(WORDS, k=size // 4)) + ". "
    return words[:size]


class Contestant(ABC):
    """Stores a conversation in an empty folder."""

    has_snapshots = True
    """Whether it can load an earlier turn."""
    samples = 50
    """How often its size is sampled during a conversation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    async def open(self) -> None:
        """Open, or reopen with nothing in memory."""

    @abstractmethod
    async def turn(self, turn: Turn) -> None:
        """Take a turn; it is durable when this returns."""

    @abstractmethod
    async def mark(self) -> str:
        """Return the id of the snapshot of the last turn."""

    @abstractmethod
    async def load(self, snapshot_id: str | None) -> Sequence[Any]:
        """Return the messages of a snapshot, or of the latest."""

    @abstractmethod
    async def ids(self) -> Sequence[str]:
        """Return the ids of all snapshots."""

    @abstractmethod
    async def close(self) -> None:
        """Close everything."""

    async def size(self) -> int:
        """Return the bytes on disk, including database logs."""
        return measure_folder(self.folder)


@dataclass(slots=True)
class Run:
    """Results in seconds and bytes."""

    turns: list[float] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """Turns, each with the bytes after it, while it is open."""
    size: int = 0
    """Bytes at the end, after closing."""
    log: int = 0
    """Bytes that a server wrote to its log during the run, if known."""
    latest: float | None = None
    middle: float | None = None
    listing: float | None = None
    listed: int = 0

    @property
    def total(self) -> float:
        """Return the seconds of all turns."""
        return sum(self.turns)

    def ends(self) -> tuple[float, float]:
        """Return the median turn of the first and of the last tenth."""
        tenth = max(1, len(self.turns) // 10)
        return statistics.median(self.turns[:tenth]), statistics.median(self.turns[-tenth:])


def select_best(runs: Sequence[Run]) -> Run:
    """Return the fastest run, with the fastest of all loads."""
    found = min(runs, key=lambda run: run.total)
    found.latest = find_least(run.latest for run in runs)
    found.middle = find_least(run.middle for run in runs)
    found.listing = find_least(run.listing for run in runs)
    return found


def merge_fastest_turns(runs: Sequence[Run]) -> Run:
    """Return each turn at its fastest, so that a disturbance does not look like growth."""
    return Run(turns=[min(turns) for turns in zip(*(run.turns for run in runs), strict=True)])


def find_least(values: Any) -> float | None:
    """Return the smallest value that is not None."""
    return min((value for value in values if value is not None), default=None)


async def run_conversation(
    contestant: Contestant,
    turns: Sequence[Turn],
    repeats: int,
    report: Callable[[int], None] = lambda _: None,
) -> Run:
    """Run a conversation and then its loads. The contestant stays open."""
    run, middle_id = Run(), ""
    every = max(1, len(turns) // contestant.samples)
    middle = len(turns) // 2
    gc.collect()
    await contestant.open()
    for number, turn in enumerate(turns, 1):
        start = time.perf_counter()
        await contestant.turn(turn)
        run.turns.append(time.perf_counter() - start)
        if number == middle and contestant.has_snapshots:
            middle_id = await contestant.mark()
        if number % every == 0:
            report(number)
            run.sizes.append((number, await contestant.size()))
    await contestant.close()
    run.size = await contestant.size()
    await contestant.open()
    each = len(SIZES)
    run.latest = await time_load(contestant, None, len(turns) * each, repeats)
    if contestant.has_snapshots:
        run.middle = await time_load(contestant, middle_id, middle * each, repeats)
        run.listing, found = await time_calls(contestant.ids, repeats)
        run.listed = len(found)
    return run


async def time_load(
    contestant: Contestant, snapshot_id: str | None, expected: int, repeats: int
) -> float:
    """Return the seconds of a load, after checking what it returns."""
    spent, messages = await time_calls(lambda: contestant.load(snapshot_id), repeats)
    if len(messages) != expected:
        raise AssertionError(
            f"{type(contestant).__name__} returned {len(messages)} messages, expected {expected}"
        )
    return spent


async def time_calls(
    call: Callable[[], Awaitable[Sequence[Any]]], repeats: int
) -> tuple[float, Sequence[Any]]:
    """Return the fastest of some calls, and its result. Slow calls are repeated less."""
    spent: list[float] = []
    while not spent or (len(spent) < repeats and sum(spent) < PATIENCE):
        start = time.perf_counter()
        found = await call()
        spent.append(time.perf_counter() - start)
    return min(spent), found


def measure_folder(folder: Path) -> int:
    """Return the bytes of all files below a folder, ignoring files that vanish."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total
