"""The keeper of session snapshots over any ``StateStore``.

A snapshot that a session saved is a position in its log already. A whole state that comes from
code without a log is compared with the state at the end of the log, and only the difference is
written, as one event. Either way what is kept of a snapshot is a small record.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from holdfast.errors import ConflictError, IntegrityError, NotFoundError, short_repr
from holdfast.log.event import draft_event
from holdfast.log.event_log import Position
from holdfast.log.segment import Segment
from holdfast.log.timeline import Timeline
from holdfast.snapshots.filters import fill_page, make_filter
from holdfast.snapshots.history import (
    choose_history_key,
    delete_history_id,
    find_history_key,
    list_history,
)
from holdfast.snapshots.incarnation import Incarnation, ReplacedError
from holdfast.snapshots.keys import (
    SnapshotLocation,
    validate_id,
    validate_limit,
    validate_snapshot_id,
)
from holdfast.snapshots.lifecycle import delete_session
from holdfast.snapshots.lookup import (
    find_history_info,
    find_last_order,
    find_latest_info,
    find_listing_start,
    find_newest_info,
    find_snapshot_info,
)
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.snapshots.order import HistoryKey, choose_stamp, parse_page_token
from holdfast.snapshots.prune import PruneResult, prune_session, read_manifest
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.repair import RepairResult, repair_session
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.snapshots.session_snapshot import SessionSnapshot, snapshot_from_info, utc_now
from holdfast.snapshots.storage import SnapshotPage
from holdfast.snapshots.verify import Verification, verify_session
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put

REMEMBERED = 8
ATTEMPTS = 16


@dataclass(slots=True)
class Head:
    """The end of a log, and the state there: what the next whole state is compared with."""

    incarnation: Incarnation
    timeline: Timeline
    state: Snapshot
    seen: list[Segment]
    """The last segment, where it is known."""


class SnapshotArchive:
    """Keeps session snapshots in a ``StateStore``; implements ``SnapshotStorage``.

    It remembers the ends of the few logs that it wrote to last, so that a whole state that is saved
    again and again is compared in memory.
    """

    def __init__(self, state_store: StateStore) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                "an archive is made over a StateStore, as open_state_store(url) gives it, not "
                f"{short_repr(state_store)}"
            )
        self.state_store = state_store
        self._heads: OrderedDict[str, Head] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # ------------------------------------------------------------------------------------ saving

    async def save_snapshot(
        self,
        *,
        location: SnapshotLocation,
        snapshot_id: str,
        is_latest: bool,
        snapshot: SessionSnapshot,
    ) -> None:
        """Keep a snapshot: in place of the latest, which is not listed, or added to the history.

        The history is never rewritten: ``ConflictError`` where it has another one of this id.
        """
        validate_snapshot_id(snapshot_id)
        given: object = snapshot
        if not isinstance(given, SessionSnapshot):
            hint = "; pass document.to_snapshot()" if hasattr(given, "to_snapshot") else ""
            raise TypeError(f"snapshot must be a SessionSnapshot, got {short_repr(given)}{hint}")
        async with self._turns.setdefault(location.prefix, asyncio.Lock()):
            await self._save(location, snapshot_id, snapshot, is_latest=is_latest)

    async def _save(
        self,
        location: SnapshotLocation,
        snapshot_id: str,
        snapshot: SessionSnapshot,
        *,
        is_latest: bool,
    ) -> None:
        is_overtaken = False
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - takes turns
            if not is_latest and await self._is_kept(location, snapshot_id, snapshot):
                return
            head = await self._head(location)
            after = await find_last_order(self.state_store, location)
            position, state = None, snapshot.snapshot
            if not is_overtaken:
                position, state = await self._placed(location, snapshot, head)
            info = replace(
                snapshot.info(),
                snapshot_id=snapshot_id,
                scope=location.scope,
                keyframe=head.timeline.base_keyframe.position.seq,
                incarnation=head.incarnation.id,
                saved_at=utc_now(),
                stamp=choose_stamp(snapshot_id, after),
            )
            try:
                place, key, first = None, location.latest_key, list[Put]()
                if not is_latest:
                    place, first = await choose_history_key(
                        self.state_store, location, snapshot_id, after
                    )
                    info, key = replace(info, stamp=place.stamp), place.key
                if position is None:
                    await self._append(location, head, state, key, info, first)
                else:
                    info = replace(info, seq=position.seq, hash=position.hash)
                    record = Put(key, info.encode(location), if_absent=not is_latest)
                    written = [*first, record]
                    await head.incarnation.write([], written, end=position, seen=head.seen)
                if await self._is_placed(place):
                    return
            except ReplacedError:
                # It may have been pruned beyond the snapshot's event: then it gets one at the end.
                self._heads.pop(location.prefix, None)
                is_overtaken = position is not None
            except BaseException as error:
                # Whatever failed, what is remembered may not be how it is any more.
                self._heads.pop(location.prefix, None)
                if not isinstance(error, ConflictError):
                    raise
        raise ConflictError(
            f"other writers were first {ATTEMPTS} times in the session {location.session_id}: "
            "try again when fewer write to it"
        )

    async def _is_placed(self, place: HistoryKey | None) -> bool:
        """Tell whether a snapshot that was just saved is found by its id.

        Where a batch is not atomic and this writer stood still between its id entry and its record,
        another one may have saved under the same id. Then this record is taken back.
        """
        if place is None or place.stamp is None or self.state_store.atomic_put_many:
            return True
        found = await find_history_key(self.state_store, place.location, place.snapshot_id)
        if found is None or found == place:
            return True
        await self.state_store.delete(place.key)
        return False

    async def _is_kept(
        self, location: SnapshotLocation, snapshot_id: str, snapshot: SessionSnapshot
    ) -> bool:
        """Whether the history has this very snapshot; another one of its id is a conflict."""
        there = await find_history_info(self.state_store, location, snapshot_id)
        if there is None:
            return False
        state = await self._state(location, there)
        same = there.tags == snapshot.tags and there.parent_id == snapshot.parent_id
        if same and state.digest == snapshot.digest:
            return True
        raise ConflictError(
            f"the history has another snapshot {snapshot_id} in {location.prefix}, and is never "
            "rewritten: give the new one an id of its own",
            key=there.history_key(location).key,
        )

    async def _head(self, location: SnapshotLocation) -> Head:
        """The end of the log, as it was seen last."""
        place = location.prefix
        head = self._heads.get(place)
        if head is None:
            incarnation, timeline, opened = await Incarnation.open(self.state_store, location)
            state = opened.store.snapshot()
            head = Head(incarnation, timeline, state, opened.segments[-1:])
            self._heads[place] = head
            while len(self._heads) > REMEMBERED:
                self._heads.popitem(last=False)
        self._heads.move_to_end(place)
        return head

    async def _placed(
        self, location: SnapshotLocation, snapshot: SessionSnapshot, head: Head
    ) -> tuple[Position | None, Snapshot]:
        """Where in this log a snapshot is already, or None and the state to write."""
        end = head.timeline.log.head
        position = snapshot.position
        is_here = snapshot.location == location
        if is_here and position is not None and 0 < position.seq < end.seq:
            try:
                there = await head.timeline.load(position.seq, near=snapshot.keyframe)
            except (NotFoundError, IntegrityError):
                return None, snapshot.snapshot
            if there.end == position and is_same(there.store.snapshot(), snapshot.snapshot):
                return position, snapshot.snapshot
        if end.seq and is_same(head.state, snapshot.snapshot):
            return end, snapshot.snapshot
        return None, snapshot.snapshot

    async def _append(
        self,
        location: SnapshotLocation,
        head: Head,
        state: Snapshot,
        key: str,
        info: SnapshotInfo,
        first: Sequence[Put],
    ) -> None:
        """Write the difference as one event, and the record with it."""
        incarnation, timeline = head.incarnation, head.timeline
        changes = state.changes(head.state)
        drafts = [draft_event("state.restored", {"snapshot_id": info.snapshot_id}, changes=changes)]
        if not incarnation.is_created:
            begin = {"agent_id": location.scope_id, "session_id": location.session_id}
            drafts.insert(0, draft_event("session.started", begin))
        end = timeline.log.head
        sealed = timeline.log.prepare(drafts, end)
        info = replace(info, seq=sealed.end.seq, hash=sealed.end.hash)
        written = [*first, Put(key, info.encode(location), if_absent=key != location.latest_key)]
        at = drafts[0].at
        if incarnation.is_created:
            await incarnation.write(
                [sealed.put], written, end=end, seen=head.seen, active_at=drafts[-1].at
            )
        else:
            await incarnation.create([sealed.put], written, started_at=at, active_at=at)
        timeline.advance(sealed)
        head.seen = [sealed.segment]
        head.state = state
        await timeline.write_keyframe_if_due(state)

    # ----------------------------------------------------------------------------------- loading

    async def load_snapshot(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SessionSnapshot | None:
        """A snapshot with its state, the latest without an id; None where there is none."""
        info = await self.load_info(location=location, snapshot_id=snapshot_id)
        return None if info is None else snapshot_from_info(info, await self._state(location, info))

    async def timeline(self, *, location: SnapshotLocation) -> Timeline:
        """Return the log and keyframes of the session as it is now."""
        known = await self.load_manifest(location=location)
        return Timeline(self.state_store, location.prefix, known.incarnation)

    async def load_info(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SnapshotInfo | None:
        """What is known of a snapshot without its state, the latest without an id."""
        if snapshot_id is None:
            return await find_latest_info(self.state_store, location)
        return await find_snapshot_info(self.state_store, location, snapshot_id)

    async def _state(self, location: SnapshotLocation, info: SnapshotInfo) -> Snapshot:
        timeline = Timeline(self.state_store, location.prefix, info.incarnation)
        there = await timeline.load(info.seq, near=info.keyframe)
        if there.end.hash != info.hash:
            raise IntegrityError(
                f"the snapshot {info.snapshot_id} in {location.prefix} was saved at another event "
                f"{info.seq} than the log has now: restore the session from a backup"
            )
        return there.store.snapshot()

    async def list_snapshot_ids(
        self,
        *,
        location: SnapshotLocation,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> list[str]:
        """Return the ids in the history in the order of saving, whatever the ids.

        ``start_after`` is the id of a snapshot: those that were saved after it are returned.

        Raises:
            NotFoundError: There is no snapshot ``start_after``, and its id is not a UUIDv7, which
                would tell where it was.

        """
        most = None if limit is None else validate_limit(limit)
        start = await self._start(location, None, start_after)
        found = await list_history(self.state_store, location, start_after=start, limit=most)
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
        """List what is known of the snapshots in the history, in the order of saving.

        ``start_after`` is the id of a snapshot: those after it are listed. ``next_token`` of a page
        gives the next one. ``status`` (one, or several of which one matches), ``tags`` (all of
        them), ``since`` (by ``created_at``) and ``unfinished`` (with tool calls that have no
        result) leave out what does not match; a page is filled with those that do.

        Raises:
            NotFoundError: There is no snapshot ``start_after``, and its id is not a UUIDv7, which
                would tell where it was.
            ValueError: A filter or the limit is invalid.

        """
        wanted = make_filter(status=status, tags=tags, since=since, unfinished=unfinished)

        async def read_page(most: int | None, token: str | None) -> SnapshotPage:
            return await self._page(location, most, token, start_after)

        return await fill_page(read_page, wanted, limit, next_token)

    async def _page(
        self,
        location: SnapshotLocation,
        limit: int | None,
        next_token: str | None,
        start_after: str | None,
    ) -> SnapshotPage:
        """Return a page of snapshots, whatever they are."""
        most = None if limit is None else validate_limit(limit) + 1
        start = await self._start(location, next_token, start_after)
        places = await list_history(self.state_store, location, start_after=start, limit=most)
        token = None
        if limit is not None and len(places) > limit:
            places = places[:limit]
            token = places[-1].name
        keys = [place.key for place in places]
        found = await self.state_store.get_many(keys)
        # Who deletes meanwhile takes away what was listed.
        infos = [decode_record(key, found[key].value, location) for key in keys if key in found]
        return SnapshotPage(infos, token)

    async def _start(
        self, location: SnapshotLocation, next_token: str | None, start_after: str | None
    ) -> str:
        """Return the key after which a listing begins."""
        if next_token is not None:
            return parse_page_token(location, next_token)
        if start_after is not None:
            return await find_listing_start(self.state_store, location, start_after)
        return ""

    async def find_newest_info(
        self, *, location: SnapshotLocation, wanted: Callable[[SnapshotInfo], bool]
    ) -> SnapshotInfo | None:
        """Return what is known of the newest snapshot in the history that is wanted, or None."""
        return await find_newest_info(self.state_store, location, wanted)

    # ---------------------------------------------------------------------------------- manifest

    async def load_manifest(self, *, location: SnapshotLocation) -> SnapshotManifest:
        """What is known of them all together; an empty one where nothing was saved."""
        return await read_manifest(self.state_store, location)

    async def save_manifest(
        self, *, location: SnapshotLocation, manifest: SnapshotManifest
    ) -> None:
        """Replace what is known of them all together.

        What the session itself keeps there, such as ``incarnation`` and ``log_start``, stays.
        """
        entry = await self.state_store.get(location.manifest_key)
        there = SnapshotManifest()
        if entry is not None:
            there = decode_manifest(location.manifest_key, entry.value)
        manifest = replace(
            manifest,
            incarnation=there.incarnation,
            started_at=there.started_at,
            active_at=there.active_at,
            log_start=there.log_start,
            pending_log_start=there.pending_log_start,
        )
        given = replace(manifest, updated_at=manifest.updated_at or utc_now())
        await self.state_store.put(
            location.manifest_key,
            given.encode(),
            if_match=None if entry is None else entry.etag,
            if_absent=entry is None,
        )

    # ------------------------------------------------------------------------ removing, verifying

    async def delete_snapshot(self, *, location: SnapshotLocation, snapshot_id: str) -> bool:
        """Remove one, also a damaged one; whether there was one.

        Its space comes back when a policy prunes what was saved after it.
        """
        removed = await delete_history_id(self.state_store, location, snapshot_id)
        entry = await self.state_store.get(location.latest_key)
        if entry is not None:
            latest = decode_record(location.latest_key, entry.value, location)
            if latest.snapshot_id == snapshot_id:
                removed |= await self.state_store.delete(location.latest_key, if_match=entry.etag)
        return removed

    async def delete_session(self, *, session_id: str) -> None:
        """Remove all of a session, with every agent's part of it."""
        validate_id(session_id, "session_id")
        self._heads.clear()
        await delete_session(self.state_store, session_id)

    async def prune(
        self,
        *,
        location: SnapshotLocation,
        policy: RetentionPolicy,
        dry_run: bool = False,
        now: dt.datetime | None = None,
    ) -> PruneResult:
        """Remove the snapshots that a policy does not keep, and give their space back.

        What a kept snapshot needs stays. Events before the oldest snapshot after which none was
        removed are gone too. ``now`` is what ages are counted from, now if None.
        """
        self._heads.pop(location.prefix, None)
        if not dry_run:
            await self.recover(location)
        return await prune_session(
            self.state_store, location, policy, now or utc_now(), dry_run=dry_run
        )

    async def verify(self, *, location: SnapshotLocation) -> Verification:
        """Fold the whole log anew and check chain, digests, keyframes and every snapshot."""
        return await verify_session(self.state_store, location)

    async def repair(self, *, location: SnapshotLocation) -> RepairResult:
        """Restore a lost manifest or index entry of a session, and remove leftovers of crashes.

        Raises:
            ConflictError: Another process changed the session at the same time; retry.

        """
        self._heads.pop(location.prefix, None)
        return await repair_session(self.state_store, location)

    async def recover(self, location: SnapshotLocation) -> SnapshotManifest:
        """Finish a deletion that was interrupted, and return the manifest."""
        return (await Incarnation.read(self.state_store, location)).manifest


def is_same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two states have the same content."""
    return not any(one.diff(other).values())
