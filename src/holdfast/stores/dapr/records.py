"""Records that are changed together or not at all, on components that promise less.

Dapr's state API lets one record be written only where its etag is still the same. For several there
are transactions, but of the components that have them some cannot take back: when one etag of a
transaction does not match, Redis has already written the other records. So it is done in one of two
ways:

- In one transaction, on the components that are known to take back and to give no etag twice.
- Else by claims. Each record is first given a claim, beside what it holds: the name of the batch
  and what the record will hold. Then the verdict of the batch is created, one record that nobody
  can create twice: at that moment the batch is done. Then the claims are made good, and the verdict
  is removed. Who meets a claim looks for its verdict: until there is one, nothing has changed. Who
  wants to write, and has waited long enough for a batch whose owner may have died, creates the
  verdict that it is void.

Where etags are counters that begin again, or one for a record that is gone is no obstacle, a writer
who has read a record before it was removed could write it again. There a removed record is kept, as
an empty one, until no such writer can be left.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import msgspec

from holdfast.errors import StateStoreError
from holdfast.stores.backend import new_etag
from holdfast.stores.dapr.names import verdict_prefix
from holdfast.stores.dapr.sidecar import Component, Sidecar, Write

T = TypeVar("T")
U = TypeVar("U")

MARK = b"holdfast1\n"
DONE = b"done"
VOID = b"void"

TAKES_BACK = frozenset({"state.in-memory", "state.postgresql", "state.mysql", "state.sqlite"})
"""Transactions are all or nothing, an etag is for one write only, and matches no absent record."""

NONE_KNOWN: Mapping[str, bool] = MappingProxyType({})

HELD = 1.0
"""Seconds until a batch that is not done is taken to be nobody's."""

REST = 600.0
"""Seconds that something empty is kept: far longer than any attempt of a write takes."""

BURIALS = 4
SETTLING = 5
MANY = 1000
AT_ONCE = 16


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """What a record will hold when a batch is done."""

    batch: str
    token: str
    body: bytes | None


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What a name holds: the key that it is for, the mark of its write, and the bytes, if any."""

    key: str = ""
    token: str = ""
    body: bytes | None = None
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record as it was read, with the claim that it had applied if its batch is done.

    ``etag`` is Dapr's, empty where there is no record. ``claim`` is the batch that it is claimed
    by, and ``held`` whether that batch has no verdict yet.
    """

    name: str
    etag: str
    record: Record
    claim: str = ""
    held: bool = False

    @property
    def body(self) -> bytes | None:
        """What it holds, or None."""
        return self.record.body

    @property
    def token(self) -> str | None:
        """The mark of the write of what it holds, or None."""
        return self.record.token if self.record.body is not None else None


@dataclass(frozen=True, slots=True)
class Change:
    """What to write over a record that was seen. No body: it is to be removed."""

    seen: RecordView
    record: Record


@dataclass(frozen=True, slots=True)
class CleanupItem:
    """An empty record, or a batch that could not be tidied up, with the names of its records."""

    since: float
    name: str
    names: tuple[str, ...] = ()


