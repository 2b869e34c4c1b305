"""The life of a session in the store: where its parts are, and how it is deleted.

Deleting marks the session with the incarnations that are to go, deletes their manifests, then all
that no current manifest names, then the mark. So a crash at any point is finished by the next
reader, and a session that is created under the same id in the middle of it is left alone.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from holdfast.errors import ConflictError, IntegrityError
from holdfast.log.event_log import read_entries
from holdfast.snapshots.envelope import decode_envelope
from holdfast.snapshots.keys import (
    SCOPES,
    SnapshotLocation,
    agent_index_prefix,
    deletion_mark_key,
    index_key,
    parse_index_key,
    parse_location,
    session_prefix,
)
from holdfast.snapshots.manifest import INCARNATION, SnapshotManifest, decode_manifest
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry

AT_ONCE = 100
ROUNDS = 8
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def to_microseconds(moment: dt.datetime) -> int:
    """Microseconds since the epoch."""
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


def from_microseconds(started: int) -> dt.datetime:
    """The moment that microseconds since the epoch stand for."""
    return EPOCH + dt.timedelta(microseconds=started)


async def find_locations(state_store: StateStore, session_id: str) -> list[SnapshotLocation]:
    """The parts of a session, one for each agent or group of agents, without reading them."""
    found = []
    for scope in SCOPES:
        prefix = f"{session_prefix(session_id)}scopes/{scope}/"
        start = ""
        while key := await find_first_key(state_store, prefix, start):
            location = parse_location(key)
            if location is not None:
                found.append(location)
            # 0 follows /: all keys of this part are before it.
            start = "/".join(key.split("/")[:5]) + "0"
    return found


async def find_incarnations(state_store: StateStore, location: SnapshotLocation) -> list[str]:
    """Return the ids of the incarnations that have a log or keyframes, current or not."""
    found: set[str] = set()
    for prefix in (f"{location.prefix}log/", f"{location.prefix}keyframes/"):
        start = ""
        while key := await find_first_key(state_store, prefix, start):
            name, is_folder, _ = key[len(prefix) :].partition("/")
            if is_folder and INCARNATION.fullmatch(name):
                found.add(name)
            # 0 follows /: all keys of this incarnation are before it.
            start = f"{prefix}{name}0" if is_folder else key
    return sorted(found)


async def find_first_key(state_store: StateStore, prefix: str, start_after: str) -> str | None:
    """The first key with a prefix after another, or None."""
    async for key in state_store.list(prefix, start_after=start_after, limit=1):
        return key
    return None


async def delete_session(state_store: StateStore, session_id: str) -> None:
    """Delete everything of a session, or finish a deletion that was interrupted.

    A session that is created under the same id while this runs is not touched.
    """
    if await find_first_key(state_store, session_prefix(session_id), "") is None:
        return
    for _ in range(ROUNDS):
        deletion = await Deletion.begin(state_store, session_id)
        if deletion is not None:
            await deletion.run()
            return
    raise ConflictError(
        f"the session {session_id} is being deleted by several processes; retry",
        key=deletion_mark_key(session_id),
    )


@dataclass(slots=True)
class Deletion:
    """A deletion of some incarnations of a session, as its mark describes it."""

    state_store: StateStore
    session_id: str
    doomed: frozenset[str]
    """The ids of the incarnations that are deleted."""
    etag: str
    """The etag of the mark."""

    @classmethod
    async def begin(cls, state_store: StateStore, session_id: str) -> Deletion | None:
        """Mark the incarnations that exist now, beside those marked already.

        None where another process changed the mark at the same time.
        """
        key = deletion_mark_key(session_id)
        entry = await state_store.get(key)
        doomed = decode_deletion_mark(entry)
        for location in await find_locations(state_store, session_id):
            known = (await read_manifests(state_store, [location])).get(location)
            if known is not None and known.incarnation:
                doomed |= {known.incarnation}
        try:
            etag = await state_store.put(
                key,
                json.dumps({"incarnations": sorted(doomed)}).encode(),
                if_match=None if entry is None else entry.etag,
                if_absent=entry is None,
            )
        except ConflictError:
            return None
        return cls(state_store, session_id, doomed, etag)

    @classmethod
    async def resume(cls, state_store: StateStore, session_id: str) -> None:
        """Finish the deletion that a mark describes, if there is one; delete no more than it."""
        key = deletion_mark_key(session_id)
        entry = await state_store.get(key)
        if entry is not None:
            await cls(state_store, session_id, decode_deletion_mark(entry), entry.etag).run()

    async def run(self) -> None:
        """Delete everything that no manifest of another incarnation names, then the mark."""
        for _ in range(ROUNDS):
            is_done = not await self._delete_manifests()
            # The manifests first: from here on no commit of these incarnations succeeds.
            is_done &= not await self._delete_rest()
            if is_done:
                break
        with suppress(ConflictError):
            await self.state_store.delete(deletion_mark_key(self.session_id), if_match=self.etag)

    async def _delete_manifests(self) -> int:
        places = await find_locations(self.state_store, self.session_id)
        removed = 0
        for location in places:
            entry = (await read_entries(self.state_store, [location.manifest_key])).get(
                location.manifest_key
            )
            known = decode_manifest_or_none(location, entry) if isinstance(entry, Entry) else None
            if known is not None and known.incarnation and known.incarnation not in self.doomed:
                continue
            removed += await self._delete_index(location, known)
            if entry is not None:
                etag = entry.etag if isinstance(entry, Entry) else None
                with suppress(ConflictError):
                    removed += await self.state_store.delete(location.manifest_key, if_match=etag)
        return removed

    async def _delete_index(
        self, location: SnapshotLocation, known: SnapshotManifest | None
    ) -> int:
        """Delete a session's index entries, but not that of a session created since."""
        keys = await find_index_keys(self.state_store, location, known)
        found = await self.state_store.get_many(keys)
        current = (await read_manifests(self.state_store, [location])).get(location)
        kept = ""
        if current is not None and current.incarnation not in self.doomed and current.active_at:
            kept = index_key(location, to_microseconds(current.active_at))
        removed = 0
        for key, entry in found.items():
            if key != kept:
                with suppress(ConflictError):
                    removed += await self.state_store.delete(key, if_match=entry.etag)
        return removed

    async def _delete_rest(self) -> int:
        mark = deletion_mark_key(self.session_id)
        prefix = session_prefix(self.session_id)
        keys = [key async for key in self.state_store.list(prefix) if key != mark]
        # Read after the listing: a session that is created later is not in the list.
        places = {location for key in keys if (location := parse_location(key)) is not None}
        current = await read_manifests(self.state_store, places)
        # Snapshots before keyframes before the log: what is listed until then can be loaded.
        keys.sort(key=lambda key: ("/keyframes/" in key) + 2 * ("/log/" in key))
        removed = 0
        for start in range(0, len(keys), AT_ONCE):
            some = keys[start : start + AT_ONCE]
            for key, entry in (await read_entries(self.state_store, some)).items():
                location = parse_location(key)
                known = None if location is None else current.get(location)
                if (
                    location is not None
                    and known is not None
                    and belongs_to_incarnation(location, key, entry, known.incarnation)
                ):
                    continue
                etag = entry.etag if isinstance(entry, Entry) else None
                with suppress(ConflictError):
                    removed += await self.state_store.delete(key, if_match=etag)
        return removed


