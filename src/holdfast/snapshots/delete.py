"""Delete a session, or what some of its agents stored of it.

A deletion marks the session with the incarnations to delete, deletes their manifests, then every
entry that no current manifest names, then the mark. After a crash the next reader resumes it. A
session that is created under the same id in the middle of a deletion is left alone.

Blobs belong to no incarnation in particular. They are deleted if no session exists or is being
created, on the condition that they are unchanged since before the manifests were read: a creator
claims the session in the manifest before it writes its blobs. Otherwise a prune of the new session
deletes those that it does not need.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from holdfast.blobs.keys import blobs_prefix, parse_chunk_key
from holdfast.blobs.reader import CHUNKS_PER_READ
from holdfast.errors import ConflictError, IntegrityError
from holdfast.snapshots.discovery import find_first_key, find_index_keys, find_locations
from holdfast.snapshots.envelope import decode_envelope
from holdfast.snapshots.keys import (
    SnapshotLocation,
    deletion_mark_key,
    index_key,
    parse_location,
    session_prefix,
)
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest, read_manifests
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, read_entries, split_batches
from holdfast.stores.entries import Entry

ATTEMPTS = 8


async def delete_session(state_store: StateStore, session_id: str) -> None:
    """Delete everything stored of a session, or finish an interrupted deletion.

    A session that is created under the same id at the same time is not touched.

    Raises:
        ConflictError: Other processes delete the session at the same time; retry.

    """
    if await find_first_key(state_store, session_prefix(session_id)) is not None:
        await run_deletion(state_store, session_id, None)


async def delete_locations(
    state_store: StateStore, session_id: str, locations: Collection[SnapshotLocation]
) -> None:
    """Delete what some agents stored of a session; its other agents keep theirs.

    An interrupted deletion is finished.

    Raises:
        ConflictError: Other processes delete the session at the same time; retry.

    """
    stored = set(await find_locations(state_store, session_id))
    if stored.isdisjoint(locations):
        await Deletion.resume(state_store, session_id)
    else:
        await run_deletion(state_store, session_id, frozenset(locations))


async def delete_incarnation(
    state_store: StateStore, location: SnapshotLocation, incarnation: str
) -> None:
    """Delete one incarnation of what an agent stored of a session, but not a later one.

    Raises:
        ConflictError: Other processes delete the session at the same time; retry.

    """
    await run_deletion(
        state_store, location.session_id, frozenset({location}), frozenset({incarnation})
    )


async def run_deletion(
    state_store: StateStore,
    session_id: str,
    locations: frozenset[SnapshotLocation] | None,
    incarnations: frozenset[str] | None = None,
) -> None:
    """Delete some locations of a session, or all; of these some incarnations, or the current ones.

    Raises:
        ConflictError: Other processes delete the session at the same time; retry.

    """
    for _ in range(ATTEMPTS):
        deletion = await Deletion.start(state_store, session_id, locations, incarnations)
        if deletion is not None:
            await deletion.run()
            return
    raise ConflictError(
        f"session {session_id} is being deleted by several processes; retry",
        key=deletion_mark_key(session_id),
    )


@dataclass(slots=True)
class Deletion:
    """A deletion of some incarnations of a session, as its mark describes it."""

    state_store: StateStore
    session_id: str
    incarnations: frozenset[str]
    """The ids of the incarnations to delete."""
    locations: frozenset[SnapshotLocation] | None
    """The locations to delete; None for all."""
    etag: str
    """The etag of the mark."""

    @classmethod
    async def start(
        cls,
        state_store: StateStore,
        session_id: str,
        locations: frozenset[SnapshotLocation] | None = None,
        incarnations: frozenset[str] | None = None,
    ) -> Deletion | None:
        """Mark incarnations, by default the current ones, besides those that are marked already.

        Return None if another process changed the mark at the same time.
        """
        key = deletion_mark_key(session_id)
        entry = await state_store.get(key)
        if incarnations is None:
            found = await find_locations(state_store, session_id)
            wanted = [each for each in found if locations is None or each in locations]
            current = await read_manifests(state_store, wanted, creating=True)
            incarnations = frozenset(manifest.live_incarnation for manifest in current.values())
        incarnations |= decode_deletion_mark(entry)
        if entry is not None:
            marked = decode_marked_locations(entry, session_id)
            locations = None if locations is None or marked is None else locations | marked
        content: dict[str, object] = {"incarnations": sorted(incarnations)}
        if locations is not None:
            content["scopes"] = sorted([each.scope, each.scope_id] for each in locations)
        try:
            etag = await state_store.put(
                key,
                json.dumps(content).encode(),
                if_match=None if entry is None else entry.etag,
                if_absent=entry is None,
            )
        except ConflictError:
            return None
        return cls(state_store, session_id, incarnations, locations, etag)

    @classmethod
    async def resume(cls, state_store: StateStore, session_id: str) -> None:
        """Finish the deletion that a mark describes, if there is one."""
        key = deletion_mark_key(session_id)
        entry = await state_store.get(key)
        if entry is not None:
            incarnations = decode_deletion_mark(entry)
            locations = decode_marked_locations(entry, session_id)
            await cls(state_store, session_id, incarnations, locations, entry.etag).run()

    async def run(self) -> None:
        """Delete everything that the manifest of no other incarnation names, then the mark."""
        for _ in range(ATTEMPTS):
            # The manifests first: from then on no commit of these incarnations succeeds.
            deleted = await self._delete_manifests()
            deleted += await self._delete_entries()
            if not deleted:
                break
        with suppress(ConflictError):
            await self.state_store.delete(deletion_mark_key(self.session_id), if_match=self.etag)

    async def _delete_manifests(self) -> int:
        deleted = 0
        for location in await find_locations(self.state_store, self.session_id):
            if self.locations is not None and location not in self.locations:
                continue
            key = location.manifest_key
            entry = (await read_entries(self.state_store, [key])).get(key)
            manifest = None
            if isinstance(entry, Entry):
                with suppress(IntegrityError):
                    manifest = decode_manifest(key, entry.value)
            if manifest is not None and self._is_other(manifest):
                continue
            deleted += await self._delete_index_keys(location, manifest)
            if entry is not None:
                deleted += await self._delete_entry(key, entry)
        return deleted

    async def _delete_index_keys(
        self, location: SnapshotLocation, manifest: SnapshotManifest | None
    ) -> int:
        """Delete a session's index entries, but not that of a session created since."""
        keys = await find_index_keys(self.state_store, location, manifest)
        entries = await self.state_store.get_many(keys)
        current = await read_manifests(self.state_store, [location], creating=True)
        manifest = current.get(location)
        kept = ""
        if manifest is not None and self._is_other(manifest) and manifest.active_at is not None:
            kept = index_key(location, manifest.active_at)
        deleted = 0
        for key, entry in entries.items():
            if key != kept:
                deleted += await self._delete_entry(key, entry)
        return deleted

    async def _delete_entries(self) -> int:
        mark = deletion_mark_key(self.session_id)
        prefixes = [session_prefix(self.session_id)]
        if self.locations is not None:
            prefixes = sorted(each.prefix for each in self.locations)
        keys, chunks = [], []
        for each in prefixes:
            async for key in self.state_store.list(each):
                if is_chunk(key):
                    chunks.append(key)
                elif key != mark:
                    keys.append(key)
        etags = await self._read_etags(chunks)
        # Read after the listing: a session whose creation starts later is not in the list.
        locations = {
            location for key in (*keys, *chunks) if (location := parse_location(key)) is not None
        }
        current = await read_manifests(self.state_store, locations, creating=True)
        # Snapshots before keyframes before the log: what is listed until then can be loaded.
        keys.sort(key=lambda key: ("/keyframes/" in key) + 2 * ("/log/" in key))
        deleted = 0
        async for key, entry in iterate_entries(self.state_store, keys):
            location = parse_location(key)
            manifest = None if location is None else current.get(location)
            if (
                location is not None
                and manifest is not None
                and belongs_to_incarnation(location, key, entry, manifest.live_incarnation)
            ):
                continue
            deleted += await self._delete_entry(key, entry)
        # Blobs last: what is listed until then can be loaded.
        for key, etag in etags.items():
            if parse_location(key) in current:
                continue
            if etag is None and (await self._read_etags([key])).get(key) is not None:
                continue  # written again since
            deleted += await self._delete_key(key, etag)
        return deleted

    async def _read_etags(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the etags of chunks, holding a few in memory; None for one that is damaged."""
        etags: dict[str, str | None] = {}
        for batch in split_batches(keys, CHUNKS_PER_READ):
            for key, entry in (await read_entries(self.state_store, batch)).items():
                etags[key] = entry.etag if isinstance(entry, Entry) else None
        return etags

    def _is_other(self, manifest: SnapshotManifest) -> bool:
        """Tell whether a manifest is that of an incarnation that is not to be deleted."""
        live = manifest.live_incarnation
        return bool(live) and live not in self.incarnations

    async def _delete_entry(self, key: str, entry: Entry | IntegrityError) -> int:
        """Delete an entry unless it has changed; return how many were deleted."""
        return await self._delete_key(key, entry.etag if isinstance(entry, Entry) else None)

    async def _delete_key(self, key: str, etag: str | None) -> int:
        with suppress(ConflictError):
            return int(await self.state_store.delete(key, if_match=etag))
        return 0


def is_chunk(key: str) -> bool:
    """Tell whether a key is that of a chunk of a blob."""
    location = parse_location(key) if "/blobs/" in key else None
    return (
        location is not None
        and key.startswith(blobs_prefix(location.prefix))
        and parse_chunk_key(location.prefix, key) is not None
    )


def decode_deletion_mark(entry: Entry | None) -> frozenset[str]:
    """Return the incarnations that the mark of a deletion names."""
    if entry is None:
        return frozenset()
    try:
        return frozenset(json.loads(entry.value)["incarnations"])
    except (KeyError, TypeError, ValueError):
        return frozenset()


def decode_marked_locations(entry: Entry, session_id: str) -> frozenset[SnapshotLocation] | None:
    """Return the locations that the mark of a deletion names; None for all."""
    try:
        scopes = json.loads(entry.value)["scopes"]
        return frozenset(SnapshotLocation(session_id, *each) for each in scopes)
    except (KeyError, TypeError, ValueError):
        return None


async def is_being_deleted(state_store: StateStore, location: SnapshotLocation) -> bool:
    """Tell whether the mark of a deletion, running or interrupted, names a location.

    A damaged mark names all.
    """
    key = deletion_mark_key(location.session_id)
    entry = (await read_entries(state_store, [key])).get(key)
    if not isinstance(entry, Entry):
        return entry is not None
    marked = decode_marked_locations(entry, location.session_id)
    return marked is None or location in marked


def belongs_to_incarnation(
    location: SnapshotLocation, key: str, entry: Entry | IntegrityError, incarnation: str
) -> bool:
    """Tell whether an entry belongs to an incarnation, or to none in particular."""
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
