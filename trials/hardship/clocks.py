"""Clocks that jump by an hour and ten years, back and forth, in one process and between two.

Whatever the clock shows: ids are unique and ordered, snapshots are listed in the order they were
saved, the latest is the one saved last, a policy keeps the last ones saved, and nothing is damaged.
Only timestamps are wrong.
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
from trials.kills.stores import ROOT
from trials.tokens import Tokens, find_problems

HOUR, DECADE = 3600.0, 3652 * 86_400.0
JUMPS = (0.0, -HOUR, 0.0, HOUR, 0.0, DECADE, 0.0, -DECADE, -HOUR, 0.0)
"""Clock errors in seconds, one after another."""
DATED: tuple[ModuleType, ...] = (event, session_snapshot)
"""Modules that read the date."""


class WrongDates:
    """The class ``datetime`` with a wrong ``now``."""

    def __init__(self, seconds: float) -> None:
        self._wrong = dt.timedelta(seconds=seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(dt.datetime, name)

    def now(self, zone: dt.tzinfo | None = None) -> dt.datetime:
        """Return the wrong time."""
        return dt.datetime.now(zone) + self._wrong


class WrongModule:
    """The module ``datetime`` with a wrong clock."""

    def __init__(self, seconds: float) -> None:
        self.datetime = WrongDates(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(dt, name)


@contextmanager
def shift_clock(seconds: float) -> Iterator[None]:
    """Make the clock of this process wrong by some seconds."""
    now, nanoseconds = time.time, time.time_ns
    with ExitStack() as stack:
        stack.enter_context(patch.object(time, "time", lambda: now() + seconds))
        stack.enter_context(
            patch.object(time, "time_ns", lambda: nanoseconds() + int(seconds) * 10**9)
        )
        for module in DATED:
            stack.enter_context(patch.object(module, "dt", WrongModule(seconds)))
        yield


def ids_in_order(folder: Path) -> list[str]:  # noqa: ARG001 - the signature of a trial
    """Generate ids in one process."""
    made = []
    for seconds in JUMPS:
        with shift_clock(seconds):
            made += [new_id() for _ in range(200)]
    return [] if made == sorted(set(made)) else ["ids are not in order"]


def run_one_process(folder: Path) -> list[str]:
    """Continue a session, opened for each save."""
    url = url_in(folder, "sqlite")
    tokens = Tokens()
    for number, seconds in enumerate(JUMPS):
        with shift_clock(seconds):
            asyncio.run(save(url, f"token-{number}"))
        tokens.begun.append(f"token-{number}")
    tokens.acknowledged += tokens.begun
    return [
        problem
        for seconds in (0.0, -HOUR, DECADE)
        for problem in asyncio.run(history_problems(url, tokens, seconds))
    ] + asyncio.run(prune_problems(url, tokens))


def run_one_object(folder: Path) -> list[str]:
    """Continue a session that stays open."""
    tokens = Tokens()
    url = url_in(folder, "sqlite")

    async def run() -> None:
        async with open_state_store(url) as store:
            session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
            for number, seconds in enumerate(JUMPS):
                with shift_clock(seconds):
                    session.add_message("user", f"token-{number}")
                    await session.save(tags={"token": f"token-{number}"})
                tokens.begun.append(f"token-{number}")

    asyncio.run(run())
    tokens.acknowledged += tokens.begun
    return asyncio.run(history_problems(url, tokens, 0.0)) + asyncio.run(
        prune_problems(url, tokens)
    )


def run_two_processes(
    folder: Path, jumps: tuple[float, ...] = (-HOUR, DECADE, -DECADE)
) -> list[str]:
    """Continue a session with processes whose clocks disagree."""
    url = url_in(folder, "sqlite")
    tokens = Tokens()
    for number, seconds in enumerate(jumps):
        for token, wrong in ((f"{number}-here", 0.0), (f"{number}-there", seconds)):
            if wrong:
                save_in_process(url, token, wrong)
            else:
                asyncio.run(save(url, token))
            tokens.begun.append(token)
            tokens.acknowledged.append(token)
    return asyncio.run(history_problems(url, tokens, 0.0)) + asyncio.run(
        prune_problems(url, tokens)
    )


async def save(url: str, token: str) -> None:
    """Save one more snapshot."""
    async with open_state_store(url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        session.add_message("user", token)
        await session.save(tags={"token": token})


def save_in_process(url: str, token: str, wrong: float) -> None:
    """Save one more snapshot in a process whose clock is wrong."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    subprocess.run(
        [sys.executable, "-m", "trials.hardship.clocks", url, token, str(wrong)],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )


async def history_problems(url: str, tokens: Tokens, wrong: float) -> list[str]:
    """Return what is wrong with the snapshots, read with a clock that may be wrong too."""
    seen = f"by a clock that is wrong by {wrong:.0f} s"
    problems = []
    with shift_clock(wrong):
        async with open_state_store(url) as store:
            archive = SnapshotArchive(store)
            problems += await find_problems(store, LOCATION, tokens)
            page = await archive.list_snapshots(location=LOCATION)
            listed = [info.tags["token"] for info in page.snapshots]
            if listed != tokens.begun:
                problems.append(f"{seen}, snapshots are listed as {listed}")
            latest = await archive.load_snapshot(location=LOCATION)
            if latest is None or latest.tags["token"] != tokens.begun[-1]:
                problems.append(f"{seen}, the latest is {latest and latest.tags}")
            newest = await archive.find_newest_info(location=LOCATION, wanted=lambda _: True)
            if newest is None or newest.tags["token"] != tokens.begun[-1]:
                problems.append(f"{seen}, the newest is {newest and newest.tags}")
    return problems


async def prune_problems(url: str, tokens: Tokens) -> list[str]:
    """Return what is wrong after prunes that keep the last snapshots, under wrong clocks."""
    problems = []
    for keep, wrong in ((4, -HOUR), (3, DECADE), (2, -DECADE), (1, 0.0)):
        with shift_clock(wrong):
            async with open_state_store(url) as store:
                archive = SnapshotArchive(store)
                policy = RetentionPolicy(last=keep)
                await archive.prune(location=LOCATION, policy=policy)
                page = await archive.list_snapshots(location=LOCATION)
                listed = [info.tags["token"] for info in page.snapshots]
                if listed != tokens.begun[-keep:]:
                    problems.append(f"of {tokens.begun} the last {keep} are kept as {listed}")
                problems += await find_problems(store, LOCATION, tokens)
    return problems


if __name__ == "__main__":
    with shift_clock(float(sys.argv[3])):
        asyncio.run(save(sys.argv[1], sys.argv[2]))
