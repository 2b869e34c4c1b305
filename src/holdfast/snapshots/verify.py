"""Checking all that is stored of a session: the log is folded anew, and everything held to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, StateStoreError
from holdfast.log.changes import fold_changes
from holdfast.log.event_log import Damage, Position, read_entries, require_entry
from holdfast.log.keyframe import Keyframe
from holdfast.log.timeline import Timeline
from holdfast.snapshots.keys import SnapshotLocation, index_key
from holdfast.snapshots.lifecycle import find_incarnations, find_index_keys, to_microseconds
from holdfast.snapshots.manifest import SnapshotManifest, decode_manifest
from holdfast.snapshots.order import decode_id_entry, id_entry_key, parse_history_key
from holdfast.snapshots.records import SnapshotInfo, decode_record
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.base import StateStore

ATTEMPTS = 8
# What the keys below these parts of a session look like. An incarnation may stand before a number.
OWN_KEYS = {
    "log/": r"(?:[^/]+/)?[0-9]{12}\.json",
    "keyframes/": r"(?:[^/]+/)?[0-9]{12}\.json\.gz",
    "snapshots/immutable_history/": r"snapshot_[A-Za-z0-9_-]{1,256}\.json",
}


@dataclass(slots=True)
class Verification:
    """What was checked, and all that is wrong with it."""

    events: int = 0
    segments: int = 0
    keyframes: int = 0
    snapshots: int = 0
    damage: list[Damage] = field(default_factory=list)
    leftovers: list[str] = field(default_factory=list)
    """Keys that a crash or a deleted session left: harmless, and removed by a repair."""
    other_keys: list[str] = field(default_factory=list)
    """Keys among those of the session that Holdfast did not write, as an editor's backup of a file
    has. They are ignored, and no damage."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage


async def verify_session(state_store: StateStore, location: SnapshotLocation) -> Verification:
    """Fold the whole log anew and check chain, digests, keyframes and every snapshot.

    What somebody prunes meanwhile looks like damage and is none: what is found is looked for once
    more, and what is damaged is so again.
    """
    result = await Verifier(state_store, location).run()
    for _ in range(ATTEMPTS):
        if result.ok:
            break
        found, result = result.damage, await Verifier(state_store, location).run()
        if result.damage == found:
            break
    return result


