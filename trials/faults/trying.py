"""One operation with one fault: what may come of it, and that it can be done again.

Three times each, from the beginning: another process finds it done or not, and does it again; the
process in which it failed does it again; and where it was only late or saw what is old, another
writer was at work meanwhile, and loses nothing.
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
from trials.faults.seeing import Seen, World, opened, seen
from trials.faults.works import MAIN, PLACES, CopyFrom, Process, name_of
from trials.report import Report

Home = Callable[[], AbstractAsyncContextManager[StateStore]]
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
"""What goes by what is listed, and by nothing that it could find to be stale: it leaves something
behind, and is whole when it is done again."""
RAISED = (HoldfastError, asyncio.CancelledError, Crash)
"""What may come of a fault; anything else is a mistake in the product."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of an operation."""

    process: Process
    error: BaseException | None

    @property
    def acknowledged(self) -> bool:
        """Whether its caller was told that it is done."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """An operation where nothing fails."""

    before: World
    after: World
    reads: int
    writes: int


@contextmanager
def limits(work: Any) -> Iterator[None]:
    """When keyframes are due, as an operation wants it."""
    known = {name: getattr(timeline, name) for name in work.limits}
    try:
        for name, value in work.limits.items():
            setattr(timeline, name, value)
        yield
    finally:
        for name, value in known.items():
            setattr(timeline, name, value)


class Case:
    """One operation over one kind of store."""

    def __init__(self, work: Any, home: Home, *, atomic: bool | None, report: Report) -> None:
        self.work = work
        self.home = home
        self.atomic = atomic
        self.report = report

    # ------------------------------------------------------------------------------ its parts

    def process(self, disk: StateStore, *, remember: int = 0) -> Process:
        """A process that has just begun."""
        return Process(FaultyStateStore(disk, atomic=self.atomic, remember=remember))

    @asynccontextmanager
    async def prepared(self) -> AsyncIterator[tuple[StateStore, Process]]:
        """A store as it is before the operation, and the process that comes to it."""
        async with self.home() as disk:
            process = self.process(disk, remember=REMEMBERED)
            await self.work.prepare(process)
            process = restarted(process)
            await self.work.begin(process)
            yield disk, process

    async def seen(self, disk: StateStore) -> World:
        """What is stored where the operation writes, and whether that is sound."""
        self.report.count("sessions verified", len(PLACES))
        return await seen(self.looked_at(disk), PLACES)

    async def seen_by_next(self, disk: StateStore) -> World:
        """What is stored after the next process has opened every session."""
        next_one = self.process(self.looked_at(disk))
        for place in PLACES:
            await next_one.open(place)
        return await self.seen(disk)

    def looked_at(self, disk: StateStore) -> StateStore:
        """The store that the operation writes to."""
        return self.work.target if isinstance(self.work, CopyFrom) else disk

    async def undisturbed(self) -> Undisturbed:
        """What it does where nothing fails."""
        with limits(self.work):
            async with self.prepared() as (disk, process):
                before = await self.seen(disk)
                process.store.plan()
                await self.work.do(process)
                calls = process.store.reads, process.store.writes
                return Undisturbed(before, await self.seen(disk), *calls)

    async def attempt(self, process: Process, fault: Fault) -> Attempt:
        """Do it with a fault."""
        process.store.plan(fault)
        error: BaseException | None = None
        try:
            await self.work.do(process)
        except RAISED as raised:
            error = raised
        except IndexError as raised:
            # A listing that was stale has not what the operation itself takes out of it.
            if fault.kind != "stale":
                raise
            error = NotFoundError(str(raised))
        self.report.count(
            f"faults: {fault.kind}" if process.store.faults else "faults that were not reached"
        )
        process.store.plan()
        return Attempt(process, error)

    async def again(self, process: Process) -> None:
        """Do it again; where it turns out to be done already, that is said."""
        try:
            await self.work.do(process)
        except ConflictError as error:
            if "already" not in str(error):
                raise

    # ------------------------------------------------------------------------------ its checks

    async def check(self, fault: Fault, whole: Undisturbed) -> None:
        """Try it, and tell of all that is not as it should be."""
        if fault.kind == "delay":
            checks = [self.check_meanwhile]
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
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                self.problem(fault, f"{check.__name__}: {type(error).__name__}: {error}")

    async def check_by_another(self, fault: Fault, whole: Undisturbed) -> None:
        """Another process finds it done or not, and can do it."""
        async with self.prepared() as (disk, process):
            tried = await self.attempt(process, fault)
            self.check_error(fault, tried)
            found = await self.seen_by_next(disk)
            if not self.is_allowed(found, whole, tried):
                self.problem(fault, f"found {changed(found, whole)} after {tried.error!r}")
            if found == whole.before:
                another = self.process(disk)
                await self.work.begin(another)
                await self.work.do(another)
                if not self.is_done(await self.seen(disk), whole):
                    self.problem(fault, f"done anew: {changed(await self.seen(disk), whole)}")

    async def check_by_the_same(self, fault: Fault, whole: Undisturbed) -> None:
        """The process in which it failed does it again."""
        async with self.prepared() as (disk, process):
            tried = await self.attempt(process, fault)
            if not tried.acknowledged:
                if isinstance(tried.error, ConflictError) and process.session is not None:
                    # As the error says: drop what waits, and take what is there.
                    await self.work.begin(process)
                await self.again(process)
            found = await self.seen(disk)
            allowed = [whole.after, *self.work.may_be_seen_repeated(whole.after)]
            if found not in allowed and not self.is_done(found, whole):
                self.problem(fault, f"repeated: {changed(found, whole)} after {tried.error!r}")

    async def check_stale(self, fault: Fault, whole: Undisturbed) -> None:
        """What was done by what is old is less than was asked for, or refused; never a loss."""
        async with self.prepared() as (disk, process):
            tried = await self.attempt(process, fault)
            self.check_error(fault, tried)
            found = None
            if not name_of(self.work).startswith(BY_LISTINGS):
                found = await self.seen_by_next(disk)
                kept = whole.before[MAIN]["texts"] & whole.after[MAIN]["texts"]
                if lost := kept - found[MAIN]["texts"]:
                    self.problem(fault, f"lost {lost} by a read that was stale")
                if not tried.acknowledged and not self.is_allowed(found, whole, tried):
                    self.problem(fault, f"found {changed(found, whole)} after {tried.error!r}")
            if found is not None and self.is_done(found, whole):
                return
            another = self.process(disk)
            await self.work.begin(another)
            await self.again(another)
            found = await self.seen_by_next(disk)
            allowed = [whole.after, *self.work.may_be_seen_repeated(whole.after)]
            if name_of(self.work) == "Delete":
                # Of what is gone, nothing says in whose list it stood.
                found, allowed = without_listings(found), [without_listings(whole.after)]
            if found not in allowed and not self.is_done(found, whole):
                self.problem(fault, f"repeated: {changed(found, whole)} after {tried.error!r}")

    async def check_meanwhile(self, fault: Fault, whole: Undisturbed) -> None:
        """Another writer is at work while it waits; neither loses what was acknowledged."""
        async with self.prepared() as (disk, process):
            place = self.looked_at(disk)
            tried, said = await asyncio.gather(self.attempt(process, fault), speak(place))
            if not isinstance(tried.error, ConflictError | None):
                self.problem(fault, f"a delay gave {tried.error!r}")
            gone = name_of(self.work) == "Delete"
            if gone:
                # What a writer left who went on with a session in this moment is deleted again.
                await self.work.do(self.process(disk))
            found = (await self.seen_by_next(disk))[MAIN]
            times = found["texts"]["meanwhile"]
            if times > 1 or (said and not times and not gone):
                self.problem(fault, f"what another said meanwhile is there {times} times")
            kept = whole.before[MAIN]["texts"] & whole.after[MAIN]["texts"]
            if lost := kept - found["texts"]:
                self.problem(fault, f"lost {lost} while another wrote")
            if tried.acknowledged and (lost := said_in(whole.after[MAIN]) - found["texts"]):
                self.problem(fault, f"acknowledged, and lost {lost} while another wrote")

    def check_error(self, fault: Fault, tried: Attempt) -> None:
        """Each fault is told as what it is."""
        expected: dict[str, tuple[type[BaseException], ...]] = {
            "error": (StateStoreError,),
            "unknown": (StateStoreError,),
            "cancelled": (asyncio.CancelledError,),
            "crash": (Crash,),
            "stale": (HoldfastError,),
        }
        if tried.error is not None and not isinstance(tried.error, expected[fault.kind]):
            self.problem(fault, f"told as {tried.error!r}")
        if fault.kind == "stale" and tried.error is not None:
            self.report.count(f"stale reads that gave {type(tried.error).__name__}")

    def is_allowed(self, found: World, whole: Undisturbed, tried: Attempt) -> bool:
        """Whether this may be found."""
        if tried.acknowledged:
            return self.is_done(found, whole)
        allowed = [whole.before, whole.after, *self.work.may_be_seen(whole.before, whole.after)]
        partly = getattr(self.work, "partly", None)
        return found in allowed or (partly is not None and partly(found, whole.after))

    def is_done(self, found: World, whole: Undisturbed) -> bool:
        """Whether the operation is wholly done."""
        alike = getattr(self.work, "alike", None)
        return found == whole.after or (alike is not None and alike(found, whole.after))

    def problem(self, fault: Fault, what: str) -> None:
        """Tell of what is wrong."""
        kind = "one by one" if self.atomic is False else ""
        self.report.problem(f"{name_of(self.work)} {kind} with {fault!r}: {what[:600]}")


def restarted(process: Process) -> Process:
    """Another process with the same connection, which knows what was written before."""
    return Process(process.store)


async def speak(disk: StateStore) -> bool:
    """What another writer does; whether it was acknowledged."""
    try:
        session = await opened(disk, MAIN)
        session.add_message("user", "meanwhile")
        await session.commit(on_conflict="rebase")
    except ConflictError:
        return False
    return True


def said_in(place: Seen) -> Counter[str]:
    """The messages of a state."""
    entries = place["state"] or []
    return Counter(str(value["content"]) for space, _, value in entries if space == "messages")


def without_listings(world: World) -> World:
    """The same, without what the catalog says."""
    return {place: {**each, "listed": 0} for place, each in world.items()}


def changed(found: World, whole: Undisturbed) -> str:
    """Where something is neither as before nor as after."""
    texts = []
    for place, each in found.items():
        for name, value in each.items():
            before, after = whole.before[place][name], whole.after[place][name]
            if value not in (before, after):
                texts.append(f"{place.session_id}.{name} {value} (was {before}, to be {after})")
    return "; ".join(texts) or "parts of before with parts of after"
