"""Verify everything stored of a session: fold the log again, and compare all the rest with it.

A blob that was omitted from an imported document is reported as missing, like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, IntegrityError, StateStoreError
from holdfast.log.changes import fold_changes
from holdfast.log.event_log import Damage, Position
from holdfast.log.keyframe import Keyframe
from holdfast.log.timeline import Timeline
from holdfast.snapshots.blob_references import find_referenced
from holdfast.snapshots.discovery import find_incarnations, find_index_keys
from holdfast.snapshots.history import list_history
from holdfast.snapshots.keys import SnapshotLocation, index_key
from holdfast.snapshots.manifest import SnapshotManifest, read_manifest
from holdfast.snapshots.order import decode_id_entry, id_entry_key
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.snapshots.sweep import list_chunks
from holdfast.snapshots.verify_blobs import (
    BlobReferences,
    StoredContent,
    UnreferencedBlob,
    find_blob_damage,
    read_blob,
)
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, read_entries, require_entry

ATTEMPTS = 8
OWN_KEYS = {
    "log/": r"(?:[^/]+/)?[0-9]{12}\.json",
    "keyframes/": r"(?:[^/]+/)?[0-9]{12}\.json\.gz",
    "snapshots/immutable_history/": r"snapshot_[A-Za-z0-9_-]{1,256}\.json",
    "blobs/": r"[0-9a-f]{64}/[0-9]{6}",
    "blob_holds/": r"[0-9a-f-]{36}\.json",
}
"""What keys below these parts of a location look like. An incarnation may precede a number."""


@dataclass(slots=True)
class Verification:
    """What was verified, and the damage that was found."""

    events: int = 0
    segments: int = 0
    keyframes: int = 0
    snapshots: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    """Harmless keys that a crash or a deletion left behind; a repair deletes them."""
    unreferenced_blobs: list[UnreferencedBlob] = field(default_factory=list)
    """Harmless blobs that a crash left behind, or of a running commit; a prune deletes them."""
    other_keys: list[str] = field(default_factory=list)
    """Keys that Holdfast did not write, such as an editor's backup files. They are ignored."""

    @property
    def ok(self) -> bool:
        """Whether no damage was found."""
        return not self.damage


async def verify_session(state_store: StateStore, location: SnapshotLocation) -> Verification:
    """Verify the hash chain, the digests, the keyframes, the snapshots and the blobs of a session.

    A concurrent prune can look like damage. So damage is reported only if it is found twice.
    """
    result = await Verifier(state_store, location).run()
    for _ in range(ATTEMPTS):
        if result.ok:
            break
        damage, result = result.damage, await Verifier(state_store, location).run()
        if result.damage == damage:
            break
    return result


async def find_other_keys(state_store: StateStore, location: SnapshotLocation) -> list[str]:
    """Return the keys of the log, the keyframes and the history that Holdfast did not write."""
    found = []
    for part, pattern in OWN_KEYS.items():
        prefix = location.prefix + part
        async for key in state_store.list(prefix):
            if re.fullmatch(pattern, key[len(prefix) :]) is None:
                found.append(key)
    return found


