"""The state of one session over time: its log, its keyframes, and the state they lead to.

A load reads the keyframe before the place it wants, with its chain, and folds the segments that
follow. A keyframe is written when the log since the last one has outgrown the state, or 256
segments; it carries what changed since that one, and the whole state where the chain has become
longer or larger than the state is worth. So no load reads more than about twice the state's size
and a bounded number of entries, and nothing that a commit does grows with the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.errors import ConflictError, IntegrityError
from holdfast.log import keyframes
from holdfast.log.changes import fold
from holdfast.log.event_log import EventLog, Position, Sealed
from holdfast.log.events import Draft
from holdfast.log.segments import Segment
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Put

MOST_SEGMENTS = 256
LONGEST_CHAIN = 32
SLACK = 64 * 1024
"""Bytes that are not worth a keyframe, however small the state."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """The last keyframe, and the state at it: what the next one is measured against."""

    position: Position = field(default_factory=Position)
    chain: tuple[int, ...] = ()
    """The seqs of the keyframes that lead to it, itself last; empty where there is none."""
    size: int = 0
    """Bytes of all of them."""
    state: Snapshot = field(default_factory=lambda: Store().snapshot())


@dataclass(slots=True)
class Loaded:
    """A state at a place in the log, and the segments since its keyframe."""

    store: Store
    end: Position
    anchor: Anchor
    segments: list[Segment]


class Timeline:
    """A session's log and keyframes below one place of a ``StateStore``."""

    def __init__(self, state_store: StateStore, place: str) -> None:
        self.state_store = state_store
        self.place = place
        self.log = EventLog(state_store, place)
        self.anchor = Anchor()
        self.segments = 0
        self.size = 0

    async def load(self, last: int | None = None, *, near: int | None = None) -> Loaded:
        """The state after an event, or after the last one.

        ``near`` is the seq of a keyframe at or before it, 0 for none, where the caller knows one.
        """
        found = await self._anchor(await self._keyframe_before(last) if near is None else near)
        store = Store()
        store.restore(found.state)
        log = EventLog(self.state_store, self.place, found.position)
        loaded = Loaded(store, found.position, found, [])
        async for segment in log.segments(found.position, last):
            fold(store, segment.changes(last))
            loaded.segments.append(segment)
            loaded.end = Position(segment.last, segment.hash)
            if last is not None and segment.last > last:
                events = segment.events()
                loaded.end = Position(last, events[last - segment.first].hash)
        return loaded

    async def open(self) -> Loaded:
        """The state as it is now; what is committed next follows it."""
        loaded = await self.load()
        self.log.end = loaded.end
        self.anchor = loaded.anchor
        self.segments = len(loaded.segments)
        self.size = sum(segment.size for segment in loaded.segments)
        return loaded

    async def commit(self, drafts: Sequence[Draft], more: Sequence[Put] = ()) -> Sealed:
        """Write events as one segment, and with it what belongs to them, in one step if it can be.

        ``ConflictError`` where another writer was first; nothing is written then.
        """
        sealed = await self.log.append(drafts, more)
        self.segments += 1
        self.size += len(sealed.put.value)
        return sealed

    def is_keyframe_due(self, state: Snapshot) -> bool:
        """Whether the log since the last keyframe has outgrown the state, or 256 segments."""
        return (
            self.segments >= MOST_SEGMENTS
            or self.anchor.size + self.size > 2 * state.size_bytes + SLACK
        )

    async def write_keyframe(self, state: Snapshot) -> None:
        """Write the state at the end of the log. Somebody else may have done it already."""
        end, anchor = self.log.end, self.anchor
        chain = anchor.chain
        changes = state.changes(anchor.state)
        data, size = keyframes.encoded(end.seq, end.hash, chain, changes)
        if len(chain) >= LONGEST_CHAIN or anchor.size + size > 2 * state.size_bytes + SLACK:
            chain = ()
            changes = state.changes(Store().snapshot())
            data, size = keyframes.encoded(end.seq, end.hash, chain, changes)
        try:
            await self.state_store.put(self.key(end.seq), data, if_absent=True)
        except ConflictError:
            # The same place in the same log, and so the same state.
            return
        whole = size if not chain else anchor.size + size
        self.anchor = Anchor(end, (*chain, end.seq), whole, state)
        self.segments = self.size = 0

    def key(self, seq: int) -> str:
        """The key of the keyframe at a seq."""
        return f"{self.place}keyframes/{seq:012}.json.gz"

    async def _keyframe_before(self, last: int | None) -> int:
        """The seq of the last keyframe at or before an event; 0 for none."""
        prefix = f"{self.place}keyframes/"
        found = 0
        async for key in self.state_store.list(prefix):
            seq = int(key[len(prefix) :].partition(".")[0])
            if last is not None and seq > last:
                break
            found = seq
        return found

    async def _anchor(self, seq: int) -> Anchor:
        """The state at a keyframe."""
        if seq == 0:
            return Anchor()
        frame = await self._keyframe(seq)
        chain = [await self._keyframe(before) for before in frame.chain]
        store = Store()
        fold(store, (each.changes for each in (*chain, frame)))
        return Anchor(
            Position(frame.seq, frame.hash),
            (*frame.chain, frame.seq),
            sum(each.size for each in (*chain, frame)),
            store.snapshot(),
        )

    async def _keyframe(self, seq: int) -> keyframes.Keyframe:
        entry = await self.state_store.get(self.key(seq))
        if entry is None:
            raise IntegrityError(
                f"the keyframe {self.key(seq)} is missing: restore it from a backup or a document"
            )
        return keyframes.decoded(self.key(seq), entry.value)
