"""One incarnation of a session: the manifest that names it, and the condition on every write.

A session that is deleted and created again under the same id is a new incarnation. Its log and its
keyframes live below the incarnation's id, so a writer of the old one writes where nothing reads.
The manifest names the current incarnation, and a commit holds only while that manifest stands:

    creation   segments and keyframes, the index entry, then the manifest ``if_absent``. Nothing is
               visible before the manifest, so of two creators one gets a conflict, and a crash
               leaves entries that no manifest names, which a repair or a deletion removes.
    commit     on a store with ``conditional_put_many`` the manifest's etag is a condition of the
               same atomic write. Elsewhere the manifest is read after the write, before the write
               is acknowledged; a write that came too late is removed again.
    activity   the agent's index is ordered by last activity, to within ``ACTIVITY_RESOLUTION``.
               The entry moves with a commit once it is older than that.

Pruning rewrites the manifest too, so the same condition protects a writer from committing after
events that are gone.
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from holdfast.errors import ConflictError, IntegrityError, NotFoundError, StateStoreError
from holdfast.log.event_log import Position
from holdfast.log.segment import Segment
from holdfast.log.timeline import LoadedState, Timeline
from holdfast.snapshots.keys import SnapshotLocation, deletion_mark_key, index_key
from holdfast.snapshots.lifecycle import Deletion, read_manifests, to_microseconds
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Condition, Entry, Put

logger = logging.getLogger(__name__)

ACTIVITY_RESOLUTION = dt.timedelta(seconds=5)
"""How far an index entry may lag behind the session's last commit."""
PASSIVE_EVENT_TYPES = frozenset({"session.forked", "session.imported"})
"""Types of events that do not make a session the one that was active last."""
INDEX_VALUE = b"{}"
ATTEMPTS = 8


class ReplacedError(ConflictError):
    """The session was deleted, replaced or pruned since the writer last read it."""


