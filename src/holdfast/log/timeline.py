"""The log and keyframes of a session, and the state at any position.

A load reads the last keyframe before the wanted position, with its chain, and folds the segments
that follow. A keyframe is written when the log since the last one has outgrown the state, or has
256 segments. It holds the changes since the last one, or the whole state if the chain has become
too long or too large. So no load reads more than about twice the size of the state and a bounded
number of entries, and the cost of a commit does not grow with the session.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from holdfast.blobs.contents import BlobContents
from holdfast.errors import (
    ConflictError,
    IntegrityError,
    NotFoundError,
    StateStoreError,
    UnsupportedValueError,
)
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.event_log import EventLog, Position
from holdfast.log.keyframe import (
    Keyframe,
    KeyframeError,
    damaged_keyframe_error,
    decode_keyframe,
    encode_keyframe,
)
from holdfast.log.segment import Segment, decode_segment
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot, changes_size, changes_with_references
from holdfast.state.store import Store
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Put
from holdfast.stores.local import RUN_INLINE, run_in_thread

logger = logging.getLogger(__name__)

MAX_SEGMENTS = 256
MAX_CHAIN = 32
SEQ_NAME = re.compile(r"([0-9]{12})\.json(?:\.gz)?")
MAX_UNFOLDED = 512
"""How many changes are folded at once: many decoded values slow down the garbage collector."""
KEYFRAME_SLACK = 64 * 1024
"""The log may grow by this many bytes before a keyframe is due, however small the state."""


@dataclass(frozen=True, slots=True)
class BaseKeyframe:
    """The last keyframe and its state, on which the next keyframe may build."""

    position: Position = field(default_factory=Position)
    chain: tuple[int, ...] = ()
    """The seqs of the keyframes that lead to it, including its own; empty without a keyframe."""
    size: int = 0
    """The total decompressed size of the chain in bytes."""
    state: Snapshot = field(default_factory=lambda: Store().snapshot())


@dataclass(frozen=True, slots=True)
class PreparedKeyframe:
    """A keyframe that is not written yet, and the base that it will be."""

    put: Put
    base_keyframe: BaseKeyframe


@dataclass(slots=True)
class LoadedState:
    """The state at a position, and the segments since its keyframe."""

    store: Store
    end: Position
    base_keyframe: BaseKeyframe
    segments: list[Segment]

    @classmethod
    def empty(cls) -> LoadedState:
        """Return the state of a session that does not exist."""
        return cls(Store(max_history=0), Position(), BaseKeyframe(), [])


class Timeline:
    """The log and the keyframes of one incarnation of a session.

    After `open`, it tracks the head of the log and when the next keyframe is due.
    """

    def __init__(self, state_store: StateStore, location_prefix: str, incarnation: str) -> None:
        self.state_store = state_store
        self.location_prefix = location_prefix
        self.incarnation = incarnation
        self.prefix = f"{location_prefix}keyframes/{incarnation}/"
        """The prefix of all keyframe keys."""
        self.log = EventLog(state_store, location_prefix, incarnation)
        self.contents = BlobContents(state_store, location_prefix)
        """The blobs that its states refer to."""
        self.base_keyframe = BaseKeyframe()
        self.segments = 0
        """The number of segments since the last keyframe."""
        self.size = 0
        """Their size in bytes."""

    # -------------------------------------------------------------------------------- loading

    async def open(self) -> LoadedState:
        """Load the current state, and track the log from there.

        The events of the last segment are verified against its hash: the next commit builds on that
        hash, and no later read would check it.

        Raises:
            IntegrityError: The log or a keyframe is damaged or missing.

        """
        loaded = await self.load()
        if loaded.segments:
            with suppress(UnsupportedValueError):  # a type that is not registered here
                loaded.segments[-1].events()
        self.log.head = loaded.end
        self.base_keyframe = loaded.base_keyframe
        self.segments = len(loaded.segments)
        self.size = sum(segment.size for segment in loaded.segments)
        return loaded

    async def load(self, last: int | None = None, *, near: int = 0) -> LoadedState:
        """Load the state after the event ``last``, or the current state.

        ``near`` is the seq of a keyframe at or before ``last``, if the caller knows one.

        Raises:
            NotFoundError: The events that lead there were pruned.
            IntegrityError: The log or a keyframe is damaged or missing.

        """
        try:
            return await self._load_from(await self._keyframe_before(last, near), last)
        except (NotFoundError, IntegrityError):
            # A concurrent prune may delete what the load started with, and leaves another keyframe.
            return await self._load_from_any(last)

    async def _load_from_any(self, last: int | None) -> LoadedState:
        """Load from the last intact keyframe: the log leads from any of them to the same state."""
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
                    logger.warning("skipped a keyframe: %s", problem)
                return loaded
        if not isinstance(problem, NotFoundError):
            await self._check_not_pruned(last)
        raise cast("Exception", problem)

    async def _check_not_pruned(self, last: int | None) -> None:
        pruned_through = await self._pruned_through()
        if last is not None and last < pruned_through:
            raise NotFoundError(
                f"events up to {pruned_through} in {self.location_prefix} were pruned; read later "
                "events, or the state at a snapshot that was kept"
            ) from None

    async def _pruned_through(self) -> int:
        """Return the last pruned event, if a keyframe holds the state there, or 0."""
        async for key in self.state_store.list(self.log.prefix):
            first = parse_seq(key, self.log.prefix)
            if first:
                seqs = await self.list_keyframe_seqs(last=first - 1)
                return first - 1 if first - 1 in seqs else 0
        seqs = await self.list_keyframe_seqs()
        return seqs[-1] if seqs else 0

    async def _load_from(self, seq: int, last: int | None) -> LoadedState:
        """Load the state after ``last`` from the keyframe at ``seq``, or from none for 0."""
        log = EventLog(self.state_store, self.location_prefix, self.incarnation)
        if RUN_INLINE.get():
            base, page = await self._load_base_keyframe(seq), await log.page(seq, last)
        else:
            # Fetch the segments while the keyframe is decoded.
            fetching = asyncio.ensure_future(log.page(seq, last))
            try:
                base = await self._load_base_keyframe(seq)
                page = await fetching
            finally:
                fetching.cancel()
        store = Store(max_history=0)
        store.restore(base.state)
        loaded = LoadedState(store, base.position, base, [])
        changes: list[Changes] = []
        async for segment in log.segments(base.position, last, page=page):
            changes += segment.changes(last)
            if len(changes) >= MAX_UNFOLDED:
                fold_changes(store, changes, self.contents)
                changes.clear()
            loaded.segments.append(segment)
            loaded.end = Position(segment.last, segment.hash)
            if last is not None and segment.last > last:
                events = segment.events()
                loaded.end = Position(last, events[last - segment.first].hash)
        fold_changes(store, changes, self.contents)
        if last is not None and loaded.end.seq < last:
            raise log.missing_segment_error(loaded.end.seq + 1)
        return loaded

    async def events(self, first: int, last: int | None = None) -> AsyncIterator[Event]:
        """Yield the events from ``first`` to ``last``, both included.

        Reading starts at the last keyframe before them.

        Raises:
            NotFoundError: The events were pruned.
            IntegrityError: A segment is missing or damaged.

        """
        has_started = False
        for is_retry in (False, True):
            try:
                after = await self.find_keyframe_position(first)
                async for event in self.log.read(first, last, after=after):
                    has_started = True
                    yield event
                return
            except (IntegrityError, NotFoundError):
                # A concurrent prune may have deleted the keyframe, and leaves another.
                if has_started or is_retry:
                    raise

    async def find_keyframe_position(self, first: int) -> Position:
        """Return the position of the last intact keyframe before an event."""
        problem: KeyframeError | None = None
        for seq in reversed(await self.list_keyframe_seqs(last=first - 1) if first > 1 else []):
            key = self.log.key(seq + 1)
            if (entry := await self.state_store.get(key)) is not None:
                # The next segment names the hash that it follows; the state is not needed.
                return Position(seq, decode_segment(key, entry.value).prev)
            try:
                frame = await self.read_keyframe(seq)
            except KeyframeError as error:
                problem = problem or error
            else:
                return Position(frame.seq, frame.hash)
        if problem is not None and await self._pruned_through():
            raise problem
        return Position()

    async def change_token(self) -> tuple[str, int]:
        """Return a value that changes with every commit, found by listing keys alone."""
        seq = await self._keyframe_before(None)
        keys = await self.log.keys(seq)
        return (keys[-1] if keys else ""), seq

    # ------------------------------------------------------------------------------ keyframes

    def advance(self, end: Position, size: int) -> None:
        """Move the head past a segment of some bytes that was written there."""
        self.log.head = end
        self.segments += 1
        self.size += size

    def is_keyframe_due(self, state: Snapshot) -> bool:
        """Return whether the log since the last keyframe has outgrown the state."""
        return (
            self.segments >= MAX_SEGMENTS
            or self.base_keyframe.size + self.size > 2 * state.size_bytes + KEYFRAME_SLACK
        )

    async def write_keyframe_if_due(self, state: Snapshot) -> None:
        """Write a keyframe if one is due; log a failure, since the commit itself succeeded."""
        if not self.is_keyframe_due(state):
            return
        try:
            await self.write_keyframe(state)
        except StateStoreError as error:
            logger.warning(
                "keyframe in %s postponed to the next commit: %s", self.location_prefix, error
            )

    async def write_keyframe(self, state: Snapshot) -> None:
        """Write a keyframe at the head, unless another writer did already."""
        head, base = self.log.head, self.base_keyframe
        # A prune may have deleted the base since it was read.
        if base.chain and await self._keyframe_before(head.seq) != base.position.seq:
            base = BaseKeyframe()
        written = await self.write_keyframe_at(head, state, base)
        if written is not None:
            self.base_keyframe = written
            self.segments = self.size = 0

    async def write_keyframe_at(
        self, position: Position, state: Snapshot, base_keyframe: BaseKeyframe
    ) -> BaseKeyframe | None:
        """Write a keyframe at a position; return None if it exists."""
        prepared = self.prepare_keyframe(position, state, base_keyframe)
        try:
            await self.state_store.put(prepared.put.key, prepared.put.value, if_absent=True)
        except ConflictError:
            return None  # the same position of the same log, so the same state
        return prepared.base_keyframe

    def prepare_keyframe(
        self, position: Position, state: Snapshot, base_keyframe: BaseKeyframe
    ) -> PreparedKeyframe:
        """Encode the keyframe at a position, without writing it.

        It builds on ``base_keyframe`` unless the chain would become too long or too large.
        """
        base = base_keyframe
        if base.chain and (
            len(base.chain) >= MAX_CHAIN
            or base.size + changes_size(state, base.state) > 2 * state.size_bytes + KEYFRAME_SLACK
        ):
            base = BaseKeyframe()
        changes = changes_with_references(state, base.state)
        data, size = encode_keyframe(position.seq, position.hash, base.chain, changes)
        return PreparedKeyframe(
            Put(self.key(position.seq), data, if_absent=True),
            BaseKeyframe(position, (*base.chain, position.seq), base.size + size, state),
        )

    def key(self, seq: int) -> str:
        """Return the key of the keyframe at ``seq``."""
        return f"{self.prefix}{seq:012}.json.gz"

    async def list_keyframe_seqs(
        self, *, after: int = 0, last: int | None = None, limit: int | None = None
    ) -> list[int]:
        """List the seqs of the keyframes after ``after`` and up to ``last``, in order."""
        start = self.key(after) if after else ""
        seqs = []
        async for key in self.state_store.list(self.prefix, start_after=start, limit=limit):
            seq = parse_seq(key, self.prefix)
            if last is not None and seq > last:
                break
            if seq:
                seqs.append(seq)
        return seqs

    async def read_keyframe(self, seq: int) -> Keyframe:
        """Read the keyframe at ``seq``.

        Raises:
            KeyframeError: It is damaged or missing.

        """
        return (await self._read_keyframes([seq]))[0]

    async def _keyframe_before(self, last: int | None, near: int = 0) -> int:
        """Return the seq of the last keyframe at or before ``last``, or 0."""
        if last is not None and 0 < near <= last:
            # Usually the next one is after ``last``, and all later ones need not be listed.
            seqs = await self.list_keyframe_seqs(after=near - 1, limit=2)
            if seqs[:1] == [near]:
                if all(seq > last for seq in seqs[1:]):
                    return near
                return (await self.list_keyframe_seqs(after=near, last=last))[-1]
        seqs = await self.list_keyframe_seqs(last=last)
        return seqs[-1] if seqs else 0

    async def _load_base_keyframe(self, seq: int) -> BaseKeyframe:
        """Load the keyframe at ``seq`` with its chain."""
        if seq == 0:
            return BaseKeyframe()
        frame = await self.read_keyframe(seq)
        chain = [*await self._read_keyframes(frame.chain), frame]
        store = Store(max_history=0)
        fold_changes(store, (each.changes for each in chain), self.contents)
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
                    f"keyframe {key} is missing; restore it from a backup or a document"
                )
        frames = await run_in_thread(
            lambda: [decode_keyframe(key, found[key].value) for key in keys]
        )
        for seq, frame in zip(seqs, frames, strict=True):
            if frame.seq != seq:
                raise damaged_keyframe_error(self.key(seq), f"it belongs to event {frame.seq}")
        return frames


def parse_seq(key: str, prefix: str) -> int:
    """Return the seq in a key, or 0 for keys of another form, which are ignored."""
    match = SEQ_NAME.fullmatch(key, len(prefix))
    return int(match[1]) if match else 0
