"""EventLog: append and read."""

from __future__ import annotations

import datetime as dt
import json
import uuid

import pytest
from hypothesis import given

from holdfast import ConflictError, IntegrityError, InvalidDocumentError, Store
from holdfast.log import EventLog
from holdfast.log.changes import fold_changes
from holdfast.log.encoded_event import encode_draft
from holdfast.log.event import draft_event, draft_from_json, event_to_json
from holdfast.log.event_log import Position
from holdfast.log.hash_chain import GENESIS, link_events
from holdfast.log.linked_events import EventBlock
from holdfast.log.segment import decode_segment
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import ObservedStore
from support.sample_values import is_identical, values


def message(number, text="hello"):
    return draft_event(
        "message.appended",
        {"role": "user"},
        set_=[("messages", f"{number:012}", {"role": "user", "content": text})],
    )


async def collect(events):
    return [event async for event in events]


async def make_log(commits, each=2, store=None):
    store = store or ObservedStore()
    log = EventLog(store, "place/", "1")
    number = 0
    for _ in range(commits):
        await log.append([message(number + at) for at in range(each)])
        number += each
    return store, log


@async_test
async def test_read_returns_the_appended_events():
    store = MemoryStateStore()
    log = EventLog(store, "sessions/s/", "1")
    called = draft_event("llm.called", {"tokens": 12, "at": dt.date.max})
    first = (await log.append([message(1), called])).events
    second = (await log.append([draft_event("state.deleted", delete=[("state", "plan")])])).events
    assert [key async for key in store.list()] == [
        "sessions/s/log/1/000000000001.json",
        "sessions/s/log/1/000000000003.json",
    ]
    other = EventLog(store, "sessions/s/", "1")
    assert await collect(other.read()) == first + second
    assert [event.seq for event in first + second] == [1, 2, 3]
    assert [event.prev for event in first + second] == [
        GENESIS,
        first[0].hash,
        first[1].hash,
    ]
    assert uuid.UUID(first[0].id).version == 7


@async_test
async def test_a_segment_is_plain_json():
    store = MemoryStateStore()
    await EventLog(store, "", "1").append([message(1, "hi")])
    segment = json.loads((await store.get("log/1/000000000001.json")).value)
    assert segment["first"] == 1
    (event,) = segment["events"]
    assert "type" not in event  # the default
    assert event["set"] == [["messages", "000000000001", {"role": "user", "content": "hi"}]]


@async_test
async def test_append_fails_when_another_writer_appended_first():
    store = MemoryStateStore()
    one, two = EventLog(store, "", "1"), EventLog(store, "", "1")
    won = (await one.append([message(1)])).events
    with pytest.raises(ConflictError):
        await two.append([message(2)])
    assert await collect(two.read()) == won
    assert two.head == Position()


@async_test
async def test_reading_a_range_reads_only_its_segments():
    store, log = await make_log(100)
    assert [event.seq for event in await collect(log.read(20, 23))] == [20, 21, 22, 23]
    middle = (await collect(log.read(120, 120)))[0]
    store.read.clear()
    found = await collect(log.read(121, 124, after=Position(120, middle.hash)))
    assert [event.seq for event in found] == [121, 122, 123, 124]
    assert store.read == ["place/log/1/000000000121.json", "place/log/1/000000000123.json"]


def test_folding_the_changes_yields_the_state():
    events = link_events(
        [
            draft_event("a", set_=[("state", "x", 1), ("state", "y", (1, 2))]),
            draft_event("b"),
            draft_event("c", set_=[("state", "x", 2)], delete=[("state", "y")]),
        ],
        0,
        GENESIS,
    )
    store = Store()
    fold_changes(store, [event.changes for event in events[:2]])
    assert store.get("state", "y") == (1, 2)
    fold_changes(store, [event.changes for event in events[2:]])
    assert list(store.snapshot().items()) == [("state", "x", 2)]


@given(values)
def test_an_event_round_trips_with_any_value(value):
    made = draft_event("any", {"value": value}, set_=[("state", "key", value)])
    again = draft_from_json(json.loads(json.dumps(event_to_json(made))))
    assert link_events([again], 6, "prev")[0].hash == link_events([made], 6, "prev")[0].hash
    assert is_identical(again.changes, made.changes)


