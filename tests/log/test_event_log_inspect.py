"""EventLog.inspect and verify: damage is reported, and reading continues after it."""

from __future__ import annotations

import hashlib
import json

import pytest

from holdfast import (
    IntegrityError,
    InvalidDocumentError,
    Put,
    UnsupportedValueError,
    register_type,
)
from holdfast.log import EventLog, event_log
from holdfast.log.event import draft_event
from holdfast.log.event_log import Damage, Position
from holdfast.log.segment import Segment, decode_segment, encode_tombstone
from holdfast.values import lowering
from support.async_tests import async_test
from support.observed_store import NOW, ObservedStore, collect, flip_bit, try_call

PREFIX = "place/"


async def make_log(commits, each=2):
    """Create a log with one segment of events per commit."""
    store = ObservedStore()
    log = EventLog(store, PREFIX, "1")
    for number in range(commits):
        await log.append([draft_event("n", {"n": number}, set_=[("s", "n", number)])] * each)
    return store, log


def key(seq):
    return f"{PREFIX}log/1/{seq:012}.json"


def replace_fields(data, **fields):
    """Replace fields of a segment and update its digest."""
    tree = {**json.loads(data), **fields}
    raw = json.dumps(tree["events"], separators=(",", ":")).encode()
    tree["digest"] = hashlib.sha256(raw).hexdigest()
    return json.dumps(tree, separators=(",", ":")).encode()


async def inspect(log, *after):
    """Return the first seq of each segment, or its damage."""
    found = await collect(log.inspect(*after))
    return [each.first if isinstance(each, Segment) else each for each in found]


def decode_events(data):
    return decode_segment(key(1), data).events()


async def damaged_keys(log):
    return [each.key for each in await log.verify()]


@async_test
async def test_inspect_yields_all_segments_of_an_intact_log(monkeypatch):
    for page_size in (256, 3, 1):
        monkeypatch.setattr(event_log, "PAGE_SIZE", page_size)
        _, log = await make_log(7)
        assert await inspect(log) == [1, 3, 5, 7, 9, 11, 13]
        assert await log.verify() == []
        last = (await collect(log.read(6, 6)))[0]
        assert await inspect(log, Position(6, last.hash)) == [7, 9, 11, 13]
        assert await log.verify(Position(6, last.hash)) == []


@async_test
async def test_an_empty_log_has_no_damage():
    assert await inspect(EventLog(ObservedStore(), PREFIX, "1")) == []


