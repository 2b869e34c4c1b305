"""Concurrent clients of one session's head, with every call recorded.

All processes must share one clock; on Linux ``time.monotonic_ns`` counts for the whole machine. A
client reads it right before a call and right after it returned. The recorded interval contains the
actual one, so a check may miss a violation but never reports a false one.

Some commits are cancelled halfway. Their outcome is unknown, and the client reopens the session, as
a restarted program does.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.pool import Pool

from holdfast import ConflictError, Session, SnapshotLocation, StateStore, open_state_store
from holdfast.log.hash_chain import GENESIS
from holdfast.snapshots.archive import SnapshotArchive
from trials.linearizable.checker import Link, Operation, Outcome

AGENT = "heads"
TICK = "tick"
START = GENESIS
SLOWEST = 60.0
"""Seconds that a process may take after its time is up."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a process does: its clients, when they start, and for how long."""

    url: str
    session_id: str
    name: str
    clients: int
    start: float
    seconds: float


class Client:
    """A writer and reader of a session, and the calls it made."""

    def __init__(self, state_store: StateStore, session_id: str, name: str) -> None:
        self.state_store = state_store
        self.session_id = session_id
        self.name = name
        self.rng = random.Random(name)
        self.calls: list[Operation] = []

    async def run(self, until: float) -> list[Operation]:
        """Commit and read until a given time."""
        session = await self.open_session()
        while time.monotonic() < until:
            # Pause between calls; otherwise the last writer always wins.
            await asyncio.sleep(self.rng.uniform(0, 0.004))
            act = self.rng.random()
            if act < 0.2:
                session = await self.open_session()
            elif act < 0.8:
                session = await self.commit(session)
            elif act < 0.92:
                session = await self.commit(session, any_head=True)
            else:
                session = await self.commit(session, patience=self.rng.uniform(0, 0.005))
        return self.calls

    def token(self) -> str:
        """Return a name for the next call."""
        return f"{self.name}-{len(self.calls)}"

    async def open_session(self) -> Session:
        """Reopen the session, which reads the head."""
        token, begun = self.token(), time.monotonic_ns()
        session = await Session.open(self.state_store, agent_id=AGENT, session_id=self.session_id)
        self.calls.append(
            Operation(token, "read", begun, time.monotonic_ns(), head=session.log.head.hash)
        )
        return session

    async def commit(
        self, session: Session, *, any_head: bool = False, patience: float | None = None
    ) -> Session:
        """Commit one event; return the session to continue with."""
        token, expected = self.token(), session.log.head.hash
        session.record(TICK, {"token": token})
        outcome: Outcome = "ok"
        begun = time.monotonic_ns()
        try:
            async with asyncio.timeout(patience):
                await session.commit(on_conflict="rebase" if any_head else "raise")
        except ConflictError:
            outcome = "conflict"
        except TimeoutError:
            outcome = "unknown"
        answered = time.monotonic_ns()
        self.calls.append(
            Operation(
                token,
                "commit",
                begun,
                answered,
                outcome,
                expected=None if any_head else expected,
                head=session.log.head.hash if outcome == "ok" else None,
            )
        )
        return session if outcome == "ok" else await self.open_session()


async def run_clients(
    stores: Sequence[StateStore], session_id: str, name: str, until: float
) -> list[Operation]:
    """Run one client on each store, concurrently."""
    clients = [Client(store, session_id, f"{name}.{number}") for number, store in enumerate(stores)]
    calls = await asyncio.gather(*(client.run(until) for client in clients))
    return [call for each in calls for call in each]


async def read_log(state_store: StateStore, session_id: str) -> list[Link]:
    """Return all moves of the head, from the log."""
    location = SnapshotLocation(session_id, scope_id=AGENT)
    log = (await SnapshotArchive(state_store).timeline(location=location)).log
    links = []
    async for segment in log.segments(log.head):
        tokens = [event.data["token"] for event in segment.events() if event.type == TICK]
        links.append(Link("+".join(tokens), segment.prev, segment.hash))
    return links


def work(task: Task) -> list[Operation]:
    """Run the clients of a process."""

    async def whole() -> list[Operation]:
        async with open_state_store(task.url) as store:
            # Start all processes at the same time.
            await asyncio.sleep(max(0.0, task.start - time.monotonic()))
            until = time.monotonic() + task.seconds
            return await run_clients([store] * task.clients, task.session_id, task.name, until)

    return asyncio.run(whole())


def pool(processes: int) -> Pool:
    """Return spawned processes: a fork would be unsafe with threads."""
    return multiprocessing.get_context("spawn").Pool(processes)


def record_history(
    pool_: Pool, url: str, session_id: str, *, processes: int, clients: int, seconds: float
) -> tuple[list[Operation], list[Link]]:
    """Return the calls of all processes, and the log at the end."""
    start = time.monotonic() + 0.3
    tasks = [
        Task(url, session_id, f"p{number}", clients, start, seconds) for number in range(processes)
    ]
    calls = pool_.map_async(work, tasks, chunksize=1).get(seconds + SLOWEST)

    async def links() -> list[Link]:
        async with open_state_store(url) as store:
            return await read_log(store, session_id)

    return [call for each in calls for call in each], asyncio.run(links())
