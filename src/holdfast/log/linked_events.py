"""Events of a verified hash chain, kept as text and decoded on access.

A document has all events of a session. Most of the time they are only written again, by an export
as lines of a file and by an import as segments, and their text is a fraction of the size of the
decoded events.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import msgspec

from holdfast.log.event import (
    DEFAULT_TYPE,
    Event,
    StoredEvent,
    draft_from_json,
    event_to_compact_json,
    parse_time,
    restore_event,
)
from holdfast.log.hash_chain import GENESIS, hash_plain_events, link_events
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.values.references import is_keeping_references

EVENTS_PER_BLOCK = 256
"""How many events are decoded at once; also the number in a segment that an import writes."""

decode_stored_events = msgspec.json.Decoder(list[StoredEvent]).decode
decode_texts = msgspec.json.Decoder(list[msgspec.Raw]).decode
encode_json = msgspec.json.encode


class EventHeader(msgspec.Struct, gc=False):
    """What `LinkedEvents.headers` returns of an event."""

    at: str
    type: str = DEFAULT_TYPE


decode_headers = msgspec.json.Decoder(list[EventHeader]).decode


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Consecutive events of a hash chain as text."""

    first: int
    """The seq of the first event."""
    prev: str
    """The hash before it."""
    hashes: Sequence[str]
    text: bytes | msgspec.Raw
    """A JSON array of the events, as segments store them."""

    @classmethod
    def encode(cls, events: Sequence[Event]) -> EventBlock:
        """Return linked events as a block."""
        text = encode_json([event_to_compact_json(event) for event in events])
        return cls(events[0].seq, events[0].prev, [event.hash for event in events], text)

    @property
    def last(self) -> int:
        """The seq of the last event."""
        return self.first + len(self.hashes) - 1

    def events(self) -> list[Event]:
        """Decode the events."""
        return decode_events(self.text, self.first - 1, self.prev)

    @property
    def refers(self) -> bool:
        """Whether a value in it may be a blob."""
        return b'"$blob"' in bytes(self.text)

    def take(self, count: int) -> EventBlock:
        """Return the first events of the block."""
        text = join_texts(decode_texts(self.text)[:count])
        return EventBlock(self.first, self.prev, self.hashes[:count], text)


class LinkedEvents(Sequence[Event]):
    """The events of a verified hash chain. Equal to a tuple of the same events.

    Each access decodes the events again; do not rely on the identity of their values. With
    ``contents``, their large values are read from there, unless inside `keep_references`.
    """

    __slots__ = ("_base", "_cached", "_ends", "_state", "blocks", "contents")

    def __init__(
        self,
        blocks: Iterable[EventBlock],
        *,
        base: Snapshot | None = None,
        state: Snapshot | None = None,
        contents: Mapping[str, bytes] | None = None,
    ) -> None:
        self.blocks = tuple(blocks)
        self.contents = contents
        self._ends: list[int] = []
        for block in self.blocks:
            self._ends.append(len(self) + len(block.hashes))
        self._base = base
        self._state = state
        self._cached: tuple[EventBlock, list[Event], bool] | None = None

    def is_known_to_lead(self, base: Snapshot | None, state: Snapshot) -> bool:
        """Return whether these very snapshots are known to be the states before and after."""
        return self._base is base and self._state is state

    def with_contents(
        self,
        contents: Mapping[str, bytes],
        *,
        base: Snapshot | None = None,
        state: Snapshot | None = None,
    ) -> LinkedEvents:
        """Return the events with other contents, and with the states if these are given."""
        return LinkedEvents(
            self.blocks,
            base=self._base if base is None else base,
            state=self._state if state is None else state,
            contents=contents,
        )

    def headers(self) -> Iterator[EventHeader]:
        """Yield the time and the type of each event."""
        for block in self.blocks:
            yield from decode_headers(block.text)

    def regroup(self, size: int) -> Iterator[EventBlock]:
        """Yield the events in blocks of ``size`` events; the last one may have less."""
        texts: list[msgspec.Raw] = []
        hashes: list[str] = []
        first, prev = (self.blocks[0].first, self.blocks[0].prev) if self.blocks else (1, GENESIS)
        for block in self.blocks:
            if not hashes and len(block.hashes) == size:
                yield block
                first, prev = block.last + 1, block.hashes[-1]
                continue
            texts += decode_texts(block.text)
            hashes += block.hashes
            while len(hashes) >= size or (hashes and block is self.blocks[-1]):
                yield EventBlock(first, prev, hashes[:size], join_texts(texts[:size]))
                first, prev = first + len(hashes[:size]), hashes[:size][-1]
                del texts[:size], hashes[:size]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Event]:
        for block in self.blocks:
            if not block.refers:
                yield from block.events()
                continue
            for event in block.events():
                yield self._restore(event)

    def iterate_references(self) -> Iterator[Event]:
        """Yield the events with references to blobs, which are not read."""
        for block in self.blocks:
            yield from block.events()

    def _restore(self, event: Event) -> Event:
        """Return an event with the contents of its blobs, if there are any to be read."""
        if self.contents is None or is_keeping_references():
            return event
        return restore_event(event, self.contents)

    @overload
    def __getitem__(self, index: int) -> Event: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...

    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            return tuple(self[at] for at in range(*index.indices(len(self))))
        at = range(len(self))[index]
        number = bisect_right(self._ends, at)
        block = self.blocks[number]
        cached = self._cached
        if cached is None or cached[0] is not block:
            cached = self._cached = (block, block.events(), block.refers)
        event = cached[1][at - self._ends[number]]
        return self._restore(event) if cached[2] else event

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple | LinkedEvents):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<LinkedEvents: {len(self)} events>"


def decode_plain(text: bytes | msgspec.Raw) -> list[StoredEvent] | None:
    """Decode the text of events, or return None if it has other fields or types."""
    try:
        return decode_stored_events(text)
    except msgspec.ValidationError:
        return None


def decode_changes(
    text: bytes | msgspec.Raw, seq: int, prev: str
) -> tuple[list[str], list[Changes]]:
    """Return the hashes and the changes of events that follow a position, given their text.

    Raises:
        HoldfastError, KeyError, TypeError, ValueError: The text is malformed.

    """
    stored = decode_plain(text)
    hashes = None if stored is None else hash_plain_events(stored, seq, prev)
    if stored is None or hashes is None:
        events = decode_events(text, seq, prev)
        return [event.hash for event in events], [event.changes for event in events]
    changes: list[Changes] = [{"set": each.set, "delete": each.delete} for each in stored]
    return hashes, changes


def decode_events(text: bytes | msgspec.Raw, seq: int, prev: str) -> list[Event]:
    """Decode the events that follow a position, given their text.

    Raises:
        HoldfastError, KeyError, TypeError, ValueError: The text is malformed.

    """
    stored = decode_plain(text)
    hashes = None if stored is None else hash_plain_events(stored, seq, prev)
    if stored is None or hashes is None:
        trees = msgspec.json.decode(text, type=list)
        drafts = [draft_from_json({"type": DEFAULT_TYPE, **tree}) for tree in trees]
        return link_events(drafts, seq, prev)
    events: list[Event] = []
    for each, hash_ in zip(stored, hashes, strict=True):
        seq += 1
        changes: Changes = {"set": each.set, "delete": each.delete}
        at = parse_time(each.at)
        events.append(Event(seq, each.id, each.type, at, each.data, changes, prev, hash_))
        prev = hash_
    return events


def join_texts(texts: Iterable[bytes | memoryview | msgspec.Raw]) -> bytes:
    """Return the JSON array of events, given their texts."""
    return b"[" + b",".join(texts) + b"]"
