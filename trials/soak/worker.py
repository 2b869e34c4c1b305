"""A process that works on the sessions of a store at random, and records the results.

Each commit carries tokens, see `trials.tokens`. All workers share a number of slots, each with one
generation of a session after another, so they conflict often, and what they hold open is usually
outdated.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from holdfast import (
    ConflictError,
    Document,
    NotFoundError,
    RetentionPolicy,
    Session,
    SnapshotManager,
    StateStore,
    open_state_store,
)
from trials.soak.notes import COPIES, FULL, Notes, is_pruned, location_of, session_id_of
from trials.tokens import Ledger

HELD = 12
"""Sessions that a worker keeps open."""
PADDING = "Some more of what a message says. " * 6


@dataclass(frozen=True, slots=True)
class Job:
    """The arguments of a process."""

    url: str
    folder: str
    number: int
    slots: int
    seed: int


@dataclass(slots=True)
class RoundResult:
    """What a process did in one round."""

    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Worker:
    """The operations of one process, one after another."""

    def __init__(self, job: Job, state_store: StateStore, ledger: Ledger, notes: Notes) -> None:
        self.job = job
        self.state_store = state_store
        self.manager = SnapshotManager(state_store)
        self.ledger = ledger
        self.notes = notes
        self.rng = random.Random(f"{job.seed}-{job.number}")
        self.result = RoundResult()
        self.names = 0
        self.generations = [0] * job.slots
        self.held: dict[int, Session] = {}
        self.heads: dict[str, int] = {}
        """The last event that this worker knows of, by session."""
        self.saved: dict[str, list[tuple[str, str]]] = {}
        """Ids and digests of snapshots, by session."""
        self.acts: dict[Callable[[], Awaitable[None]], int] = {
            self.commit: 45,
            self.save: 12,
            self.read: 12,
            self.once: 8,
            self.restore: 6,
            self.prune: 5,
            self.fork: 4,
            self.export: 4,
            self.verify: 4,
        }

    async def run(self, seconds: float) -> RoundResult:
        """Work for some time; return the results."""
        self.result = RoundResult()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            (act,) = self.rng.choices(list(self.acts), list(self.acts.values()))
            try:
                await act()
            except Exception as error:  # noqa: BLE001 - recorded as a problem
                self.problem(f"{act.__name__}: {type(error).__name__}: {error}")
                self.held.clear()
        return self.result

    def problem(self, text: str) -> None:
        """Record a problem."""
        self.result.problems.append(f"worker {self.job.number}: {text}")

    def name(self) -> str:
        """Return a unique name."""
        self.names += 1
        return f"{self.job.number}-{self.names}"

    async def session(self, wanted: Callable[[int], bool] = lambda _: True) -> Session:
        """Return a random session, kept open or reopened."""
        slots = [slot for slot in range(self.job.slots) if wanted(slot)]
        slot = slots[int(len(slots) * self.rng.random() ** 2)]
        held = self.held.pop(slot, None)
        if held is not None and self.rng.random() < 0.9 and held.log.head.seq < FULL:
            self.held[slot] = held
            return held
        while True:
            session = await self.open_session(session_id_of(slot, self.generations[slot]))
            if session.log.head.seq < FULL:
                break
            self.leave(session.session_id)
            self.generations[slot] += 1
        self.held[slot] = session
        while len(self.held) > HELD:
            del self.held[next(iter(self.held))]
        return session

    async def open_session(self, session_id: str) -> Session:
        """Open a session, and check that it has everything this worker knows of."""
        agent = location_of(session_id).scope_id
        session = await Session.open(self.state_store, agent_id=agent, session_id=session_id)
        self.result.counts["sessions opened"] += 1
        known = self.heads.get(session_id, 0)
        if session.log.head.seq < known:
            self.problem(f"{session_id} opened at {session.log.head.seq}, and {known} was written")
        return session

    def leave(self, session_id: str) -> None:
        """Forget a session that is full."""
        self.heads.pop(session_id, None)
        self.saved.pop(session_id, None)

    async def discard(self, session: Session, error: ConflictError, tokens: list[str]) -> None:
        """Discard pending events after a conflict."""
        self.result.counts[f"conflicts{' about a key' if error.conflicts else ''}"] += 1
        for token in tokens:
            self.notes.note("refused", session.session_id, token)
        await session.reload()

    def record_head(self, session: Session, *, surely: bool = False) -> None:
        """Record the head after a write, and sometimes the digest of the state."""
        seq = session.log.head.seq
        self.heads[session.session_id] = seq
        if surely or self.rng.random() < 0.1:
            self.notes.note("state", session.session_id, str(seq), session.snapshot().digest)

    def add(self, session: Session, count: int) -> list[str]:
        """Add messages with tokens; return the tokens."""
        tokens = [self.name() for _ in range(count)]
        for token in tokens:
            self.ledger.begin(session.session_id, token)
            session.add_message("user", token, more=PADDING)
        session.set(f"worker-{self.job.number}", tokens)
        if self.rng.random() < 0.05:
            session.set("shared", tokens)
        return tokens

    def done(self, session: Session, tokens: list[str]) -> None:
        """Record that the commit of these tokens has returned."""
        for token in tokens:
            self.ledger.done(session.session_id, token)
        self.record_head(session)

    async def commit(self) -> None:
        """Commit tokens; on a conflict rebase, or give up."""
        session = await self.session()
        tokens = self.add(session, self.rng.choice([1, 1, 1, 3]))
        wanted = session.events[-1].seq
        try:
            try:
                await session.commit(on_conflict=self.rng.choice(["raise", "rebase"]))
            except ConflictError as error:
                if error.conflicts or self.rng.random() < 0.3:
                    raise
                self.result.counts["conflicts"] += 1
                await session.commit(on_conflict="rebase")
        except ConflictError as error:
            await self.discard(session, error, tokens)
            return
        self.done(session, tokens)
        self.result.counts["commits"] += 1
        self.result.counts["tokens committed"] += len(tokens)
        if session.log.head.seq > wanted:
            self.result.counts["commits on top of others'"] += 1

    async def save(self) -> None:
        """Save a snapshot, usually with something new."""
        session = await self.session()
        tokens = self.add(session, 1) if self.rng.random() < 0.8 else []
        try:
            snapshot = await session.save(tags={"by": str(self.job.number)}, on_conflict="rebase")
        except ConflictError as error:
            await self.discard(session, error, tokens)
            return
        self.done(session, tokens)
        self.result.counts["saves"] += 1
        found = (snapshot.snapshot_id, snapshot.digest)
        self.notes.note("snapshot", session.session_id, *found)
        self.saved.setdefault(session.session_id, []).append(found)

    async def restore(self) -> None:
        """Restore a snapshot, in a session that is never pruned."""
        session = await self.session(lambda slot: not is_pruned(session_id_of(slot, 0)))
        if saved := self.saved.get(session.session_id):
            try:
                await session.restore(self.rng.choice(saved)[0])
            except ConflictError as error:
                await self.discard(session, error, [])
                return
            self.record_head(session, surely=True)
            self.result.counts["restores"] += 1

    async def read(self) -> None:
        """Reopen a session and read some of its events."""
        location = (await self.session()).location
        session = await self.open_session(location.session_id)
        last = session.log.head.seq
        first = self.rng.randint(max(1, last - 50), last + 1)
        try:
            seqs = [event.seq async for event in session.events.read(first, last)] if last else []
        except NotFoundError:
            if not is_pruned(location.session_id):
                raise
            self.result.counts["reads of what was pruned"] += 1
            return
        self.result.counts["reads"] += 1
        if is_pruned(location.session_id):
            first = seqs[0] if seqs else last + 1
        if last and seqs != list(range(first, last + 1)):
            self.problem(f"{location.session_id} gave {seqs} for {first} to {last}")

    async def once(self) -> None:
        """Run a side effect once per key, in competition with other workers."""
        session = await self.session()
        key = f"key-{self.rng.randrange(8)}"

        def effect() -> str:
            self.result.counts["side effects done"] += 1
            return self.name()

        for _ in range(3):
            try:
                result = await session.once(key, effect)
            except ConflictError as error:
                if error.conflicts:
                    self.result.counts["side effects done twice at one moment"] += 1
                await self.discard(session, error, [])
                continue
            self.record_head(session)
            self.notes.note("once", session.session_id, key, result)
            self.result.counts["side effects asked for"] += 1
            return

    async def prune(self) -> None:
        """Prune a session that is never restored."""
        session = await self.session(lambda slot: is_pruned(session_id_of(slot, 0)))
        policy = RetentionPolicy(last=self.rng.choice([1, 2, 4]))
        pruned = await self.manager.archive.prune(location=session.location, policy=policy)
        self.result.counts["prunes"] += 1
        self.result.counts["events pruned"] += pruned.events_removed

    async def fork(self) -> None:
        """Fork a session at its head or at a snapshot."""
        session = await self.session()
        name = f"fork-{self.name()}"
        saved = self.saved.get(session.session_id)
        if saved and not is_pruned(session.session_id) and self.rng.random() < 0.5:
            snapshot_id, digest = self.rng.choice(saved)
            other = await session.fork(name, at=snapshot_id, agent_id=COPIES)
        else:
            digest = session.snapshot().digest
            other = await session.fork(name, agent_id=COPIES)
        self.notes.note("copy", other.session_id, "fork", digest)
        self.result.counts["forks"] += 1

    async def export(self) -> None:
        """Export a session, decode the document, and import it as another session."""
        session = await self.session()
        if not session.log.head.seq:
            return
        document = await session.export()
        read = Document.from_dict(document.to_dict())
        name = f"import-{self.name()}"
        await self.manager.import_session(read, agent_id=COPIES, session_id=name)
        self.notes.note("copy", name, "import", document.digest)
        self.result.counts["exports and imports"] += 1

    async def verify(self) -> None:
        """Verify a session while others write to it."""
        session = await self.session()
        damage = (await session.verify()).damage
        self.result.counts["verified while others write"] += 1
        for each in damage:
            self.problem(f"verify: {each.key}: {each.problem}")


def work(job: Job, line: Connection) -> None:
    """Run rounds as ordered over the connection, until it sends None."""
    folder = Path(job.folder)

    async def whole() -> None:
        ledger = Ledger(folder / f"{job.number}.ledger")
        notes = Notes(folder / f"{job.number}.notes")
        async with open_state_store(job.url) as store:
            worker = Worker(job, store, ledger, notes)
            while (seconds := await asyncio.to_thread(line.recv)) is not None:
                line.send(await worker.run(seconds))
        ledger.close()
        notes.close()

    asyncio.run(whole())
