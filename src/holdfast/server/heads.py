"""Where sessions end, read with one batch of keys.

What was read of a log stays valid while the log only grows. So the last segment of each session is
remembered, and a request reads three keys in one batch: the manifest, that segment, and the one
that would follow it. If the segment still has its etag and nothing follows, the session did not
change, whichever process writes to it. If others follow, they are read and checked to continue the
chain. Otherwise the session was replaced, restored from a backup or damaged: it gets a new
*generation*, and nothing that was cached under another generation is used again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.errors import HoldfastError, IntegrityError
from holdfast.log.event_log import PAGE_SIZE, EventLog, Position
from holdfast.log.keyframe import decode_keyframe
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline
from holdfast.server.byte_cache import ByteCache
from holdfast.snapshots.discovery import find_first_key
from holdfast.snapshots.history import find_newest_key
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.lookup import find_latest_info
from holdfast.snapshots.manifest import SnapshotManifest, StoredManifest, select_manifest
from holdfast.snapshots.records import SnapshotInfo
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry
from holdfast.stores.local import run_in_thread

MAX_SESSIONS = 10_000
"""Sessions whose ends are remembered."""

generations = itertools.count(1)


@dataclass(frozen=True, slots=True)
class SessionHead:
    """The end of a session's log, as it was just read."""

    location: SnapshotLocation
    stored: StoredManifest = field(default_factory=StoredManifest)
    end: Position | None = None
    """The last position; None if the log is damaged there."""
    witness: tuple[str, str] | None = None
    """The key and the etag of the last segment, or of a keyframe at its end; None if the log is
    empty."""
    problem: HoldfastError | None = None
    generation: int = field(default_factory=lambda: next(generations))
    """The same as long as the log only grows, in this process."""
    next_key: str = ""
    """The key of the segment that would follow."""

    @property
    def manifest(self) -> SnapshotManifest:
        """The manifest; an empty one if there is none."""
        return self.stored.manifest

    @property
    def is_intact(self) -> bool:
        """Whether the end of the log is known from its last segment, or from the manifest."""
        return self.witness is not None or self.end == self.manifest.log_start

    @property
    def position(self) -> Position:
        """The last position in the log.

        Raises:
            HoldfastError: The log is damaged there.

        """
        if self.end is None:
            raise self.problem or IntegrityError(f"the log of {self.location.prefix} is damaged")
        return self.end

    def log(self, state_store: StateStore) -> EventLog:
        """Return the log."""
        return EventLog(state_store, self.location.prefix, self.manifest.incarnation)

    def timeline(self, state_store: StateStore) -> Timeline:
        """Return the log and the keyframes."""
        return Timeline(state_store, self.location.prefix, self.manifest.incarnation)


@dataclass(frozen=True, slots=True)
class LatestSnapshot:
    """The latest snapshot of a session, and the entries that change if another one is saved."""

    info: SnapshotInfo | None
    incarnation: str
    history_prefix: str
    newest_key: str
    """The last key in the history."""
    etags: Mapping[str, str | None]


