"""``python -m trials.follow``: followers that are killed and resumed miss and repeat nothing."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from holdfast import Session, open_state_store
from holdfast.log.event import Event
from trials.backends import BACKENDS, start_backend
from trials.follow.worker import (
    AGENT,
    END,
    LOSSES,
    SESSION,
    TICK,
    Job,
    read_lines,
    receive,
    write,
)
from trials.processes import clean_up_on_sigterm
from trials.report import ProgressBar, Report, progress

PATIENCE = 60.0
"""Seconds after which a process without progress counts as stuck."""
SPREAD = 0.05
"""Seconds between the first event that a follower received and its kill, at most."""

# A fork of a process that has imported everything starts in milliseconds.
FORKS = multiprocessing.get_context("forkserver")
DRIVERS = [f"holdfast.stores.{name}.store" for name in ("sqlite", "postgresql", "redis", "nats")]
FORKS.set_forkserver_preload(["trials.follow.worker", *DRIVERS])


def main() -> int:
    """Run the trial and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trials.follow", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of followers, by backend")
    parser.add_argument(
        "--backend", nargs="+", choices=BACKENDS, default=["sqlite", "postgresql", "redis", "nats"]
    )
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--followers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    asked = parser.parse_args()
    clean_up_on_sigterm()
    codes = []
    for backend in asked.backend:
        report = Report(f"followers, {backend}, seed {asked.seed}")
        with (
            report.to_the_end(),
            tempfile.TemporaryDirectory(prefix="holdfast-follow-") as folder,
            start_backend(backend, Path(folder)) as url,
            progress(backend, asked.kills) as bar,
        ):
            trial = Trial(url, Path(folder), report, f"{asked.seed} {backend}", pause=1.0)
            trial.run(asked.writers, asked.followers, asked.kills, bar)
        codes.append(report.finish())
    return max(codes)


class Trial:
    """Writers and followers of one session."""

    def __init__(self, url: str, folder: Path, report: Report, seed: str, *, pause: float) -> None:
        self.url = url
        self.folder = folder
        self.report = report
        self.seed = seed
        self.pause = pause
        self.dice = random.Random(seed)

    def run(self, writers: int, followers: int, kills: int, bar: ProgressBar | None = None) -> None:
        """Kill followers while the writers write, and check what the followers received."""
        asyncio.run(self.record("trial.start"))
        stop = FORKS.Event()
        writing = [self.make_job(number) for number in range(writers)]
        losses = islice(cycle(LOSSES), followers)
        following = [self.make_job(number, loss) for number, loss in enumerate(losses)]
        with (
            start_all(write, [(job, stop) for job in writing]) as busy,
            start_all(receive, [(job,) for job in following]) as victims,
        ):
            for _ in range(kills):
                self.kill_one(victims, following)
                if bar is not None:
                    bar.step()
            stop.set()
            self.wait_for(busy, "writer")
            asyncio.run(self.record(END))
            self.wait_for(victims, "follower")
        asyncio.run(self.check(writing, following))

    def make_job(self, number: int, loss: str = "none") -> Job:
        """Return the job of a process."""
        seed, folder = f"{self.seed} {number}", str(self.folder)
        return Job(self.url, folder, number, seed, loss, self.pause)

    async def record(self, kind: str) -> None:
        """Commit the first or the last event."""
        async with open_state_store(self.url) as store:
            session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
            session.record(kind, {})
            await session.commit()

    def kill_one(self, victims: list[BaseProcess], jobs: Sequence[Job]) -> None:
        """Kill a follower some time after it received something, and start it again."""
        number = self.dice.randrange(len(victims))
        job, before = jobs[number], size_of(jobs[number].received)
        end = time.monotonic() + PATIENCE
        while size_of(job.received) == before:
            if time.monotonic() > end or not victims[number].is_alive():
                raise TimeoutError(f"follower {number} ended, or received nothing")
            time.sleep(0.001)
        time.sleep(self.dice.uniform(0, SPREAD))
        victims[number].kill()
        victims[number].join()
        victims[number] = FORKS.Process(target=receive, args=(job,), daemon=True)
        victims[number].start()
        self.report.count("kills of followers")

    def wait_for(self, processes: Sequence[BaseProcess], name: str) -> None:
        """Wait until all processes are done."""
        end = time.monotonic() + PATIENCE
        for number, process in enumerate(processes):
            process.join(max(0.0, end - time.monotonic()))
            if process.exitcode != 0:
                self.report.problem(f"{name} {number}: exit code {process.exitcode}, None if stuck")

    async def check(self, writing: Sequence[Job], following: Sequence[Job]) -> None:
        """Compare what was acknowledged and received with the log."""
        async with open_state_store(self.url) as store:
            session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
            events = list(session.events)
        self.report.count("events", len(events))
        ticks = [event.data["tick"] for event in events if event.type == TICK]
        acknowledged = [tick for job in writing for tick in read_lines(job.acknowledged)]
        if sorted(ticks) != sorted(acknowledged):
            self.report.problem(f"{len(acknowledged)} ticks acknowledged, {len(ticks)} in the log")
        for job in following:
            lines = read_lines(job.received)
            self.report.count("events received", len(lines))
            self.report.count("notifications lost", size_of(job.lost))
            for problem in compare(events, lines):
                self.report.problem(f"follower {job.number}, {job.loss} lost: {problem}")


def compare(events: Sequence[Event], lines: Sequence[str]) -> list[str]:
    """Return the first difference between the log and what a follower received, if any."""
    for number, event in enumerate(events):
        line = lines[number] if number < len(lines) else "nothing"
        if line != f"{event.seq} {event.id}":
            return [f"expected event {event.seq} {event.id}, got {line}"]
    return [f"got {lines[len(events)]} after the last event"] if len(lines) > len(events) else []


def size_of(path: Path) -> int:
    """Return the size of a file, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


@contextmanager
def start_all(
    target: Callable[..., None], arguments: Sequence[tuple[Any, ...]]
) -> Iterator[list[BaseProcess]]:
    """Start a process for each of some arguments, and kill those that are left at the end."""
    processes: list[BaseProcess] = [
        FORKS.Process(target=target, args=each, daemon=True) for each in arguments
    ]
    try:
        for process in processes:
            process.start()
        yield processes
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


if __name__ == "__main__":
    sys.exit(main())
