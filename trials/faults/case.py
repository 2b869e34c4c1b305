"""One operation with one fault, and what must hold afterwards.

Each starts from scratch: another process finds the operation done or not and repeats it; the
process in which it failed repeats it; and after a delay or a stale read, a concurrent writer loses
nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from holdfast import ConflictError, HoldfastError, NotFoundError, StateStore, StateStoreError
from holdfast.log import timeline
from holdfast.testing import Crash, Fault, FaultyStateStore
from trials.faults.operations import LOCATIONS, MAIN, CopyFrom, Process, name_of
from trials.faults.stored_state import SessionContent, World, open_session, read_world
from trials.report import Report

Opener = Callable[[], AbstractAsyncContextManager[StateStore]]
"""Opens an empty store."""

REMEMBERED = 6
LATE = 0.002

WRITES: list[Fault] = [
    Fault(1, "error"),
    Fault(1, "unknown"),
    Fault(1, "unknown", done=True),
    Fault(1, "cancelled"),
    Fault(1, "cancelled", done=True),
    Fault(1, "crash"),
    Fault(1, "crash", done=True),
    Fault(1, "delay", seconds=LATE),
    Fault(1, "delay", done=True, seconds=LATE),
]
READS: list[Fault] = [
    Fault(1, "error", of="reads"),
    Fault(1, "error", done=True, of="reads"),
    Fault(1, "cancelled", of="reads"),
    Fault(1, "crash", of="reads"),
    Fault(1, "delay", of="reads", seconds=LATE),
    Fault(1, "stale", of="reads", behind=1),
    Fault(1, "stale", of="reads", behind=2),
    Fault(1, "stale", of="reads", behind=REMEMBERED),
]
BY_LISTINGS = ("Delete", "Copy from")
"""Operations that rely on listings: a stale one makes them miss items until they are repeated."""
RAISED = (HoldfastError, asyncio.CancelledError, Crash)
"""Errors that a fault may cause; any other is a bug."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of an operation."""

    process: Process
    error: BaseException | None

    @property
    def acknowledged(self) -> bool:
        """Whether the operation returned."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """An operation in which nothing fails."""

    before: World
    after: World
    reads: int
    writes: int


@contextmanager
def limits(work: Any) -> Iterator[None]:
    """Set the keyframe limits that an operation needs."""
    known = {name: getattr(timeline, name) for name in work.limits}
    try:
        for name, value in work.limits.items():
            setattr(timeline, name, value)
        yield
    finally:
        for name, value in known.items():
            setattr(timeline, name, value)


class Case:
    """One operation on one kind of store."""

    def __init__(self, work: Any, home: Opener, *, atomic: bool | None, report: Report) -> None:
        self.work = work
        self.home = home
        self.atomic = atomic
        self.report = report

    def process(self, disk: StateStore, *, remember: int = 0) -> Process:
        """Return a new process."""
        return Process(FaultyStateStore(disk, atomic=self.atomic, remember=remember))

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[tuple[StateStore, Process]]:
        """Yield a store prepared for the operation, and a process that has opened it."""
        async with self.home() as disk:
            process = self.process(disk, remember=REMEMBERED)
            await self.work.prepare(process)
            process = restart(process)
            await self.work.begin(process)
            yield disk, process

    async def read_world(self, disk: StateStore) -> World:
        """Return what the operation's target stores, checked for consistency."""
        self.report.count("sessions verified", len(LOCATIONS))
        return await read_world(self.written_store(disk), LOCATIONS)

    async def read_after_reopen(self, disk: StateStore) -> World:
        """Return what is stored after another process has opened every session."""
        next_one = self.process(self.written_store(disk))
        for place in LOCATIONS:
            await next_one.open(place)
        return await self.read_world(disk)

    def written_store(self, disk: StateStore) -> StateStore:
        """Return the store that the operation writes to."""
        return self.work.target if isinstance(self.work, CopyFrom) else disk

    async def undisturbed(self) -> Undisturbed:
        """Run the operation without a fault."""
        with limits(self.work):
            async with self.prepared() as (disk, process):
                before = await self.read_world(disk)
                process.store.plan()
                await self.work.do(process)
                calls = process.store.reads, process.store.writes
                return Undisturbed(before, await self.read_world(disk), *calls)

    async def attempt(self, process: Process, fault: Fault) -> Attempt:
        """Run the operation with a fault."""
        process.store.plan(fault)
        error: BaseException | None = None
        try:
            await self.work.do(process)
        except RAISED as raised:
            error = raised
        except IndexError as raised:
            # A stale listing lacks an item that the operation takes from it.
            if fault.kind != "stale":
                raise
            error = NotFoundError(str(raised))
        self.report.count(
            f"faults: {fault.kind}" if process.store.faults else "faults that were not reached"
        )
        process.store.plan()
        return Attempt(process, error)

    async def again(self, process: Process) -> None:
        """Repeat the operation, which may find that it was done already."""
        try:
            await self.work.do(process)
        except ConflictError as error:
            if "already" not in str(error):
                raise

    async def check(self, fault: Fault, whole: Undisturbed) -> None:
        """Run the checks for a fault, and record problems."""
        if fault.kind == "delay":
            checks = [self.check_with_concurrent_writer]
        elif fault.kind == "stale":
            checks = [self.check_stale]
        elif fault.kind == "crash":
            checks = [self.check_by_another]
        else:
            checks = [self.check_by_another, self.check_by_the_same]
        for check in checks:
            try:
                with limits(self.work):
                    await check(fault, whole)
            except Exception as error:  # noqa: BLE001 - recorded as a problem
                self.problem(fault, f"{check.__name__}: {type(error).__name__}: {error}")

    async def check_by_another(self, fault: Fault, whole: Undisturbed) -> None:
        """Check that another process finds the operation done or not, and can repeat it."""
        async with self.prepared() as (disk, process):
            tried = await self.attempt(process, fault)
            self.check_error(fault, tried)
            found = await self.read_after_reopen(disk)
            if not self.is_allowed(found, whole, tried):
                self.problem(fault, f"found {describe_changes(found, whole)} after {tried.error!r}")
            if found == whole.before:
                another = self.process(disk)
                await self.work.begin(another)
                await self.work.do(another)
                if not self.is_done(await self.read_world(disk), whole):
                    self.problem(
                        fault, f"repeated: {describe_changes(await self.read_world(disk), whole)}"
                    )

    async def check_by_the_same(self, fault: Fault, whole: Undisturbed) -> None:
        """Check that the process in which it failed can repeat the operation."""
        async with self.prepared() as (disk, process):
            tried = await self.attempt(process, fault)
            if not tried.acknowledged:
                if isinstance(tried.error, ConflictError) and process.session is not None:
                    # Discard pending events and load the head, as the error says.
                    await self.work.begin(process)
                await self.again(process)
            found = await self.read_world(disk)
            allowed = [whole.after, *self.work.may_be_seen_repeated(whole.after)]
            if found not in allowed and not self.is_done(found, whole):
                self.problem(
                    fault, f"repeated: {describe_changes(found, whole)} after {tried.error!r}"
                )

    async def check_stale(self, fault: Fault, whole: Undisturbed) -> None:
        """Check that a stale read leads to less work or to an error, but never to a loss."""
        async with self.prepared() as (disk, process):
            tried = await self.attempt(process, fault)
            self.check_error(fault, tried)
            found = None
            if not name_of(self.work).startswith(BY_LISTINGS):
                found = await self.read_after_reopen(disk)
                kept = whole.before[MAIN]["texts"] & whole.after[MAIN]["texts"]
                if lost := kept - found[MAIN]["texts"]:
                    self.problem(fault, f"lost {lost} by a read that was stale")
                if not tried.acknowledged and not self.is_allowed(found, whole, tried):
                    self.problem(
                        fault, f"found {describe_changes(found, whole)} after {tried.error!r}"
                    )
            if found is not None and self.is_done(found, whole):
                return
            another = self.process(disk)
            await self.work.begin(another)
            await self.again(another)
            found = await self.read_after_reopen(disk)
            allowed = [whole.after, *self.work.may_be_seen_repeated(whole.after)]
            if name_of(self.work) == "Delete":
                # After a delete, nothing tells which listing the session was in.
                found, allowed = without_listings(found), [without_listings(whole.after)]
            if found not in allowed and not self.is_done(found, whole):
                self.problem(
                    fault, f"repeated: {describe_changes(found, whole)} after {tried.error!r}"
                )

    async def check_with_concurrent_writer(self, fault: Fault, whole: Undisturbed) -> None:
        """Check that a delayed operation and a concurrent writer lose nothing acknowledged."""
        async with self.prepared() as (disk, process):
            place = self.written_store(disk)
            tried, committed = await asyncio.gather(
                self.attempt(process, fault), commit_message(place)
            )
            if not isinstance(tried.error, ConflictError | None):
                self.problem(fault, f"a delay gave {tried.error!r}")
            gone = name_of(self.work) == "Delete"
            if gone:
                # A writer may have recreated the session during the delete.
                await self.work.do(self.process(disk))
            found = (await self.read_after_reopen(disk))[MAIN]
            times = found["texts"]["concurrent"]
            if times > 1 or (committed and not times and not gone):
                self.problem(fault, f"the concurrent commit is stored {times} times")
            kept = whole.before[MAIN]["texts"] & whole.after[MAIN]["texts"]
            if lost := kept - found["texts"]:
                self.problem(fault, f"lost {lost} while another wrote")
            if tried.acknowledged and (lost := count_messages(whole.after[MAIN]) - found["texts"]):
                self.problem(fault, f"acknowledged, and lost {lost} while another wrote")

    def check_error(self, fault: Fault, tried: Attempt) -> None:
        """Check that a fault raises the error that fits it."""
        expected: dict[str, tuple[type[BaseException], ...]] = {
            "error": (StateStoreError,),
            "unknown": (StateStoreError,),
            "cancelled": (asyncio.CancelledError,),
            "crash": (Crash,),
            "stale": (HoldfastError,),
        }
        if tried.error is not None and not isinstance(tried.error, expected[fault.kind]):
            self.problem(fault, f"reported as {tried.error!r}")
        if fault.kind == "stale" and tried.error is not None:
            self.report.count(f"stale reads that gave {type(tried.error).__name__}")

    def is_allowed(self, found: World, whole: Undisturbed, tried: Attempt) -> bool:
        """Return whether the outcome is one of those allowed."""
        if tried.acknowledged:
            return self.is_done(found, whole)
        allowed = [whole.before, whole.after, *self.work.may_be_seen(whole.before, whole.after)]
        partly = getattr(self.work, "partly", None)
        return found in allowed or (partly is not None and partly(found, whole.after))

    def is_done(self, found: World, whole: Undisturbed) -> bool:
        """Return whether the operation is wholly done."""
        alike = getattr(self.work, "alike", None)
        return found == whole.after or (alike is not None and alike(found, whole.after))

    def problem(self, fault: Fault, what: str) -> None:
        """Record a problem."""
        kind = "one by one" if self.atomic is False else ""
        self.report.problem(f"{name_of(self.work)} {kind} with {fault!r}: {what[:600]}")


def restart(process: Process) -> Process:
    """Return another process with the same connection, which knows what was written before."""
    return Process(process.store)


async def commit_message(disk: StateStore) -> bool:
    """Commit a message as another writer; return whether it was acknowledged."""
    try:
        session = await open_session(disk, MAIN)
        session.add_message("user", "concurrent")
        await session.commit(on_conflict="rebase")
    except ConflictError:
        return False
    return True


def count_messages(place: SessionContent) -> Counter[str]:
    """Return the messages of a state."""
    entries = place["state"] or []
    return Counter(str(value["content"]) for space, _, value in entries if space == "messages")


def without_listings(world: World) -> World:
    """Return the same without the catalog's listings."""
    return {place: {**each, "listed": 0} for place, each in world.items()}


def describe_changes(found: World, whole: Undisturbed) -> str:
    """Describe what is neither as before nor as after the operation."""
    texts = []
    for place, each in found.items():
        for name, value in each.items():
            before, after = whole.before[place][name], whole.after[place][name]
            if value not in (before, after):
                texts.append(f"{place.session_id}.{name} {value} (was {before}, to be {after})")
    return "; ".join(texts) or "parts of before with parts of after"
