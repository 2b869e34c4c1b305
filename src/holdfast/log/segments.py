"""The events of one commit as bytes: one JSON object, written once and never changed.

    {"format": 1, "first": 8, "prev": "…", "hash": "…", "digest": "…", "events": [{…}, …]}

``first`` is the first event's seq, the others count on from it. ``prev`` is the hash before the
first event and ``hash`` that of the last, so that segments are a chain themselves. ``digest`` is
the sha256 of the text of ``events`` as it stands there: with it a load notices damage at the cost
of reading. The hash of each single event is not written; whoever wants it computes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from holdfast.errors import HoldfastError, IntegrityError, InvalidDocumentError
from holdfast.log.chain import linked
from holdfast.log.events import Draft, Event, content, read_content

FORMAT = 1


class SegmentForm(msgspec.Struct):
    """A segment as it is stored."""

    format: int
    first: int
    prev: str
    hash: str
    digest: str
    events: msgspec.Raw


class Segment:
    """A stored segment that is whole. Its events are read when asked for."""

    __slots__ = ("_drafts", "_form", "key")

    def __init__(self, key: str, form: SegmentForm) -> None:
        self.key = key
        self._form = form
        self._drafts: list[Draft] | None = None

    @property
    def first(self) -> int:
        """The seq of its first event."""
        return self._form.first

    @property
    def last(self) -> int:
        """The seq of its last event."""
        return self._form.first + len(self.drafts) - 1

    @property
    def prev(self) -> str:
        """The hash before its first event."""
        return self._form.prev

    @property
    def hash(self) -> str:
        """The hash of its last event."""
        return self._form.hash

    @property
    def drafts(self) -> list[Draft]:
        """What its events say, without their places."""
        if self._drafts is None:
            try:
                self._drafts = [
                    read_content(tree) for tree in msgspec.json.decode(self._form.events)
                ]
            except (HoldfastError, msgspec.DecodeError) as error:
                raise damaged(self.key, str(error)) from error
            if not self._drafts:
                raise damaged(self.key, "it has no events")
        return self._drafts

    def events(self) -> list[Event]:
        """Its events at their places, after checking that the chain leads to its hash."""
        events = linked(self.drafts, self.first - 1, self.prev)
        if events[-1].hash != self.hash:
            raise damaged(self.key, "its events do not lead to the hash that it gives")
        return events


def encoded(events: Sequence[Event]) -> bytes:
    """The bytes of a segment of these events."""
    raw = msgspec.json.encode([content(event) for event in events])
    form = SegmentForm(
        FORMAT,
        events[0].seq,
        events[0].prev,
        events[-1].hash,
        hashlib.sha256(raw).hexdigest(),
        msgspec.Raw(raw),
    )
    return msgspec.json.encode(form)


def decoded(key: str, data: bytes) -> Segment:
    """A segment from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    try:
        form = msgspec.json.decode(data, type=SegmentForm)
    except msgspec.DecodeError as error:
        raise damaged(key, str(error)) from error
    if form.format > FORMAT:
        raise InvalidDocumentError(
            f"{key} was written by a newer Holdfast (format {form.format}, known is {FORMAT}): "
            "upgrade this one"
        )
    if hashlib.sha256(form.events).hexdigest() != form.digest:
        raise damaged(key, "its content does not match its digest")
    return Segment(key, form)


def damaged(key: str, problem: str) -> IntegrityError:
    """The error for a segment that is not as it was written."""
    return IntegrityError(
        f"the log's segment {key} is damaged: {problem}. Restore it from a backup or a document"
    )
