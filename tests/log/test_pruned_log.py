"""A log whose beginning was pruned, and keyframes that others take away or cannot write."""

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
from holdfast.log.event import draft_event, format_time
from holdfast.log.event_log import Position
from holdfast.log.keyframe import decode_keyframe, encode_keyframe
from holdfast.log.segment import decode_segment, encode_tombstone
from holdfast.log.timeline import BaseKeyframe, Timeline
from support.async_tests import async_test
from support.observed_store import NOW, Interrupted, Watched, gathered

PLACE = "place/"


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 4)
    monkeypatch.setattr(timeline, "MAX_CHAIN", 3)


class Writer:
    """Commits one event after another, with keyframes when they are due."""

    def __init__(self, store):
        self.state_store = store
        self.timeline = Timeline(store, PLACE, "1")
        self.store = Store()
        self.past = {}

    async def commit(self, count=1):
        for _ in range(count):
            seq = self.timeline.log.head.seq + 1
            made = draft_event("set", set_=[("s", f"{seq:04}", seq), ("s", "last", seq)])
            self.store.apply(made.changes)
            log = self.timeline.log
            sealed = log.prepare([made], log.head)
            await log.write(sealed)
            self.timeline.advance(sealed)
            self.past[seq] = self.store.snapshot()
            await self.timeline.write_keyframe_if_due(self.past[seq])
        return self

    async def check(self, *seqs):
        for seq in seqs:
            found = await Timeline(self.state_store, PLACE, "1").load(seq)
            assert found.store.snapshot().digest == self.past[seq].digest
            assert found.end.seq == seq


def frame(seq):
    return f"{PLACE}keyframes/1/{seq:012}.json.gz"


def segment(seq):
    return f"{PLACE}log/1/{seq:012}.json"


async def prune(store, log_start, *, stubs=True):
    """What pruning does to a log: a keyframe at the log_start, and no more than needed before it."""
    there = await Timeline(store, PLACE, "1").load(log_start)
    await Timeline(store, PLACE, "1").write_keyframe_at(
        there.end, there.store.snapshot(), BaseKeyframe()
    )
    for seq in range(1, log_start + 1):
        whole = decode_segment(segment(seq), store.content[segment(seq)])
        if stubs:
            await store.put(segment(seq), encode_tombstone(whole, NOW))
        else:
            await store.delete(segment(seq))
    asked = Timeline(store, PLACE, "1")
    needed = {
        base
        for seq in await asked.list_keyframe_seqs(after=log_start)
        for base in (await asked.read_keyframe(seq)).chain
    }
    for seq in await asked.list_keyframe_seqs(last=log_start - 1):
        if seq not in needed:
            await store.delete(frame(seq))


# --------------------------------------------------------------------------------------- stubs


@async_test
async def test_a_stub_holds_the_place_of_its_segment_and_nothing_of_its_events():
    store = Watched()
    log = EventLog(store, PLACE, "1")
    await log.append([draft_event("first", {"secret": "x" * 5000})])
    await log.append([draft_event("second", {"secret": "x" * 5000})] * 3)
    whole = decode_segment(segment(2), store.content[segment(2)])
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
    left = decode_segment(segment(2), data)
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
async def test_what_was_pruned_is_not_found_and_what_follows_is_read(often):
    store = Watched()
    writer = await Writer(store).commit(10)
    log_start = Position(6, (await gathered(writer.timeline.log.read(6, 6)))[0].hash)
    await prune(store, 6)
    with pytest.raises(NotFoundError, match="events 1 to 1 were pruned.*read later events"):
        await gathered(EventLog(store, PLACE, "1").read())
    found = await gathered(EventLog(store, PLACE, "1").read(7, after=log_start))
    assert [event.seq for event in found] == [7, 8, 9, 10]
    await writer.check(6, 7, 8, 9, 10)
    with pytest.raises(NotFoundError, match="pruned"):
        await Timeline(store, PLACE, "1").load(5)


@async_test
async def test_who_was_here_before_the_pruning_writes_nothing(often):
    store = Watched()
    await Writer(store).commit(3)
    stale = EventLog(store, PLACE, "1")
    stale.head = (await Timeline(store, PLACE, "1").load()).end
    other = Timeline(store, PLACE, "1")
    await other.open()
    for _ in range(5):
        await other.log.append([draft_event("more")])
    await prune(store, 7)
    before = store.content
    with pytest.raises(ConflictError) as caught:
        await stale.append([draft_event("late")])
    assert caught.value.key == segment(4)
    assert store.content == before


