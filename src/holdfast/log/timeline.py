"""The state of one session over time: its log, its keyframes, and the state they lead to.

A load reads the keyframe before the place it wants, with its chain, and folds the segments that
follow. A keyframe is written when the log since the last one has outgrown the state, or 256
segments; it carries what changed since that one, and the whole state where the chain has become
longer or larger than the state is worth. So no load reads more than about twice the state's size
and a bounded number of entries, and nothing that a commit does grows with the session.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from holdfast.errors import (
    ConflictError,
    IntegrityError,
    NotFoundError,
    StateStoreError,
    UnsupportedValueError,
)
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.event_log import EventLog, Position, PreparedSegment
from holdfast.log.keyframe import (
    Keyframe,
    KeyframeError,
    damaged_keyframe_error,
    decode_keyframe,
    encode_keyframe,
)
from holdfast.log.segment import Segment
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put

logger = logging.getLogger(__name__)

MAX_SEGMENTS = 256
MAX_CHAIN = 32
SEQ_NAME = re.compile(r"([0-9]{12})\.json(?:\.gz)?")
KEYFRAME_SLACK = 64 * 1024
"""Bytes that are not worth a keyframe, however small the state."""


@dataclass(frozen=True, slots=True)
class BaseKeyframe:
    """The last keyframe, and the state at it: what the next one is measured against."""

    position: Position = field(default_factory=Position)
    chain: tuple[int, ...] = ()
    """The seqs of the keyframes that lead to it, itself last; empty where there is none."""
    size: int = 0
    """Bytes of all of them."""
    state: Snapshot = field(default_factory=lambda: Store().snapshot())


@dataclass(frozen=True, slots=True)
class PreparedKeyframe:
    """A keyframe that is not written yet, and what it is for the next one."""

    put: Put
    base_keyframe: BaseKeyframe


@dataclass(slots=True)
class LoadedState:
    """A state at a place in the log, and the segments since its keyframe."""

    store: Store
    end: Position
    base_keyframe: BaseKeyframe
    segments: list[Segment]

    @classmethod
    def nothing(cls) -> LoadedState:
        """Return the state of a session that does not exist."""
        return cls(Store(max_history=0), Position(), BaseKeyframe(), [])


class Timeline:
    """The log and keyframes of one incarnation of a session, below its place in a store."""

    def __init__(self, state_store: StateStore, place: str, incarnation: str) -> None:
        self.state_store = state_store
        self.place = place
        self.incarnation = incarnation
        self.prefix = f"{place}keyframes/{incarnation}/"
        """What the keys of all keyframes begin with."""
        self.log = EventLog(state_store, place, incarnation)
        self.base_keyframe = BaseKeyframe()
        self.segments = 0
        self.size = 0

    async def load(self, last: int | None = None, *, near: int = 0) -> LoadedState:
        """The state after an event, or after the last one.

        ``near`` is the seq of a keyframe at or before it, where the caller knows of one.
        ``NotFoundError`` where the events that lead there were pruned.
        """
        try:
            return await self._load_from(await self._keyframe_before(last, near), last)
        except (NotFoundError, IntegrityError):
            # Who prunes meanwhile takes away what a load has begun with, and leaves another.
            return await self._load_again(last)

    async def _load_again(self, last: int | None) -> LoadedState:
        """The same, from the last keyframe that is whole: the log leads from any to one state."""
        problem: IntegrityError | NotFoundError | None = None
        for seq in reversed([0, *await self.list_keyframe_seqs(last=last)]):
            try:
                loaded = await self._load_from(seq, last)
            except KeyframeError as error:
                problem = problem or error
            except (IntegrityError, NotFoundError) as error:
                problem = problem or error
                break
            else:
                if problem is not None:
                    logger.warning("a keyframe was passed over: %s", problem)
                return loaded
        if not isinstance(problem, NotFoundError):
            await self._check_pruned(last)
        raise cast("Exception", problem)

    async def _check_pruned(self, last: int | None) -> None:
        """``NotFoundError`` where what leads to an event was pruned."""
        log_start = await self._log_start()
        if last is not None and last < log_start:
            raise NotFoundError(
                f"the events up to {log_start} in {self.place} were pruned: ask for later ones, or "
                "for the state at a snapshot that was kept"
            ) from None

    async def _log_start(self) -> int:
        """After which event the log begins, if a keyframe has the state there; 0 otherwise."""
        async for key in self.state_store.list(self.log.prefix):
            first = parse_seq(key, self.log.prefix)
            if first:
                return (
                    first - 1 if first - 1 in await self.list_keyframe_seqs(last=first - 1) else 0
                )
        seqs = await self.list_keyframe_seqs()
        return seqs[-1] if seqs else 0

    async def _load_from(self, seq: int, last: int | None) -> LoadedState:
        """The state after an event, by way of a certain keyframe, or of none for 0."""
        log = EventLog(self.state_store, self.place, self.incarnation)
        # The segments are fetched while the keyframe is unpacked.
        fetching = asyncio.ensure_future(log.page(seq, last))
        try:
            found = await self._anchor(seq)
            page = await fetching
        finally:
            fetching.cancel()
        store = Store(max_history=0)
        store.restore(found.state)
        loaded = LoadedState(store, found.position, found, [])
        changes: list[Changes] = []
        async for segment in log.segments(found.position, last, page=page):
            changes += segment.changes(last)
            loaded.segments.append(segment)
            loaded.end = Position(segment.last, segment.hash)
            if last is not None and segment.last > last:
                events = segment.events()
                loaded.end = Position(last, events[last - segment.first].hash)
        fold_changes(store, changes)
        if last is not None and loaded.end.seq < last:
            raise log.missing(loaded.end.seq + 1)
        return loaded

    async def events(self, first: int, last: int | None = None) -> AsyncIterator[Event]:
        """The events from one seq to another, both included, without reading all before them."""
        is_begun = False
        for is_again in (False, True):
            try:
                after = await self._before(first)
                async for event in self.log.read(first, last, after=after):
                    is_begun = True
                    yield event
                return
            except (IntegrityError, NotFoundError):
                # Who prunes meanwhile takes away what was just found, and leaves another keyframe.
                if is_begun or is_again:
                    raise

    async def _before(self, first: int) -> Position:
        """The last keyframe before an event that is whole: reading may begin there."""
        problem: KeyframeError | None = None
        for seq in reversed(await self.list_keyframe_seqs(last=first - 1) if first > 1 else []):
            try:
                frame = await self.keyframe(seq)
            except KeyframeError as error:
                problem = problem or error
            else:
                return Position(frame.seq, frame.hash)
        if problem is not None and await self._log_start():
            raise problem
        return Position()

    async def head(self) -> tuple[str, int]:
        """What changes with every commit: the key of the last segment, and what is before it.

        It is found by names alone, without reading what they hold.
        """
        seq = await self._keyframe_before(None)
        keys = await self.log.keys(seq)
        return (keys[-1] if keys else ""), seq

    async def open(self) -> LoadedState:
        """The state as it is now; what is committed next follows it.

        The last segment's events must lead to the hash that it gives: the next commit follows that
        hash, and no later segment would show that it is wrong.
        """
        loaded = await self.load()
        if loaded.segments:
            with suppress(UnsupportedValueError):  # a type that is not registered here: no damage
                loaded.segments[-1].events()
        self.log.head = loaded.end
        self.base_keyframe = loaded.base_keyframe
        self.segments = len(loaded.segments)
        self.size = sum(segment.size for segment in loaded.segments)
        return loaded

    def advance(self, sealed: PreparedSegment) -> None:
        """Note that a segment was written at the end of the log."""
        self.log.head = sealed.end
        self.segments += 1
        self.size += len(sealed.put.value)

    def is_keyframe_due(self, state: Snapshot) -> bool:
        """Whether the log since the last keyframe has outgrown the state, or 256 segments."""
        return (
            self.segments >= MAX_SEGMENTS
            or self.base_keyframe.size + self.size > 2 * state.size_bytes + KEYFRAME_SLACK
        )

    async def write_keyframe_if_due(self, state: Snapshot) -> None:
        """Write a keyframe if one is due. What was committed stands, whatever becomes of it."""
        if not self.is_keyframe_due(state):
            return
        try:
            await self.write_keyframe(state)
        except StateStoreError as error:
            logger.warning("a keyframe in %s was put off to the next commit: %s", self.place, error)

    async def write_keyframe(self, state: Snapshot) -> None:
        """Write the state at the end of the log. Somebody else may have done it already."""
        end, base_keyframe = self.log.head, self.base_keyframe
        # What it would be based on may have been pruned since this object heard of it.
        if (
            base_keyframe.chain
            and await self._keyframe_before(end.seq) != base_keyframe.position.seq
        ):
            base_keyframe = BaseKeyframe()
        written = await self.write_keyframe_at(end, state, base_keyframe)
        if written is not None:
            self.base_keyframe = written
            self.segments = self.size = 0

    async def write_keyframe_at(
        self, position: Position, state: Snapshot, base_keyframe: BaseKeyframe
    ) -> BaseKeyframe | None:
        """Write the state at a position, measured against a keyframe before it; None if one is."""
        made = self.prepare_keyframe(position, state, base_keyframe)
        try:
            await self.state_store.put(made.put.key, made.put.value, if_absent=True)
        except ConflictError:
            # The same place in the same log, and so the same state.
            return None
        return made.base_keyframe

    def prepare_keyframe(
        self, position: Position, state: Snapshot, base_keyframe: BaseKeyframe
    ) -> PreparedKeyframe:
        """The keyframe at a position: what differs from one before it, or the whole state."""
        chain = base_keyframe.chain
        changes = state.changes(base_keyframe.state)
        data, size = encode_keyframe(position.seq, position.hash, chain, changes)
        if chain and (
            len(chain) >= MAX_CHAIN
            or base_keyframe.size + size > 2 * state.size_bytes + KEYFRAME_SLACK
        ):
            chain = ()
            changes = state.changes(Store().snapshot())
            data, size = encode_keyframe(position.seq, position.hash, chain, changes)
        whole = size if not chain else base_keyframe.size + size
        return PreparedKeyframe(
            Put(self.key(position.seq), data, if_absent=True),
            BaseKeyframe(position, (*chain, position.seq), whole, state),
        )

    def key(self, seq: int) -> str:
        """The key of the keyframe at a seq."""
        return f"{self.prefix}{seq:012}.json.gz"

    async def list_keyframe_seqs(self, *, after: int = 0, last: int | None = None) -> list[int]:
        """The seqs of the keyframes that come after one and at or before another, in order."""
        prefix = self.prefix
        start = self.key(after) if after else ""
        found = []
        async for key in self.state_store.list(prefix, start_after=start):
            seq = parse_seq(key, prefix)
            if last is not None and seq > last:
                break
            if seq:
                found.append(seq)
        return found

    async def keyframe(self, seq: int) -> Keyframe:
        """The keyframe at a seq."""
        return (await self._read_keyframes([seq]))[0]

    async def _keyframe_before(self, last: int | None, near: int = 0) -> int:
        """The seq of the last keyframe at or before an event; 0 for none."""
        if near and last is not None:
            found = await self.list_keyframe_seqs(after=near - 1, last=last)
            if found[:1] == [near]:
                return found[-1]
        found = await self.list_keyframe_seqs(last=last)
        return found[-1] if found else 0

    async def _anchor(self, seq: int) -> BaseKeyframe:
        """The state at a keyframe."""
        if seq == 0:
            return BaseKeyframe()
        frame = await self.keyframe(seq)
        chain = [*await self._read_keyframes(frame.chain), frame]
        store = Store(max_history=0)
        fold_changes(store, (each.changes for each in chain))
        return BaseKeyframe(
            Position(frame.seq, frame.hash),
            (*frame.chain, frame.seq),
            sum(each.size for each in chain),
            store.snapshot(),
        )

    async def _read_keyframes(self, seqs: Sequence[int]) -> list[Keyframe]:
        keys = [self.key(seq) for seq in seqs]
        found = await self.state_store.get_many(keys)
        for key in keys:
            if key not in found:
                raise KeyframeError(
                    f"the keyframe {key} is missing: restore it from a backup or a document"
                )
        frames = [await asyncio.to_thread(decode_keyframe, key, found[key].value) for key in keys]
        for seq, frame in zip(seqs, frames, strict=True):
            if frame.seq != seq:
                raise damaged_keyframe_error(self.key(seq), f"it is that of the event {frame.seq}")
        return frames


def parse_seq(key: str, prefix: str) -> int:
    """The seq that a key names; 0 for a key of somebody else, which is passed over."""
    found = SEQ_NAME.fullmatch(key, len(prefix))
    return int(found[1]) if found else 0
