"""Large values in a session are stored once, outside the log, and come back as they were."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import (
    BlockingSession,
    ConflictError,
    IntegrityError,
    NotFoundError,
    SnapshotArchive,
    SnapshotLocation,
    Store,
    replay,
)
from holdfast.blobs import contents as contents_module
from holdfast.blobs import keep_references
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.portal import sync
from holdfast.stores.wrappers.compression import CompressedStateStore
from holdfast.values.binary_encoding import encode
from holdfast.values.references import Attachment, BlobReference
from support.async_tests import async_test
from support.conversations import AGENT, SESSION, open_session, open_two_writers, reopen_session
from support.observed_store import ObservedStore, collect, make_snapshot, save

IMAGE = bytes(range(256)) * 4096
TEXT = "Grüße, 世界 🦀 " * 10_000
VALUE = {"image": IMAGE, "parts": (TEXT, {"again": [IMAGE]}), "small": {1, 2}}
MESSAGE = [{"type": "text", "text": TEXT}, {"type": "image", "data": IMAGE}]
SIZE = len(IMAGE) + len(TEXT.encode())


@pytest.fixture
def no_cache(monkeypatch):
    """Keep no content in memory, so that each value is read when it is needed."""
    monkeypatch.setattr(contents_module, "CACHE_BYTES", 0)


async def make_session(state_store, saves=1):
    """Return a session with large values that was saved a number of times."""
    session = await open_session(state_store)
    session.add_message("user", MESSAGE)
    session.set("value", VALUE)
    session.record("tool.returned", {"result": TEXT})
    for number in range(saves):
        session.set("turn", number)
        await session.save(tags={"turn": str(number)})
    return session


def check_values(session):
    """Check the large values of a session."""
    assert session.messages[0]["content"] == MESSAGE
    assert session.get("value") == VALUE
    assert isinstance(session.get("value")["parts"], tuple)


def list_blob_keys(state_store):
    return state_store.keys_with("/blobs/")


@async_test
async def test_large_values_come_back_on_every_backend(new_state_store, no_cache):
    async with new_state_store() as state_store:
        session = await make_session(state_store)
        chart = await session.attach(IMAGE[1:])
        session.set("chart", chart)
        saved = await session.save()
        check_values(session)
    async with new_state_store() as state_store:
        again = await open_session(state_store)
        check_values(again)
        assert [event.data for event in again.events if event.type == "tool.returned"] == [
            {"result": TEXT}
        ]
        again.set("value", "small")
        again.add_message("user", "more")
        await again.commit()
        await again.restore(saved.snapshot_id)
        check_values(again)
        assert b"".join(await collect(again.stream_attachment(chart))) == IMAGE[1:]
        fork = await again.fork("what-if")
        check_values(fork)
        loaded = await SnapshotArchive(state_store).load_snapshot(location=fork.location)
        assert loaded is None
        assert (await again.verify()).damage == []
        assert (await fork.verify()).damage == []
    async with new_state_store() as state_store:
        fork = await open_session(state_store, "what-if")
        check_values(fork)
        assert await fork.read_attachment(fork.get("chart")) == IMAGE[1:]


@pytest.mark.parametrize("backend", ["memory", "postgresql", "redis"])
def test_a_blocking_session_reads_large_values(backend, request, no_cache):
    from support.backends import make_opener

    state_store = make_opener(backend, request)()
    with BlockingSession.open(state_store, agent_id=AGENT, session_id=SESSION) as session:
        session.add_message("user", MESSAGE)
        session.set("value", VALUE)
    again = BlockingSession.open(state_store, agent_id=AGENT, session_id=SESSION)
    check_values(again)
    assert again.events[-1].changes["set"] == [("state", "value", VALUE)]
    sync(state_store.close())


@async_test
async def test_a_value_is_stored_once_however_often_the_session_is_saved():
    state_store = ObservedStore()
    session = await make_session(state_store, saves=30)
    for number in range(30):
        session.set("value", {**VALUE, "turn": number})
        session.add_message("user", MESSAGE)
        await session.save()
    assert sum(len(state_store.content[key]) for key in list_blob_keys(state_store)) == SIZE
    assert state_store.bytes < 1.05 * SIZE + 100_000
    again = await reopen_session(session)
    assert again.get("value") == {**VALUE, "turn": 29}
    again.set("copy", VALUE)
    written = len(list_blob_keys(state_store))
    await again.save()
    assert len(list_blob_keys(state_store)) == written


@async_test
async def test_a_commit_after_the_first_writes_no_blob_again():
    state_store = ObservedStore()
    session = await make_session(state_store)
    state_store.forget()
    session.set("copy", VALUE)
    await session.commit()
    assert [key for key in state_store.written if "/blobs/" in key] == []
    assert state_store.bytes_written < 5_000


@async_test
async def test_blobs_are_written_before_the_segment_that_refers_to_them():
    state_store = ObservedStore()
    session = await open_session(state_store)
    await session.commit()
    state_store.forget()
    session.set("value", VALUE)
    await session.commit()
    is_blob = ["/blobs/" in key for key in state_store.written]
    assert is_blob == sorted(is_blob, reverse=True)
    assert any(is_blob)


@async_test
async def test_opening_listing_and_small_values_need_no_blob(no_cache):
    state_store = ObservedStore()
    session = await make_session(state_store, saves=5)
    for key in list_blob_keys(state_store):
        await state_store.delete(key)
    state_store.forget()
    again = await reopen_session(session)
    assert again.get("turn") == 4
    assert again.message_count == 1
    page = await again.archive.list_snapshots(location=again.location)
    assert len(page.snapshots) == 5
    await again.archive.load_snapshot(location=again.location)
    again.add_message("user", "small")
    await again.save()
    assert [key for key in state_store.read if "/blobs/" in key] == []


@pytest.mark.parametrize("damage", ["missing", "damaged"])
@async_test
async def test_only_the_value_with_a_missing_or_damaged_blob_raises(damage):
    state_store = ObservedStore()
    session = await open_session(state_store)
    session.add_message("user", "small")
    session.add_message("user", [TEXT])
    session.set("value", VALUE)
    session.set("small", 1)
    saved = await session.save()
    for key in list_blob_keys(state_store):
        await state_store.damage(
            key, lambda data: data[:-1] + b"!" if damage == "damaged" else None
        )
    error = NotFoundError if damage == "missing" else IntegrityError
    again = await reopen_session(session)
    assert again.get("small") == 1
    assert again.message_count == 2
    with pytest.raises(error, match="blob [0-9a-f]{64} in sessions/ses/"):
        again.get("value")
    with pytest.raises(error):
        _ = again.messages
    with keep_references():
        assert again.messages[0] == {"role": "user", "content": "small"}
        assert type(again.messages[1]["content"][0]) is BlobReference
    again.add_message("user", "it goes on")
    again.delete("value")
    await again.save()
    again.clear_messages()
    assert again.messages == []
    await again.commit()
    await again.restore(saved.snapshot_id)
    with pytest.raises(error):
        again.get("value")
    if damage == "missing":  # a fork may lack what its origin lacks
        fork = await again.fork("copy")
        with pytest.raises(error):
            fork.get("value")
    else:
        with pytest.raises(error):
            await again.fork("copy")
    page = await again.archive.list_snapshots(location=again.location)
    assert len(page.snapshots) == 2


@async_test
async def test_bytes_that_look_like_a_reference_are_committed():
    session = await open_session(MemoryStateStore())
    session.add_message("user", [encode(Attachment("a" * 64, 5))])
    await session.commit()
    again = await reopen_session(session)
    assert again.messages[0]["content"] == [encode(Attachment("a" * 64, 5))]


@async_test
async def test_setting_a_value_again_repairs_its_blob():
    state_store = ObservedStore()
    session = await make_session(state_store)
    for key in list_blob_keys(state_store):
        await state_store.delete(key)
    again = await reopen_session(session)
    again.set("copy", VALUE)
    await again.commit()
    check_values(await reopen_session(session))


@async_test
async def test_events_messages_and_replay_have_the_values():
    session = await make_session(MemoryStateStore())
    session.set("pending", TEXT)
    again = await reopen_session(session)
    again.set("pending", TEXT)
    for each in (session, again):
        events = await collect(each.events.read())
        assert [event.hash for event in events] == [event.hash for event in each.events]
        assert events[1].changes["set"][0][2]["content"] == MESSAGE
        assert each.events[2].changes["set"] == [("state", "value", VALUE)]
        assert events[3].data == {"result": TEXT}
        assert events[-1].changes["set"] == [("state", "pending", TEXT)]
    steps = [step async for step in replay(again)]
    assert steps[2].event.changes["set"] == [("state", "value", VALUE)]
    assert steps[2].after.get("state", "value") == VALUE


@async_test
async def test_conflicts_keep_the_values_of_both_writers():
    state_store = ObservedStore()
    one, other = await open_two_writers(state_store)
    one.add_message("user", MESSAGE)
    one.set("one", TEXT)
    other.add_message("user", [IMAGE])
    other.set("other", VALUE)
    await other.commit()
    await one.commit(on_conflict="rebase")
    await other.refresh()
    for session in (one, other, await reopen_session(one)):
        assert [message["content"] for message in session.messages] == [[IMAGE], MESSAGE]
        assert (session.get("one"), session.get("other")) == (TEXT, VALUE)
    assert sum(len(state_store.content[key]) for key in list_blob_keys(state_store)) == SIZE


@async_test
async def test_an_update_is_retried_with_large_values():
    one, other = await open_two_writers(MemoryStateStore())
    other.set("value", [IMAGE])
    await other.commit()

    def grow(session):
        session.set("value", [*(session.get("value") or []), TEXT])

    await asyncio.gather(one.update(grow), other.update(grow))
    again = await reopen_session(one)
    assert again.get("value") == [IMAGE, TEXT, TEXT]


@async_test
async def test_the_result_of_a_side_effect_may_be_large():
    session = await open_session(MemoryStateStore())
    calls = []

    def draw():
        calls.append(1)
        return {"image": IMAGE}

    assert await session.once("draw", draw) == {"image": IMAGE}
    again = await reopen_session(session)
    assert await again.once("draw", draw) == {"image": IMAGE}
    assert len(calls) == 1


@async_test
async def test_rollback_and_restore_bring_large_values_back():
    state_store = ObservedStore()
    session = await make_session(state_store)
    seq = session.log.head.seq
    mark = session.snapshot()
    session.set("value", "small")
    session.rollback(mark)
    check_values(session)
    session.delete("value")
    await session.save()
    written = len(list_blob_keys(state_store))
    again = await reopen_session(session)
    await again.restore(seq)
    check_values(again)
    check_values(await reopen_session(again))
    assert len(list_blob_keys(state_store)) == written


@async_test
async def test_a_fork_has_its_own_blobs():
    state_store = ObservedStore()
    session = await make_session(state_store)
    fork = await session.fork("what-if")
    await state_store.put("x", b"")
    for key in list_blob_keys(state_store):
        if key.startswith(session.location.prefix):
            await state_store.delete(key)
    check_values(await reopen_session(fork))
    assert (await fork.verify()).damage == []
    fork.set("more", b"more" * 50_000)
    state_store.forget()
    await fork.commit()
    assert "list" not in state_store.calls  # it does not look for blobs of its origin any more


@async_test
async def test_agents_of_one_session_share_large_values():
    session = await open_session(ObservedStore(), scope="multi_agent")
    session.agent("writer").set("value", VALUE)
    session.agent("critic").set("value", VALUE)
    await session.save()
    again = await reopen_session(session)
    assert again.agent("writer").get("value") == again.agent("critic").get("value") == VALUE
    stored = list_blob_keys(session.state_store)
    assert sum(len(session.state_store.content[key]) for key in stored) == SIZE


@async_test
async def test_a_whole_state_with_large_values_is_saved_and_an_equal_one_costs_nothing():
    state_store = ObservedStore()
    archive = SnapshotArchive(state_store)
    for _ in range(3):
        store = Store()
        store.set("state", "value", VALUE)
        store.set("notes", "text", TEXT)
        first = make_snapshot(store.snapshot())
        await save(archive, first, is_latest=True)
    log = state_store.keys_with("/log/")
    assert len(log) == 1
    assert sum(len(state_store.content[key]) for key in list_blob_keys(state_store)) == SIZE
    store.set("state", "value", {**VALUE, "small": {3}})
    state_store.forget()
    await save(SnapshotArchive(state_store), make_snapshot(store.snapshot()), is_latest=True)
    assert state_store.bytes_written < SIZE + 10_000
    loaded = await SnapshotArchive(state_store).load_snapshot(
        location=SnapshotLocation("ses_abc123", scope_id="research-bot")
    )
    assert loaded.snapshot.get("state", "value") == {**VALUE, "small": {3}}
    assert loaded.snapshot.get("notes", "text") == TEXT
    assert loaded.digest == make_snapshot(store.snapshot()).digest
    assert not any(loaded.snapshot.diff(store.snapshot()).values())


@async_test
async def test_a_rebase_reads_no_large_values():
    state_store = ObservedStore()
    first = await open_session(state_store)
    first.add_message("user", [TEXT])
    saved = await first.save()
    first.pop_message()
    await first.save()
    one, other = await open_two_writers(state_store)
    other.set("theirs", 1)
    await other.commit()
    for key in list_blob_keys(state_store):
        await state_store.delete(key)
    with pytest.raises(ConflictError):
        await one.restore(saved.snapshot_id)
    await one.commit(on_conflict="rebase")
    assert one.message_count == 1
    assert one.get("theirs") == 1


@async_test
async def test_a_snapshot_of_another_store_brings_its_large_values_along(no_cache):
    session = await make_session(MemoryStateStore())
    loaded = await session.archive.load_snapshot(location=session.location)
    target = MemoryStateStore()
    await save(SnapshotArchive(target), loaded, session.location, is_latest=True)
    other = await open_session(target)
    check_values(other)
    other.delete("value")
    await other.restore(loaded)
    assert (await reopen_session(other)).get("value") == VALUE


@async_test
async def test_a_loaded_snapshot_is_a_store_with_its_values(no_cache):
    session = await make_session(MemoryStateStore())
    loaded = await session.archive.load_snapshot(location=session.location)
    store = loaded.to_store()
    assert store.get("state", "value") == VALUE
    other = Store()
    other.set_many(store.snapshot().changes(Store().snapshot())["set"])
    assert other.snapshot().digest == store.snapshot().digest
    assert store.snapshot().diff(other.snapshot()) == {"added": [], "removed": [], "changed": []}


@async_test
async def test_a_refresh_reads_new_large_values_ahead_and_no_others():
    state_store = ObservedStore()
    state_store.is_local = False
    one, other = await open_two_writers(state_store)
    one.set("value", VALUE)
    await one.commit()
    await other.refresh()
    state_store.forget()
    assert other.get("value") == VALUE
    await other.refresh()
    assert [key for key in state_store.read if "/blobs/" in key] == []
    one.set("more", b"more" * 50_000)
    await one.commit()
    state_store.forget()
    await other.refresh()
    assert len([key for key in state_store.read if "/blobs/" in key]) == 1
    state_store.forget()
    assert other.get("more") == b"more" * 50_000
    assert state_store.read == []


@async_test
async def test_a_local_store_is_read_when_a_large_value_is_accessed():
    for wrap in (lambda inner: inner, CompressedStateStore):
        state_store = ObservedStore()
        wrapped = wrap(state_store)
        await make_session(wrapped)
        state_store.forget()
        session = await open_session(wrapped)
        assert [key for key in state_store.read if "/blobs/" in key] == []
        check_values(session)
        assert set(list_blob_keys(state_store)) <= set(state_store.read)