class Records:
    """The records of one component that are under one namespace."""

    def __init__(self, sidecar: Sidecar, namespace: str, component: Component | None) -> None:
        self.sidecar = sidecar
        self.takes_back = (
            component is not None
            and component.type in TAKES_BACK
            and "TRANSACTIONAL" in component.capabilities
        )
        self._verdicts = verdict_prefix(namespace)
        self._id = new_etag()
        self._numbers = itertools.count(1)
        self._running: set[str] = set()
        self._met: dict[str, float] = {}
        self._graves: deque[CleanupItem] = deque()

    async def read(
        self, names: Sequence[str], known: Mapping[str, bool] = NONE_KNOWN
    ) -> dict[str, RecordView]:
        """The records of these names, whether there are any or not.

        ``known`` are verdicts that need not be looked for.
        """
        seen: dict[str, RecordView] = {}
        etags: dict[str, str] = {}
        while len(seen) < len(names):
            found = await self.sidecar.read([name for name in names if name not in seen])
            stored = {name: self._decoded(name, *pair) for name, pair in found.items()}
            batches = {one.claim.batch for one in stored.values() if one.claim}
            verdicts = {**known, **await self._judged(batches.difference(known))}
            for name, record in stored.items():
                etag = found[name][1]
                one = resolve_claim(name, etag, record, verdicts)
                # No verdict is one that is not there yet, or no more: then the claim is gone too.
                if not one.held or etags.get(name) == etag:
                    seen[name] = one
                etags[name] = etag
        return {name: seen[name] for name in names}

    async def commit(self, changes: Sequence[Change]) -> str | None:
        """Write all if each record still is as it was seen, else none.

        None: it is done. A text: it was refused, for that reason. An empty one: somebody else was
        about to write one of them, and it is worth to look again.
        """
        held = next((change.seen.claim for change in changes if change.seen.held), None)
        if held is not None:
            await self._wait_for(held)
            return ""
        if len(changes) == 1 and (changes[0].record.body is not None or not self.takes_back):
            return await self._save(changes[0].seen, changes[0].record)
        if self.takes_back:
            return await self._in_one_transaction(changes)
        refusal = await self._by_claims(changes)
        await self._bury()
        return refusal

    async def _in_one_transaction(self, changes: Sequence[Change]) -> str | None:
        writes = []
        for change in changes:
            value = None if change.record.body is None else encode_record(change.record)
            writes.append(Write(change.seen.name, value, change.seen.etag))
        return await self.sidecar.transact(writes)

    async def _by_claims(self, changes: Sequence[Change]) -> str | None:
        batch = f"{self._id}-{next(self._numbers)}"
        ordered = sorted(changes, key=lambda change: change.seen.name)
        names = [change.seen.name for change in ordered]
        self._running.add(batch)
        tidy = False
        try:
            # The first alone: of several batches with the same records one comes through.
            refusal = await self._claim(batch, ordered[:1])
            if refusal is not None:
                tidy = True
                return refusal
            refusal = await self._claim(batch, ordered[1:])
            if refusal is None:
                refusal = await self._judge(batch, done=True)
                # Else somebody was faster, or the answer was wrong. After this there is a verdict.
                if refusal is not None and await self._is_done(batch):
                    refusal = None
            # From here on all is said: what is left undone is done by whoever meets it.
            with suppress(StateStoreError):
                tidy = await self._settle(batch, names, done=refusal is None)
            return refusal
        finally:
            self._running.discard(batch)
            if not tidy:
                self._graves.append(CleanupItem(time.monotonic(), batch, tuple(names)))

    async def _claim(self, batch: str, changes: Sequence[Change]) -> str | None:
        async def claim(change: Change) -> str | None:
            old, new = change.seen.record, change.record
            claimed = Record(new.key, old.token, old.body, Claim(batch, new.token, new.body))
            return await self._save(change.seen, claimed)

        return next((no for no in await run_in_batches(claim, changes) if no is not None), None)

    async def _settle(self, batch: str, names: Sequence[str], *, done: bool) -> bool:
        """Write the records of a batch as its verdict is, and remove that; whether all is gone."""

        async def settle(one: RecordView) -> str | None:
            return await self._save(one, one.record)

        for _ in range(SETTLING):
            found = await self.read(names, {batch: done})
            left = [one for one in found.values() if one.claim == batch]
            if not any(no is not None for no in await run_in_batches(settle, left)):
                return await self.sidecar.delete(self._verdicts + batch) is None
        return False

    async def _wait_for(self, batch: str) -> None:
        """Give a batch the time to end, and end it where it had that."""
        if len(self._met) > MANY:
            self._met.clear()
        since = self._met.setdefault(batch, time.monotonic())
        mine = batch.startswith(f"{self._id}-") and batch not in self._running
        if mine or time.monotonic() - since > HELD:
            await self._is_done(batch)
            self._met.pop(batch, None)
        else:
            await asyncio.sleep(random.uniform(0.005, 0.03))  # noqa: S311 - no secret

    async def _is_done(self, batch: str) -> bool:
        """Whether a batch is done. If not, it will never be."""
        await self._judge(batch, done=False)
        return (await self._judged({batch})).get(batch, False)

    async def _judge(self, batch: str, *, done: bool) -> str | None:
        verdict = Record(token=batch, body=DONE if done else VOID)
        return await self.sidecar.save(self._verdicts + batch, encode_record(verdict), "")

    async def _judged(self, batches: Collection[str]) -> dict[str, bool]:
        """Of each batch that has a verdict, whether it is done."""
        if not batches:
            return {}
        found = await self.sidecar.read([self._verdicts + batch for batch in batches])
        verdicts = {name: self._decoded(name, *pair) for name, pair in found.items()}
        return {one.token: one.body == DONE for one in verdicts.values() if one.body is not None}

    async def _save(self, seen: RecordView, record: Record) -> str | None:
        refusal = await self.sidecar.save(seen.name, encode_record(record), seen.etag)
        if refusal is None and record.body is None and record.claim is None:
            self._graves.append(CleanupItem(time.monotonic(), seen.name))
        return refusal

    async def _bury(self) -> None:
        """Remove some of what has been of no use for long."""
        for _ in range(BURIALS):
            if not self._graves or time.monotonic() - self._graves[0].since < REST:
                return
            grave = self._graves.popleft()
            with suppress(StateStoreError):  # what stays is small, and in nobody's way
                if grave.names:
                    done = await self._is_done(grave.name)
                    await self._settle(grave.name, grave.names, done=done)
                    continue
                seen = (await self.read([grave.name]))[grave.name]
                if seen.etag and seen.body is None and not seen.claim:
                    await self.sidecar.delete(grave.name, seen.etag)

    def _decoded(self, name: str, data: bytes, etag: str) -> Record:
        if not data and not etag:
            return Record()
        if not etag:
            raise self.sidecar.no_etags()
        try:
            if not data.startswith(MARK):
                raise msgspec.DecodeError("it has not our mark")
            return msgspec.msgpack.decode(memoryview(data)[len(MARK) :], type=Record)
        except msgspec.DecodeError as error:
            raise StateStoreError(
                f"{self.sidecar.place}: the record {name!r} is none of ours ({error}). Does "
                "another program use the namespace, or does the component encrypt? Take another "
                "namespace, and encrypt with the option encrypt of the URL"
            ) from error


def resolve_claim(name: str, etag: str, record: Record, verdicts: Mapping[str, bool]) -> RecordView:
    """A record with its claim made good, or taken away, or left open where there is no verdict."""
    claim = record.claim
    if claim is None:
        return RecordView(name, etag, record)
    if verdicts.get(claim.batch):
        after = Record(record.key, claim.token, claim.body)
    else:
        after = Record(record.key, record.token, record.body)
    return RecordView(name, etag, after, claim.batch, claim.batch not in verdicts)


def encode_record(record: Record) -> bytes:
    """A record as Dapr keeps it."""
    return MARK + msgspec.msgpack.encode(record)


async def run_in_batches(work: Callable[[T], Awaitable[U]], items: Sequence[T]) -> list[U]:
    """Do the same to all, some at once. What was begun has ended before an error is raised."""
    done: list[U] = []
    for start in range(0, len(items), AT_ONCE):
        some = items[start : start + AT_ONCE]
        for answer in await asyncio.gather(*map(work, some), return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            done.append(answer)
    return done
