"""Records that change together or not at all, on components that guarantee less.

Dapr can write a single record only if its etag is unchanged. For several records it has
transactions, but some components cannot roll them back: if one etag of a transaction does not
match, Redis has already written the other records. So there are two ways:

- One transaction, on components that are known to roll back and to use each etag once.
- Otherwise claims. Each record first gets a claim next to its content: the name of the batch and
  the new content. Then the outcome of the batch is created, a record that can be created only
  once: that commits the batch. Then the claims are applied, and the outcome is removed. A reader
  that finds a claim looks for its outcome; until there is one, nothing has changed. A writer that
  has waited long enough for a batch, whose owner may have died, creates an outcome that voids it.

Where etags are counters that restart, or an etag does not protect a record that is gone, a writer
that read a record before it was deleted could write it again. There a deleted record is kept, as a
tombstone, until no such writer can be left.
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
from holdfast.stores.batch_read import split_batches
from holdfast.stores.dapr.names import outcome_prefix
from holdfast.stores.dapr.sidecar import Component, Sidecar, Write

T = TypeVar("T")
U = TypeVar("U")

MAGIC = b"holdfast1\n"
DONE = b"done"
VOID = b"void"

ROLLBACK_COMPONENTS = frozenset(
    {"state.in-memory", "state.postgresql", "state.mysql", "state.sqlite"}
)
"""Their transactions are atomic, and an etag is used once and never matches an absent record."""

NO_OUTCOMES: Mapping[str, bool] = MappingProxyType({})

CLAIM_SECONDS = 1.0
"""How long a batch without an outcome is waited for before it is voided."""

TOMBSTONE_SECONDS = 600.0
"""How long a tombstone is kept: far longer than any attempt of a write takes."""

CLEANUPS_PER_COMMIT = 4
APPLY_ATTEMPTS = 5
MAX_KNOWN_BATCHES = 1000
MAX_CONCURRENT = 16


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """What a record will contain if a batch is committed."""

    batch: str
    token: str
    body: bytes | None


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The content of a name: its key, the token of its write, and its bytes, if any."""

    key: str = ""
    token: str = ""
    body: bytes | None = None
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record as it was read, with its claim applied if the batch is committed.

    ``etag`` is Dapr's, empty if there is no record. ``claim`` is the batch that claims it, and
    ``pending`` whether that batch has no outcome yet.
    """

    name: str
    etag: str
    record: Record
    claim: str = ""
    pending: bool = False

    @property
    def body(self) -> bytes | None:
        """Its bytes, or None."""
        return self.record.body

    @property
    def token(self) -> str | None:
        """The token of the write of its bytes, or None."""
        return self.record.token if self.record.body is not None else None


@dataclass(frozen=True, slots=True)
class Change:
    """What replaces a record that was read. Without a body it is deleted."""

    view: RecordView
    record: Record


@dataclass(frozen=True, slots=True)
class CleanupItem:
    """A tombstone, or a batch that could not be finished, with the names of its records."""

    since: float
    name: str
    names: tuple[str, ...] = ()


class Records:
    """The records of one namespace in one component."""

    def __init__(self, sidecar: Sidecar, namespace: str, component: Component | None) -> None:
        self.sidecar = sidecar
        self.has_rollback = (
            component is not None
            and component.type in ROLLBACK_COMPONENTS
            and "TRANSACTIONAL" in component.capabilities
        )
        self._outcomes = outcome_prefix(namespace)
        self._id = new_etag()
        self._numbers = itertools.count(1)
        self._running: set[str] = set()
        self._waiting_since: dict[str, float] = {}
        self._cleanup: deque[CleanupItem] = deque()

    async def read(
        self, names: Sequence[str], known_outcomes: Mapping[str, bool] = NO_OUTCOMES
    ) -> dict[str, RecordView]:
        """Return the records of these names, whether they exist or not.

        Raises:
            StateStoreError: The sidecar failed, or a record is not Holdfast's.

        """
        views: dict[str, RecordView] = {}
        etags: dict[str, str] = {}
        while len(views) < len(names):
            found = await self.sidecar.read([name for name in names if name not in views])
            stored = {name: self._decode(name, *pair) for name, pair in found.items()}
            batches = {record.claim.batch for record in stored.values() if record.claim}
            missing = batches.difference(known_outcomes)
            outcomes = {**known_outcomes, **await self._read_outcomes(missing)}
            for name, record in stored.items():
                etag = found[name][1]
                view = resolve_claim(name, etag, record, outcomes)
                # A missing outcome does not exist yet, or was removed together with the claim.
                if not view.pending or etags.get(name) == etag:
                    views[name] = view
                etags[name] = etag
        return {name: views[name] for name in names}

    async def commit(self, changes: Sequence[Change]) -> str | None:
        """Write all changes if each record is still as it was read, otherwise none.

        Returns None if they were written. Otherwise the reason for the refusal, which is empty if
        another batch had claimed a record, so that all should be read again.

        Raises:
            StateStoreError: The sidecar failed.

        """
        claimed = next((change.view.claim for change in changes if change.view.pending), None)
        if claimed is not None:
            await self._wait_for(claimed)
            return ""
        if len(changes) == 1 and (changes[0].record.body is not None or not self.has_rollback):
            return await self._save(changes[0].view, changes[0].record)
        if self.has_rollback:
            return await self._commit_transaction(changes)
        refusal = await self._commit_with_claims(changes)
        await self._clean_up()
        return refusal

    async def _commit_transaction(self, changes: Sequence[Change]) -> str | None:
        writes = []
        for change in changes:
            value = None if change.record.body is None else encode_record(change.record)
            writes.append(Write(change.view.name, value, change.view.etag))
        return await self.sidecar.transact(writes)

    async def _commit_with_claims(self, changes: Sequence[Change]) -> str | None:
        batch = f"{self._id}-{next(self._numbers)}"
        ordered = sorted(changes, key=lambda change: change.view.name)
        names = [change.view.name for change in ordered]
        self._running.add(batch)
        finished = False
        try:
            # The first one alone, so that of several batches with the same records one succeeds.
            refusal = await self._claim(batch, ordered[:1])
            if refusal is not None:
                finished = True
                return refusal
            refusal = await self._claim(batch, ordered[1:])
            if refusal is None:
                refusal = await self._create_outcome(batch, done=True)
                # Another writer may have voided the batch, or the response was wrong. In either
                # case there is an outcome after this.
                if refusal is not None and await self._force_outcome(batch):
                    refusal = None
            # The outcome is decided: any program that finds a claim that is left can apply it.
            with suppress(StateStoreError):
                finished = await self._apply(batch, names, done=refusal is None)
            return refusal
        finally:
            self._running.discard(batch)
            if not finished:
                self._cleanup.append(CleanupItem(time.monotonic(), batch, tuple(names)))

    async def _claim(self, batch: str, changes: Sequence[Change]) -> str | None:
        async def claim(change: Change) -> str | None:
            old, new = change.view.record, change.record
            claimed = Record(new.key, old.token, old.body, Claim(batch, new.token, new.body))
            return await self._save(change.view, claimed)

        refusals = await run_in_batches(claim, changes)
        return next((refusal for refusal in refusals if refusal is not None), None)

    async def _apply(self, batch: str, names: Sequence[str], *, done: bool) -> bool:
        """Apply or remove the claims of a batch, then its outcome; return whether all succeeded."""

        async def apply(view: RecordView) -> str | None:
            return await self._save(view, view.record)

        for _ in range(APPLY_ATTEMPTS):
            views = await self.read(names, {batch: done})
            left = [view for view in views.values() if view.claim == batch]
            if all(refusal is None for refusal in await run_in_batches(apply, left)):
                return await self.sidecar.delete(self._outcomes + batch) is None
        return False

    async def _wait_for(self, batch: str) -> None:
        """Give a batch time to finish, and void it when that is over."""
        if len(self._waiting_since) > MAX_KNOWN_BATCHES:
            self._waiting_since.clear()
        since = self._waiting_since.setdefault(batch, time.monotonic())
        abandoned = batch.startswith(f"{self._id}-") and batch not in self._running
        if abandoned or time.monotonic() - since > CLAIM_SECONDS:
            await self._force_outcome(batch)
            self._waiting_since.pop(batch, None)
        else:
            await asyncio.sleep(random.uniform(0.005, 0.03))  # noqa: S311 - not a secret

    async def _force_outcome(self, batch: str) -> bool:
        """Return whether a batch is committed. If it has no outcome yet, void it."""
        await self._create_outcome(batch, done=False)
        return (await self._read_outcomes({batch})).get(batch, False)

    async def _create_outcome(self, batch: str, *, done: bool) -> str | None:
        outcome = Record(token=batch, body=DONE if done else VOID)
        return await self.sidecar.save(self._outcomes + batch, encode_record(outcome), "")

    async def _read_outcomes(self, batches: Collection[str]) -> dict[str, bool]:
        """Return whether each batch that has an outcome is committed."""
        if not batches:
            return {}
        found = await self.sidecar.read([self._outcomes + batch for batch in batches])
        outcomes = [self._decode(name, *pair) for name, pair in found.items()]
        return {one.token: one.body == DONE for one in outcomes if one.body is not None}

    async def _save(self, view: RecordView, record: Record) -> str | None:
        refusal = await self.sidecar.save(view.name, encode_record(record), view.etag)
        if refusal is None and record.body is None and record.claim is None:
            self._cleanup.append(CleanupItem(time.monotonic(), view.name))
        return refusal

    async def _clean_up(self) -> None:
        """Remove some of the old tombstones, and finish some old batches."""
        for _ in range(CLEANUPS_PER_COMMIT):
            if not self._cleanup or time.monotonic() - self._cleanup[0].since < TOMBSTONE_SECONDS:
                return
            item = self._cleanup.popleft()
            with suppress(StateStoreError):  # what is left is small and harmless
                if item.names:
                    done = await self._force_outcome(item.name)
                    await self._apply(item.name, item.names, done=done)
                    continue
                view = (await self.read([item.name]))[item.name]
                if view.etag and view.body is None and not view.claim:
                    await self.sidecar.delete(item.name, view.etag)

    def _decode(self, name: str, data: bytes, etag: str) -> Record:
        if not data and not etag:
            return Record()
        if not etag:
            raise self.sidecar.no_etags_error()
        try:
            if not data.startswith(MAGIC):
                raise msgspec.DecodeError("it does not start as one")
            return msgspec.msgpack.decode(memoryview(data)[len(MAGIC) :], type=Record)
        except msgspec.DecodeError as error:
            raise StateStoreError(
                f"{self.sidecar.display_url}: {name!r} is not a record of Holdfast ({error}); if "
                "another program uses the namespace, choose another one; if the component "
                "encrypts, use the option encrypt of the URL instead"
            ) from error


def resolve_claim(name: str, etag: str, record: Record, outcomes: Mapping[str, bool]) -> RecordView:
    """Return a record with its claim applied, removed, or pending if there is no outcome."""
    claim = record.claim
    if claim is None:
        return RecordView(name, etag, record)
    if outcomes.get(claim.batch):
        resolved = Record(record.key, claim.token, claim.body)
    else:
        resolved = Record(record.key, record.token, record.body)
    return RecordView(name, etag, resolved, claim.batch, claim.batch not in outcomes)


def encode_record(record: Record) -> bytes:
    """Return a record as bytes."""
    return MAGIC + msgspec.msgpack.encode(record)


async def run_in_batches(work: Callable[[T], Awaitable[U]], items: Sequence[T]) -> list[U]:
    """Run work for all items, some at a time. Before an error is raised, its batch has ended."""
    results: list[U] = []
    for batch in split_batches(items, MAX_CONCURRENT):
        for answer in await asyncio.gather(*map(work, batch), return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            results.append(answer)
    return results