class Incarnation:
    """One incarnation of a session, as a writer last read it.

    ``manifest`` and ``etag`` are what was read; ``etag`` is None where there was no manifest.
    """

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        manifest: SnapshotManifest,
        etag: str | None,
    ) -> None:
        self.state_store = state_store
        self.location = location
        self.manifest = manifest
        self.etag = etag
        self.id = manifest.incarnation or new_incarnation_id()

    @classmethod
    async def read(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """Read the current incarnation, or prepare a new one where there is no session.

        A deletion that was interrupted is finished first.
        """
        mark = deletion_mark_key(location.session_id)
        found = await state_store.get_many([mark, location.manifest_key])
        if mark in found and state_store.writable:
            await Deletion.resume(state_store, location.session_id)
            found = await state_store.get_many([location.manifest_key])
        entry = found.get(location.manifest_key)
        if entry is None:
            return cls(state_store, location, SnapshotManifest(), None)
        known = decode_manifest(location.manifest_key, entry.value)
        return cls(state_store, location, known, entry.etag)

    @classmethod
    async def open(
        cls, state_store: StateStore, location: SnapshotLocation
    ) -> tuple[Self, Timeline, LoadedState]:
        """Read the current incarnation and its state; again where it is replaced while reading.

        Raises:
            IntegrityError: The log or a keyframe is damaged or missing.

        """
        this = await cls.read(state_store, location)
        for _ in range(ATTEMPTS):
            timeline = this.timeline()
            if not this.is_created:
                return this, timeline, LoadedState.empty()
            problem: Exception
            try:
                loaded = await timeline.open()
                if loaded.end.seq:
                    return this, timeline, loaded
                problem = timeline.log.missing_segment_error(1)
            except (IntegrityError, NotFoundError) as error:
                problem = error
            following = await cls.read(state_store, location)
            if following.etag == this.etag:
                raise problem
            this = following
        raise problem

    @property
    def is_created(self) -> bool:
        """Whether the session exists in the store, as far as is known."""
        return self.manifest.started_at is not None

    def timeline(self) -> Timeline:
        """Return the log and keyframes of this incarnation."""
        return Timeline(self.state_store, self.location.prefix, self.id)

    # ----------------------------------------------------------------------------------- writing

    async def create(
        self,
        puts: Sequence[Put],
        records: Sequence[Put] = (),
        *,
        started_at: dt.datetime,
        active_at: dt.datetime,
        log_start: Position | None = None,
    ) -> None:
        """Create the session with its first segments and keyframes, then its snapshot records.

        Raises:
            ConflictError: Another writer created the session first; nothing of this one is left.

        """
        created = replace(
            self.manifest,
            incarnation=self.id,
            started_at=started_at,
            updated_at=started_at,
            active_at=active_at,
            log_start=log_start or Position(),
        )
        named = Put(
            self.location.manifest_key,
            created.encode(),
            if_match=self.etag,
            if_absent=self.etag is None,
        )
        hidden = [*puts, Put(self._index_key(active_at), INDEX_VALUE)]
        try:
            etags = await self.state_store.put_many([*hidden, named, *records])
        except ConflictError as error:
            if error.key != self.location.manifest_key:
                raise
            if await self._is_named():
                # An earlier attempt of this writer got through, and its answer was lost.
                if records:
                    await self.write([], records, end=Position(), seen=())
                return
            if not self.state_store.atomic_put_many:
                await self._remove(put.key for put in puts)
                await self._remove_index(active_at)
            raise
        self.manifest, self.etag = created, etags[len(hidden)]
        if not self.state_store.atomic_put_many:
            # A deletion that listed these before the manifest named them takes them for leftovers,
            # and deletes them only as it read them: written again, they stay.
            for put in hidden:
                await self.state_store.put(put.key, put.value)

    async def _is_named(self) -> bool:
        """Whether the manifest in the store names this incarnation; if so, take it over."""
        entry = await self.state_store.get(self.location.manifest_key)
        if entry is None:
            return False
        known = decode_manifest(self.location.manifest_key, entry.value)
        if known.incarnation != self.id or known.started_at is None:
            return False
        self.manifest, self.etag = known, entry.etag
        return True

    async def write(
        self,
        puts: Sequence[Put],
        records: Sequence[Put] = (),
        *,
        end: Position,
        seen: Sequence[Segment],
        active_at: dt.datetime | None = None,
    ) -> None:
        """Write segments and records of this incarnation, bound to it.

        ``end`` is where the writer believes the log to end, ``seen`` its last segment, both from
        before this write. ``active_at`` is when the session was last active.

        Raises:
            ReplacedError: The session was deleted, replaced or pruned; nothing is written.
            ConflictError: A condition of one of the puts failed; nothing is written.

        """
        if end.seq < self.manifest.pruned_through:
            raise self._replaced(f"the events up to {self.manifest.pruned_through} were pruned")
        is_due = self._is_index_due(active_at)
        for _ in range(ATTEMPTS):
            try:
                if self.state_store.conditional_put_many:
                    await self._write_conditionally(puts, records, active_at if is_due else None)
                else:
                    await self._write_then_check(puts, records, end, seen)
                    if is_due and active_at is not None:
                        await self._move_index(active_at)
                return
            except ConflictError as error:
                if error.key != self.location.manifest_key or isinstance(error, ReplacedError):
                    raise
            # The manifest changed: pruned, deleted, or changed by its owner.
            await self.refresh(end, seen)
            is_due = self._is_index_due(active_at)
        raise ConflictError(
            f"the manifest {self.location.manifest_key} changed {ATTEMPTS} times in a row; retry",
            key=self.location.manifest_key,
        )

    async def _write_conditionally(
        self, puts: Sequence[Put], records: Sequence[Put], active_at: dt.datetime | None
    ) -> None:
        """Write with the manifest's etag as a condition of the same atomic step."""
        if active_at is None:
            condition = Condition(self.location.manifest_key, self.etag or "")
            await self.state_store.put_many([*puts, *records], conditions=[condition])
            return
        moved = replace(self.manifest, active_at=active_at)
        named = Put(self.location.manifest_key, moved.encode(), if_match=self.etag)
        index = Put(self._index_key(active_at), INDEX_VALUE)
        etags = await self.state_store.put_many([named, *puts, *records, index])
        await self._forget_index()
        self.manifest, self.etag = moved, etags[0]

    async def _write_then_check(
        self, puts: Sequence[Put], records: Sequence[Put], end: Position, seen: Sequence[Segment]
    ) -> None:
        """Write, then read the manifest; remove what was written where it does not stand."""
        batch = [*puts, *records]
        etags = await self.state_store.put_many(batch) if batch else []
        entry = await self.state_store.get(self.location.manifest_key)
        if entry is not None and entry.etag == self.etag:
            return
        try:
            await self.refresh(end, seen)
        except ConflictError:
            for put, etag in zip(batch, etags, strict=True):
                with suppress(ConflictError):
                    await self.state_store.delete(put.key, if_match=etag)
            raise

    async def refresh(self, end: Position, seen: Sequence[Segment]) -> None:
        """Read the manifest again and check that this incarnation still has what a writer saw.

        Raises:
            ReplacedError: It was deleted or replaced, or pruned beyond ``end``.

        """
        mark = deletion_mark_key(self.location.session_id)
        wanted = {mark, self.location.manifest_key, *(each.key for each in seen)}
        found = await self.state_store.get_many(sorted(wanted))
        entry = found.get(self.location.manifest_key)
        known = SnapshotManifest()
        if entry is not None:
            known = decode_manifest(self.location.manifest_key, entry.value)
        if not self.is_created:
            if known.started_at is not None and known.incarnation != self.id:
                raise self._replaced("the session was created by another writer")
        elif mark in found or known.started_at is None or known.incarnation != self.id:
            raise self._replaced("the session was deleted")
        elif end.seq < known.pruned_through:
            raise self._replaced(f"the events up to {known.pruned_through} were pruned")
        elif any(known.pruned_through < each.last and not holds(found, each) for each in seen):
            raise self._replaced(
                "the session was restored from a backup without its last committed events"
            )
        self.manifest, self.etag = known, None if entry is None else entry.etag

    def _replaced(self, problem: str) -> ReplacedError:
        return ReplacedError(problem, key=self.location.manifest_key)

    # ------------------------------------------------------------------------------------- index

    def _is_index_due(self, active_at: dt.datetime | None) -> bool:
        """Whether the index entry lags too far behind the session's activity."""
        before = self.manifest.active_at
        if active_at is None or before is None:
            return False
        return active_at - before >= ACTIVITY_RESOLUTION

    def _index_key(self, active_at: dt.datetime) -> str:
        return index_key(self.location, to_microseconds(active_at))

    async def _move_index(self, active_at: dt.datetime) -> None:
        """Move the index entry on a store without atomic batches, after the commit."""
        moved = replace(self.manifest, active_at=active_at)
        named = Put(self.location.manifest_key, moved.encode(), if_match=self.etag)
        index = Put(self._index_key(active_at), INDEX_VALUE)
        try:
            etags = await self.state_store.put_many([index, named])
        except (ConflictError, StateStoreError) as error:
            # The commit stands; the next one moves the entry.
            logger.info("the index entry of %s was not moved: %s", self.location.prefix, error)
            await self._remove([index.key])
            return
        await self._forget_index()
        self.manifest, self.etag = moved, etags[1]

    async def _remove_index(self, active_at: dt.datetime) -> None:
        """Remove an index entry of this writer, unless it is that of the current session."""
        found = await read_manifests(self.state_store, [self.location])
        if self.location not in found or found[self.location].active_at != active_at:
            await self._remove([self._index_key(active_at)])

    async def _forget_index(self) -> None:
        """Delete the index entry that was replaced by a newer one."""
        if self.manifest.active_at is not None:
            await self._remove([self._index_key(self.manifest.active_at)])

    async def _remove(self, keys: Iterable[str]) -> None:
        """Delete entries that nothing refers to; a failure leaves them to ``verify --repair``."""
        for key in keys:
            try:
                await self.state_store.delete(key)
            except StateStoreError as error:
                logger.info("the entry %s was not removed: %s", key, error)


def holds(found: Mapping[str, Entry], segment: Segment) -> bool:
    """Whether a segment, or its tombstone, is among the entries found."""
    entry = found.get(segment.key)
    return entry is not None and segment.hash.encode() in entry.value


def new_incarnation_id() -> str:
    """Return an id that no other incarnation of a session has."""
    return secrets.token_hex(4)