@async_test
async def test_what_is_opened_after_pruning_goes_on(often):
    for stubs in (True, False):
        store = Watched()
        writer = await Writer(store).commit(10)
        await prune(store, 6, stubs=stubs)
        again = Writer(store)
        again.store = (await again.timeline.open()).store
        assert again.store.snapshot().digest == writer.past[10].digest
        await again.commit(12)
        await again.check(*range(11, 23))
        await writer.check(*range(6, 11))


# --------------------------------------------------------------- taken away while it is read


def test_who_is_overtaken_by_pruning_while_loading_loads_it_all_the_same(often):
    async def work():
        wanted = [(None, 0, 9), (10, 0, 9), (10, 8, 9), (9, 8, 9), (7, 4, 6), (6, 4, 6)]
        for last, near, log_start in wanted:
            at = 0
            while True:
                at += 1
                inner = Watched()
                writer = await Writer(inner).commit(10)
                slow = Interrupted(inner, at, functools.partial(prune, inner, log_start))
                found = await Timeline(slow, PLACE, "1").load(last, near=near)
                if slow.calls < at:
                    break
                assert found.store.snapshot().digest == writer.past[last or 10].digest
                assert found.end.seq == (last or 10)

    asyncio.run(work())


@async_test
async def test_what_is_damaged_is_damaged_at_the_second_look_too(often):
    store = Watched()
    writer = await Writer(store).commit(10)
    await store.delete(segment(10))
    with pytest.raises(IntegrityError, match=f"{segment(10)} is missing"):
        await Timeline(store, PLACE, "1").load(10)
    await writer.check(9)


@async_test
async def test_what_was_not_written_yet_is_missing(often):
    store = Watched()
    await Writer(store).commit(10)
    with pytest.raises(IntegrityError, match=f"{segment(11)} is missing"):
        await Timeline(store, PLACE, "1").load(11)
    with pytest.raises(IntegrityError, match=f"{segment(1)} is missing"):
        await Timeline(Watched(), PLACE, "1").load(1)


@async_test
async def test_a_keyframe_that_the_caller_knew_and_that_is_gone_does_not_matter(often):
    store = Watched()
    writer = await Writer(store).commit(10)
    await prune(store, 6)
    for near in (4, 5, 8, 99):
        found = await Timeline(store, PLACE, "1").load(7, near=near)
        assert found.store.snapshot().digest == writer.past[7].digest


@async_test
async def test_keyframes_in_each_others_places_are_noticed_and_passed_over(often, caplog):
    store = Watched()
    writer = await Writer(store).commit(10)
    content = store.content
    await store.put_many([Put(frame(4), content[frame(8)]), Put(frame(8), content[frame(4)])])
    for seq in (4, 5, 6, 7):
        caplog.clear()
        await writer.check(seq)
        assert frame(4) in caplog.text


@async_test
async def test_a_damaged_keyframe_that_stands_for_what_was_pruned_is_named(often):
    store = Watched()
    writer = await Writer(store).commit(10)
    for seq in range(1, 5):
        await store.delete(segment(seq))
    await store.put(frame(4), b"{}")
    for work in (writer.timeline.load, lambda: gathered(Timeline(store, PLACE, "1").events(6))):
        with pytest.raises(IntegrityError, match=f"{frame(4)} is damaged"):
            await work()


# ------------------------------------------------------------------------------------ keyframes


@async_test
async def test_a_keyframe_is_kept_when_it_is_due_and_not_before(often):
    store = Watched()
    writer = Writer(store)
    for commits, expected in ((3, []), (1, [4]), (3, [4]), (1, [4, 8]), (8, [4, 8, 12, 16])):
        await writer.commit(commits)
        assert await Timeline(store, PLACE, "1").list_keyframe_seqs() == expected
    chains = [(await writer.timeline.read_keyframe(seq)).chain for seq in (4, 8, 12, 16)]
    assert chains == [(), (4,), (4, 8), ()]
    await writer.check(*writer.past)


