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
from collections.abc import Callable
from dataclasses import dataclass, replace
from weakref import WeakValueDictionary

from holdfast.errors import ConflictError, IntegrityError, NotFoundError, shown
from holdfast.log.chain import linked
from holdfast.log.event_log import Position
from holdfast.log.events import draft
from holdfast.log.timeline import Timeline
from holdfast.snapshots import founding, records
from holdfast.snapshots.founding import delete_session, settle
from holdfast.snapshots.history import history_keys, newest, newest_first
from holdfast.snapshots.layout import (
    SnapshotLocation,
    checked_count,
    checked_id,
    checked_snapshot_id,
)
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.pruning import Pruned, prune, read_manifest
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.snapshots.session_snapshot import SessionSnapshot, loaded, now
from holdfast.snapshots.storage import SnapshotPage
from holdfast.snapshots.verifying import Verification, verify
from holdfast.state.snapshot import Snapshot
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

REMEMBERED = 8
ATTEMPTS = 16


@dataclass(slots=True)
class Head:
    """The end of a log, and the state there: what the next whole state is compared with."""

    timeline: Timeline
    state: Snapshot
    started_at: dt.datetime | None


class SnapshotArchive:
    """Keeps session snapshots in a ``StateStore``; implements ``SnapshotStorage``.

    It remembers the ends of the few logs that it wrote to last, so that a whole state that is saved
    again and again is compared in memory.
    """

    def __init__(self, state_store: StateStore) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                "an archive is made over a StateStore, as open_state_store(url) gives it, not "
                f"{shown(state_store)}"
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
        key = location.latest if is_latest else location.snapshot(snapshot_id)
        checked_snapshot_id(snapshot_id)
        if not isinstance(snapshot, SessionSnapshot):
            raise TypeError(f"snapshot is a SessionSnapshot, not {shown(snapshot)}")
        async with self._turns.setdefault(location.place, asyncio.Lock()):
            await self._save(location, snapshot_id, key, snapshot)

    async def _save(
        self, location: SnapshotLocation, snapshot_id: str, key: str, snapshot: SessionSnapshot
    ) -> None:
        is_latest = key == location.latest
        is_overtaken = False
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - takes turns
            if not is_latest and await self._is_kept(location, snapshot_id, snapshot):
                return
            head = await self._head(location)
            position, state = None, snapshot.snapshot
            if not is_overtaken:
                position, state = await self._placed(location, snapshot, head)
            info = replace(
                snapshot.info(),
                snapshot_id=snapshot_id,
                scope=location.scope,
                keyframe=head.timeline.anchor.position.seq,
                saved_at=now(),
            )
            try:
                if position is None:
                    await self._append(location, head, state, key, info)
                else:
                    info = replace(info, seq=position.seq, hash=position.hash)
                    record = Put(key, info.encoded(location), if_absent=not is_latest)
                    await self.state_store.put_many([record])
                    known = await self.load_manifest(location=location)
                    is_overtaken = position.seq < known.last_gone
                    if is_overtaken:
                        # Somebody who has not seen it prunes: it gets an event at the end instead.
                        if not is_latest:
                            await self.state_store.delete(key)
                        continue
                return
            except BaseException as error:
                # Whatever failed, what is remembered may not be how it is any more.
                self._heads.pop(location.place, None)
                if not isinstance(error, ConflictError):
                    raise
        raise ConflictError(
            f"other writers were first {ATTEMPTS} times in the session {location.session_id}: "
            "try again when fewer write to it"
        )

    async def _is_kept(
        self, location: SnapshotLocation, snapshot_id: str, snapshot: SessionSnapshot
    ) -> bool:
        """Whether the history has this very snapshot; another one of its id is a conflict."""
        key = location.snapshot(snapshot_id)
        entry = await self.state_store.get(key)
        if entry is None:
            return False
        there = records.decoded(key, entry.value, location)
        state = await self._state(location, there)
        same = there.tags == snapshot.tags and there.parent_id == snapshot.parent_id
        if same and state.digest == snapshot.digest:
            return True
        raise ConflictError(
            f"the history has another snapshot {snapshot_id} in {location.place}, and is never "
            "rewritten: give the new one an id of its own",
            key=key,
        )

    async def _head(self, location: SnapshotLocation) -> Head:
        """The end of the log, as it was seen last."""
        place = location.place
        head = self._heads.get(place)
        if head is not None and not await self._is_current(location, head):
            head = None
        if head is None:
            known = await self.settle(location)
            timeline = Timeline(self.state_store, place)
            opened = await timeline.open()
            head = Head(timeline, opened.store.snapshot(), known.started_at)
            self._heads[place] = head
            while len(self._heads) > REMEMBERED:
                self._heads.popitem(last=False)
        self._heads.move_to_end(place)
        return head

    async def _is_current(self, location: SnapshotLocation, head: Head) -> bool:
        """Whether the session is still that one, and its log still has what is remembered.

        What is after the floor was not pruned: whoever wrote there is met when this writes.
        """
        known = await self.load_manifest(location=location)
        is_same_session = known.started_at == head.started_at
        return is_same_session and known.floor.seq <= head.timeline.log.end.seq

    async def _placed(
        self, location: SnapshotLocation, snapshot: SessionSnapshot, head: Head
    ) -> tuple[Position | None, Snapshot]:
        """Where in this log a snapshot is already, or None and the state to write."""
        end = head.timeline.log.end
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
        self, location: SnapshotLocation, head: Head, state: Snapshot, key: str, info: SnapshotInfo
    ) -> None:
        """Write the difference as one event, and the record with it."""
        timeline = head.timeline
        changes = state.changes(head.state)
        drafts = [draft("state.restored", {"snapshot_id": info.snapshot_id}, changes=changes)]
        more = []
        if timeline.log.end.seq == 0:
            begin = {"agent_id": location.scope_id, "session_id": location.session_id}
            drafts.insert(0, draft("session.started", begin))
            known = await self.load_manifest(location=location)
            more = founding.founding(location, drafts[0].at, extra=known.extra)
            head.started_at = drafts[0].at
        sealed = timeline.log.seal(linked(drafts, timeline.log.end.seq, timeline.log.end.hash))
        info = replace(info, seq=sealed.end.seq, hash=sealed.end.hash)
        more.append(Put(key, info.encoded(location), if_absent=key != location.latest))
        await timeline.commit(sealed, more)
        head.state = state
        await timeline.keep_keyframes(state)

    # ----------------------------------------------------------------------------------- loading

    async def load_snapshot(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SessionSnapshot | None:
        """A snapshot with its state, the latest without an id; None where there is none."""
        info = await self.load_info(location=location, snapshot_id=snapshot_id)
        return None if info is None else loaded(info, await self._state(location, info))

    async def load_info(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SnapshotInfo | None:
        """What is known of a snapshot without its state, the latest without an id."""
        if snapshot_id is None:
            return await self._latest(location)
        keys = [location.snapshot(snapshot_id), location.latest]
        found = await self.state_store.get_many(keys)
        for key in keys:
            if key in found:
                info = records.decoded(key, found[key].value, location)
                if info.snapshot_id == snapshot_id:
                    return info
        return None

    async def _latest(self, location: SnapshotLocation) -> SnapshotInfo | None:
        """The one that was saved last, be it listed or not."""
        entries = await self.state_store.get_many(await self._latest_keys(location))
        found = [records.decoded(key, entry.value, location) for key, entry in entries.items()]
        return max(found, key=lambda info: info.saved_at or info.created_at, default=None)

    async def _latest_keys(self, location: SnapshotLocation) -> list[str]:
        kept = await newest(self.state_store, location)
        return [location.latest] if kept is None else [location.snapshot(kept), location.latest]

    async def _state(self, location: SnapshotLocation, info: SnapshotInfo) -> Snapshot:
        there = await Timeline(self.state_store, location.place).load(info.seq, near=info.keyframe)
        if there.end.hash != info.hash:
            raise IntegrityError(
                f"the snapshot {info.snapshot_id} in {location.place} was saved at another event "
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
        """The ids in the history, oldest first."""
        most = None if limit is None else checked_count(limit)
        start = "" if start_after is None else location.snapshot(start_after)
        keys = history_keys(self.state_store, location, start, most)
        return [location.snapshot_id(key) async for key in keys]

    async def list_snapshots(
        self, *, location: SnapshotLocation, limit: int | None = None, next_token: str | None = None
    ) -> SnapshotPage:
        """What is known of the snapshots in the history, oldest first, without their states."""
        most = None if limit is None else checked_count(limit) + 1
        start = "" if next_token is None else location.snapshot(next_token)
        listing = history_keys(self.state_store, location, start, most)
        keys = [key async for key in listing]
        token = None
        if limit is not None and len(keys) > limit:
            keys = keys[:limit]
            token = location.snapshot_id(keys[-1])
        found = await self.state_store.get_many(keys)
        # Who deletes meanwhile takes away what was listed.
        infos = [records.decoded(key, found[key].value, location) for key in keys if key in found]
        return SnapshotPage(infos, token)

    async def newest_info(
        self, *, location: SnapshotLocation, wanted: Callable[[SnapshotInfo], bool]
    ) -> SnapshotInfo | None:
        """What is known of the newest snapshot in the history that is wanted, or None."""
        async for snapshot_id in newest_first(self.state_store, location):
            info = await self.load_info(location=location, snapshot_id=snapshot_id)
            if info is not None and wanted(info):
                return info
        return None

    # ---------------------------------------------------------------------------------- manifest

    async def load_manifest(self, *, location: SnapshotLocation) -> SnapshotManifest:
        """What is known of them all together; an empty one where nothing was saved."""
        return await read_manifest(self.state_store, location)

    async def save_manifest(
        self, *, location: SnapshotLocation, manifest: SnapshotManifest
    ) -> None:
        """Replace what is known of them all together.

        ``floor`` and ``started_at`` are the session's own: they stay, whatever is given.
        """
        entry = await self.state_store.get(location.manifest)
        there = await self.load_manifest(location=location)
        manifest = replace(
            manifest, floor=there.floor, pruning=there.pruning, started_at=there.started_at
        )
        given = replace(manifest, updated_at=manifest.updated_at or now())
        await self.state_store.put(
            location.manifest,
            given.encoded(),
            if_match=None if entry is None else entry.etag,
            if_absent=entry is None,
        )

    # ------------------------------------------------------------------------ removing, verifying

    async def delete_snapshot(self, *, location: SnapshotLocation, snapshot_id: str) -> bool:
        """Remove one, also a damaged one; whether there was one.

        Its space comes back when a policy prunes what was saved after it.
        """
        removed = await self.state_store.delete(location.snapshot(snapshot_id))
        entry = await self.state_store.get(location.latest)
        if entry is not None:
            latest = records.decoded(location.latest, entry.value, location)
            if latest.snapshot_id == snapshot_id:
                removed |= await self.state_store.delete(location.latest, if_match=entry.etag)
        return removed

    async def delete_session(self, *, session_id: str) -> None:
        """Remove all of a session, with every agent's part of it."""
        checked_id(session_id, "session_id")
        self._heads.clear()
        await delete_session(self.state_store, session_id)

    async def prune(
        self,
        *,
        location: SnapshotLocation,
        policy: RetentionPolicy,
        dry_run: bool = False,
        moment: dt.datetime | None = None,
    ) -> Pruned:
        """Remove the snapshots that a policy does not keep, and give their space back.

        What a kept snapshot needs stays. Events before the oldest snapshot after which none was
        removed are gone too. ``moment`` is what ages are counted from, now if None.
        """
        self._heads.pop(location.place, None)
        if not dry_run:
            await self.settle(location)
        return await prune(self.state_store, location, policy, moment or now(), dry_run=dry_run)

    async def verify(self, *, location: SnapshotLocation) -> Verification:
        """Fold the whole log anew and check chain, digests, keyframes and every snapshot."""
        return await verify(self.state_store, location)

    async def settle(self, location: SnapshotLocation) -> SnapshotManifest:
        """Finish what a crashed writer began: a deletion, or the founding of a session."""
        return await settle(self.state_store, location)


def is_same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two states have the same content."""
    return not any(one.diff(other).values())
