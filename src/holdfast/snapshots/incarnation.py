"""One incarnation of a session: the manifest that names it, and the condition on every write.

A session that is deleted and created again under the same id is a new incarnation. Its log and its
keyframes are stored below the incarnation's id, so a writer of the old one writes where nothing
reads. The manifest names the current incarnation, and a commit succeeds only while it does:

    creation   segments and keyframes, the index entry, then the manifest ``if_absent``. Nothing is
               visible before the manifest, so of two creators one gets a conflict. A crash leaves
               entries that no manifest names, which a repair or a deletion deletes. On a store
               without atomic batches the manifest first gets the id as ``creating``, and then the
               name on the condition that it is unchanged: so a deletion knows which entries will
               be named, and a creator whose entries it deleted gets a conflict.
    commit     on a store with ``conditional_put_many`` the manifest's etag is a condition of the
               same atomic write. Elsewhere the manifest is read after the write and before the
               write is acknowledged; if it changed, what was written is deleted again.
    activity   the agent's index is ordered by last activity, to within ``ACTIVITY_RESOLUTION``.
               A commit moves the entry once it is older than that.

Pruning rewrites the manifest too, so the same condition keeps a writer from committing on top of
events that were pruned.
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
from holdfast.log.segment import Segment, decode_segment
from holdfast.log.timeline import LoadedState, Timeline
from holdfast.snapshots.delete import Deletion, decode_deletion_mark
from holdfast.snapshots.keys import SnapshotLocation, deletion_mark_key, index_key
from holdfast.snapshots.manifest import (
    SnapshotManifest,
    StoredManifest,
    read_manifest,
    read_manifests,
    select_manifest,
)
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


class SweptError(ConflictError):
    """A prune looked for blobs to delete since the writer stored its own: it has to do so again."""


class Incarnation:
    """One incarnation of a session, as a writer last read it.

    ``manifest`` and ``etag`` are what was read; ``etag`` is None if there was no manifest.
    """

    def __init__(
        self,
        state_store: StateStore,
        location: SnapshotLocation,
        stored: StoredManifest | None = None,
    ) -> None:
        stored = stored or StoredManifest()
        self.state_store = state_store
        self.location = location
        self._use(stored.manifest, stored.etag)
        self.id = self.manifest.incarnation or new_incarnation_id()
        self._is_claimed = False

    def _use(self, manifest: SnapshotManifest, etag: str | None) -> None:
        """Continue with a manifest that was read or written."""
        self.manifest = manifest
        self.etag = etag
        # Computed here, because every commit needs them.
        self.is_created = manifest.is_created
        """Whether the session exists in the store, as last read."""
        self._pruned_through = manifest.pruned_through
        self._condition = Condition(self.location.manifest_key, etag or "")

    @classmethod
    async def read(cls, state_store: StateStore, location: SnapshotLocation) -> Self:
        """Read the current incarnation, or prepare a new one if there is no session.

        An interrupted deletion is finished first.

        Raises:
            IntegrityError: The manifest is damaged.

        """
        mark = deletion_mark_key(location.session_id)
        found = await state_store.get_many([mark, location.manifest_key])
        if mark in found and state_store.writable:
            await Deletion.resume(state_store, location.session_id)
            found = await state_store.get_many([location.manifest_key])
        return cls(state_store, location, select_manifest(location, found))

    @classmethod
    async def open(
        cls, state_store: StateStore, location: SnapshotLocation
    ) -> tuple[Self, Timeline, LoadedState]:
        """Read the current incarnation and its state, again if it is replaced while reading.

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
            ConflictError: Another writer created the session first; nothing was written.

        """
        created = replace(
            self.manifest,
            incarnation=self.id,
            started_at=started_at,
            updated_at=started_at,
            active_at=active_at,
            log_start=log_start or Position(),
            creating="",
        )
        hidden = [*puts, Put(self._index_key(active_at), INDEX_VALUE)]
        try:
            if not self.state_store.atomic_put_many:
                await self.claim(started_at=started_at, active_at=active_at)
            named = self._put_manifest(created)
            etags = await self.state_store.put_many([*hidden, named, *records])
        except ConflictError as error:
            if error.key != self.location.manifest_key:
                raise
            if await self._is_named():
                # An earlier attempt of this writer succeeded, and the response was lost.
                if records:
                    await self.write([], records, end=Position(), seen=())
                return
            if not self.state_store.atomic_put_many:
                await self._delete(put.key for put in puts)
                await self._delete_index(active_at)
            raise
        self._use(created, etags[len(hidden)])

    async def claim(self, *, started_at: dt.datetime, active_at: dt.datetime) -> None:
        """Note that this incarnation is about to be created, so that a deletion spares its entries.

        Raises:
            ConflictError: Another writer created or claimed the session; nothing was written.

        """
        if self._is_claimed:
            return
        claim = replace(
            self.manifest,
            incarnation="",
            started_at=None,
            updated_at=started_at,
            active_at=active_at,
            log_start=Position(),
            creating=self.id,
        )
        (self.etag,) = await self.state_store.put_many([self._put_manifest(claim)])
        self._is_claimed = True

    def _put_manifest(self, manifest: SnapshotManifest) -> Put:
        """Return the write of a manifest, if it has not changed since it was read."""
        return Put(
            self.location.manifest_key,
            manifest.encode(),
            if_match=self.etag,
            if_absent=self.etag is None,
        )

    async def _is_named(self) -> bool:
        """Tell whether the stored manifest names this incarnation; if so, adopt it."""
        stored = await read_manifest(self.state_store, self.location)
        if stored.manifest.incarnation != self.id or not stored.manifest.is_created:
            return False
        self._use(stored.manifest, stored.etag)
        return True

    async def write(
        self,
        puts: Sequence[Put],
        records: Sequence[Put] = (),
        *,
        end: Position,
        seen: Sequence[Segment],
        active_at: dt.datetime | None = None,
        sweeps: int | None = None,
        written: Position | None = None,
    ) -> None:
        """Write segments and records, provided that this incarnation is still current.

        ``end`` is the head of the log as the writer knows it, and ``seen`` its last segment, both
        before this write. ``active_at`` is when the session was last active. ``sweeps`` is the
        count of sweeps at which the blobs were stored that the segments refer to. ``written`` is
        the head of the log after this write.

        Raises:
            ReplacedError: The session was deleted, replaced or pruned; nothing was written.
            SweptError: Blobs were swept since; nothing was written.
            ConflictError: A condition of one of the puts failed; nothing was written.

        """
        if end.seq < self._pruned_through:
            raise self._replaced(f"the events up to {self._pruned_through} were pruned")
        is_due = self._is_index_due(active_at)
        for _ in range(ATTEMPTS):
            try:
                if not self.state_store.conditional_put_many:
                    await self._write_then_check(puts, records, end, seen, written)
                    if active_at is not None and is_due:
                        await self._move_index(active_at)
                elif active_at is not None and is_due:
                    await self._write_and_move_index(puts, records, active_at)
                else:
                    # The manifest's etag is a condition of the same atomic step.
                    await self.state_store.put_many(
                        [*puts, *records], conditions=(self._condition,)
                    )
                return
            except ConflictError as error:
                if error.key != self.location.manifest_key or isinstance(error, ReplacedError):
                    raise
            # The manifest changed: the session was pruned or deleted, or save_manifest was called.
            await self.refresh(end, seen)
            if sweeps is not None and self.manifest.blob_sweeps != sweeps:
                raise SweptError(
                    f"blobs in {self.location.prefix} were swept {ATTEMPTS} times in a row; retry",
                    key=self.location.manifest_key,
                )
            is_due = self._is_index_due(active_at)
        raise ConflictError(
            f"manifest {self.location.manifest_key} changed {ATTEMPTS} times in a row; retry",
            key=self.location.manifest_key,
        )

    async def _write_and_move_index(
        self, puts: Sequence[Put], records: Sequence[Put], active_at: dt.datetime
    ) -> None:
        """Write with the index entry and the manifest, in one atomic step."""
        moved = replace(self.manifest, active_at=active_at)
        named = self._put_manifest(moved)
        index = Put(self._index_key(active_at), INDEX_VALUE)
        etags = await self.state_store.put_many([named, *puts, *records, index])
        await self._delete_replaced_index()
        self._use(moved, etags[0])

    async def _write_then_check(
        self,
        puts: Sequence[Put],
        records: Sequence[Put],
        end: Position,
        seen: Sequence[Segment],
        written: Position | None,
    ) -> None:
        """Write, then read the manifest, and delete what was written if it changed."""
        batch = [*puts, *records]
        etags = await self.state_store.put_many(batch) if batch else []
        entry = await self.state_store.get(self.location.manifest_key)
        if entry is not None and entry.etag == self.etag:
            return
        try:
            await self.refresh(end, seen)
        except ConflictError:
            if written is not None and await self._is_in_log(written):
                # A prune saw the segment before this check, and must not lose it.
                if not records or await self._is_pruned_at(end=written):
                    return
                batch, etags = batch[len(puts) :], etags[len(puts) :]
            for put, etag in zip(batch, etags, strict=True):
                with suppress(ConflictError):
                    await self.state_store.delete(put.key, if_match=etag)
            raise

    async def _is_pruned_at(self, *, end: Position) -> bool:
        """Tell whether a prune made the log of this incarnation start at a position."""
        stored = await read_manifest(self.state_store, self.location)
        manifest = stored.manifest
        if not manifest.is_created or manifest.incarnation != self.id:
            return False
        if end not in (manifest.log_start, manifest.pending_log_start):
            return False
        self._use(manifest, stored.etag)
        return True

    async def _is_in_log(self, end: Position) -> bool:
        """Tell whether the log starts at a position or continues there."""
        if await self._is_pruned_at(end=end):
            return True
        key = self.timeline().log.key(end.seq + 1)
        entry = await self.state_store.get(key)
        if entry is None or decode_segment(key, entry.value).prev != end.hash:
            return False
        stored = await read_manifest(self.state_store, self.location)
        if not stored.manifest.is_created or stored.manifest.incarnation != self.id:
            return False
        self._use(stored.manifest, stored.etag)
        return True

    async def refresh(
        self, end: Position, seen: Sequence[Segment], following: str | None = None
    ) -> bool:
        """Read the manifest again, and verify that the log still has what a writer read.

        Return whether the key ``following`` exists, which is read with the rest.

        Raises:
            ReplacedError: The session was deleted or replaced, or pruned beyond ``end``.

        """
        mark = deletion_mark_key(self.location.session_id)
        wanted = {mark, self.location.manifest_key, *(each.key for each in seen)}
        if following is not None:
            wanted.add(following)
        found = await self.state_store.get_many(sorted(wanted))
        entry = found.get(self.location.manifest_key)
        stored = StoredManifest(self.manifest, self.etag)
        if entry is None or entry.etag != self.etag:
            stored = select_manifest(self.location, found)
        known = stored.manifest
        if not self.is_created:
            if known.is_created and known.incarnation != self.id:
                raise self._replaced("the session was created by another writer")
        elif (
            self.id in decode_deletion_mark(found.get(mark))
            or not known.is_created
            or known.incarnation != self.id
        ):
            raise self._replaced("the session was deleted")
        elif end.seq < known.pruned_through:
            raise self._replaced(f"the events up to {known.pruned_through} were pruned")
        elif any(known.pruned_through < each.last and not holds(found, each) for each in seen):
            raise self._replaced(
                "the session was restored from a backup without its last committed events"
            )
        self._use(known, stored.etag)
        return following in found

    def _replaced(self, problem: str) -> ReplacedError:
        return ReplacedError(problem, key=self.location.manifest_key)

    # ------------------------------------------------------------------------------------- index

    def _is_index_due(self, active_at: dt.datetime | None) -> bool:
        """Tell whether the index entry lags too far behind the session's activity."""
        before = self.manifest.active_at
        if active_at is None or before is None:
            return False
        return active_at - before >= ACTIVITY_RESOLUTION

    def _index_key(self, active_at: dt.datetime) -> str:
        return index_key(self.location, active_at)

    async def _move_index(self, active_at: dt.datetime) -> None:
        """Move the index entry on a store without atomic batches, after the commit."""
        moved = replace(self.manifest, active_at=active_at)
        named = self._put_manifest(moved)
        index = Put(self._index_key(active_at), INDEX_VALUE)
        try:
            etags = await self.state_store.put_many([index, named])
        except (ConflictError, StateStoreError) as error:
            # The commit succeeded; the next one moves the entry.
            logger.info("index entry of %s was not moved: %s", self.location.prefix, error)
            if isinstance(error, ConflictError):
                # After another error the manifest may have been written, which needs this entry.
                await self._delete([index.key])
            return
        await self._delete_replaced_index()
        self._use(moved, etags[1])

    async def _delete_index(self, active_at: dt.datetime) -> None:
        """Delete an index entry of this writer, unless it is that of the current session."""
        found = await read_manifests(self.state_store, [self.location], creating=True)
        if self.location not in found or found[self.location].active_at != active_at:
            await self._delete([self._index_key(active_at)])

    async def _delete_replaced_index(self) -> None:
        """Delete the index entry that was replaced by a newer one."""
        if self.manifest.active_at is not None:
            await self._delete([self._index_key(self.manifest.active_at)])

    async def _delete(self, keys: Iterable[str]) -> None:
        """Delete entries that nothing refers to; what fails is left to ``verify --repair``."""
        for key in keys:
            try:
                await self.state_store.delete(key)
            except StateStoreError as error:
                logger.info("entry %s was not deleted: %s", key, error)


def holds(found: Mapping[str, Entry], segment: Segment) -> bool:
    """Tell whether a segment, or its tombstone, is among entries."""
    entry = found.get(segment.key)
    return entry is not None and segment.hash.encode() in entry.value


def new_incarnation_id() -> str:
    """Return a new random id."""
    return secrets.token_hex(4)
