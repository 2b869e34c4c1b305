"""Follow the sessions of a store: new ones, new commits and deletions, without loading a session.

A watch on all sessions tells which keys were written, in this process and, if the store wakes other
processes, in those too. Then a change costs a few reads of its session's manifest and log.

Otherwise the sessions are polled, by the index of each agent, which is ordered by last activity:

    top       the newest entries of each agent. A commit moves the entry of its session there,
              unless it was moved within the last seconds (``ACTIVITY_RESOLUTION``).
    active    the next segment of the sessions whose entries moved within ``ACTIVE_SECONDS``.
    whole     now and then the whole index: for deletions, and for forks and imports, which keep the
              place of their origin.

A poll that takes long is followed by a longer pause, so that polling never takes more than a small
part of the time.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from holdfast.errors import IntegrityError, InvalidDocumentError
from holdfast.log.event_log import EventLog
from holdfast.log.segment import decode_segment
from holdfast.log.timeline import Timeline, parse_seq
from holdfast.snapshots.catalog.index import AGENTS, SessionIndex
from holdfast.snapshots.keys import (
    SESSIONS,
    SnapshotLocation,
    agent_index_prefix,
    parse_index_key,
    parse_location,
)
from holdfast.snapshots.manifest import SnapshotManifest, read_manifests
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, read_entries, split_batches
from holdfast.stores.entries import Entry
from holdfast.stores.local import gather

ChangeKind: TypeAlias = Literal["created", "committed", "deleted"]

FIRST_PAUSE, MAX_PAUSE, SAFETY_PAUSE = 0.05, 1.0, 5.0
"""Seconds between polls: the first pause, doubled up to the last; and if the store wakes us."""
MAX_SHARE = 0.05
"""The part of the time that polling may take."""
WHOLE_SECONDS = 60.0
"""How often the whole index is listed."""
ACTIVE_SECONDS = 60.0
"""How long a session is polled after its index entry moved."""
BATCH_SIZE = 64
"""How many changed sessions are read at once."""
TOP_SIZE = 32
"""How many of the newest entries of an agent are listed at once."""


@dataclass(frozen=True, slots=True)
class SessionChange:
    """A session that was created, committed to or deleted."""

    location: SnapshotLocation
    kind: ChangeKind
    seq: int
    """Its last event; 0 if it was deleted."""

    @property
    def agent_id(self) -> str:
        """The agent, or the group of agents."""
        return self.location.scope_id

    @property
    def session_id(self) -> str:
        """The session."""
        return self.location.session_id


@dataclass(slots=True)
class KnownSession:
    """What a follower knows of a session."""

    active_at: dt.datetime | None = None
    """The time of its index entry."""
    incarnation: str | None = None
    """None if the session was not read yet."""
    seq: int = 0


class CatalogFollower:
    """Finds out which sessions of a store, or of one agent, change."""

    def __init__(self, state_store: StateStore, agent_id: str | None = None) -> None:
        self._state_store = state_store
        self._agent_id = agent_id
        self._index = SessionIndex(state_store)
        self._known: dict[SnapshotLocation, KnownSession] = {}
        self._active: dict[SnapshotLocation, float] = {}
        """Until when each session that was active recently is polled."""
        self._next_whole = 0.0

    async def changes(self) -> AsyncGenerator[SessionChange, None]:
        """Yield the changes from now on."""
        async with self._state_store.watch(SESSIONS) as watch:
            await self._start()
            early: Collection[str] = watch.take_keys() or ()
            self._forget_early(early)
            pause, next_poll = FIRST_PAUSE, time.monotonic() + FIRST_PAUSE
            while True:
                await watch.wait(max(0.0, next_poll - time.monotonic()))
                keys = watch.take_keys()
                started = time.monotonic()
                is_poll = keys is None or started >= next_poll
                changed = self._parse_keys([*(keys or ()), *early])
                early = ()
                if is_poll:
                    changed |= await self._poll()
                changes: list[SessionChange] = []
                for batch in split_batches(list(changed), BATCH_SIZE):
                    changes += await self._read_changes(batch)
                if is_poll:
                    now = time.monotonic()
                    pause = FIRST_PAUSE if changes else min(2 * pause, MAX_PAUSE)
                    if watch.hears_others:
                        pause = SAFETY_PAUSE
                    next_poll = now + max(pause, (now - started) / MAX_SHARE)
                for change in changes:
                    yield change

    # ----------------------------------------------------------------------------------- polling

    async def _start(self) -> None:
        """Remember what is there, and read the sessions that were active just now."""
        now = dt.datetime.now(dt.UTC)
        await self._list_whole()
        active = [
            location
            for location, known in self._known.items()
            if known.active_at is not None
            and (now - known.active_at).total_seconds() < ACTIVE_SECONDS
        ]
        for batch in split_batches(active, BATCH_SIZE):
            await self._read_changes(batch)

    def _forget_early(self, keys: Collection[str]) -> None:
        """Forget what was written during the start, so that it counts as a change."""
        for location in self._parse_keys(keys):
            known = self._known.get(location)
            if known is None:
                continue
            if self._log(location, known).key(1) in keys:
                del self._known[location]
            else:
                known.incarnation, known.seq = None, 0

    async def _poll(self) -> set[SnapshotLocation]:
        """Return the sessions that may have changed."""
        changed = await self._find_active()
        if time.monotonic() >= self._next_whole:
            return changed | await self._list_whole()
        agents = [self._agent_id] if self._agent_id is not None else await self._index.agents()
        for found in await gather(map(self._list_top, agents)):
            changed |= found
        return changed

    async def _list_top(self, agent_id: str) -> set[SnapshotLocation]:
        """List the newest sessions of an agent, as far as they have changed."""
        changed: set[SnapshotLocation] = set()
        prefix, start = agent_index_prefix(agent_id), ""
        while True:
            listing = self._state_store.list(prefix, start_after=start, limit=TOP_SIZE)
            keys = [key async for key in listing]
            found = {location for key in keys if (location := self._find_moved(key)) is not None}
            changed |= found
            if not found or len(keys) < TOP_SIZE:
                return changed
            start = keys[-1]

    async def _list_whole(self) -> set[SnapshotLocation]:
        """List the whole index, and return the sessions that are new, moved or gone."""
        started = time.monotonic()
        prefix = AGENTS if self._agent_id is None else agent_index_prefix(self._agent_id)
        is_first = not self._next_whole
        changed: set[SnapshotLocation] = set()
        listed: set[SnapshotLocation] = set()
        async for key in self._state_store.list(prefix):
            parsed = parse_index_key(key)
            if parsed is None:
                continue
            listed.add(parsed[0])
            if is_first:
                known = self._known.setdefault(parsed[0], KnownSession())
                known.active_at = max(filter(None, (known.active_at, parsed[1])))
            elif self._find_moved(key) is not None:
                changed.add(parsed[0])
        now = time.monotonic()
        self._next_whole = now + max(WHOLE_SECONDS, (now - started) / MAX_SHARE)
        return changed | (self._known.keys() - listed)

    def _find_moved(self, key: str) -> SnapshotLocation | None:
        """Return the session of an index key if its entry is new or later than the known one."""
        parsed = parse_index_key(key)
        if parsed is None:
            return None
        location, active_at = parsed
        known = self._known.get(location)
        if known is None:
            return location
        if known.active_at is not None and active_at <= known.active_at:
            return None
        known.active_at = active_at  # a stale key, which a crash left, counts once
        return location

    async def _find_active(self) -> set[SnapshotLocation]:
        """Return the recently active sessions that have a next segment."""
        now = time.monotonic()
        self._active = {each: until for each, until in self._active.items() if until > now}
        wanted = {
            self._log(each, known).key(known.seq + 1): each
            for each in self._active
            if (known := self._known.get(each)) is not None
        }
        return {wanted[key] async for key, _ in iterate_entries(self._state_store, wanted)}

    # ----------------------------------------------------------------------------------- reading

    def _parse_keys(self, keys: Iterable[str]) -> set[SnapshotLocation]:
        """Return the sessions whose log or manifest was written."""
        found = set()
        for key in keys:
            location = parse_location(key)
            if location is None or self._agent_id not in (None, location.scope_id):
                continue
            if key == location.manifest_key or key.startswith(f"{location.prefix}log/"):
                found.add(location)
        return found

    async def _read_changes(self, changed: Collection[SnapshotLocation]) -> list[SessionChange]:
        """Return how sessions have changed, of those that may have."""
        if not changed:
            return []
        manifests = await read_manifests(self._state_store, changed)
        existing = [location for location in changed if location in manifests]
        seqs = await gather(self._read_seq(each, manifests[each]) for each in existing)
        found = [
            change
            for location, seq in zip(existing, seqs, strict=True)
            if (change := self._update(location, manifests[location], seq)) is not None
        ]
        gone = [each for each in changed if each in self._known and each not in manifests]
        damaged = await read_entries(self._state_store, [each.manifest_key for each in gone])
        for location in gone:
            if location.manifest_key not in damaged:
                del self._known[location]
                self._active.pop(location, None)
                found.append(SessionChange(location, "deleted", 0))
        return found

    def _update(
        self, location: SnapshotLocation, manifest: SnapshotManifest, seq: int
    ) -> SessionChange | None:
        """Remember a session as it was read, and return how it changed."""
        known = self._known.get(location)
        is_new = known is None or known.incarnation not in (None, manifest.incarnation)
        is_same = known is not None and not is_new and known.seq == seq
        times = [manifest.active_at, None if known is None else known.active_at]
        active_at = max(filter(None, times), default=None)
        if known is None or known.active_at != manifest.active_at or not is_same:
            self._active[location] = time.monotonic() + ACTIVE_SECONDS
        self._known[location] = KnownSession(active_at, manifest.incarnation, seq)
        if is_same:
            return None
        return SessionChange(location, "created" if is_new else "committed", seq)

    async def _read_seq(self, location: SnapshotLocation, manifest: SnapshotManifest) -> int:
        """Return the last event of a session."""
        timeline = Timeline(self._state_store, location.prefix, manifest.incarnation)
        known = self._known.get(location)
        keys: Sequence[str] = ()
        if known is not None and known.incarnation == manifest.incarnation:
            keys = await timeline.log.keys(known.seq)
        if keys:
            key, seq = keys[-1], 0
        else:
            # Also if it was read before: restored from a backup, it ends before that.
            key, seq = await timeline.change_token()
        if not key:
            return max(seq, manifest.log_start.seq)
        entry = (await read_entries(self._state_store, [key])).get(key)
        if isinstance(entry, Entry):
            try:
                return decode_segment(key, entry.value).last
            except (IntegrityError, InvalidDocumentError):
                pass
        return parse_seq(key, timeline.log.prefix)  # damaged: ``verify`` says more

    def _log(self, location: SnapshotLocation, known: KnownSession) -> EventLog:
        return EventLog(self._state_store, location.prefix, known.incarnation or "")
