"""Events kept as text are the events that were linked, however they are accessed."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import msgspec
import pytest

from holdfast.errors import IntegrityError
from holdfast.log.event import EventDraft, StoredEvent, draft_event
from holdfast.log.hash_chain import hash_plain_events, link_events
from holdfast.log.linked_events import EventBlock, LinkedEvents, decode_events
from holdfast.log.segment import build_segment, decode_segment, link_segments
from holdfast.state.store import Store
from support.sample_values import SAMPLES

WHOLE_SECOND = dt.datetime(2026, 11, 15, 9, 30, tzinfo=dt.UTC)

DRAFTS = [
    draft_event("tool.called", value, set_=[("state", name, value)], delete=[("state", "gone")])
    for name, value in SAMPLES.items()
    if "nan" not in name  # equal to nothing
] + [
    draft_event("message.appended", set_=[("messages", "000000000000", {"role": "user"})]),
    EventDraft("id", "whole second", WHOLE_SECOND, None, {"set": [], "delete": []}),
    EventDraft("id", "unknown", WHOLE_SECOND, 1.5, {"set": [], "delete": []}, {"note": [1]}),
]
EVENTS = tuple(link_events(DRAFTS, 4, "ab" * 32))


def make_linked(*sizes):
    """Return the sample events in blocks of some sizes, and the rest in a last one."""
    blocks, at = [], 0
    for size in (*sizes, len(EVENTS) - sum(sizes)):
        blocks.append(EventBlock.encode(EVENTS[at : at + size]))
        at += size
    return LinkedEvents(blocks)


LINKED = make_linked(1, 3, 2)


def test_they_equal_a_tuple_of_the_events():
    assert LINKED == EVENTS
    assert EVENTS == LINKED
    assert make_linked(2) == LINKED
    assert list(LINKED) == list(EVENTS)
    assert EVENTS[:-1] != LINKED
    assert (*EVENTS[:-1], replace(EVENTS[-1], extra={})) != LINKED
    assert list(EVENTS) != LINKED
    assert len(LINKED) == len(EVENTS)
    assert repr(LINKED) == f"<LinkedEvents: {len(EVENTS)} events>"


@pytest.mark.parametrize("index", [0, 1, 3, 4, 5, 6, len(EVENTS) - 1, -1, -len(EVENTS)])
def test_an_event_is_decoded_by_its_index(index):
    assert LINKED[index] == EVENTS[index]


@pytest.mark.parametrize("index", [len(EVENTS), -len(EVENTS) - 1])
def test_an_index_out_of_range_raises(index):
    with pytest.raises(IndexError):
        LINKED[index]


@pytest.mark.parametrize("piece", [slice(None), slice(2, 7), slice(-2, None), slice(9, 2, -3)])
def test_a_slice_is_a_tuple(piece):
    assert LINKED[piece] == EVENTS[piece]


def test_no_events():
    empty = LinkedEvents([])
    assert (len(empty), list(empty), list(empty.regroup(4)), list(empty.headers())) == (
        0,
        [],
        [],
        [],
    )
    assert empty == ()


@pytest.mark.parametrize("sizes", [(), (1, 3, 2), (4, 4), (2, 4, 2, 4), (len(EVENTS) - 4,)])
@pytest.mark.parametrize("size", [1, 2, 4, 256])
def test_regrouped_blocks_have_the_same_events(sizes, size):
    blocks = list(make_linked(*sizes).regroup(size))
    assert LinkedEvents(blocks) == EVENTS
    assert [len(block.hashes) for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    assert (blocks[0].first, blocks[-1].last) == (EVENTS[0].seq, EVENTS[-1].seq)


def test_headers_have_the_time_and_the_type():
    assert [each.type for each in LINKED.headers()] == [event.type for event in EVENTS]
    assert next(iter(LINKED.headers())).at.endswith("Z")


def test_the_first_events_of_a_block():
    block = EventBlock.encode(EVENTS)
    assert block.take(3).events() == list(EVENTS[:3])
    assert block.take(3).last == EVENTS[2].seq


def test_only_these_snapshots_are_known_to_be_the_states():
    base, state = Store().snapshot(), Store().snapshot()
    linked = LinkedEvents([], base=base, state=state)
    assert linked.is_known_to_lead(base, state)
    assert not linked.is_known_to_lead(None, state)
    assert not linked.is_known_to_lead(base, Store().snapshot())
    assert not LINKED.is_known_to_lead(None, state)


# ---------------------------------------------------------------------------------- hash chain


def test_plain_events_are_hashed_like_decoded_ones():
    found = hash_plain_events(
        [StoredEvent(id="a", at="2026-11-15T09:30:00.000001Z", data={"b": [1.5, 2**60], "a": ""})],
        0,
        "",
    )
    draft = EventDraft(
        "a",
        "message.appended",
        dt.datetime(2026, 11, 15, 9, 30, 0, 1, tzinfo=dt.UTC),
        {"a": "", "b": [1.5, 2**60]},
        {"set": [], "delete": []},
    )
    assert found == [link_events([draft], 0, "")[0].hash]


@pytest.mark.parametrize(
    "event",
    [
        {"data": {"$tuple": [1]}},
        {"set": [("state", "k", [{"$int": "1"}])]},
        {"data": 2**70},
        {"at": "2026-11-15T09:30:00Z"},
        {"at": "2026-11-15 09:30:00.000001Z"},
        {"at": "2026-11-15T10:30:00.000001+01:00"},
        {"at": "2026-11-15T09:30:00.000001"},
        {"at": "2026-02-30T09:30:00.000001Z"},
        {"at": "2026-11-15T09:30:00,000001Z"},
        {"at": "2026-W46-7T09:30:00.000001Z"},
        {"at": "2026-11-15T24:00:00.000000Z"},
        {"at": "2026-11-15T09:30:00.00000٣Z"},
    ],
)
def test_other_events_have_to_be_decoded(event):
    stored = StoredEvent(**{"id": "a", "at": "2026-11-15T09:30:00.000001Z", **event})
    assert hash_plain_events([stored], 0, "") is None


def test_a_time_of_another_form_is_decoded():
    (event,) = decode_events(b'[{"id":"a","at":"2026-11-15T10:30:00+01:00"}]', 0, "")
    assert event.at == WHOLE_SECOND


# ------------------------------------------------------------------------------------ segments


def make_segments(*sizes):
    """Return the sample events as segments of some sizes."""
    blocks = make_linked(*sizes).blocks
    return [build_segment(f"key {number}", block) for number, block in enumerate(blocks)]


def test_segments_are_linked_as_one_block():
    block, changes = link_segments(make_segments(1, 3, 2))
    assert LinkedEvents([block]) == EVENTS
    assert changes == [event.changes for event in EVENTS]


@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("field", ["hash", "last"])
def test_damage_names_the_segment(damaged, field):
    segments = make_segments(2, 2)
    stored = msgspec.json.decode(segments[damaged].encode())
    stored[field] = "0" * 64 if field == "hash" else stored["last"] + 1
    key = segments[damaged].key
    segments[damaged] = decode_segment(key, msgspec.json.encode(stored))
    with pytest.raises(IntegrityError, match=f"{key} is damaged: "):
        link_segments(segments)


def test_segments_that_do_not_follow_each_other_are_rejected():
    first, second, third = make_segments(2, 2)
    with pytest.raises(IntegrityError, match="does not lead to the next segment"):
        link_segments([first, third])
    assert link_segments([second, third])[0].last == EVENTS[-1].seq