async def other_keys(state_store: StateStore, location: SnapshotLocation) -> list[str]:
    """List the keys below the log, the keyframes and the history that cannot be Holdfast's."""
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
        self.result = Verification()
        self.hashes: dict[int, str] = {}
        """The chain's hash at each event that a snapshot or a keyframe is at."""
        self.states: dict[int, Snapshot] = {}
        """The state at each readable keyframe."""
        self.frames: dict[int, Keyframe] = {}
        self.store = Store(max_history=0)
        self.known = True
        """Whether ``store`` is what the log leads to, so far."""

    async def run(self) -> Verification:
        """All of it."""
        self.result.other_keys = await other_keys(self.state_store, self.location)
        log_start = await self._log_start()
        infos = await self._records()
        await self._keyframes()
        wanted = {info.seq for _, info in infos} | set(self.frames)
        if log_start.seq:
            self._go_to_keyframe(log_start.seq)
        end = log_start
        async for each in self.timeline.log.inspect(log_start):
            if isinstance(each, Damage):
                self.result.damage.append(each)
                self.known = False
                continue
            self.result.segments += 1
            end = Position(each.last, each.hash)
            if each.is_pruned:
                if each.last > log_start.seq:
                    self._wrong(each.key, "it is a stub, but its events were not pruned")
                    self.known = False
                continue
            for event in each.events():
                self.result.events += 1
                if event.seq > log_start.seq:
                    fold_changes(self.store, [event.changes])
                if event.seq in wanted:
                    self.hashes[event.seq] = event.hash
                if event.seq in self.frames:
                    self._check_keyframe(event.seq)
        for key, info in infos:
            self._check_record(key, info, log_start, end)
        for seq in self.frames:
            if seq > end.seq:
                self._wrong(self.timeline.key(seq), f"the log ends at {end.seq}, before it")
        await self._index()
        return self.result

    async def _log_start(self) -> Position:
        key = self.location.manifest_key
        try:
            entry = await self.state_store.get(key)
            known = SnapshotManifest()
            if entry is not None:
                known = decode_manifest(key, entry.value)
            if known.started_at is not None:
                self.manifest = known
                await self._go_to(known.incarnation)
                return known.log_start
        except StateStoreError:
            raise  # that it cannot be read now says nothing of what it holds
        except HoldfastError as error:
            self._wrong(key, str(error))
        # Records are written after the manifest: they tell a session from what a crash left.
        damage = list(self.result.damage)
        created = {info.incarnation for _, info in await self._records()}
        is_lost = not damage and created
        self.result = Verification(damage=damage, other_keys=self.result.other_keys)
        ids = await find_incarnations(self.state_store, self.location)
        if is_lost:
            self._wrong(key, "it is missing")
        elif self.result.damage and len(ids) == 1:
            created = set(ids)
        await self._go_to(created.pop() if len(created) == 1 else "")
        return Position()

    async def _go_to(self, incarnation: str) -> None:
        """Verify one incarnation; what there is of others is left over."""
        self.timeline = Timeline(self.state_store, self.location.prefix, incarnation)
        for each in await find_incarnations(self.state_store, self.location):
            if each != incarnation:
                other = Timeline(self.state_store, self.location.prefix, each)
                for prefix in (other.log.prefix, other.prefix):
                    self.result.leftovers += [key async for key in self.state_store.list(prefix)]

    async def _index(self) -> None:
        """Check that the session is found through its agent's index, and by one entry."""
        known = self.manifest
        if known is None or known.started_at is None or known.active_at is None:
            return
        expected = index_key(self.location, to_microseconds(known.active_at))
        found = await find_index_keys(self.state_store, self.location)
        if expected not in found:
            self._wrong(expected, "the session is missing from its agent's index")
        self.result.leftovers += [key for key in found if key != expected]

    async def _records(self) -> list[tuple[str, SnapshotInfo]]:
        listing = self.state_store.list(self.location.history_prefix)
        keys = [key async for key in listing if parse_history_key(self.location, key) is not None]
        keys.append(self.location.latest_key)
        found = []
        for start in range(0, len(keys), 100):
            entries = await read_entries(self.state_store, keys[start : start + 100])
            for key, entry in entries.items():
                try:
                    info = decode_record(key, require_entry(entry).value, self.location)
                    if self.manifest and info.incarnation != self.manifest.incarnation:
                        self.result.leftovers.append(key)
                        continue
                    found.append((key, info))
                    self.result.snapshots += 1
                except HoldfastError as error:
                    self._wrong(key, str(error))
        await self._id_entries(info for key, info in found if key != self.location.latest_key)
        return found

    async def _id_entries(self, infos: Iterable[SnapshotInfo]) -> None:
        """Check that every stamped snapshot is found by its id.

        An entry without a snapshot is not damage: a crash between the two writes leaves it.
        """
        stamps = {
            id_entry_key(self.location, info.snapshot_id): info.stamp
            for info in infos
            if info.stamp
        }
        keys = sorted(stamps)
        for start in range(0, len(keys), 100):
            some = keys[start : start + 100]
            entries = await read_entries(self.state_store, some)
            for key in some:
                if key not in entries:
                    self._wrong(key, "it is missing, so its snapshot is not found by its id")
                    continue
                try:
                    stamp = decode_id_entry(key, require_entry(entries[key]).value)
                except HoldfastError as error:
                    self._wrong(key, str(error))
                    continue
                if stamp != stamps[key]:
                    self._wrong(key, f"its stamp is {stamp}, and its snapshot has {stamps[key]}")

    async def _keyframes(self) -> None:
        for seq in await self.timeline.list_keyframe_seqs():
            key = self.timeline.key(seq)
            try:
                frame = await self.timeline.read_keyframe(seq)
                if frame.seq != seq:
                    self._wrong(key, f"it is that of the event {frame.seq}")
                    continue
                self._resolve(key, frame)
                self.result.keyframes += 1
            except StateStoreError:
                raise  # as above
            except HoldfastError as error:
                self._wrong(key, str(error))

    def _resolve(self, key: str, frame: Keyframe) -> None:
        """Work out the state at a keyframe."""
        store = Store(max_history=0)
        if frame.chain:
            base = self.states.get(frame.chain[-1])
            if base is None or self.frames[frame.chain[-1]].chain != frame.chain[:-1]:
                self._wrong(key, f"the keyframe {frame.chain[-1]} that it builds on is not there")
                return
            store.restore(base)
        fold_changes(store, [frame.changes])
        self.frames[frame.seq] = frame
        self.states[frame.seq] = store.snapshot()

    def _go_to_keyframe(self, seq: int) -> None:
        if seq in self.states:
            self.store.restore(self.states[seq])
        else:
            self.known = False
            self._wrong(self.timeline.key(seq), "the log begins here, and there is no state for it")

    def _check_keyframe(self, seq: int) -> None:
        key = self.timeline.key(seq)
        if self.frames[seq].hash != self.hashes[seq]:
            self._wrong(key, f"it was made at another event {seq} than the log has now")
        elif not self.known:
            # Behind a damaged segment, this is where the state is known again.
            self.store.restore(self.states[seq])
            self.known = True
        elif any(self.store.snapshot().diff(self.states[seq]).values()):
            self._wrong(key, "its state is not what the log leads to")

    def _check_record(
        self, key: str, info: SnapshotInfo, log_start: Position, end: Position
    ) -> None:
        if info.seq > end.seq:
            self._wrong(key, f"it is at the event {info.seq}, and the log ends at {end.seq}")
        elif info.seq == log_start.seq and log_start.seq:
            if info.hash != log_start.hash:
                self._wrong(key, f"it was saved at another event {info.seq} than the log had")
        elif info.seq < log_start.seq:
            frame = self.frames.get(info.seq)
            if frame is None:
                self._wrong(
                    key, f"no keyframe has its state, and the events to {log_start.seq} are gone"
                )
            elif frame.hash != info.hash:
                self._wrong(key, f"it was saved at another event {info.seq} than its keyframe")
        elif self.hashes.get(info.seq) not in (info.hash, None):
            self._wrong(key, f"it was saved at another event {info.seq} than the log has now")
        elif info.seq not in self.hashes:
            self._wrong(key, f"the event {info.seq} that it is at cannot be read")

    def _wrong(self, key: str, problem: str) -> None:
        self.result.damage.append(Damage(key, problem))