def decode_deletion_mark(entry: Entry | None) -> frozenset[str]:
    """Return the incarnations that the mark of a deletion names."""
    if entry is None:
        return frozenset()
    try:
        return frozenset(json.loads(entry.value)["incarnations"])
    except (KeyError, TypeError, ValueError):
        return frozenset()


def belongs_to_incarnation(
    location: SnapshotLocation, key: str, entry: Entry | IntegrityError, incarnation: str
) -> bool:
    """Whether an entry below a location is part of an incarnation, or of none in particular."""
    parts = key[len(location.prefix) :].split("/")
    if parts[0] in ("log", "keyframes"):
        return len(parts) == 3 and parts[1] == incarnation
    if key == location.latest_key or key.startswith(location.history_prefix):
        try:
            record = decode_envelope(key, entry.value, "record") if isinstance(entry, Entry) else {}
        except IntegrityError:
            return True
        return bool(record.get("incarnation", incarnation) == incarnation)
    return True


async def read_manifests(
    state_store: StateStore, places: Iterable[SnapshotLocation]
) -> dict[SnapshotLocation, SnapshotManifest]:
    """Return the manifests of the sessions that exist among some locations.

    One that is damaged is left out.
    """
    wanted = {location.manifest_key: location for location in places}
    found: dict[SnapshotLocation, SnapshotManifest] = {}
    for key, entry in (await read_entries(state_store, wanted)).items():
        known = decode_manifest_or_none(wanted[key], entry) if isinstance(entry, Entry) else None
        if known is not None and known.started_at is not None:
            found[wanted[key]] = known
    return found


def decode_manifest_or_none(location: SnapshotLocation, entry: Entry) -> SnapshotManifest | None:
    """Decode a manifest; None for one that is damaged."""
    try:
        return decode_manifest(location.manifest_key, entry.value)
    except IntegrityError:
        return None


async def find_index_keys(
    state_store: StateStore,
    location: SnapshotLocation,
    known: SnapshotManifest | None = None,
) -> list[str]:
    """Return the keys of a session in its agent's index.

    The manifest says where its entry is. Without one, or where it is not there, all of the agent's
    index is read.
    """
    if known is not None and known.active_at is not None:
        key = index_key(location, to_microseconds(known.active_at))
        if await state_store.get(key) is not None:
            return [key]
    found = []
    async for key in state_store.list(agent_index_prefix(location.scope_id)):
        entry = parse_index_key(key)
        if entry is not None and entry[0] == location:
            found.append(key)
    return found
