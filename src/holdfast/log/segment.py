"""The events of one commit as bytes: one JSON object, written once and never changed.

    {"format": 1, "first": 8, "last": 11, "prev": "…", "hash": "…", "digest": "…",
     "events": [{…}, …]}

``first`` and ``last`` are the seqs of its events. ``prev`` is the hash before the first of them and
``hash`` that of the last, so that segments are a chain themselves. ``digest`` is the sha256 of the
text of ``events`` as it stands there: with it a load notices damage at the cost of reading. The
hash of each single event is not written; whoever wants it computes it.

Where the events were pruned, a stub stays for a while in their place, so that a writer who did not
hear of it still meets somebody at that seq:

    {"format": 1, "first": 8, "last": 11, "prev": "…", "hash": "…", "pruned_at": "…Z"}
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from holdfast.errors import (
    HoldfastError,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    UnsupportedValueError,
)
from holdfast.log.changes import changes_from_rows
from holdfast.log.event import (
    Event,
    StoredChanges,
    draft_from_json,
    event_to_compact_json,
    format_time,
    parse_time,
)
from holdfast.log.hash_chain import link_events
from holdfast.state.diff import Changes

T = TypeVar("T")

SEGMENT_FORMAT = 1
MALFORMED = (AttributeError, KeyError, TypeError, ValueError)

decode_segment_changes = msgspec.json.Decoder(list[StoredChanges]).decode


class StoredSegment(msgspec.Struct, omit_defaults=True):
    """A segment as it is stored."""

    format: int
    first: int
    last: int
    prev: str
    hash: str
    digest: str = ""
    events: msgspec.Raw = msgspec.Raw(b"")
    pruned_at: str = ""


class Segment:
    """A stored segment that is whole. Its events are read when asked for."""

    __slots__ = ("_form", "key")

    def __init__(self, key: str, form: StoredSegment) -> None:
        self.key = key
        self._form = form

    @property
    def first(self) -> int:
        """The seq of its first event."""
        return self._form.first

    @property
    def last(self) -> int:
        """The seq of its last event."""
        return self._form.last

    @property
    def prev(self) -> str:
        """The hash before its first event."""
        return self._form.prev

    @property
    def hash(self) -> str:
        """The hash of its last event."""
        return self._form.hash

    @property
    def is_pruned(self) -> bool:
        """Whether its events are gone and a stub is left."""
        return bool(self._form.pruned_at)

    @property
    def pruned_at(self) -> dt.datetime:
        """When its events were pruned."""
        return parse_time(self._form.pruned_at)

    @property
    def size(self) -> int:
        """Bytes of its events, as they are written."""
        return len(memoryview(self._form.events))

    def changes(self, last: int | None = None) -> Iterator[Changes]:
        """What each of its events sets and deletes, in order, up to a seq."""
        self._check_there()
        with self._explaining():
            forms = self._counted(decode_segment_changes(self._form.events))
            for form in forms if last is None else forms[: max(0, last - self.first + 1)]:
                yield changes_from_rows(form.set, form.delete)

    def events(self) -> list[Event]:
        """Its events at their places, after checking that the chain leads to its hash."""
        self._check_there()
        with self._explaining():
            trees = self._counted(msgspec.json.decode(self._form.events, type=list))
            drafts = [draft_from_json(tree) for tree in trees]
        events = link_events(drafts, self.first - 1, self.prev)
        if events[-1].hash != self.hash:
            raise damaged_segment_error(
                self.key, "its events do not lead to the hash that it gives"
            )
        return events

    def _check_there(self) -> None:
        if self.is_pruned:
            raise pruned_segment_error(self)

    def _counted(self, found: list[T]) -> list[T]:
        if not found or len(found) != self.last - self.first + 1:
            raise damaged_segment_error(self.key, f"it has {len(found)} events")
        return found

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (IntegrityError, UnsupportedValueError):
            raise  # a type that is not registered here is no damage
        except (HoldfastError, msgspec.DecodeError, *MALFORMED) as error:
            raise damaged_segment_error(self.key, str(error)) from error


def encode_segment(events: Sequence[Event]) -> bytes:
    """The bytes of a segment of these events."""
    raw = msgspec.json.encode([event_to_compact_json(event) for event in events])
    form = StoredSegment(
        SEGMENT_FORMAT,
        events[0].seq,
        events[-1].seq,
        events[0].prev,
        events[-1].hash,
        hashlib.sha256(raw).hexdigest(),
        msgspec.Raw(raw),
    )
    return msgspec.json.encode(form)


def encode_tombstone(segment: Segment, moment: dt.datetime) -> bytes:
    """The bytes of what is left of a segment whose events are pruned."""
    return msgspec.json.encode(
        StoredSegment(
            SEGMENT_FORMAT,
            segment.first,
            segment.last,
            segment.prev,
            segment.hash,
            pruned_at=format_time(moment),
        )
    )


def decode_segment(key: str, data: bytes) -> Segment:
    """A segment from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    try:
        form = msgspec.json.decode(data, type=StoredSegment)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise damaged_segment_error(key, str(error)) from error
    if form.format > SEGMENT_FORMAT:
        raise InvalidDocumentError(
            f"{key} was written by a newer Holdfast (format {form.format}, known is {SEGMENT_FORMAT}): "
            "upgrade this one"
        )
    if not form.pruned_at and hashlib.sha256(form.events).hexdigest() != form.digest:
        raise damaged_segment_error(key, "its content does not match its digest")
    return Segment(key, form)


def damaged_segment_error(key: str, problem: str) -> IntegrityError:
    """The error for a segment that is not as it was written."""
    return IntegrityError(
        f"the log's segment {key} is damaged: {problem:.400}. Restore it from a backup or a "
        "document"
    )


def pruned_segment_error(segment: Segment) -> NotFoundError:
    """The error for events that are asked for and were pruned."""
    return NotFoundError(
        f"the events {segment.first} to {segment.last} were pruned ({segment.key}): ask for later "
        "ones, or for the state at a snapshot that was kept"
    )
