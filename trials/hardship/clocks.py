"""Clocks that jump: an hour and ten years, back and forth, in one process and between two.

What must hold whatever the clock says: ids are unique and each is after those before it, snapshots
are listed in the order of their making, the latest is the one that was saved last, a policy keeps
the last that were saved, and all is whole. Only times themselves are as wrong as the clock.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

from holdfast import RetentionPolicy, Session, SnapshotArchive, open_state_store
from holdfast.ids import new_id
from holdfast.log import event
from holdfast.snapshots import session_snapshot
from trials.hardship.disks import AGENT, LOCATION, SESSION, url_in
from trials.kills.places import ROOT
from trials.truth import Told, problems_of

HOUR, DECADE = 3600.0, 3652 * 86_400.0
JUMPS = (0.0, -HOUR, 0.0, HOUR, 0.0, DECADE, 0.0, -DECADE, -HOUR, 0.0)
"""By how much the clock is wrong, one after another."""
DATED: tuple[ModuleType, ...] = (event, session_snapshot)
"""The modules that ask for the date."""


class WrongDates:
    """The class ``datetime``, except for what the time is."""

    def __init__(self, seconds: float) -> None:
        self._wrong = dt.timedelta(seconds=seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(dt.datetime, name)

    def now(self, zone: dt.tzinfo | None = None) -> dt.datetime:
        """The time by a clock that is wrong."""
        return dt.datetime.now(zone) + self._wrong


class WrongModule:
    """The module ``datetime``, except for what the time is."""

    def __init__(self, seconds: float) -> None:
        self.datetime = WrongDates(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(dt, name)


@contextmanager
def wrong_by(seconds: float) -> Iterator[None]:
    """The clock of this process is wrong by so much."""
    now, nanoseconds = time.time, time.time_ns
    with ExitStack() as stack:
        stack.enter_context(patch.object(time, "time", lambda: now() + seconds))
        stack.enter_context(
            patch.object(time, "time_ns", lambda: nanoseconds() + int(seconds) * 10**9)
        )
        for module in DATED:
            stack.enter_context(patch.object(module, "dt", WrongModule(seconds)))
        yield


def ids_in_order(folder: Path) -> list[str]:  # noqa: ARG001 - as every trial
    """Ids of one process, whatever its clock does."""
    made = []
    for seconds in JUMPS:
        with wrong_by(seconds):
            made += [new_id() for _ in range(200)]
    return [] if made == sorted(set(made)) else ["ids are not in the order of their making"]


def one_process(folder: Path) -> list[str]:
    """A session that goes on while the clock jumps."""
    url = url_in(folder, "sqlite")
    told = Told()
    for number, seconds in enumerate(JUMPS):
        with wrong_by(seconds):
            asyncio.run(save(url, f"token-{number}"))
        told.begun.append(f"token-{number}")
    told.acknowledged += told.begun
    return [
        problem
        for seconds in (0.0, -HOUR, DECADE)
        for problem in asyncio.run(history_problems(url, told, seconds))
    ] + asyncio.run(prune_problems(url, told))


def one_object(folder: Path) -> list[str]:
    """The same with one session that stays open."""
    told = Told()
    url = url_in(folder, "sqlite")

    async def run() -> None:
        async with open_state_store(url) as store:
            session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
            for number, seconds in enumerate(JUMPS):
                with wrong_by(seconds):
                    session.add_message("user", f"token-{number}")
                    await session.save(tags={"token": f"token-{number}"})
                told.begun.append(f"token-{number}")

    asyncio.run(run())
    told.acknowledged += told.begun
    return asyncio.run(history_problems(url, told, 0.0)) + asyncio.run(prune_problems(url, told))


def two_processes(folder: Path, jumps: tuple[float, ...] = (-HOUR, DECADE, -DECADE)) -> list[str]:
    """Processes whose clocks disagree, one after another."""
    url = url_in(folder, "sqlite")
    told = Told()
    for number, seconds in enumerate(jumps):
        for token, wrong in ((f"{number}-here", 0.0), (f"{number}-there", seconds)):
            if wrong:
                in_a_process(url, token, wrong)
            else:
                asyncio.run(save(url, token))
            told.begun.append(token)
            told.acknowledged.append(token)
    return asyncio.run(history_problems(url, told, 0.0)) + asyncio.run(prune_problems(url, told))


async def save(url: str, token: str) -> None:
    """One more snapshot."""
    async with open_state_store(url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        session.add_message("user", token)
        await session.save(tags={"token": token})


def in_a_process(url: str, token: str, wrong: float) -> None:
    """One more snapshot, by a process whose clock is wrong."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    subprocess.run(
        [sys.executable, "-m", "trials.hardship.clocks", url, token, str(wrong)],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )


async def history_problems(url: str, told: Told, wrong: float) -> list[str]:
    """What is wrong with the snapshots of the session, seen by a clock that may be wrong too."""
    seen = f"by a clock that is wrong by {wrong:.0f} s"
    problems = []
    with wrong_by(wrong):
        async with open_state_store(url) as store:
            archive = SnapshotArchive(store)
            problems += await problems_of(store, LOCATION, told)
            page = await archive.list_snapshots(location=LOCATION)
            listed = [info.tags["token"] for info in page.snapshots]
            if listed != told.begun:
                problems.append(f"{seen}, snapshots are listed as {listed}")
            latest = await archive.load_snapshot(location=LOCATION)
            if latest is None or latest.tags["token"] != told.begun[-1]:
                problems.append(f"{seen}, the latest is {latest and latest.tags}")
            newest = await archive.find_newest_info(location=LOCATION, wanted=lambda _: True)
            if newest is None or newest.tags["token"] != told.begun[-1]:
                problems.append(f"{seen}, the newest is {newest and newest.tags}")
    return problems


async def prune_problems(url: str, told: Told) -> list[str]:
    """What is wrong after prunes that keep the last ones, by clocks that are wrong."""
    problems = []
    for keep, wrong in ((4, -HOUR), (3, DECADE), (2, -DECADE), (1, 0.0)):
        with wrong_by(wrong):
            async with open_state_store(url) as store:
                archive = SnapshotArchive(store)
                policy = RetentionPolicy(last=keep)
                await archive.prune(location=LOCATION, policy=policy)
                page = await archive.list_snapshots(location=LOCATION)
                listed = [info.tags["token"] for info in page.snapshots]
                if listed != told.begun[-keep:]:
                    problems.append(f"of {told.begun} the last {keep} are kept as {listed}")
                problems += await problems_of(store, LOCATION, told)
    return problems


if __name__ == "__main__":
    with wrong_by(float(sys.argv[3])):
        asyncio.run(save(sys.argv[1], sys.argv[2]))
