"""Going through a whole log: what is not whole is listed, and reading goes on behind it."""

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
from support.observed_store import NOW, Watched, flipped, gathered, tried

PLACE = "place/"


async def filled(commits, each=2):
    """A log of so many segments of two events."""
    store = Watched()
    log = EventLog(store, PLACE, "1")
    for number in range(commits):
        await log.append([draft_event("n", {"n": number}, set_=[("s", "n", number)])] * each)
    return store, log


def key(seq):
    return f"{PLACE}log/1/{seq:012}.json"


def sealed_again(data, **fields):
    """A segment that is whole, and says something else."""
    tree = {**json.loads(data), **fields}
    raw = json.dumps(tree["events"], separators=(",", ":")).encode()
    tree["digest"] = hashlib.sha256(raw).hexdigest()
    return json.dumps(tree, separators=(",", ":")).encode()


async def inspected(log, *after):
    """What is found: the first seq of each segment, or the damage."""
    found = await gathered(log.inspect(*after))
    return [each.first if isinstance(each, Segment) else each for each in found]


def read(data):
    return decode_segment(key(1), data).events()


async def damaged_keys(log):
    return [each.key for each in await log.verify()]


@async_test
async def test_a_whole_log_is_given_segment_by_segment(monkeypatch):
    for at_once in (256, 3, 1):
        monkeypatch.setattr(event_log, "PAGE_SIZE", at_once)
        _, log = await filled(7)
        assert await inspected(log) == [1, 3, 5, 7, 9, 11, 13]
        assert await log.verify() == []
        last = (await gathered(log.read(6, 6)))[0]
        assert await inspected(log, Position(6, last.hash)) == [7, 9, 11, 13]
        assert await log.verify(Position(6, last.hash)) == []


@async_test
async def test_an_empty_log_is_whole():
    assert await inspected(EventLog(Watched(), PLACE, "1")) == []


