"""Checking all that is stored of a session: the log is folded anew, and everything held to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from holdfast.errors import HoldfastError, StateStoreError
from holdfast.log import keyframes
from holdfast.log.changes import fold
from holdfast.log.event_log import Damage, EventLog, Position, read_each, readable
from holdfast.log.timeline import Timeline
from holdfast.snapshots import manifest, records
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.snapshots.records import SnapshotInfo
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore

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
    other_keys: list[str] = field(default_factory=list)
    """Keys among those of the session that Holdfast did not write, as an editor's backup of a file
    has. They are ignored, and no damage."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage


async def verify(state_store: StateStore, location: SnapshotLocation) -> Verification:
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
        prefix = location.place + part
        async for key in state_store.list(prefix):
            if re.fullmatch(pattern, key[len(prefix) :]) is None:
                found.append(key)
    return found


class Verifier:
    """One pass over everything that is stored of a location."""

    def __init__(self, state_store: StateStore, location: SnapshotLocation) -> None:
        self.state_store = state_store
        self.location = location
        self.timeline = Timeline(state_store, location.place)
        self.result = Verification()
        self.hashes: dict[int, str] = {}
        """The chain's hash at each event that a snapshot or a keyframe is at."""
        self.states: dict[int, Snapshot] = {}
        """The state at each readable keyframe."""
        self.frames: dict[int, keyframes.Keyframe] = {}
        self.store = Store(max_history=0)
        self.known = True
        """Whether ``store`` is what the log leads to, so far."""

    async def run(self) -> Verification:
        """All of it."""
        self.result.other_keys = await other_keys(self.state_store, self.location)
        floor = await self._floor()
        infos = await self._records()
        await self._keyframes()
        wanted = {info.seq for _, info in infos} | set(self.frames)
        if floor.seq:
            self._go_to_keyframe(floor.seq)
        log = EventLog(self.state_store, self.location.place)
        end = floor
        async for each in log.inspect(floor):
            if isinstance(each, Damage):
                self.result.damage.append(each)
                self.known = False
                continue
            self.result.segments += 1
            end = Position(each.last, each.hash)
            if each.is_pruned:
                if each.last > floor.seq:
                    self._wrong(each.key, "it is a stub, but its events were not pruned")
                    self.known = False
                continue
            for event in each.events():
                self.result.events += 1
                if event.seq > floor.seq:
                    fold(self.store, [event.changes])
                if event.seq in wanted:
                    self.hashes[event.seq] = event.hash
                if event.seq in self.frames:
                    self._check_keyframe(event.seq)
        for key, info in infos:
            self._check_record(key, info, floor, end)
        for seq in self.frames:
            if seq > end.seq:
                self._wrong(self.timeline.key(seq), f"the log ends at {end.seq}, before it")
        return self.result

    async def _floor(self) -> Position:
        key = self.location.manifest
        try:
            entry = await self.state_store.get(key)
            return Position() if entry is None else manifest.decoded(key, entry.value).floor
        except StateStoreError:
            raise  # that it cannot be read now says nothing of what it holds
        except HoldfastError as error:
            self._wrong(key, str(error))
            return Position()

    async def _records(self) -> list[tuple[str, SnapshotInfo]]:
        listing = self.state_store.list(self.location.history)
        keys = [key async for key in listing if self.location.is_history_key(key)]
        keys.append(self.location.latest)
        found = []
        for start in range(0, len(keys), 100):
            entries = await read_each(self.state_store, keys[start : start + 100])
            for key, entry in entries.items():
                try:
                    found.append((key, records.decoded(key, readable(entry).value, self.location)))
                    self.result.snapshots += 1
                except HoldfastError as error:
                    self._wrong(key, str(error))
        return found

    async def _keyframes(self) -> None:
        for seq in await self.timeline.keyframe_seqs():
            key = self.timeline.key(seq)
            try:
                frame = await self.timeline.keyframe(seq)
                if frame.seq != seq:
                    self._wrong(key, f"it is that of the event {frame.seq}")
                    continue
                self._resolve(key, frame)
                self.result.keyframes += 1
            except StateStoreError:
                raise  # as above
            except HoldfastError as error:
                self._wrong(key, str(error))

    def _resolve(self, key: str, frame: keyframes.Keyframe) -> None:
        """Work out the state at a keyframe."""
        store = Store(max_history=0)
        if frame.chain:
            base = self.states.get(frame.chain[-1])
            if base is None or self.frames[frame.chain[-1]].chain != frame.chain[:-1]:
                self._wrong(key, f"the keyframe {frame.chain[-1]} that it builds on is not there")
                return
            store.restore(base)
        fold(store, [frame.changes])
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

    def _check_record(self, key: str, info: SnapshotInfo, floor: Position, end: Position) -> None:
        if info.seq > end.seq:
            self._wrong(key, f"it is at the event {info.seq}, and the log ends at {end.seq}")
        elif info.seq == floor.seq and floor.seq:
            if info.hash != floor.hash:
                self._wrong(key, f"it was saved at another event {info.seq} than the log had")
        elif info.seq < floor.seq:
            frame = self.frames.get(info.seq)
            if frame is None:
                self._wrong(
                    key, f"no keyframe has its state, and the events to {floor.seq} are gone"
                )
            elif frame.hash != info.hash:
                self._wrong(key, f"it was saved at another event {info.seq} than its keyframe")
        elif self.hashes.get(info.seq) not in (info.hash, None):
            self._wrong(key, f"it was saved at another event {info.seq} than the log has now")
        elif info.seq not in self.hashes:
            self._wrong(key, f"the event {info.seq} that it is at cannot be read")

    def _wrong(self, key: str, problem: str) -> None:
        self.result.damage.append(Damage(key, problem))
