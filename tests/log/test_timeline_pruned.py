"""Timeline: pruned logs, concurrent prunes, and keyframes that cannot be written."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import gzip
import hashlib
import json
import logging
from zoneinfo import ZoneInfo

import pytest

from holdfast import (
    ConflictError,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    Put,
    StateStoreError,
    Store,
)
from holdfast.log import EventLog, timeline
from holdfast.log.encoded_event import encode_draft
from holdfast.log.event import draft_event, format_time
from holdfast.log.event_log import Position
from holdfast.log.keyframe import decode_keyframe, encode_keyframe
from holdfast.log.segment import decode_segment, encode_tombstone
from holdfast.log.timeline import BaseKeyframe, Timeline
from support.async_tests import async_test
from support.observed_store import NOW, InterruptedStore, ObservedStore, collect

PREFIX = "place/"


@pytest.fixture
def frequent_keyframes(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 4)
    monkeypatch.setattr(timeline, "MAX_CHAIN", 3)


class Recorder:
    """Commits events, and writes keyframes when due."""

    def __init__(self, store):
        self.state_store = store
        self.timeline = Timeline(store, PREFIX, "1")
        self.store = Store()
        self.past = {}

    async def commit(self, count=1):
        for _ in range(count):
            seq = self.timeline.log.head.seq + 1
            made = draft_event("set", set_=[("s", f"{seq:04}", seq), ("s", "last", seq)])
            self.store.apply(made.changes)
            log = self.timeline.log
            prepared = log.prepare([encode_draft(made)], log.head)
            await log.write(prepared)
            self.timeline.advance(prepared.end, len(prepared.put.value))
            self.past[seq] = self.store.snapshot()
            await self.timeline.write_keyframe_if_due(self.past[seq])
        return self

    async def check(self, *seqs):
        for seq in seqs:
            found = await Timeline(self.state_store, PREFIX, "1").load(seq)
            assert found.store.snapshot().digest == self.past[seq].digest
            assert found.end.seq == seq


def keyframe_key(seq):
    return f"{PREFIX}keyframes/1/{seq:012}.json.gz"


def segment_key(seq):
    return f"{PREFIX}log/1/{seq:012}.json"


async def prune(store, log_start, *, tombstones=True):
    """Prune a log: write a keyframe at its start, and delete what is not needed before it."""
    there = await Timeline(store, PREFIX, "1").load(log_start)
    await Timeline(store, PREFIX, "1").write_keyframe_at(
        there.end, there.store.snapshot(), BaseKeyframe()
    )
    for seq in range(1, log_start + 1):
        whole = decode_segment(segment_key(seq), store.content[segment_key(seq)])
        if tombstones:
            await store.put(segment_key(seq), encode_tombstone(whole, NOW))
        else:
            await store.delete(segment_key(seq))
    asked = Timeline(store, PREFIX, "1")
    needed = {
        base
        for seq in await asked.list_keyframe_seqs(after=log_start)
        for base in (await asked.read_keyframe(seq)).chain
    }
    for seq in await asked.list_keyframe_seqs(last=log_start - 1):
        if seq not in needed:
            await store.delete(keyframe_key(seq))


# ----------------------------------------------------------------------------------- tombstones


@async_test
async def test_a_tombstone_keeps_the_key_but_not_the_events():
    store = ObservedStore()
    log = EventLog(store, PREFIX, "1")
    await log.append([draft_event("first", {"secret": "x" * 5000})])
    await log.append([draft_event("second", {"secret": "x" * 5000})] * 3)
    whole = decode_segment(segment_key(2), store.content[segment_key(2)])
    data = encode_tombstone(whole, NOW)
    assert len(data) < 300
    assert json.loads(data) == {
        "format": 1,
        "first": 2,
        "last": 4,
        "prev": whole.prev,
        "hash": whole.hash,
        "pruned_at": "2026-11-15T12:00:00.000000Z",
    }
    left = decode_segment(segment_key(2), data)
    assert left.is_pruned
    assert not whole.is_pruned
    assert left.pruned_at == NOW
    assert (left.first, left.last, left.prev, left.hash) == (2, 4, whole.prev, whole.hash)
    assert left.size == 0
    for asked in (left.events, lambda: list(left.changes()), lambda: list(left.changes(2))):
        with pytest.raises(NotFoundError, match="events 2 to 4 were pruned"):
            asked()
    assert encode_tombstone(left, NOW) == data


@async_test
async def test_pruned_events_are_not_found_and_later_ones_are_read(frequent_keyframes):
    store = ObservedStore()
    recorder = await Recorder(store).commit(10)
    log_start = Position(6, (await collect(recorder.timeline.log.read(6, 6)))[0].hash)
    await prune(store, 6)
    with pytest.raises(NotFoundError, match="events 1 to 1 were pruned.*read later events"):
        await collect(EventLog(store, PREFIX, "1").read())
    found = await collect(EventLog(store, PREFIX, "1").read(7, after=log_start))
    assert [event.seq for event in found] == [7, 8, 9, 10]
    await recorder.check(6, 7, 8, 9, 10)
    with pytest.raises(NotFoundError, match="pruned"):
        await Timeline(store, PREFIX, "1").load(5)


@async_test
async def test_a_stale_writer_cannot_commit_after_a_prune(frequent_keyframes):
    store = ObservedStore()
    await Recorder(store).commit(3)
    stale = EventLog(store, PREFIX, "1")
    stale.head = (await Timeline(store, PREFIX, "1").load()).end
    other = Timeline(store, PREFIX, "1")
    await other.open()
    for _ in range(5):
        await other.log.append([draft_event("more")])
    await prune(store, 7)
    before = store.content
    with pytest.raises(ConflictError) as caught:
        await stale.append([draft_event("late")])
    assert caught.value.key == segment_key(4)
    assert store.content == before


@async_test
async def test_a_pruned_log_can_be_continued(frequent_keyframes):
    for tombstones in (True, False):
        store = ObservedStore()
        recorder = await Recorder(store).commit(10)
        await prune(store, 6, tombstones=tombstones)
        again = Recorder(store)
        again.store = (await again.timeline.open()).store
        assert again.store.snapshot().digest == recorder.past[10].digest
        await again.commit(12)
        await again.check(*range(11, 23))
        await recorder.check(*range(6, 11))


# --------------------------------------------------------------------------- concurrent prunes


@async_test
async def test_a_load_succeeds_during_a_concurrent_prune(frequent_keyframes):
    wanted = [(None, 0, 9), (10, 0, 9), (10, 8, 9), (9, 8, 9), (7, 4, 6), (6, 4, 6)]
    for last, near, log_start in wanted:
        at = 0
        while True:
            at += 1
            inner = ObservedStore()
            recorder = await Recorder(inner).commit(10)
            slow = InterruptedStore(inner, at, functools.partial(prune, inner, log_start))
            found = await Timeline(slow, PREFIX, "1").load(last, near=near)
            if slow.calls < at:
                break
            assert found.store.snapshot().digest == recorder.past[last or 10].digest
            assert found.end.seq == (last or 10)


@async_test
async def test_damage_is_reported_after_the_retry(frequent_keyframes):
    store = ObservedStore()
    recorder = await Recorder(store).commit(10)
    await store.delete(segment_key(10))
    with pytest.raises(IntegrityError, match=f"{segment_key(10)} is missing"):
        await Timeline(store, PREFIX, "1").load(10)
    await recorder.check(9)


@async_test
async def test_loading_an_event_beyond_the_head_fails(frequent_keyframes):
    store = ObservedStore()
    await Recorder(store).commit(10)
    with pytest.raises(IntegrityError, match=f"{segment_key(11)} is missing"):
        await Timeline(store, PREFIX, "1").load(11)
    with pytest.raises(IntegrityError, match=f"{segment_key(1)} is missing"):
        await Timeline(ObservedStore(), PREFIX, "1").load(1)


@async_test
async def test_a_hint_to_a_deleted_keyframe_is_ignored(frequent_keyframes):
    store = ObservedStore()
    recorder = await Recorder(store).commit(10)
    await prune(store, 6)
    for near in (4, 5, 8, 99):
        found = await Timeline(store, PREFIX, "1").load(7, near=near)
        assert found.store.snapshot().digest == recorder.past[7].digest


@async_test
async def test_swapped_keyframes_are_detected_and_skipped(frequent_keyframes, caplog):
    store = ObservedStore()
    recorder = await Recorder(store).commit(10)
    content = store.content
    await store.put_many(
        [
            Put(keyframe_key(4), content[keyframe_key(8)]),
            Put(keyframe_key(8), content[keyframe_key(4)]),
        ]
    )
    for seq in (4, 5, 6, 7):
        caplog.clear()
        await recorder.check(seq)
        assert keyframe_key(4) in caplog.text


@async_test
async def test_a_damaged_keyframe_at_the_log_start_is_reported(frequent_keyframes):
    store = ObservedStore()
    recorder = await Recorder(store).commit(10)
    for seq in range(1, 5):
        await store.delete(segment_key(seq))
    await store.put(keyframe_key(4), b"{}")
    with pytest.raises(IntegrityError, match=f"{keyframe_key(4)} is damaged"):
        await recorder.timeline.load()
    # Events do not need the state before them.
    found = await collect(Timeline(store, PREFIX, "1").events(6))
    assert [event.seq for event in found] == [6, 7, 8, 9, 10]


# ------------------------------------------------------------------------------------ keyframes


@async_test
async def test_a_keyframe_is_written_only_when_due(frequent_keyframes):
    store = ObservedStore()
    recorder = Recorder(store)
    for commits, expected in ((3, []), (1, [4]), (3, [4]), (1, [4, 8]), (8, [4, 8, 12, 16])):
        await recorder.commit(commits)
        assert await Timeline(store, PREFIX, "1").list_keyframe_seqs() == expected
    chains = [(await recorder.timeline.read_keyframe(seq)).chain for seq in (4, 8, 12, 16)]
    assert chains == [(), (4,), (4, 8), ()]
    await recorder.check(*recorder.past)


class RejectsKeyframes(ObservedStore):
    """Rejects keyframes while ``refusing`` is set."""

    refusing = True

    async def _put_many(self, puts, conditions=()):
        if self.refusing and any("/keyframes/" in put.key for put in puts):
            raise StateStoreError("the disk is full")
        return await super()._put_many(puts, conditions)


@async_test
async def test_a_keyframe_that_cannot_be_written_is_postponed_with_a_warning(
    frequent_keyframes, caplog
):
    store = RejectsKeyframes()
    recorder = Recorder(store)
    with caplog.at_level(logging.WARNING, "holdfast.log.timeline"):
        await recorder.commit(3)
        assert caplog.messages == []
        await recorder.commit(2)
    assert (
        caplog.messages == ["keyframe in place/ postponed to the next commit: the disk is full"] * 2
    )
    await recorder.check(1, 2, 3, 4, 5)
    store.refusing = False
    await recorder.commit(1)
    assert await Timeline(store, PREFIX, "1").list_keyframe_seqs() == [6]
    await recorder.check(*recorder.past)


@async_test
async def test_other_failures_to_write_a_keyframe_are_raised(frequent_keyframes):
    store = ObservedStore()
    recorder = await Recorder(store).commit(3)

    async def cancelled(*arguments, **conditions):
        raise asyncio.CancelledError

    store.put = cancelled
    with pytest.raises(asyncio.CancelledError):
        await recorder.commit(1)


@async_test
async def test_a_keyframe_whose_base_was_pruned_holds_the_whole_state(frequent_keyframes):
    store = ObservedStore()
    recorder = await Recorder(store).commit(7)
    other = Timeline(store, PREFIX, "1")
    await other.open()
    await prune(store, 6)
    assert await Timeline(store, PREFIX, "1").list_keyframe_seqs() == [6]
    await recorder.commit(1)
    assert await Timeline(store, PREFIX, "1").list_keyframe_seqs() == [6, 8]
    assert (await recorder.timeline.read_keyframe(8)).chain == ()
    await recorder.commit(4)
    assert (await recorder.timeline.read_keyframe(12)).chain == (8,)
    await recorder.check(*range(6, 13))


@async_test
async def test_an_existing_keyframe_is_not_overwritten(frequent_keyframes):
    store = ObservedStore()
    recorder = await Recorder(store).commit(6)
    there = await Timeline(store, PREFIX, "1").load(4)
    before = store.content
    again = await Timeline(store, PREFIX, "1").write_keyframe_at(
        there.end, there.store.snapshot(), BaseKeyframe()
    )
    assert again is None
    assert store.content == before
    await recorder.check(4, 5, 6)


@async_test
async def test_keyframes_are_listed_within_bounds(frequent_keyframes):
    store = ObservedStore()
    await Recorder(store).commit(16)
    asked = Timeline(store, PREFIX, "1")
    assert await asked.list_keyframe_seqs() == [4, 8, 12, 16]
    assert await asked.list_keyframe_seqs(after=4) == [8, 12, 16]
    assert await asked.list_keyframe_seqs(last=11) == [4, 8]
    assert await asked.list_keyframe_seqs(after=7, last=12) == [8, 12]
    with pytest.raises(IntegrityError, match=f"{keyframe_key(5)} is missing"):
        await asked.read_keyframe(5)


@pytest.mark.parametrize(
    "changes",
    [
        b"[]",
        b'{"set":7}',
        b'{"set":[["n","k"]]}',
        b'{"set":[["n",1,2]]}',
        b'{"set":[["n","k",{"$unknown":1}]]}',
        b'{"delete":[["n"]]}',
    ],
)
def test_a_keyframe_with_malformed_changes_is_damaged(changes):
    digest = hashlib.sha256(changes).hexdigest().encode()
    data = gzip.compress(
        b'{"format":1,"seq":4,"hash":"h","chain":[],"digest":"%s","changes":%s}' % (digest, changes)
    )
    with pytest.raises((IntegrityError, InvalidDocumentError), match="some/key"):
        decode_keyframe("some/key", data)


def test_a_keyframe_with_trailing_data_is_damaged():
    data, _ = encode_keyframe(4, "h", (), {"set": [("n", "k", 1)], "delete": []})
    for wrong in (data + b"x", data + data, data[:-1], b""):
        with pytest.raises(IntegrityError, match="keyframe some/key is damaged"):
            decode_keyframe("some/key", wrong)


def test_times_are_formatted_in_utc():
    berlin = ZoneInfo("Europe/Berlin")
    # The hour that occurs twice when daylight saving time ends.
    first, second = (dt.datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1))
    assert format_time(first) == "2026-10-25T00:30:00.000000Z"
    assert format_time(second) == "2026-10-25T01:30:00.000000Z"