class HeadReader:
    """Reads the ends of sessions, and remembers them."""

    def __init__(self, state_store: StateStore) -> None:
        self._state_store = state_store
        self._heads: ByteCache[SnapshotLocation, SessionHead] = ByteCache(MAX_SESSIONS)
        self._latest: ByteCache[SnapshotLocation, LatestSnapshot] = ByteCache(MAX_SESSIONS)

    async def read(self, location: SnapshotLocation) -> SessionHead | None:
        """Return the end of a session; None if it has no manifest.

        Raises:
            IntegrityError: The manifest is damaged.

        """
        return (await self._read(location, ()))[0]

    async def _read(
        self, location: SnapshotLocation, more: Iterable[str]
    ) -> tuple[SessionHead | None, Mapping[str, Entry]]:
        """Return the end of a session, and the entries of more keys that are read with it."""
        known = self._heads.get(location)
        manifest_key = location.manifest_key
        keys = [manifest_key, *more]
        if known is not None:
            keys.append(known.next_key)
            if known.witness is not None:
                keys.append(known.witness[0])
        entries = await self._state_store.get_many(keys)
        if manifest_key not in entries:
            return None, entries
        head = None
        if known is not None and known.stored.etag == entries[manifest_key].etag:
            head = await self._advance(known, entries)
        if head is None:
            stored = select_manifest(location, entries)
            if stored.manifest.is_claim:
                return None, entries
            if known is not None and known.manifest.incarnation == stored.manifest.incarnation:
                head = await self._advance(replace(known, stored=stored), entries)
            if head is None:
                head = await self._find_head(location, stored)
        if head.is_intact and head is not known:
            head = replace(head, next_key=head.log(self._state_store).key(head.position.seq + 1))
            self._heads.put(location, head)
        return head, entries

    async def read_with_latest(
        self, location: SnapshotLocation
    ) -> tuple[SessionHead | None, SnapshotInfo | None]:
        """Return the end of a session, and the record of its latest snapshot.

        Raises:
            IntegrityError: The manifest or the record is damaged.

        """
        known = self._latest.get(location)
        head, entries = await self._read(location, () if known is None else known.etags)
        if head is None:
            return None, None
        if (
            known is not None
            and known.incarnation == head.manifest.incarnation
            and known.etags == get_etags(entries, known.etags)
            and not await find_first_key(self._state_store, known.history_prefix, known.newest_key)
        ):
            return head, known.info
        return head, await self._find_latest(head)

    async def _find_latest(self, head: SessionHead) -> SnapshotInfo | None:
        """Find the latest snapshot, and remember it."""
        location = head.location
        # Read before the record: a snapshot saved in between is then found by the next request.
        newest = await find_newest_key(self._state_store, location)
        keys = [location.latest_key] if newest is None else [newest.key, location.latest_key]
        entries = await self._state_store.get_many(keys)
        info = await find_latest_info(self._state_store, location)
        if info is None or newest is None or info.snapshot_id == newest.snapshot_id:
            found = LatestSnapshot(
                info,
                head.manifest.incarnation,
                location.history_prefix,
                "" if newest is None else newest.key,
                get_etags(entries, keys),
            )
            self._latest.put(location, found)
        return info

    async def _advance(self, head: SessionHead, entries: Mapping[str, Entry]) -> SessionHead | None:
        """Return the end of a log that may have grown; None if it does not continue."""
        if head.witness is None:
            if head.end != head.manifest.log_start:
                return None
        elif get_etags(entries, head.witness[:1]) != dict([head.witness]):
            return None
        if head.next_key not in entries:
            return head
        log = head.log(self._state_store)
        while True:
            page = await log.page(head.position.seq)
            for key, entry in page.items():
                if entry is None or key != log.key(head.position.seq + 1):
                    return None
                try:
                    segment = decode_segment(key, entry.value)
                except IntegrityError:
                    return None
                if segment.prev != head.position.hash:
                    return None
                end = Position(segment.last, segment.hash)
                head = replace(head, end=end, witness=(key, entry.etag))
            if len(page) < PAGE_SIZE:
                return head

    async def _find_head(self, location: SnapshotLocation, stored: StoredManifest) -> SessionHead:
        """Return the end of a log that is not known, in a new generation."""
        head = SessionHead(location, stored)
        timeline = head.timeline(self._state_store)
        key, keyframe = await timeline.change_token()
        if not key and not keyframe:
            return replace(head, end=head.manifest.log_start)
        key = key or timeline.key(keyframe)
        entry = await self._state_store.get(key)
        with suppress(IntegrityError):
            if entry is not None:
                if key == timeline.key(keyframe):
                    frame = await run_in_thread(decode_keyframe, key, entry.value)
                    end = Position(frame.seq, frame.hash)
                else:
                    segment = decode_segment(key, entry.value)
                    end = Position(segment.last, segment.hash)
                return replace(head, end=end, witness=(key, entry.etag))
        return await self._load_head(head)

    async def _load_head(self, head: SessionHead) -> SessionHead:
        """Return the end of a log whose last segment is damaged; a keyframe may make up for it."""
        try:
            end = (await head.timeline(self._state_store).load()).end
        except HoldfastError as error:
            return replace(head, problem=error)
        return replace(head, end=end)


def get_etags(entries: Mapping[str, Entry], keys: Iterable[str]) -> dict[str, str | None]:
    """Return the etags of some keys; None for those that do not exist."""
    return {key: entries[key].etag if key in entries else None for key in keys}
