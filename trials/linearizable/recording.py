"""Many at once on one session's head, with every call noted.

The clocks of all processes must be one: on Linux ``time.monotonic_ns`` counts for the whole
machine. A client notes its clock right before a call and right after the answer, so what it notes
holds the time in which the call happened, and a little more, which forgives but never accuses.

Some commits are cancelled on the way. Their outcome is unknown, and the client goes on with an
opening of its own making, as a program does that was killed and started again.
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
"""Seconds that a process has for what comes after its time is up."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one process is to do: so many clients for so long, from a moment on."""

    url: str
    session_id: str
    name: str
    clients: int
    start: float
    seconds: float


class Client:
    """One writer and reader of a session, with all that it was told."""

    def __init__(self, state_store: StateStore, session_id: str, name: str) -> None:
        self.state_store = state_store
        self.session_id = session_id
        self.name = name
        self.rng = random.Random(name)
        self.told: list[Operation] = []

    async def run(self, until: float) -> list[Operation]:
        """Commit and read until a moment of the clock."""
        session = await self.opened()
        while time.monotonic() < until:
            # Between two calls others get their turn, or else whoever wrote last writes again.
            await asyncio.sleep(self.rng.uniform(0, 0.004))
            act = self.rng.random()
            if act < 0.2:
                session = await self.opened()
            elif act < 0.8:
                session = await self.commit(session)
            elif act < 0.92:
                session = await self.commit(session, any_head=True)
            else:
                session = await self.commit(session, patience=self.rng.uniform(0, 0.005))
        return self.told

    def token(self) -> str:
        """A name for the next call."""
        return f"{self.name}-{len(self.told)}"

    async def opened(self) -> Session:
        """Open the session anew, which reads the head."""
        token, begun = self.token(), time.monotonic_ns()
        session = await Session.open(self.state_store, agent_id=AGENT, session_id=self.session_id)
        self.told.append(
            Operation(token, "read", begun, time.monotonic_ns(), head=session.log.head.hash)
        )
        return session

    async def commit(
        self, session: Session, *, any_head: bool = False, patience: float | None = None
    ) -> Session:
        """Commit one event; gives the session to go on with."""
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
        self.told.append(
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
        return session if outcome == "ok" else await self.opened()


async def recorded(
    stores: Sequence[StateStore], session_id: str, name: str, until: float
) -> list[Operation]:
    """A client on each of some stores, at once."""
    clients = [Client(store, session_id, f"{name}.{number}") for number, store in enumerate(stores)]
    told = await asyncio.gather(*(client.run(until) for client in clients))
    return [call for each in told for call in each]


async def logged(state_store: StateStore, session_id: str) -> list[Link]:
    """All moves of the head, as the log has them."""
    location = SnapshotLocation(session_id, scope_id=AGENT)
    log = (await SnapshotArchive(state_store).timeline(location=location)).log
    links = []
    async for segment in log.segments(log.head):
        tokens = [event.data["token"] for event in segment.events() if event.type == TICK]
        links.append(Link("+".join(tokens), segment.prev, segment.hash))
    return links


def work(task: Task) -> list[Operation]:
    """What a process does."""

    async def whole() -> list[Operation]:
        async with open_state_store(task.url) as store:
            # All begin together, whenever each was ready.
            await asyncio.sleep(max(0.0, task.start - time.monotonic()))
            until = time.monotonic() + task.seconds
            return await recorded([store] * task.clients, task.session_id, task.name, until)

    return asyncio.run(whole())


def pool(processes: int) -> Pool:
    """Processes of their own: not forks of this one, which may have threads."""
    return multiprocessing.get_context("spawn").Pool(processes)


def history_of(
    pool_: Pool, url: str, session_id: str, *, processes: int, clients: int, seconds: float
) -> tuple[list[Operation], list[Link]]:
    """What so many processes were told, and what the log has in the end."""
    start = time.monotonic() + 0.3
    tasks = [
        Task(url, session_id, f"p{number}", clients, start, seconds) for number in range(processes)
    ]
    told = pool_.map_async(work, tasks, chunksize=1).get(seconds + SLOWEST)

    async def links() -> list[Link]:
        async with open_state_store(url) as store:
            return await logged(store, session_id)

    return [call for each in told for call in each], asyncio.run(links())
