"""Large values, attachments, restores and forks, while another process prunes; one is killed.

The operations of a writer follow from their numbers, and so does the state after each of them.
What is stored after a kill must be the state after the last acknowledged operation, or after the
one that was running.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from unittest.mock import patch

import psutil  # type: ignore[import-untyped]

from holdfast import (
    ConflictError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    StateStore,
    open_state_store,
)
from holdfast.blobs import Attachment
from holdfast.blobs import holds as holds_module
from trials.kills.tasks import AGENT, WORK, Kind, Task, retry_call
from trials.processes import die_with
from trials.tokens import Ledger, Tokens, read_ledgers

POLICY = RetentionPolicy(last=6)
RESTORE_EVERY, FORK_EVERY = 5, 7
BACK = 3
"""How many operations a restore goes back. The policy keeps as many snapshots."""
SIZES = (10, 70_000, 200_000, 700_000)
EXPIRED = dt.timedelta(seconds=-1)
"""An age at which the hold of a killed commit has expired."""
PATIENCE = 30.0
SERVER_SECONDS = 0.5
"""How long a server may take to finish the last write of a client that was killed."""


class Blobs(Kind):
    """Write blobs while another process prunes; the writer is killed."""

    name = "blobs"
    operations = 12

    def task(self, number: int) -> Task:
        """Return the task of the next worker, with a session of its own."""
        session = f"{self.name}-{number}"
        url = self.stores.url("written")
        return Task(self.name, number, self.ledger(number), "written", url, session)

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Write until killed."""
        fork_companion(task, lambda: asyncio.run(prune_for_ever(task, None)))
        asyncio.run(write_for_ever(task, ledger))

    def writer_ledger(self, task: Task) -> Path:
        """Return the ledger of the writer."""
        return Path(task.ledger)

    async def check(self, task: Task) -> list[str]:
        """Check the state, every snapshot and all forks; prune, and check that nothing is left."""
        await asyncio.to_thread(wait_for_companion, task)
        if self.stores.server is not None:
            await asyncio.sleep(SERVER_SECONDS)
        path = self.writer_ledger(task)
        tokens = read_ledgers([path]).get(task.session, Tokens()) if path.exists() else Tokens()
        acknowledged, begun = len(tokens.acknowledged), len(tokens.begun)
        async with open_state_store(task.url) as store:
            possible = [states_of(task)(number) for number in {acknowledged, begun}]
            problems = await find_session_problems(store, task.session, possible)
            for number in range(begun):
                if is_fork(number):
                    expected = [states_of(task)(number)]
                    if number >= acknowledged:
                        expected.append(())
                    problems += await find_session_problems(store, fork_of(task, number), expected)
            problems += await find_session_problems(store, task.session, possible, prune=True)
            if begun:
                session = await Session.open(store, agent_id=AGENT, session_id=task.session)
                await add_value(session, f"{task.session}-again")
                await session.save()
                problems += await find_session_problems(store, task.session, None, prune=True)
        return problems + self.stores.strays(task.store)