@pytest.mark.parametrize("page_size", [256, 2])
def test_inspect_reports_missing_segments_and_yields_the_others(page_size, monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", page_size)

    @async_test
    async def work():
        store, log = await make_log(6)
        await store.delete(key(1))
        assert await inspect(log) == [Damage(key(1), "it is missing"), 3, 5, 7, 9, 11]
        await store.delete(key(7))
        await store.delete(key(9))
        assert await inspect(log) == [
            Damage(key(1), "it is missing"),
            3,
            5,
            Damage(key(7), "it is missing"),
            11,
        ]

    work()


@async_test
async def test_inspect_reports_each_damaged_segment_once_and_yields_the_others():
    store, log = await make_log(5)
    await store.damage(key(3), lambda data: data[:-3])
    await store.damage(key(9), lambda data: b"")
    assert await damaged_keys(log) == [key(3), key(9)]
    assert [each for each in await inspect(log) if isinstance(each, int)] == [1, 5, 7]


@async_test
async def test_swapped_segments_are_both_reported():
    store, log = await make_log(4)
    content = store.content
    await store.put_many([Put(key(3), content[key(5)]), Put(key(5), content[key(3)])])
    assert await damaged_keys(log) == [key(3), key(5)]


@async_test
async def test_a_segment_of_another_log_is_reported():
    store, log = await make_log(3)
    other, _ = await make_log(3)
    await store.put(key(3), other.content[key(3)])
    found = await log.verify()
    assert found[0].key == key(3)
    assert "does not follow the previous segment" in found[0].problem


@async_test
async def test_a_wrong_start_position_is_reported():
    _, log = await make_log(3)
    (found,) = await log.verify(Position(2, "0" * 64))
    assert found.key == key(3)


@async_test
async def test_a_hash_mismatch_is_reported():
    store, log = await make_log(3)
    for fields in ({"hash": "0" * 64}, {"last": 5}, {"events": []}, {"events": {}}):
        data = store.content[key(3)]
        await store.put(key(3), replace_fields(data, **fields))
        assert key(3) in await damaged_keys(log)
        await store.put(key(3), data)
    assert await log.verify() == []


@async_test
async def test_a_newer_segment_format_is_reported():
    store, log = await make_log(2)
    await store.damage(key(3), lambda data: data.replace(b'"format":1', b'"format":2', 1))
    (found,) = await log.verify()
    assert "upgrade Holdfast" in found.problem


class ListsMissingKey(ObservedStore):
    """Lists a key that does not exist."""

    async def _page(self, span, count):
        return sorted({*await super()._page(span, count), key(3)})


@async_test
async def test_a_listed_key_that_cannot_be_read_is_damage():
    source, _ = await make_log(1)
    store = ListsMissingKey()
    await store.put(key(1), source.content[key(1)])
    log = EventLog(store, PREFIX, "1")
    assert await damaged_keys(log) == [key(3)]
    with pytest.raises(IntegrityError, match=f"{key(3)} is damaged: it is listed but cannot"):
        await collect(log.read())


@async_test
async def test_any_flipped_bit_is_detected_or_harmless():
    store, log = await make_log(1)
    data = store.content[key(1)]
    events = await collect(log.read())
    for bit in range(len(data) * 8):
        found, refusal = try_call(decode_events, flip_bit(data, bit))
        assert found == events or key(1) in refusal


@async_test
async def test_a_log_is_read_in_pages(monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", 3)
    for commits in (2, 3, 4, 6, 7):
        store, log = await make_log(commits)
        assert [event.seq for event in await collect(log.read())] == list(range(1, 2 * commits + 1))
        store.forget()
        await collect(log.read(1, 3))
        assert len(store.read) <= 2


@pytest.mark.parametrize(
    "events",
    [
        [],
        [1],
        ["event", "event"],
        [{}, {}],
        [{"id": 1, "type": "a", "at": "2026-01-01T00:00:00Z"}] * 2,
        [{"id": "1", "type": "a", "at": "yesterday"}] * 2,
        [{"id": "1", "type": "a", "at": "0001-01-01T00:00:00+01:00"}] * 2,
        [{"id": "1", "type": "a", "at": "2026-01-01T00:00:00Z", "set": 7}] * 2,
        [{"id": "1", "type": "a", "at": "2026-01-01T00:00:00Z", "set": [["n", "k"]]}] * 2,
        [{"id": "1", "type": "a", "at": "2026-01-01T00:00:00Z", "delete": [[1, 2]]}] * 2,
        [{"id": "1", "type": "a", "at": "2026-01-01T00:00:00Z", "data": {"$unknown": 1}}] * 2,
    ],
    ids=range(11),
)
def test_a_segment_with_malformed_events_is_damaged(events):
    @async_test
    async def work():
        store, _ = await make_log(1)
        segment = decode_segment(key(1), replace_fields(store.content[key(1)], events=events))
        with pytest.raises(IntegrityError, match=key(1)):
            segment.events()

    work()


@async_test
async def test_a_segment_with_malformed_changes_is_damaged():
    store, _ = await make_log(1)
    for wrong in (
        {"set": [["s", "n"]]},
        {"set": [[1, "n", 1]]},
        {"set": [["s", "n", {"$unknown": 1}]]},
        {"delete": "all"},
    ):
        tree = json.loads(store.content[key(1)])
        events = [{**event, **wrong} for event in tree["events"]]
        segment = decode_segment(key(1), replace_fields(store.content[key(1)], events=events))
        with pytest.raises(IntegrityError, match=key(1)):
            list(segment.changes())


@async_test
async def test_inspect_yields_tombstones_as_part_of_the_chain(monkeypatch):
    store, log = await make_log(4)
    for seq in (1, 3):
        segment = decode_segment(key(seq), store.content[key(seq)])
        await store.put(key(seq), encode_tombstone(segment, NOW))
    found = await collect(log.inspect())
    assert [each.is_pruned for each in found] == [True, True, False, False]
    other, _ = await make_log(2)
    wrong = decode_segment(key(3), other.content[key(3)])
    await store.put(key(3), encode_tombstone(wrong, NOW))
    assert await damaged_keys(log) == [key(3)]


def test_the_segment_format_is_checked_first():
    with pytest.raises(InvalidDocumentError, match="format 9, but this version supports 1"):
        decode_segment("k", b'{"format":9,"first":1,"last":1,"prev":"","hash":""}')


class Point:
    def __init__(self, x):
        self.x = x


@async_test
async def test_an_unregistered_type_is_not_damage():
    register_type(Point, name="point", encode=lambda point: point.x, decode=Point)
    store = ObservedStore()
    log = EventLog(store, PREFIX, "1")
    await log.append([draft_event("set", set_=[("s", "point", Point(3))])])
    segment = decode_segment(key(1), store.content[key(1)])
    # As in a process that has not registered it.
    del lowering.registered_names["point"], lowering.registered_types[Point]
    for asked in (segment.events, lambda: list(segment.changes())):
        with pytest.raises(UnsupportedValueError, match="register_type") as caught:
            asked()
        assert "damaged" not in str(caught.value)
    with pytest.raises(UnsupportedValueError, match="register_type"):
        await log.verify()


class MissesKeys(ObservedStore):
    """Misses keys in its next listings, like a folder that changes while it is read."""

    def __init__(self):
        super().__init__()
        self.misses = []

    async def list(self, prefix="", *, start_after="", limit=None):
        missed = self.misses.pop(0) if self.misses else ()
        keys = await collect(super().list(prefix, start_after=start_after))
        for key in [key for key in keys if key not in missed][:limit]:
            yield key


async def make_log_that_misses_keys(commits):
    store = MissesKeys()
    full, log = await make_log(commits)
    for at, value in full.content.items():
        await store.put(at, value)
    log.state_store = store
    return store, log


@async_test
async def test_a_segment_missed_by_one_listing_is_not_damage(monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", 4)
    store, log = await make_log_that_misses_keys(10)
    gaps = [(1,), (5,), (3, 5, 7), (1, 3, 5, 7, 9, 11, 13)]
    for first in gaps:
        for second in gaps:
            missed = [[log.key(seq) for seq in each] for each in (first, second)]
            # A key that two consecutive listings miss counts as missing.
            if first[0] == second[0]:
                continue
            store.misses = [missed[0], [], missed[1]]
            assert [each.seq async for each in log.read()] == list(range(1, 21))
            store.misses = [missed[0], [], missed[1]]
            assert await inspect(log) == list(range(1, 21, 2))
    store.misses = []
    await store.delete(log.key(5))
    with pytest.raises(IntegrityError, match=f"{log.key(5)} is missing"):
        [each async for each in log.read()]
    assert await damaged_keys(log) == [log.key(5)]


@async_test
async def test_other_keys_in_the_log_are_ignored(monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", 3)
    store, log = await make_log(7)
    for stray in (
        "!first.json",
        "000000000003.json.bak",
        "000000000003.json/deep.json",
        ".000000000003.json.swp",
        "3.json",
        "notes.txt",
        *(f"zz/{number}" for number in range(8)),
    ):
        await store.put(f"{log.prefix}{stray}", b"not ours")
    store.forget()
    assert [each.seq async for each in log.read()] == list(range(1, 15))
    assert [each.seq async for each in log.read(4, 9)] == list(range(4, 10))
    assert await inspect(log) == list(range(1, 15, 2))
    assert await damaged_keys(log) == []
    assert not [
        decode_events for decode_events in store.read if not log.is_segment_key(decode_events)
    ]
