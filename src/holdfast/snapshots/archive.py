"""`SnapshotArchive`: durable snapshots in any ``StateStore``.

A snapshot is stored as a small record of a position in the session's log. `save` writes it and the
log, the other operations are here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from holdfast.errors import IntegrityError, short_repr
from holdfast.log.timeline import Timeline
from holdfast.snapshots.delete import delete_session
from holdfast.snapshots.filters import fill_page, make_filter
from holdfast.snapshots.history import delete_history_id, list_history
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.keys import (
    SnapshotLocation,
    validate_id,
    validate_limit,
    validate_snapshot_id,
)
from holdfast.snapshots.load import load_state
from holdfast.snapshots.lookup import (
    find_latest_info,
    find_listing_start,
    find_newest_info,
    find_snapshot_info,
)
from holdfast.snapshots.manifest import SnapshotManifest, read_manifest
from holdfast.snapshots.order import parse_page_token
from holdfast.snapshots.prune import PruneResult, prune_session
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.repair import RepairResult, repair_session
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.snapshots.save import StateSaver
from holdfast.snapshots.session_snapshot import SessionSnapshot, snapshot_from_info, utc_now
from holdfast.snapshots.storage import SnapshotPage
from holdfast.snapshots.verify import Verification, verify_session
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, require_entry


class SnapshotArchive:
    """Durable snapshots in a ``StateStore``. Implements `SnapshotStorage`."""

    def __init__(self, state_store: StateStore) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                f"state_store must be a StateStore, got {short_repr(state_store)}; "
                "use open_state_store(url)"
            )
        self.state_store = state_store
        self._saver = StateSaver(state_store)

    # ------------------------------------------------------------------------- saving, loading

    async def save_snapshot(
        self,
        *,
        location: SnapshotLocation,
        snapshot_id: str,
        is_latest: bool,
        snapshot: SessionSnapshot,
    ) -> None:
        """Save a snapshot: as the latest, which is not listed, or as an entry of the history.

        Saving the same snapshot to the history twice is not an error.

        Raises:
            ConflictError: The history has another snapshot of this id, or other writers committed
                first in every attempt.

        """
        validate_snapshot_id(snapshot_id)
        given: object = snapshot
        if not isinstance(given, SessionSnapshot):
            hint = "; pass document.to_snapshot()" if hasattr(given, "to_snapshot") else ""
            raise TypeError(f"snapshot must be a SessionSnapshot, got {short_repr(given)}{hint}")
        await self._saver.save(location, snapshot_id, snapshot, is_latest=is_latest)

    async def load_snapshot(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SessionSnapshot | None:
        """Load a snapshot with its state, the latest without an id; None if there is none.

        Raises:
            IntegrityError: The snapshot, or the log that it points into, is damaged.

        """
        info = await self.load_info(location=location, snapshot_id=snapshot_id)
        if info is None:
            return None
        return snapshot_from_info(info, await load_state(self.state_store, location, info))

    async def load_info(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SnapshotInfo | None:
        """Load the metadata of a snapshot, of the latest without an id; None if there is none.

        Raises:
            IntegrityError: The record of the snapshot is damaged.

        """
        if snapshot_id is None:
            return await find_latest_info(self.state_store, location)
        return await find_snapshot_info(self.state_store, location, snapshot_id)

    async def find_newest_info(
        self, *, location: SnapshotLocation, wanted: Callable[[SnapshotInfo], bool]
    ) -> SnapshotInfo | None:
        """Return the metadata of the newest snapshot in the history that matches, or None.

        Raises:
            IntegrityError: A record is damaged.

        """
        return await find_newest_info(self.state_store, location, wanted)

    async def timeline(self, *, location: SnapshotLocation) -> Timeline:
        """Return the log and keyframes of the current incarnation.

        Raises:
            IntegrityError: The manifest is damaged.

        """
        manifest = await self.load_manifest(location=location)
        return Timeline(self.state_store, location.prefix, manifest.incarnation)

    # --------------------------------------------------------------------------------- listing

    async def list_snapshot_ids(
        self,
        *,
        location: SnapshotLocation,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> list[str]:
        """Return the ids of the snapshots in the history, in the order of saving.

        With ``start_after``, the id of a snapshot, return those saved after it.

        Raises:
            NotFoundError: No snapshot has the id ``start_after``, and it is not a UUIDv7.
            ValueError: The limit is invalid.

        """
        limit = None if limit is None else validate_limit(limit)
        start = await self._find_start(location, None, start_after)
        found = await list_history(self.state_store, location, start_after=start, limit=limit)
        return [each.snapshot_id for each in found]

    async def list_snapshots(
        self,
        *,
        location: SnapshotLocation,
        limit: int | None = None,
        next_token: str | None = None,
        start_after: str | None = None,
        status: str | Iterable[str] | None = None,
        tags: Mapping[str, str] | None = None,
        since: dt.datetime | None = None,
        unfinished: bool = False,
    ) -> SnapshotPage:
        """Return a page of the metadata of snapshots in the history, in the order of saving.

        ``start_after`` is the id of a snapshot: the page starts after it. ``next_token`` is that of
        the previous page. The other arguments are filters, and a page is filled with snapshots that
        match: ``status`` (one, or several of which one matches), ``tags`` (all of them), ``since``
        (by ``created_at``), ``unfinished`` (with tool calls that have no result).

        Raises:
            NotFoundError: No snapshot has the id ``start_after``, and it is not a UUIDv7.
            ValueError: A filter, the token or the limit is invalid.
            IntegrityError: A record is damaged.

        """
        wanted = make_filter(status=status, tags=tags, since=since, unfinished=unfinished)

        async def read_page(most: int | None, token: str | None) -> SnapshotPage:
            return await self._read_page(location, most, token, start_after)

        return await fill_page(read_page, wanted, limit, next_token)

    async def _read_page(
        self,
        location: SnapshotLocation,
        limit: int | None,
        next_token: str | None,
        start_after: str | None,
    ) -> SnapshotPage:
        """Return a page of all snapshots, unfiltered."""
        most = None if limit is None else validate_limit(limit) + 1
        start = await self._find_start(location, next_token, start_after)
        history = await list_history(self.state_store, location, start_after=start, limit=most)
        token = None
        if limit is not None and len(history) > limit:
            history = history[:limit]
            token = history[-1].name
        # A snapshot that was deleted since the listing is left out.
        entries = iterate_entries(self.state_store, [each.key for each in history])
        infos = [
            decode_record(key, require_entry(entry).value, location) async for key, entry in entries
        ]
        if infos:
            # A writer of a deleted incarnation can leave a record behind, see `lookup`.
            with suppress(IntegrityError):
                current = (await self.load_manifest(location=location)).incarnation
                infos = [info for info in infos if info.incarnation == current]
        return SnapshotPage(infos, token)

    async def _find_start(
        self, location: SnapshotLocation, next_token: str | None, start_after: str | None
    ) -> str:
        """Return the key after which a listing starts."""
        if next_token is not None:
            return parse_page_token(location, next_token)
        if start_after is not None:
            return await find_listing_start(self.state_store, location, start_after)
        return ""

    # -------------------------------------------------------------------------------- manifest

    async def load_manifest(self, *, location: SnapshotLocation) -> SnapshotManifest:
        """Return the manifest; an empty one if there is none.

        Raises:
            IntegrityError: The manifest is damaged.

        """
        return (await read_manifest(self.state_store, location)).manifest

    async def save_manifest(
        self, *, location: SnapshotLocation, manifest: SnapshotManifest
    ) -> None:
        """Replace the ``extra`` fields of the manifest, and ``updated_at``.

        The fields that Holdfast maintains, such as ``incarnation`` and ``log_start``, stay.

        Raises:
            ConflictError: Another process changed the manifest at the same time; retry.
            IntegrityError: The stored manifest is damaged.

        """
        stored = await read_manifest(self.state_store, location)
        manifest = replace(
            stored.manifest,
            schema_version=manifest.schema_version,
            updated_at=manifest.updated_at or utc_now(),
            extra=manifest.extra,
        )
        await self.state_store.put(
            location.manifest_key,
            manifest.encode(),
            if_match=stored.etag,
            if_absent=stored.etag is None,
        )

    # ----------------------------------------------------------- deleting, verifying, repairing

    async def delete_snapshot(self, *, location: SnapshotLocation, snapshot_id: str) -> bool:
        """Delete a snapshot, even a damaged one; return whether there was one.

        The next prune reclaims its space.

        Raises:
            ConflictError: The latest snapshot was replaced at the same time; retry.

        """
        deleted = await delete_history_id(self.state_store, location, snapshot_id)
        entry = await self.state_store.get(location.latest_key)
        if entry is not None:
            latest = decode_record(location.latest_key, entry.value, location)
            if latest.snapshot_id == snapshot_id:
                deleted |= await self.state_store.delete(location.latest_key, if_match=entry.etag)
        return deleted

    async def delete_session(self, *, session_id: str) -> None:
        """Delete a session with all its agents.

        Raises:
            ConflictError: Other processes delete the session at the same time; retry.

        """
        validate_id(session_id, "session_id")
        self._saver.forget()
        await delete_session(self.state_store, session_id)

    async def prune(
        self,
        *,
        location: SnapshotLocation,
        policy: RetentionPolicy,
        dry_run: bool = False,
        now: dt.datetime | None = None,
    ) -> PruneResult:
        """Delete the snapshots that a policy does not keep, and reclaim the log they alone needed.

        Ages are measured from ``now``, the current time by default.

        Raises:
            ConflictError: The session was deleted or changed in every attempt; retry.
            IntegrityError: A kept snapshot cannot be loaded, so nothing is deleted.

        """
        self._saver.forget(location)
        return await prune_session(
            self.state_store, location, policy, now or utc_now(), dry_run=dry_run
        )

    async def verify(self, *, location: SnapshotLocation) -> Verification:
        """Verify the hash chain, the digests, the keyframes and every snapshot of a session."""
        return await verify_session(self.state_store, location)

    async def repair(self, *, location: SnapshotLocation) -> RepairResult:
        """Restore a lost manifest or index entry of a session, and delete leftovers of crashes.

        Raises:
            ConflictError: Another process changed the session at the same time; retry.

        """
        self._saver.forget(location)
        return await repair_session(self.state_store, location)

    async def recover(self, location: SnapshotLocation) -> SnapshotManifest:
        """Finish an interrupted deletion, and return the manifest.

        Raises:
            IntegrityError: The manifest is damaged.

        """
        return (await Incarnation.read(self.state_store, location)).manifest
