"""The processes of the trial: a writer, and a follower that resumes where it was killed."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from contextlib import aclosing
from dataclasses import dataclass
from multiprocessing.synchronize import Event as ProcessEvent
from pathlib import Path

from holdfast import ConflictError, Session, SnapshotLocation, open_state_store
from holdfast.snapshots import follow
from holdfast.snapshots.follow import follow_events
from holdfast.stores.listener import Listener
from holdfast.stores.notification import Notification
from trials.processes import die_with

AGENT, SESSION = "bot", "ses_followed"
LOCATION = SnapshotLocation(SESSION, scope_id=AGENT)
TICK, END = "trial.tick", "trial.end"
SLOWEST = 0.01
"""Seconds between two commits of a writer, at most."""
LOSSES = {"none": 0, "half": 2, "all": 1}
"""One in how many notifications a follower loses."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a process does."""

    url: str
    folder: str
    number: int
    seed: str
    loss: str = "none"
    pause: float = follow.SAFETY_PAUSE
    """Seconds after which a follower reads without being woken."""

    @property
    def received(self) -> Path:
        """The file of the events that a follower received, one line each."""
        return Path(self.folder) / f"received-{self.number}"

    @property
    def lost(self) -> Path:
        """The file with one byte for each notification that a follower lost."""
        return Path(self.folder) / f"lost-{self.number}"

    @property
    def acknowledged(self) -> Path:
        """The file of the commits of a writer that returned, one line each."""
        return Path(self.folder) / f"acknowledged-{self.number}"


class Notes:
    """A file of lines. Each is in the file when ``add`` returns, whatever kills the process.

    A line that a kill cut short is removed when the file is opened again.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, line: str) -> None:
        """Add a line."""
        os.write(self._descriptor, f"{line}\n".encode())


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file, without one that a kill cut short."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def write(job: Job, stop: ProcessEvent) -> None:
    """Commit until stopped."""
    die_with(os.getppid())  # the server of forks, which ends with the trial
    asyncio.run(commit_ticks(job, stop))


async def commit_ticks(job: Job, stop: ProcessEvent) -> None:
    """Commit one to three events at a time, with pauses, and note each commit."""
    dice, notes = random.Random(job.seed), Notes(job.acknowledged)
    numbers = itertools.count()
    async with open_state_store(job.url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        while not stop.is_set():
            made = [f"{job.number}-{next(numbers)}" for _ in range(dice.randint(1, 3))]
            for tick in made:
                session.record(TICK, {"tick": tick})
            await commit_at_last(session)
            for tick in made:
                notes.add(tick)
            await asyncio.sleep(dice.uniform(0, SLOWEST))


async def commit_at_last(session: Session) -> None:
    """Commit, also if other writers are first until ``commit`` gives up."""
    while True:
        try:
            await session.commit(on_conflict="rebase")
            return
        except ConflictError:
            continue


def receive(job: Job) -> None:
    """Follow the session until its last event."""
    die_with(os.getppid())  # the server of forks, which ends with the trial
    follow.SAFETY_PAUSE = job.pause
    if LOSSES[job.loss]:
        lose_notifications(LOSSES[job.loss], Notes(job.lost))
    asyncio.run(note_events(job))


async def note_events(job: Job) -> None:
    """Note each event, and continue after the last one that was noted."""
    lines = read_lines(job.received)
    after = int(lines[-1].split()[0]) if lines else 0
    notes = Notes(job.received)
    async with (
        open_state_store(job.url) as store,
        aclosing(follow_events(store, LOCATION, after)) as events,
    ):
        async for event in events:
            notes.add(f"{event.seq} {event.id}")
            if event.type == END:
                return


def lose_notifications(one_in: int, notes: Notes) -> None:
    """Lose notifications that this process receives from now on."""
    report, numbers = Listener.report, itertools.count(1)

    def lose(listener: Listener, notification: Notification) -> None:
        # Without a process, it is a wake-up of the listener itself.
        if notification.process_id and next(numbers) % one_in == 0:
            notes.add("")
        else:
            report(listener, notification)

    Listener.report = lose  # type: ignore[method-assign, assignment]