@given(values)
def test_a_prepared_segment_equals_the_decoded_one(value):
    drafts = [draft_event("any", value, set_=[("n", "k", value)], delete=[("n", "d")])] * 2
    log = EventLog(MemoryStateStore(), "sessions/s/", "1")
    prepared = log.prepare([encode_draft(each) for each in drafts], Position(6, "prev"))
    assert [event.hash for event in prepared.events] == [
        event.hash for event in link_events(drafts, 6, "prev")
    ]
    assert log.encode_linked(EventBlock.encode(prepared.events)) == prepared.put
    decoded = decode_segment(prepared.put.key, prepared.put.value)
    assert is_identical(list(decoded.changes()), list(prepared.segment.changes()))
    assert decoded.size == prepared.segment.size
    assert prepared.end == Position(decoded.last, decoded.hash)


def test_the_hash_covers_every_field():
    made = draft_event("a", {"x": 1}, set_=[("n", "k", 1)], delete=[("n", "d")])
    hashes = {link_events([made], 0, "")[0].hash, link_events([made], 1, "")[0].hash}
    hashes.add(link_events([made], 0, "other")[0].hash)
    for path, value in {
        "id": "x",
        "type": "b",
        "at": "2020-01-01T00:00:00Z",
        "data": {"x": 1.0},
        "changes": {"set": [["n", "k", True]], "delete": []},
    }.items():
        hashes.add(
            link_events([draft_from_json({**event_to_json(made), path: value})], 0, "")[0].hash
        )
    assert len(hashes) == 8


DAMAGE = {
    "a flipped letter": lambda data: data.replace(b"hello", b"hellp", 1),
    "a cut end": lambda data: data[:-20],
    "nothing": lambda data: b"",
    "other JSON": lambda data: b"[]",
    "another prev": lambda data: data.replace(b'"prev":"', b'"prev":"0', 1),
    "another first": lambda data: data.replace(b'"first":3', b'"first":4', 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
@async_test
async def test_a_damaged_segment_is_reported_after_the_events_before_it(damage):
    store, log = await make_log(3)
    key = "place/log/1/000000000003.json"
    await store.put(key, DAMAGE[damage]((await store.get(key)).value))
    found = []
    with pytest.raises(IntegrityError, match="000000000003|000000000005"):
        async for event in log.read():
            found.append(event.seq)
    assert found[:2] == [1, 2]


@async_test
async def test_a_segment_whose_hash_does_not_match_its_events_is_damaged():
    store, log = await make_log(1)
    key = "place/log/1/000000000001.json"
    segment = json.loads((await store.get(key)).value)
    segment["hash"] = "0" * 64
    await store.put(key, json.dumps(segment, separators=(",", ":")).encode())
    with pytest.raises(IntegrityError, match="hash of its events does not match"):
        await collect(log.read())


@async_test
async def test_a_missing_segment_is_reported_with_its_key():
    store, log = await make_log(3)
    await store.delete("place/log/1/000000000003.json")
    with pytest.raises(IntegrityError, match="000000000003.json is missing"):
        await collect(log.read())


@async_test
async def test_a_newer_segment_format_is_rejected():
    store, log = await make_log(1)
    key = "place/log/1/000000000001.json"
    data = (await store.get(key)).value
    await store.put(key, data.replace(b'"format":1', b'"format":2'))
    with pytest.raises(InvalidDocumentError, match="has format 2.*upgrade Holdfast"):
        await collect(log.read())


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        {**event_to_json(draft_event("a")), "at": "yesterday"},
        {**event_to_json(draft_event("a")), "at": "2026-01-01T00:00:00"},
        {**event_to_json(draft_event("a")), "type": 7},
        {**event_to_json(draft_event("a")), "changes": {"set": [[1, 2, 3]], "delete": []}},
        {**event_to_json(draft_event("a")), "changes": {"set": [["n", "k"]], "delete": []}},
        {**event_to_json(draft_event("a")), "data": {"$bytes": "not base64!"}},
    ],
)
def test_malformed_events_are_rejected(tree):
    with pytest.raises(InvalidDocumentError):
        draft_from_json(tree)