class Sweeps(Blobs):
    """Prune while another process writes blobs; the one that prunes is killed."""

    name = "sweeps"
    operations = 6

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Prune until killed."""
        path = Path(f"{task.ledger}-writer")
        fork_companion(task, lambda: asyncio.run(write_for_ever(task, Ledger(path))))
        asyncio.run(prune_for_ever(task, ledger))

    def writer_ledger(self, task: Task) -> Path:
        """Return the ledger of the writer."""
        return Path(f"{task.ledger}-writer")


# ----------------------------------------------------------------------------------- processes


def fork_companion(task: Task, work: Callable[[], None]) -> None:
    """Fork a process that works until this one is killed."""
    victim = os.getpid()
    pid = os.fork()
    if pid:
        Path(f"{task.ledger}-companion").write_text(str(pid))
        return
    die_with(victim)
    try:
        work()
    finally:
        os._exit(1)


def wait_for_companion(task: Task) -> None:
    """Wait until the other process has ended, which polls for its parent."""
    path = Path(f"{task.ledger}-companion")
    end = time.monotonic() + PATIENCE
    while path.exists() and time.monotonic() < end:
        with suppress(psutil.NoSuchProcess):
            companion = psutil.Process(int(path.read_text()))
            # Of a killed process, a thread may be in the middle of a call to the disk.
            if companion.status() != psutil.STATUS_ZOMBIE or companion.num_threads() > 1:
                time.sleep(0.02)
                continue
        path.unlink()


async def prune_for_ever(task: Task, ledger: Ledger | None) -> None:
    """Prune until killed."""
    location = SnapshotLocation(task.session, scope_id=AGENT)
    async with open_state_store(task.url) as store:
        archive = SnapshotArchive(store)
        for number in itertools.count():
            if ledger is not None:
                ledger.begin(WORK, f"prune-{number}")
            with suppress(ConflictError):
                await retry_call(lambda: archive.prune(location=location, policy=POLICY))
            if ledger is not None:
                ledger.done(WORK, f"prune-{number}")
            await asyncio.sleep(0.002)


# -------------------------------------------------------------------------------- operations


def is_fork(number: int) -> bool:
    """Return whether an operation forks the session."""
    return number > 0 and number % FORK_EVERY == 0


def is_restore(number: int) -> bool:
    """Return whether an operation restores an earlier snapshot."""
    return not is_fork(number) and number > BACK and number % RESTORE_EVERY == 0


def token_of(task: Task, number: int) -> str:
    """Return the token of an operation."""
    return f"{task.session}-{number}"


def fork_of(task: Task, number: int) -> str:
    """Return the id of the fork that an operation creates."""
    return f"{task.session}-fork-{number}"


def states_of(task: Task) -> Callable[[int], tuple[str, ...]]:
    """Return a function from a number of operations to the tokens of the messages after them."""

    @cache
    def after(count: int) -> tuple[str, ...]:
        if count == 0:
            return ()
        number = count - 1
        if is_fork(number):
            return after(number)
        if is_restore(number):
            return after(count - BACK)
        return (*after(number), token_of(task, number))

    return after


async def write_for_ever(task: Task, ledger: Ledger) -> None:
    """Write, restore and fork until killed, and record every operation."""
    async with open_state_store(task.url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=task.session)
        saved: list[str] = []
        for number in itertools.count():
            token = token_of(task, number)
            ledger.begin(task.session, token)
            ledger.begin(WORK, token)
            if is_fork(number):
                await fork_once(session, fork_of(task, number))
            elif is_restore(number):
                await retry_call(lambda: session.restore(saved[-BACK]))
            else:
                await add_value(session, token)
            # A save without changes is a snapshot at the same position.
            saved.append((await retry_call(session.save)).snapshot_id)
            ledger.done(WORK, token)
            ledger.done(task.session, token)


async def fork_once(session: Session, session_id: str) -> None:
    """Fork a session; an earlier attempt whose response was lost counts."""
    is_first = True

    async def fork() -> None:
        nonlocal is_first
        try:
            await session.fork(session_id)
        except ConflictError:
            if is_first:
                raise
        finally:
            is_first = False

    await retry_call(fork)


async def add_value(session: Session, token: str) -> None:
    """Add a message with a large value or an attachment, and replace a value of the state."""
    content = make_content(token)
    match len(token) + content[0] & 3:
        case 0:
            value: object = await session.attach(content, name=token)
        case 1:
            value = content.hex()
        case 2:
            value = [await session.attach(content), content]
        case _:
            value = content
    session.add_message("user", token, value=value)
    session.set("current", {"token": token, "value": make_content(f"current {token}")})


def make_content(token: str) -> bytes:
    """Return the content that belongs to a token."""
    dice = random.Random(token)
    return dice.randbytes(dice.choice(SIZES))


# ------------------------------------------------------------------------------------- checks


async def find_session_problems(
    store: StateStore,
    session_id: str,
    possible: list[tuple[str, ...]] | None,
    *,
    prune: bool = False,
) -> list[str]:
    """Return what is wrong with a session whose messages must be one of several lists of tokens."""
    location = SnapshotLocation(session_id, scope_id=AGENT)
    archive = SnapshotArchive(store)
    problems = []
    if prune:
        with patch.object(holds_module, "HOLD_AGE", EXPIRED):
            await archive.prune(location=location, policy=POLICY)
    session = await Session.open(store, agent_id=AGENT, session_id=session_id)
    found = tuple(message["content"] for message in session.messages)
    if possible is not None and found not in possible:
        problems.append(f"{session_id}: it has {found}, expected one of {possible}")
    states = [(session_id, session.messages, session.get("current"))]
    for info in (await archive.list_snapshots(location=location)).snapshots:
        loaded = await archive.load_snapshot(location=location, snapshot_id=info.snapshot_id)
        if loaded is None:
            problems.append(f"{session_id}: snapshot {info.snapshot_id} does not load")
        else:
            values = loaded.state.values
            states.append((info.snapshot_id, loaded.state.messages, values.get("current")))
    for name, messages, current in states:
        for message in messages:
            if not await is_intact(session, message["value"], make_content(message["content"])):
                problems.append(f"{name}: the value of {message['content']} differs")
        if current and current["value"] != make_content(f"current {current['token']}"):
            problems.append(f"{name}: the value of {current['token']} in the state differs")
    verification = await archive.verify(location=location)
    problems += [f"{each.key}: {each.problem}" for each in verification.damage]
    if prune:
        problems += [
            f"{session_id}: blob {each.digest} is left" for each in verification.unreferenced_blobs
        ]
        holds = [key async for key in store.list(f"{location.prefix}blob_holds/")]
        problems += [f"{key} is left" for key in holds if verification.unreferenced_blobs]
    return problems


async def is_intact(session: Session, value: object, content: bytes) -> bool:
    """Return whether a value reads back as it was written."""
    if isinstance(value, list):
        return all([await is_intact(session, each, content) for each in value])
    if isinstance(value, Attachment):
        return await session.read_attachment(value) == content
    return value in (content, content.hex())
