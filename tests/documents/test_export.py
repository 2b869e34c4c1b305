"""Export the committed state of a session, or a saved snapshot, with its events."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import (
    NotFoundError,
    RetentionPolicy,
    SnapshotManager,
    Store,
    open_state_store,
)
from holdfast.documents import export
from holdfast.ids import new_id
from holdfast.log import timeline
from holdfast.log.changes import fold_changes
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.conversations import (
    add_messages,
    list_contents,
    list_types,
    make_large_session,
    open_session,
)
from support.sample_documents import round_trip_document


def fold_events(document):
    """Return the state that the events of a document lead to."""
    store = Store()
    if document.base is not None:
        store.restore(document.base)
    fold_changes(store, [event.changes for event in document.events])
    return store.snapshot()


@pytest.mark.parametrize("size", [1, 2, 3, 256])
@async_test
async def test_events_of_several_commits_are_read_in_blocks(monkeypatch, size):
    monkeypatch.setattr(export, "EVENTS_PER_BLOCK", size)
    session = await open_session(MemoryStateStore())
    for number in range(5):
        session.add_message("user", f"m{number}", raw=b"x" if number == 2 else None)
        session.set("plan", {"step": number / 2})
        await session.commit()
    document = await session.export()
    assert document.events == tuple([event async for event in session.events])
    assert fold_events(document).digest == document.digest == session.snapshot().digest
    assert round_trip_document(document).to_dict() == document.to_dict()
    for at in range(1, len(document.events) + 1):
        earlier = await session.export(at=at)
        assert earlier.events == document.events[:at]
        assert fold_events(earlier).digest == earlier.digest


@async_test
async def test_an_export_at_an_event_has_the_state_and_events_up_to_it():
    session = await add_messages(await open_session(MemoryStateStore()), "a", "b", "c")
    document = await session.export(at=3, tags={"a": "1"})
    assert list_types(document.events) == [
        "session.started",
        "message.appended",
        "message.appended",
    ]
    assert [message["content"] for message in document.state.messages] == ["a", "b"]
    assert fold_events(document).digest == round_trip_document(document).digest == document.digest
    assert document.tags == {"a": "1"}
    with pytest.raises(NotFoundError, match="has no event 5; its last event is 4"):
        await session.export(at=5)
    for _ in range(2):
        await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    with pytest.raises(NotFoundError, match="event 3 was pruned"):
        await session.export(at=3)
    document = await session.export(at=4)
    assert [message["content"] for message in document.state.messages] == ["a", "b", "c"]


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/state.db"])
@async_test
async def test_an_export_has_the_state_and_all_events(url, tmp_path):
    async with open_state_store(url.format(tmp_path)) as store:
        session = await add_messages(await open_session(store), "a", "b")
        session.set("plan", {1: (2, 3)})
        session.status = "completed"
        await session.commit()
        document = await session.export()
        assert document.snapshot.digest == session.snapshot().digest
        assert document.state.messages == session.messages
        assert document.state.status == "completed"
        assert list(document.events) == list(session.events)
        assert document.event_log_count == 5
        assert document.base is None
        assert document.position == session.log.head
        assert (document.agent_id, document.session_id) == ("bot", "ses")
        assert fold_events(document).digest == document.digest
        again = round_trip_document(document)
        assert again.digest == document.digest
        assert again.events == document.events


@async_test
async def test_pending_events_are_not_exported():
    session = await add_messages(await open_session(MemoryStateStore()), "committed")
    session.add_message("user", "waiting")
    document = await session.export()
    assert [message["content"] for message in document.state.messages] == ["committed"]
    assert list_types(document.events) == ["session.started", "message.appended"]
    assert session.is_dirty


@async_test
async def test_a_session_without_commits_cannot_be_exported():
    session = await open_session(MemoryStateStore())
    with pytest.raises(NotFoundError, match="agent bot has no session ses in this store"):
        await session.export()


@async_test
async def test_a_saved_snapshot_is_exported_with_the_events_up_to_it():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    saved = await session.save(tags={"env": "production", "kept": "yes"})
    await add_messages(session, "b", "c")
    document = await session.export(at=saved.snapshot_id, tags={"reason": "incident", "env": "x"})
    assert document.snapshot_id == saved.snapshot_id
    assert document.created_at == saved.created_at
    assert document.digest == saved.digest
    assert list_types(document.events) == ["session.started", "message.appended"]
    assert document.event_log_count == 2
    assert document.tags == {"env": "x", "kept": "yes", "reason": "incident"}
    assert fold_events(document).digest == saved.digest
    stored = await session.archive.load_snapshot(
        location=session.location, snapshot_id=saved.snapshot_id
    )
    assert stored.tags == {"env": "production", "kept": "yes"}


@async_test
async def test_an_export_of_the_head_has_a_new_id_and_the_last_snapshot_as_parent():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    assert (await session.export()).parent_id is None
    first = await session.save()
    second = await session.save()
    await add_messages(session, "b")
    document = await session.export(tags={"env": "test"})
    assert document.parent_id == second.snapshot_id
    assert document.snapshot_id not in (first.snapshot_id, second.snapshot_id)
    assert document.tags == {"env": "test"}
    ids = await session.archive.list_snapshot_ids(location=session.location)
    assert ids == [first.snapshot_id, second.snapshot_id]


@async_test
async def test_an_export_has_its_time_and_environment(monkeypatch):
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    monkeypatch.delenv("HOLDFAST_ENVIRONMENT", raising=False)
    before = dt.datetime.now(dt.UTC)
    document = await session.export()
    assert before <= document.exported_at <= dt.datetime.now(dt.UTC)
    assert document.source_environment is None
    monkeypatch.setenv("HOLDFAST_ENVIRONMENT", "production")
    assert (await session.export()).source_environment == "production"


@async_test
async def test_exporting_a_missing_snapshot_is_an_error():
    session = await add_messages(await open_session(MemoryStateStore()), "a")
    missing = new_id()
    with pytest.raises(NotFoundError, match=f"no snapshot {missing} in sessions/ses/"):
        await session.export(at=missing)
    with pytest.raises(ValueError, match="invalid snapshot_id"):
        await session.export(at="../x")
    with pytest.raises(TypeError, match="tags must be a mapping"):
        await session.export(tags="env")


@async_test
async def test_after_pruning_an_export_has_the_remaining_events_and_their_base():
    session = await open_session(MemoryStateStore())
    saved = []
    for number in range(6):
        session.add_message("user", number)
        saved.append(await session.save(tags={"pinned": "yes"} if number == 1 else None))
    await session.archive.prune(
        location=session.location, policy=RetentionPolicy(last=2, protected=["pinned"])
    )
    document = await session.export()
    assert [event.seq for event in document.events] == [7]
    assert document.event_log_count == 1
    assert document.base.digest == saved[4].digest
    assert document.digest == session.snapshot().digest == fold_events(document).digest
    again = round_trip_document(document)
    assert again.base.digest == saved[4].digest
    assert fold_events(again).digest == document.digest

    # The events before the snapshot were pruned, but its state is kept.
    pinned = await session.export(at=saved[1].snapshot_id)
    assert pinned.digest == saved[1].digest
    assert (pinned.events, pinned.event_log_count, pinned.base) == ((), 0, None)
    assert round_trip_document(pinned).digest == saved[1].digest


@async_test
async def test_an_export_has_all_events_despite_keyframes(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 3)
    session = await add_messages(await open_session(MemoryStateStore()), *"abcdefghij")
    document = await session.export()
    assert len(document.events) == 11
    assert [message["content"] for message in document.state.messages] == list("abcdefghij")
    assert fold_events(document).digest == document.digest


@async_test
async def test_a_multi_agent_session_is_exported_as_one_document():
    crew = await open_session(MemoryStateStore(), scope="multi_agent", agent_id="crew")
    crew.agent("writer").add_message("assistant", "draft")
    crew.agent("writer").set("step", 1)
    await crew.commit()
    document = round_trip_document(await crew.export())
    assert (document.scope, document.agent_id) == ("multi_agent", "crew")
    assert document.state.namespaces == {"state/writer": {"step": 1}}
    other = await open_session(MemoryStateStore(), "copy", scope="multi_agent", agent_id="crew")
    await other.restore(document)
    assert list_contents(other.agent("writer")) == ["draft"]
    assert other.agents == ["writer"]


@async_test
async def test_an_export_does_not_read_keyframes():
    session = await make_large_session(messages=300)
    store = session.state_store
    keys = [key async for key in store.list(f"{session.location.prefix}keyframes/")]
    assert keys
    expected = await session.export()
    for key in keys:
        await store.put(key, b"damaged")
    found = await SnapshotManager(store).export_session("bot")
    assert (found.digest, found.events) == (expected.digest, expected.events)
    assert found.position == session.log.head