class Verifier:
    """One pass over everything that is stored of a location."""

    def __init__(self, state_store: StateStore, location: SnapshotLocation) -> None:
        self.state_store = state_store
        self.location = location
        self.timeline = Timeline(state_store, location.prefix, "")
        self.manifest: SnapshotManifest | None = None
        self.stale: set[str] = set()
        """Incarnations that were deleted, of which a concurrent writer left entries."""
        self.result = Verification()
        self.hashes: dict[int, str] = {}
        """The chain hash at each event where a snapshot or a keyframe is."""
        self.states: dict[int, Snapshot] = {}
        """The state at each readable keyframe."""
        self.frames: dict[int, Keyframe] = {}
        self.references = BlobReferences()
        self.store = Store(max_history=0)
        self.is_state_known = True
        """Whether ``store`` is the fold of the log so far; not so after a damaged segment."""

    async def run(self) -> Verification:
        """Verify everything."""
        self.result.other_keys = await find_other_keys(self.state_store, self.location)
        log_start = await self._read_manifest()
        infos = await self._read_records()
        await self._read_keyframes()
        if log_start.seq:
            self._start_at_keyframe(log_start.seq)
        end = await self._fold_log(log_start, {info.seq for _, info in infos} | set(self.frames))
        for key, info in infos:
            self._verify_record(key, info, log_start, end)
        for seq in self.frames:
            if seq > end.seq:
                self._report(self.timeline.key(seq), f"it is after the end of the log at {end.seq}")
        await self._verify_index()
        self._add_keyframe_references({info.seq for _, info in infos}, log_start.seq)
        await self._verify_blobs()
        return self.result

    async def _fold_log(self, log_start: Position, wanted: set[int]) -> Position:
        """Fold the log and verify the keyframes on the way; return where it ends.

        The chain hashes of the ``wanted`` events are kept.
        """
        end = log_start
        async for each in self.timeline.log.inspect(log_start):
            if isinstance(each, Damage):
                self.result.damage.append(each)
                self.is_state_known = False
                continue
            self.result.segments += 1
            end = Position(each.last, each.hash)
            if each.is_pruned:
                if each.last > log_start.seq:
                    self._report(each.key, "it is a tombstone, but its events were not pruned")
                    self.is_state_known = False
                continue
            for event in each.events():
                self.result.events += 1
                if event.seq > log_start.seq:
                    fold_changes(self.store, [event.changes])
                self.references.add_event(each.key, event)
                if event.seq in wanted:
                    self.hashes[event.seq] = event.hash
                if event.seq in self.frames:
                    self._verify_keyframe(event.seq)
        return end

    async def _read_manifest(self) -> Position:
        """Read the manifest, choose the incarnation to verify, and return where its log starts."""
        key = self.location.manifest_key
        try:
            manifest = (await read_manifest(self.state_store, self.location)).manifest
            if manifest.is_created:
                self.manifest = manifest
                await self._choose_incarnation(manifest.incarnation)
                return manifest.log_start
        except StateStoreError:
            raise  # a failed read is not damage
        except HoldfastError as error:
            self._report(key, str(error))
        # Records are written after the manifest: they distinguish a session that lost its manifest
        # from an interrupted creation.
        damage = list(self.result.damage)
        created = {info.incarnation for _, info in await self._read_records()}
        self.stale = {each for each in created if await self._is_stale(each)}
        created -= self.stale
        is_lost = not damage and created
        self.result = Verification(damage=damage, other_keys=self.result.other_keys)
        ids = await find_incarnations(self.state_store, self.location)
        if is_lost:
            self._report(key, "it is missing")
        elif self.result.damage and len(ids) == 1:
            created = set(ids)
        await self._choose_incarnation(created.pop() if len(created) == 1 else "")
        return Position()

    async def _is_stale(self, incarnation: str) -> bool:
        """Return whether records are all that a writer of a deleted session left.

        Such a writer leaves its last segment at most. More than that is a session that lost its
        manifest, whose entries must not be taken for leftovers, since a repair deletes those.
        """
        timeline = Timeline(self.state_store, self.location.prefix, incarnation)
        keys = [key async for key in self.state_store.list(timeline.log.prefix, limit=2)]
        if len(keys) > 1 or timeline.log.key(1) in keys:
            return False
        return not await timeline.list_keyframe_seqs()

    async def _choose_incarnation(self, incarnation: str) -> None:
        """Verify this incarnation; the keys of others are leftovers."""
        self.timeline = Timeline(self.state_store, self.location.prefix, incarnation)
        for each in await find_incarnations(self.state_store, self.location):
            if each != incarnation:
                other = Timeline(self.state_store, self.location.prefix, each)
                for prefix in (other.log.prefix, other.prefix):
                    self.result.leftovers += [key async for key in self.state_store.list(prefix)]

    async def _verify_index(self) -> None:
        """Verify that the agent's index has one entry of the session."""
        if self.manifest is None or self.manifest.active_at is None:
            return
        expected = index_key(self.location, self.manifest.active_at)
        found = await find_index_keys(self.state_store, self.location)
        if expected not in found:
            self._report(expected, "the session is missing from its agent's index")
        self.result.leftovers += [key for key in found if key != expected]

    # ----------------------------------------------------------------------------- records

    async def _read_records(self) -> list[tuple[str, SnapshotInfo]]:
        keys = [each.key for each in await list_history(self.state_store, self.location)]
        found = []
        async for key, entry in iterate_entries(
            self.state_store, [*keys, self.location.latest_key]
        ):
            try:
                info = decode_record(key, require_entry(entry).value, self.location)
            except HoldfastError as error:
                self._report(key, str(error))
                continue
            if info.incarnation in self.stale or (
                self.manifest and info.incarnation != self.manifest.incarnation
            ):
                self.result.leftovers.append(key)
            else:
                found.append((key, info))
                self.result.snapshots += 1
        await self._verify_id_entries(
            info for key, info in found if key != self.location.latest_key
        )
        return found

    async def _verify_id_entries(self, infos: Iterable[SnapshotInfo]) -> None:
        """Verify that every stamped snapshot is found by its id.

        An id entry without a snapshot is not damage: a crash between the two writes leaves it.
        """
        stamps = {
            id_entry_key(self.location, info.snapshot_id): info.stamp
            for info in infos
            if info.stamp
        }
        entries = await read_entries(self.state_store, sorted(stamps))
        for key in sorted(stamps):
            if key not in entries:
                self._report(key, "it is missing, so its snapshot is not found by its id")
                continue
            try:
                stamp = decode_id_entry(key, require_entry(entries[key]).value)
            except HoldfastError as error:
                self._report(key, str(error))
                continue
            if stamp != stamps[key]:
                self._report(key, f"its stamp is {stamp}, its snapshot has {stamps[key]}")

    def _verify_record(
        self, key: str, info: SnapshotInfo, log_start: Position, end: Position
    ) -> None:
        if info.seq > end.seq:
            self._report(key, f"it is at event {info.seq}, the log ends at {end.seq}")
        elif info.seq == log_start.seq and log_start.seq:
            if info.hash != log_start.hash:
                self._report(key, f"its hash does not match the start of the log at {info.seq}")
        elif info.seq < log_start.seq:
            frame = self.frames.get(info.seq)
            if frame is None:
                self._report(
                    key, f"it has no keyframe, and events up to {log_start.seq} were pruned"
                )
            elif frame.hash != info.hash:
                self._report(key, f"its hash does not match the keyframe at {info.seq}")
        elif info.seq not in self.hashes:
            self._report(key, f"event {info.seq} cannot be read")
        elif self.hashes[info.seq] != info.hash:
            self._report(key, f"its hash does not match event {info.seq} of the log")

    # --------------------------------------------------------------------------- keyframes

    async def _read_keyframes(self) -> None:
        for seq in await self.timeline.list_keyframe_seqs():
            key = self.timeline.key(seq)
            try:
                frame = await self.timeline.read_keyframe(seq)
            except StateStoreError:
                raise  # a failed read is not damage
            except HoldfastError as error:
                self._report(key, str(error))
            else:
                self._resolve_keyframe(key, frame)
                self.result.keyframes += 1

    def _resolve_keyframe(self, key: str, frame: Keyframe) -> None:
        """Compute the state at a keyframe."""
        store = Store(max_history=0)
        if frame.chain:
            base = self.states.get(frame.chain[-1])
            if base is None or self.frames[frame.chain[-1]].chain != frame.chain[:-1]:
                self._report(key, f"it builds on keyframe {frame.chain[-1]}, which is missing")
                return
            store.restore(base)
        fold_changes(store, [frame.changes])
        self.frames[frame.seq] = frame
        self.states[frame.seq] = store.snapshot()

    def _start_at_keyframe(self, seq: int) -> None:
        if seq in self.states:
            self.store.restore(self.states[seq])
        else:
            self.is_state_known = False
            self._report(self.timeline.key(seq), "the log starts here, and the keyframe is missing")

    def _verify_keyframe(self, seq: int) -> None:
        key = self.timeline.key(seq)
        if self.frames[seq].hash != self.hashes[seq]:
            self._report(key, f"its hash does not match event {seq} of the log")
        elif not self.is_state_known:
            # After a damaged segment, the state is known again from here.
            self.store.restore(self.states[seq])
            self.is_state_known = True
        elif any(self.store.snapshot().diff(self.states[seq]).values()):
            self._report(key, "its state is not the fold of the log")

    # -------------------------------------------------------------------------------- blobs

    def _add_keyframe_references(self, snapshots: set[int], log_start: int) -> None:
        """Add the references of the keyframes that a load may read."""
        needed = {seq for seq in self.frames if seq >= log_start or seq in snapshots}
        needed.update(*(self.frames[seq].chain for seq in needed))
        for seq in sorted(needed & self.frames.keys()):
            self.references.add_keyframe(self.timeline.key(seq), self.frames[seq])

    async def _verify_blobs(self) -> None:
        """Read every blob, and compare them with the references."""
        stored: dict[str, StoredContent] = {}
        for digest, keys in (await list_chunks(self.state_store, self.location)).items():
            stored[digest] = await read_blob(self.state_store, digest, keys)
        self.result.blobs = len(stored)
        self.result.blob_bytes = sum(each.size for each in stored.values())
        self.result.damage += find_blob_damage(self.location, self.references, stored)
        others = {digest for digest in stored if digest not in self.references.origins}
        if others:
            with suppress(IntegrityError):  # reported already; what is referred to is not known
                manifest = self.manifest or SnapshotManifest()
                others -= await find_referenced(self.state_store, self.location, manifest, others)
                self.result.unreferenced_blobs = [
                    UnreferencedBlob(digest, stored[digest].size, stored[digest].is_intact)
                    for digest in sorted(others)
                ]

    def _report(self, key: str, problem: str) -> None:
        self.result.damage.append(Damage(key, problem))
