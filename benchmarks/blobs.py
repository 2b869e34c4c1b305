"""Measure what images cost: a session with ten images of 5 MB that is saved 100 times.

The images are base64 text in messages, as model APIs take them. A second session gets the same
messages without the images; each step runs in both, in random order. The limit of a time is that
of the session without images, that of the bytes 1.05 times the images as they are written. `open`
reads the images ahead from PostgreSQL, so that messages are read without waiting. `--smoke` runs on
a small scale, `--only sqlite` on one backend, `--rounds 5` several times. Run: make bench-blobs
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import holdfast
from benchmarks.harness import ROOT, Row, figure, format_table, keep, progress, shuffle
from holdfast.stores.batch_read import iterate_entries, require_entry

sys.path.insert(0, str(ROOT / "tests"))

from servers.postgres import PostgresServer

LIMIT, OURS = "limit", "holdfast"
AGENT = "bench"
BACKENDS = ("sqlite", "postgresql")
WITHOUT, WITH = "without", "with"
OVERHEAD = 1.05
LOADS = 20


@dataclass(slots=True)
class Scale:
    """The size of the session."""

    images: int = 10
    size: int = 5_000_000
    saves: int = 100


@dataclass(slots=True)
class Times:
    """Seconds of each step, by what it does."""

    save: list[float] = field(default_factory=list)
    image: list[float] = field(default_factory=list)
    """Of the saves that add an image."""
    open: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    list: list[float] = field(default_factory=list)


async def time_step(step: Awaitable[object]) -> float:
    """Return the seconds of one step."""
    start = time.perf_counter()
    await step
    return time.perf_counter() - start


async def run_turn(session: holdfast.Session, number: int, image: str | None) -> None:
    """Add a question and an answer, and save."""
    content: list[dict[str, object]] = [{"type": "text", "text": f"Question {number}"}]
    if image is not None:
        source = {"type": "base64", "media_type": "image/png", "data": image}
        content.append({"type": "image", "source": source})
    session.add_message("user", content)
    session.add_message("assistant", f"The answer to question {number}")
    session.set("turn", number)
    await session.save()


async def measure(url: str, scale: Scale, seed: int) -> tuple[dict[str, Times], float, float]:
    """Return the times of both sessions, the bytes stored for the images, and their size."""
    rng = random.Random(seed)
    times = {WITHOUT: Times(), WITH: Times()}
    images = [base64.b64encode(rng.randbytes(scale.size)).decode() for _ in range(scale.images)]
    every = scale.saves // scale.images
    async with holdfast.open_state_store(url) as store:
        sessions = {
            name: await holdfast.Session.open(store, agent_id=AGENT, session_id=f"{name}-{seed}")
            for name in times
        }
        for number in range(scale.saves):
            image = images[number // every] if number % every == 0 else None
            for name in shuffle(list(times), rng):
                given = image if name == WITH else None
                taken = await time_step(run_turn(sessions[name], number, given))
                kept = times[name].save if image is None else times[name].image
                kept.append(taken)
        archive = holdfast.SnapshotArchive(store)
        for _ in range(LOADS):
            for name in shuffle(list(times), rng):
                location = sessions[name].location
                load = await time_step(archive.load_snapshot(location=location))
                listing = await time_step(archive.list_snapshots(location=location))
                times[name].load.append(load)
                times[name].list.append(listing)
        for name in [*times] * 3:
            opening = await time_step(
                holdfast.Session.open(
                    store, agent_id=AGENT, session_id=f"{name}-{seed}", must_exist=True
                )
            )
            times[name].open.append(opening)
        prefixes = {name: session.location.prefix for name, session in sessions.items()}
        sizes = {name: await measure_size(store, prefix) for name, prefix in prefixes.items()}
    return times, sizes[WITH] - sizes[WITHOUT], sum(map(len, images))


async def measure_size(store: holdfast.StateStore, prefix: str) -> int:
    """Return the bytes of all keys and values below a prefix."""
    keys = [key async for key in store.list(prefix)]
    size = 0
    async for key, entry in iterate_entries(store, keys):
        size += len(key) + len(require_entry(entry).value)
    return size


@contextmanager
def start_backend(name: str, folder: Path) -> Iterator[str]:
    """Start the server of a backend, if it has one, and yield the URL of a store."""
    if name == "sqlite":
        yield f"sqlite:///{folder}/state.db"
    else:
        with PostgresServer(folder) as server:
            yield server.url()


def make_rows(name: str, found: list[tuple[dict[str, Times], float, float]]) -> list[Row]:
    """Return the medians over all rounds, and print their ranges."""
    stored = [size for _, size, _ in found]
    rows = [
        Row(
            f"{name}, bytes stored for the images",
            "MB",
            {LIMIT: OVERHEAD * found[0][2] / 1e6, OURS: max(stored) / 1e6},
            target=1.0,
        )
    ]
    for what, title in (
        ("save", "a save"),
        ("image", "a save that adds an image"),
        ("load", "load the latest snapshot"),
        ("list", "list the snapshots"),
        ("open", "open"),
    ):
        medians = {
            who: [statistics.median(getattr(times[who], what)) * 1e3 for times, _, _ in found]
            for who in (WITHOUT, WITH)
        }
        row = Row(f"{name}, {title}", "ms", {LIMIT: statistics.median(medians[WITHOUT])})
        row.times[OURS] = statistics.median(medians[WITH])
        row.target = 1.0 if what == "save" else None
        rows.append(row)
        if len(found) > 1:
            ranges = [f"{who} {describe_range(medians[who])} ms" for who in (WITHOUT, WITH)]
            ratios = [b / a for a, b in zip(medians[WITHOUT], medians[WITH], strict=True)]
            print(f"{name}, {title}: {', '.join(ranges)}; with / without {describe_range(ratios)}")
    return rows


def describe_range(values: list[float]) -> str:
    """Return the smallest and the largest value."""
    return f"{figure(min(values))} to {figure(max(values))}"


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--only", default=",".join(BACKENDS))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    scale = Scale(images=2, size=200_000, saves=6) if options.smoke else Scale()
    only = ["sqlite"] if options.smoke else options.only.split(",")
    rows: list[Row] = []
    for name in only:
        with (
            tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
            start_backend(name, Path(folder)) as url,
        ):
            found = []
            for seed in range(1 if options.smoke else options.rounds):
                progress(f"{name}, round {seed + 1}")
                found.append(asyncio.run(measure(url, scale, seed)))
            rows += make_rows(name, found)
    print(format_table("a session with images", rows, LIMIT, [OURS]))
    if not options.smoke and tuple(only) == BACKENDS:
        keep("blobs", rows)


if __name__ == "__main__":
    main()
