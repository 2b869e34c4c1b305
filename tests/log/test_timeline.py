"""Timeline: loads at any position, and keyframes."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import ConflictError, InvalidDocumentError, Session, Store
from holdfast.log import timeline
from holdfast.log.encoded_event import encode_draft
from holdfast.log.event import draft_event
from holdfast.log.event_log import Position
from holdfast.log.keyframe import decode_keyframe, encode_keyframe
from holdfast.log.timeline import Timeline
from support.async_tests import async_test
from support.observed_store import ObservedStore

PLACE = "sessions/s/"


class Recorder:
    """Commits changes, writes keyframes when due, and remembers every state."""

    def __init__(self, state_store):
        self.state_store = state_store
        self.timeline = Timeline(state_store, PLACE, "1")
        self.store = Store()
        self.past = {0: self.store.snapshot()}

    async def commit(self, set_=(), delete=(), events=1):
        drafts = [draft_event("state.set", set_=list(set_), delete=list(delete))]
        drafts += [draft_event("tool.called", {"n": number}) for number in range(events - 1)]
        self.store.apply(drafts[0].changes)
        log = self.timeline.log
        prepared = log.prepare([encode_draft(each) for each in drafts], log.head)
        await log.write(prepared)
        self.timeline.advance(prepared.end, len(prepared.put.value))
        state = self.store.snapshot()
        self.past[self.timeline.log.head.seq] = state
        if self.timeline.is_keyframe_due(state):
            await self.timeline.write_keyframe(state)

    async def check(self, seqs=None):
        for seq in self.past if seqs is None else seqs:
            loaded = await Timeline(self.state_store, PLACE, "1").load(seq)
            assert loaded.store.snapshot().digest == self.past[seq].digest
            assert loaded.end.seq == seq


async def make_recorder(commits, state_store=None, size=50):
    recorder = Recorder(state_store or ObservedStore())
    for number in range(commits):
        await recorder.commit([("messages", f"{number:06}", "x" * size)])
    return recorder


def list_keyframes(store):
    return [key for key in store._keys if "/keyframes/" in key]


@pytest.fixture
def frequent_keyframes(monkeypatch):
    """Make keyframes due after a few segments, with short chains."""
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 4)
    monkeypatch.setattr(timeline, "MAX_CHAIN", 3)


@async_test
async def test_every_position_loads_the_state_it_had(frequent_keyframes):
    recorder = await make_recorder(30)
    assert len(list_keyframes(recorder.state_store)) == 7
    await recorder.check()


@async_test
async def test_a_load_reads_a_bounded_part_of_the_log(frequent_keyframes):
    recorder = await make_recorder(100)
    recorder.state_store.read.clear()
    await recorder.check([99])
    read = recorder.state_store.read
    assert len([key for key in read if "/log/" in key]) < 4 + 1
    assert len([key for key in read if "/keyframes/" in key]) <= 3 + 1


@async_test
async def test_keyframes_of_a_growing_state_store_it_about_once(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 8)
    monkeypatch.setattr(timeline, "KEYFRAME_SLACK", 1000)
    recorder = await make_recorder(160, size=500)
    frames = [
        decode_keyframe(key, recorder.state_store._entries[key].value)
        for key in list_keyframes(recorder.state_store)
    ]
    assert sum(frame.size for frame in frames) < 1.3 * recorder.store.snapshot().size_bytes
    await recorder.check([1, 80, 159, 160])


@async_test
async def test_overwriting_the_state_makes_keyframes_due_by_size(monkeypatch):
    monkeypatch.setattr(timeline, "KEYFRAME_SLACK", 2000)
    recorder = Recorder(ObservedStore())
    for number in range(60):
        await recorder.commit([("state", "plan", f"{number}" * 200)])
    assert 2 < len(list_keyframes(recorder.state_store)) < 30
    await recorder.check()
    recorder.state_store.read.clear()
    await recorder.check([60])
    assert len(recorder.state_store.read) < 12


@async_test
async def test_an_opened_timeline_continues_at_the_head(frequent_keyframes):
    recorder = await make_recorder(10)
    again = Recorder(recorder.state_store)
    loaded = await again.timeline.open()
    assert loaded.store.snapshot().digest == recorder.store.snapshot().digest
    assert again.timeline.log.head == recorder.timeline.log.head
    again.store = loaded.store
    for number in range(10, 20):
        await again.commit([("messages", f"{number:06}", "y")])
    await again.check([seq for seq in again.past if seq > 10])
    with pytest.raises(ConflictError):
        await recorder.commit([("messages", "late", 1)])


@async_test
async def test_a_position_inside_a_segment_can_be_loaded(frequent_keyframes):
    recorder = Recorder(ObservedStore())
    for number in range(10):
        await recorder.commit([("messages", f"{number}", number)], events=3)
    loaded = await Timeline(recorder.state_store, PLACE, "1").load(14)
    assert loaded.end.seq == 14
    assert loaded.store.get("messages", "4") == 4
    assert not loaded.store.contains("messages", "5")
    following = recorder.timeline.log.read(15, 15)
    assert [event.prev async for event in following] == [loaded.end.hash]


@async_test
async def test_two_writers_can_write_the_same_keyframe(frequent_keyframes):
    recorder = await make_recorder(3)
    other = Timeline(recorder.state_store, PLACE, "1")
    loaded = await other.open()
    await recorder.timeline.write_keyframe(recorder.store.snapshot())
    await other.write_keyframe(loaded.store.snapshot())
    assert len(list_keyframes(recorder.state_store)) == 1
    await recorder.check()


@async_test
async def test_a_load_starts_at_the_hinted_keyframe(frequent_keyframes):
    recorder = await make_recorder(20)
    again = Timeline(recorder.state_store, PLACE, "1")
    listed = []
    plain = recorder.state_store.list

    def listing(prefix, **bounds):
        listed.append(bounds["start_after"])
        return plain(prefix, **bounds)

    recorder.state_store.list = listing
    loaded = await again.load(15, near=12)
    assert loaded.store.snapshot().digest == recorder.past[15].digest
    assert listed[0] == again.key(11)
    gone = await again.load(15, near=11)
    assert gone.store.snapshot().digest == recorder.past[15].digest


DAMAGE = {
    "cut short": lambda data: data[:-10],
    "a flipped bit": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
    "no gzip": lambda data: b"{}",
    "other JSON": lambda data: gzip.compress(b"[]"),
    "other content": lambda data: gzip.compress(gzip.decompress(data).replace(b"xx", b"xy", 1)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@async_test
async def test_a_damaged_keyframe_is_skipped_with_a_warning(frequent_keyframes, damage, caplog):
    recorder = await make_recorder(6)
    (key,) = list_keyframes(recorder.state_store)
    entry = await recorder.state_store.get(key)
    await recorder.state_store.put(key, DAMAGE[damage](entry.value))
    await recorder.check(range(1, 7))
    assert f"{key} is damaged" in caplog.text
    assert [event.seq async for event in Timeline(recorder.state_store, PLACE, "1").events(6)] == [
        6
    ]


@async_test
async def test_a_keyframe_with_a_missing_base_is_skipped_with_a_warning(frequent_keyframes, caplog):
    recorder = await make_recorder(12)
    first, *_ = list_keyframes(recorder.state_store)
    await recorder.state_store.delete(first)
    await recorder.check(range(1, 13))
    assert f"{first} is missing" in caplog.text


@async_test
async def test_a_newer_keyframe_format_is_rejected(frequent_keyframes):
    recorder = await make_recorder(4)
    (key,) = list_keyframes(recorder.state_store)
    tree = json.loads(gzip.decompress((await recorder.state_store.get(key)).value))
    tree["format"] = 2
    await recorder.state_store.put(key, gzip.compress(json.dumps(tree).encode()))
    with pytest.raises(InvalidDocumentError, match="upgrade Holdfast"):
        await Timeline(recorder.state_store, PLACE, "1").load()


def test_equal_states_have_equal_keyframe_bytes():
    changes = {"set": [("n", "k", (1, 2))], "delete": [("n", "gone")]}
    data, size = encode_keyframe(7, "hash", (3,), changes)
    assert encode_keyframe(7, "hash", (3,), changes)[0] == data
    frame = decode_keyframe("key", data)
    assert (frame.seq, frame.hash, frame.chain, frame.changes) == (7, "hash", (3,), changes)
    assert frame.size == size


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcdef"), st.integers() | st.text(max_size=30)),
            st.sets(st.sampled_from("abcdef")),
        ),
        max_size=25,
    )
)
def test_any_history_loads_at_any_position(steps):
    async def work():
        recorder = Recorder(ObservedStore())
        for values, gone in steps:
            await recorder.commit(
                [("state", key, value) for key, value in values.items()],
                [("state", key) for key in gone],
            )
        await recorder.check()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "MAX_SEGMENTS", 3)
        patch.setattr(timeline, "MAX_CHAIN", 2)
        patch.setattr(timeline, "KEYFRAME_SLACK", 100)
        asyncio.run(work())


def test_the_default_position_is_before_the_first_event():
    assert Position() == Position(0, "")


@async_test
async def test_events_are_read_from_the_keyframe_before_them(frequent_keyframes):
    recorder = await make_recorder(40)
    await recorder.commit(events=5)
    everything = [event async for event in recorder.timeline.log.read()]
    assert [event async for event in recorder.timeline.events(1)] == everything
    recorder.state_store.read.clear()
    assert [event async for event in recorder.timeline.events(37, 43)] == everything[36:43]
    assert [event async for event in recorder.timeline.events(44, 50)] == everything[43:]
    assert [event async for event in recorder.timeline.events(60)] == []
    assert not any("/log/000000000001" in key for key in recorder.state_store.read)


@async_test
async def test_the_change_token_changes_with_every_commit_without_reads(frequent_keyframes):
    recorder = Recorder(ObservedStore())
    seen = {await recorder.timeline.change_token()}
    for number in range(20):
        await recorder.commit([("messages", f"{number:06}", "x" * 50)])
        recorder.state_store.read.clear()
        seen.add(await recorder.timeline.change_token())
        assert recorder.state_store.read == []
    assert len(seen) == 21


@async_test
async def test_events_are_read_without_the_state_before_them(monkeypatch):
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 4)
    store = ObservedStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for number in range(30):
        session.set("number", number)
        await session.commit()
    timeline = await session.archive.timeline(location=session.location)
    for first in (2, 15, 30, 31):
        store.forget()
        found = [event.seq async for event in timeline.events(first, first + 1)]
        assert found == [seq for seq in (first, first + 1) if seq <= session.log.head.seq]
        assert not [key for key in store.read if "/keyframes/" in key]