@pytest.mark.parametrize("at_once", [256, 2])
def test_what_is_missing_is_listed_and_the_rest_is_given(at_once, monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", at_once)

    @async_test
    async def work():
        store, log = await filled(6)
        await store.delete(key(1))
        assert await inspected(log) == [Damage(key(1), "it is missing"), 3, 5, 7, 9, 11]
        await store.delete(key(7))
        await store.delete(key(9))
        assert await inspected(log) == [
            Damage(key(1), "it is missing"),
            3,
            5,
            Damage(key(7), "it is missing"),
            11,
        ]

    work()


@async_test
async def test_what_is_damaged_is_listed_once_and_the_rest_is_given():
    store, log = await filled(5)
    await store.damage(key(3), lambda data: data[:-3])
    await store.damage(key(9), lambda data: b"")
    assert await damaged_keys(log) == [key(3), key(9)]
    assert [each for each in await inspected(log) if isinstance(each, int)] == [1, 5, 7]


@async_test
async def test_segments_in_each_others_places_are_both_listed():
    store, log = await filled(4)
    content = store.content
    await store.put_many([Put(key(3), content[key(5)]), Put(key(5), content[key(3)])])
    assert await damaged_keys(log) == [key(3), key(5)]


@async_test
async def test_a_segment_of_another_log_is_listed():
    store, log = await filled(3)
    other, _ = await filled(3)
    await store.put(key(3), other.content[key(3)])
    found = await log.verify()
    assert found[0].key == key(3)
    assert "does not follow the previous segment" in found[0].problem


@async_test
async def test_a_beginning_that_is_not_the_logs_is_listed():
    _, log = await filled(3)
    (found,) = await log.verify(Position(2, "0" * 64))
    assert found.key == key(3)


@async_test
async def test_events_that_do_not_lead_to_the_hash_are_listed():
    store, log = await filled(3)
    for fields in ({"hash": "0" * 64}, {"last": 5}, {"events": []}, {"events": {}}):
        data = store.content[key(3)]
        await store.put(key(3), sealed_again(data, **fields))
        assert key(3) in await damaged_keys(log)
        await store.put(key(3), data)
    assert await log.verify() == []


@async_test
async def test_a_newer_format_is_listed():
    store, log = await filled(2)
    await store.damage(key(3), lambda data: data.replace(b'"format":1', b'"format":2', 1))
    (found,) = await log.verify()
    assert "upgrade Holdfast" in found.problem


class Haunted(Watched):
    """Lists a key that is gone when it is asked for."""

    async def _page(self, span, count):
        return sorted({*await super()._page(span, count), key(3)})


@async_test
async def test_what_is_listed_and_not_there_is_damage():
    store, log = await filled(1)
    haunted = Haunted()
    await haunted.put(key(1), store.content[key(1)])
    log = EventLog(haunted, PLACE, "1")
    assert await damaged_keys(log) == [key(3)]
    with pytest.raises(IntegrityError, match=f"{key(3)} is damaged: it is listed but cannot"):
        await gathered(log.read())


@async_test
async def test_any_flipped_bit_is_noticed_or_changes_nothing():
    store, log = await filled(1)
    data = store.content[key(1)]
    events = await gathered(log.read())
    for bit in range(len(data) * 8):
        found, refusal = tried(read, flipped(data, bit))
        assert found == events or key(1) in refusal


@async_test
async def test_a_log_is_read_page_by_page(monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", 3)
    for commits in (2, 3, 4, 6, 7):
        store, log = await filled(commits)
        assert [event.seq for event in await gathered(log.read())] == list(
            range(1, 2 * commits + 1)
        )
        store.forget()
        await gathered(log.read(1, 3))
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
def test_whole_bytes_that_are_no_events_are_damage(events):
    @async_test
    async def work():
        store, _ = await filled(1)
        segment = decode_segment(key(1), sealed_again(store.content[key(1)], events=events))
        with pytest.raises(IntegrityError, match=key(1)):
            segment.events()

    work()


@async_test
async def test_changes_that_cannot_be_are_damage():
    store, _ = await filled(1)
    for wrong in (
        {"set": [["s", "n"]]},
        {"set": [[1, "n", 1]]},
        {"set": [["s", "n", {"$unknown": 1}]]},
        {"delete": "all"},
    ):
        tree = json.loads(store.content[key(1)])
        events = [{**event, **wrong} for event in tree["events"]]
        segment = decode_segment(key(1), sealed_again(store.content[key(1)], events=events))
        with pytest.raises(IntegrityError, match=key(1)):
            list(segment.changes())


@async_test
async def test_a_stub_in_the_log_is_given_as_one_and_keeps_the_chain(monkeypatch):
    store, log = await filled(4)
    for seq in (1, 3):
        segment = decode_segment(key(seq), store.content[key(seq)])
        await store.put(key(seq), encode_tombstone(segment, NOW))
    found = await gathered(log.inspect())
    assert [each.is_pruned for each in found] == [True, True, False, False]
    other, _ = await filled(2)
    wrong = decode_segment(key(3), other.content[key(3)])
    await store.put(key(3), encode_tombstone(wrong, NOW))
    assert await damaged_keys(log) == [key(3)]


def test_a_newer_segment_is_refused_before_anything_else():
    with pytest.raises(InvalidDocumentError, match="format 9, but this version supports 1"):
        decode_segment("k", b'{"format":9,"first":1,"last":1,"prev":"","hash":""}')


class Point:
    def __init__(self, x):
        self.x = x


@async_test
async def test_a_value_of_a_type_that_is_not_registered_here_is_not_damage():
    register_type(Point, name="point", encode=lambda point: point.x, decode=Point)
    store = Watched()
    log = EventLog(store, PLACE, "1")
    await log.append([draft_event("set", set_=[("s", "point", Point(3))])])
    segment = decode_segment(key(1), store.content[key(1)])
    # As in a process that did not register it.
    del lowering.registered_names["point"], lowering.registered_types[Point]
    for asked in (segment.events, lambda: list(segment.changes())):
        with pytest.raises(UnsupportedValueError, match="register_type") as caught:
            asked()
        assert "damaged" not in str(caught.value)
    with pytest.raises(UnsupportedValueError, match="register_type"):
        await log.verify()


class Unsteady(Watched):
    """Misses keys in its next listings, as a folder does that is written to while it is read."""

    def __init__(self):
        super().__init__()
        self.misses = []

    async def list(self, prefix="", *, start_after="", limit=None):
        missed = self.misses.pop(0) if self.misses else ()
        keys = await gathered(super().list(prefix, start_after=start_after))
        for key in [key for key in keys if key not in missed][:limit]:
            yield key


async def unsteady(commits):
    store = Unsteady()
    full, log = await filled(commits)
    for at, value in full.content.items():
        await store.put(at, value)
    log.state_store = store
    return store, log


@async_test
async def test_a_segment_that_one_listing_missed_is_not_damage(monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", 4)
    store, log = await unsteady(10)
    gaps = [(1,), (5,), (3, 5, 7), (1, 3, 5, 7, 9, 11, 13)]
    for first in gaps:
        for second in gaps:
            missed = [[log.key(seq) for seq in each] for each in (first, second)]
            # Only what is missed twice in a row at the same place is missing.
            if first[0] == second[0]:
                continue
            store.misses = [missed[0], [], missed[1]]
            assert [each.seq async for each in log.read()] == list(range(1, 21))
            store.misses = [missed[0], [], missed[1]]
            assert await inspected(log) == list(range(1, 21, 2))
    store.misses = []
    await store.delete(log.key(5))
    with pytest.raises(IntegrityError, match=f"{log.key(5)} is missing"):
        [each async for each in log.read()]
    assert await damaged_keys(log) == [log.key(5)]


@async_test
async def test_keys_in_the_log_that_are_not_segments_are_ignored(monkeypatch):
    monkeypatch.setattr(event_log, "PAGE_SIZE", 3)
    store, log = await filled(7)
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
    assert await inspected(log) == list(range(1, 15, 2))
    assert await damaged_keys(log) == []
    assert not [read for read in store.read if not log.is_segment_key(read)]