class Refusing(Watched):
    """Does not take keyframes, while it is told so."""

    refusing = True

    async def _put_many(self, puts, conditions=()):
        if self.refusing and any("/keyframes/" in put.key for put in puts):
            raise StateStoreError("the disk is full")
        return await super()._put_many(puts, conditions)


@async_test
async def test_a_keyframe_that_cannot_be_written_is_put_off_with_a_warning(often, caplog):
    store = Refusing()
    writer = Writer(store)
    with caplog.at_level(logging.WARNING, "holdfast.log.timeline"):
        await writer.commit(3)
        assert caplog.messages == []
        await writer.commit(2)
    assert (
        caplog.messages == ["keyframe in place/ postponed to the next commit: the disk is full"] * 2
    )
    await writer.check(1, 2, 3, 4, 5)
    store.refusing = False
    await writer.commit(1)
    assert await Timeline(store, PLACE, "1").list_keyframe_seqs() == [6]
    await writer.check(*writer.past)


@async_test
async def test_another_failure_is_not_taken_for_that(often):
    store = Watched()
    writer = await Writer(store).commit(3)

    async def cancelled(*arguments, **conditions):
        raise asyncio.CancelledError

    store.put = cancelled
    with pytest.raises(asyncio.CancelledError):
        await writer.commit(1)


@async_test
async def test_a_keyframe_whose_base_was_pruned_meanwhile_carries_the_whole_state(often):
    store = Watched()
    writer = await Writer(store).commit(7)
    other = Timeline(store, PLACE, "1")
    await other.open()
    await prune(store, 6)
    assert await Timeline(store, PLACE, "1").list_keyframe_seqs() == [6]
    await writer.commit(1)
    assert await Timeline(store, PLACE, "1").list_keyframe_seqs() == [6, 8]
    assert (await writer.timeline.read_keyframe(8)).chain == ()
    await writer.commit(4)
    assert (await writer.timeline.read_keyframe(12)).chain == (8,)
    await writer.check(*range(6, 13))


@async_test
async def test_a_keyframe_that_is_there_already_is_left_as_it_is(often):
    store = Watched()
    writer = await Writer(store).commit(6)
    there = await Timeline(store, PLACE, "1").load(4)
    before = store.content
    again = await Timeline(store, PLACE, "1").write_keyframe_at(
        there.end, there.store.snapshot(), BaseKeyframe()
    )
    assert again is None
    assert store.content == before
    await writer.check(4, 5, 6)


@async_test
async def test_which_keyframes_there_are_can_be_asked_for_a_part(often):
    store = Watched()
    await Writer(store).commit(16)
    asked = Timeline(store, PLACE, "1")
    assert await asked.list_keyframe_seqs() == [4, 8, 12, 16]
    assert await asked.list_keyframe_seqs(after=4) == [8, 12, 16]
    assert await asked.list_keyframe_seqs(last=11) == [4, 8]
    assert await asked.list_keyframe_seqs(after=7, last=12) == [8, 12]
    with pytest.raises(IntegrityError, match=f"{frame(5)} is missing"):
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
def test_a_whole_keyframe_of_changes_that_cannot_be_is_refused(changes):
    digest = hashlib.sha256(changes).hexdigest().encode()
    data = gzip.compress(
        b'{"format":1,"seq":4,"hash":"h","chain":[],"digest":"%s","changes":%s}' % (digest, changes)
    )
    with pytest.raises((IntegrityError, InvalidDocumentError), match="some/key"):
        decode_keyframe("some/key", data)


def test_a_keyframe_that_goes_on_after_its_end_is_damage():
    data, _ = encode_keyframe(4, "h", (), {"set": [("n", "k", 1)], "delete": []})
    for wrong in (data + b"x", data + data, data[:-1], b""):
        with pytest.raises(IntegrityError, match="keyframe some/key is damaged"):
            decode_keyframe("some/key", wrong)


def test_a_moment_is_written_as_what_it_is_in_utc():
    berlin = ZoneInfo("Europe/Berlin")
    # The hour that is there twice: the second time it is one hour later.
    first, second = (dt.datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1))
    assert format_time(first) == "2026-10-25T00:30:00.000000Z"
    assert format_time(second) == "2026-10-25T01:30:00.000000Z"
