"""Documents are imported as new sessions and into existing ones."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import threading
from dataclasses import replace

import pytest

from holdfast import (
    ConflictError,
    Document,
    InvalidDocumentError,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManager,
    SnapshotManifest,
    Store,
    replay,
)
from holdfast.snapshots.incarnation import Incarnation
from holdfast.stores.entries import Put
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer import import_document
from support.async_tests import async_test
from support.conversations import (
    add_messages,
    list_contents,
    list_types,
    make_large_session,
    open_session,
)
from support.faults import Fault, FaultyStateStore
from support.importable_documents import (
    DOCUMENTS,
    HERE,
    NOTHING,
    STORES,
    WHOLE,
    check_intact,
    import_into,
)
from support.observed_store import InterruptedStore, ObservedStore, make_state
from support.sample_documents import edit_json, make_document

# ------------------------------------------------------------------------------- a new session


@DOCUMENTS
@STORES
@async_test
async def test_the_events_of_a_document_become_the_log_of_a_new_session(document, atomic):
    store = FaultyStateStore(MemoryStateStore(), atomic=atomic)
    result = await import_into(store, document)
    assert (result.agent_id, result.session_id) == ("bot", "ses")
    assert (result.created, result.dry_run, result.undo_id) == (True, False, None)
    assert result.messages_restored == len(document.state.messages)
    assert result.events_restored == len(document.events)
    assert result.diff == document.snapshot.diff(Store().snapshot())
    session = await check_intact(store, document=document)
    steps = [step async for step in replay(session)]
    assert steps[-1].after.digest == document.digest
    assert [step.event for step in steps[:-1]] == list(document.events)

    session.add_message("user", "and on")
    await session.save()
    again = await check_intact(store)
    assert list_contents(again)[-1] == "and on"
    assert again.log.head.seq == document.events[-1].seq + 2
    exported = await again.export()
    assert exported.events[:-2] == document.events


@DOCUMENTS
@async_test
async def test_a_document_is_imported_under_other_ids(document):
    store = MemoryStateStore()
    await import_into(store, document)
    result = await import_into(store, document, agent_id="other", session_id="copy")
    assert (result.agent_id, result.session_id, result.created) == ("other", "copy", True)
    place = SnapshotLocation("copy", "agent", "other")
    await check_intact(store, place, document)
    await check_intact(store, HERE, document)


@async_test
async def test_a_multi_agent_session_is_imported():
    crew = await open_session(MemoryStateStore(), scope="multi_agent", agent_id="crew")
    crew.agent("writer").add_message("assistant", "draft")
    crew.agent("writer").set("step", 1)
    await crew.commit()
    store = MemoryStateStore()
    await import_into(store, await crew.export())
    there = await open_session(store, scope="multi_agent", agent_id="crew", must_exist=True)
    assert there.agents == ["writer"]
    assert there.agent("writer").get("step") == 1


@STORES
@async_test
async def test_a_document_without_events_is_imported_as_one_event(atomic):
    store = FaultyStateStore(MemoryStateStore(), atomic=atomic)
    document = make_document(make_state(3, plan=1), HERE, base=make_state(1))
    result = await import_into(store, document)
    assert (result.messages_restored, result.events_restored) == (3, 0)
    session = await check_intact(store)
    (event,) = [event async for event in session.events]
    assert event.type == "session.imported"
    assert event.data["snapshot_id"] == document.snapshot_id
    assert session.snapshot().digest == document.digest


@async_test
async def test_a_large_document_is_written_as_many_segments(monkeypatch):
    """With a keyframe if the log is much larger than the state."""
    monkeypatch.setattr(import_document, "EVENTS_PER_BLOCK", 4)
    for is_keyframe_due in (False, True):
        source = await open_session(MemoryStateStore())
        for number in range(30):
            source.add_message("user", "long " * 500 + str(number))
            if is_keyframe_due:
                source.set("notes", "long " * 2000 + str(number))
        await source.commit()
        document = await source.export()
        store = ObservedStore()
        await import_into(store, document)
        assert len(store.keys_with("/log/")) == (16 if is_keyframe_due else 8)
        assert len(store.keys_with("/keyframes/")) == is_keyframe_due
        await check_intact(store, document=document)


@async_test
async def test_a_custom_manifest_is_kept():
    store = MemoryStateStore()
    archive = SnapshotArchive(store)
    await archive.save_manifest(location=HERE, manifest=SnapshotManifest(extra={"owner": "Ada"}))
    await import_into(store, WHOLE)
    assert (await archive.load_manifest(location=HERE)).extra == {"owner": "Ada"}
    await check_intact(store, document=WHOLE)


@async_test
async def test_edits_of_the_state_are_in_the_last_event():
    tree = edit_json(WHOLE.to_dict(), "state", "values", "plan", to="another")
    manager = SnapshotManager(MemoryStateStore())
    with pytest.raises(InvalidDocumentError, match="allow_modified"):
        manager.from_dict(tree)
    document = manager.from_dict(tree, allow_modified=True)
    result = await manager.import_session(document)
    assert result.events_restored == len(WHOLE.events)
    session = await check_intact(manager.state_store)
    assert session.get("plan") == "another"
    *before, last = [event async for event in session.events]
    assert before == list(WHOLE.events)
    assert last.type == "session.imported"
    assert last.changes == {"set": [("state", "plan", "another")], "delete": []}


@async_test
async def test_edited_events_are_imported_with_a_new_chain():
    tree = edit_json(WHOLE.to_dict(), "events", 1, "data", to={"redacted": True})
    document = Document.from_dict(tree, allow_modified=True)
    store = MemoryStateStore()
    await import_into(store, document)
    session = await check_intact(store, document=document)
    assert session.log.head.hash != WHOLE.position.hash


# --------------------------------------------------------------------------- an existing session


@DOCUMENTS
@STORES
@async_test
async def test_an_import_over_a_session_continues_its_log_and_can_be_undone(document, atomic):
    store = FaultyStateStore(MemoryStateStore(), atomic=atomic)
    session = await add_messages(await open_session(store), "mine", "also mine")
    session.set("own", 1)
    await session.commit()
    before, seq = session.snapshot(), session.log.head.seq
    result = await import_into(store, document)
    assert (result.created, result.events_restored) == (False, 0)
    assert result.diff == document.snapshot.diff(before)
    there = await check_intact(store)
    assert there.snapshot().digest == document.digest
    last = [event async for event in there.events][-1]
    assert (last.seq, last.type) == (seq + 1, "session.imported")
    assert last.data == {
        "agent_id": "bot",
        "session_id": "ses",
        "snapshot_id": document.snapshot_id,
        "undo": result.undo_id,
    }
    undo = await there.archive.load_snapshot(location=HERE, snapshot_id=result.undo_id)
    assert undo.digest == before.digest
    assert undo.tags == {"reason": "before import", "import": document.snapshot_id}

    await there.restore(result.undo_id)
    again = await check_intact(store)
    assert list_contents(again) == ["mine", "also mine"]
    assert again.state == {"own": 1}


@async_test
async def test_importing_the_same_document_again_changes_nothing():
    store = MemoryStateStore()
    await import_into(store, WHOLE)
    result = await import_into(store, WHOLE)
    assert result.diff == NOTHING
    session = await check_intact(store)
    assert session.snapshot().digest == WHOLE.digest
    assert list_types([event async for event in session.events])[-1] == "session.imported"


@async_test
async def test_events_of_a_concurrent_writer_are_in_the_undo_snapshot():
    disk = MemoryStateStore()
    await add_messages(await open_session(disk), "before")
    counting = InterruptedStore(disk, 0, None)
    await import_into(counting, WHOLE)
    for at in range(1, counting.calls + 1):
        disk = MemoryStateStore()
        agent = await add_messages(await open_session(disk), "before")
        result = await import_into(
            InterruptedStore(disk, at, lambda agent=agent: add_messages(agent, "new")), WHOLE
        )
        session = await check_intact(disk)
        if list_types([event async for event in session.events])[-1] != "session.imported":
            assert list_contents(session)[-1] == "new"  # the agent was last
            continue
        assert session.snapshot().digest == WHOLE.digest
        ids = await session.archive.list_snapshot_ids(location=HERE)
        assert ids == [result.undo_id]
        undo = await session.archive.load_snapshot(location=HERE, snapshot_id=result.undo_id)
        assert [message["content"] for message in undo.state.messages] == ["before", "new"]
        assert result.diff == WHOLE.snapshot.diff(undo.snapshot)


@async_test
async def test_an_import_fails_if_every_attempt_conflicts():
    class Busy(MemoryStateStore):
        agent = None

        async def put_many(self, puts, **conditions):
            puts = list(puts)
            agent = self.agent
            if agent is not None and "/log/" in puts[0].key:
                self.agent = None
                await add_messages(agent, "more")
                self.agent = agent
            return await super().put_many(puts, **conditions)

    store = Busy()
    agent = await add_messages(await open_session(store), "before")
    store.agent = agent
    with pytest.raises(ConflictError, match="first 8 times.*retry the import"):
        await import_into(store, WHOLE)
    session = await check_intact(store)
    assert list_contents(session) == ["before", *["more"] * 8]
    assert await session.archive.list_snapshot_ids(location=HERE) == []


# -------------------------------------------------------------------- the keyframe of an import


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 9},
        {"prev": "00"},
        {"hash": "00"},
        {"data": "other"},
        {"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
    ],
    ids=str,
)
@async_test
async def test_events_that_are_not_a_chain_are_not_imported(change):
    document = await (await make_large_session(messages=3)).export()
    for at in range(len(document.events)):
        events = list(document.events)
        events[at] = replace(events[at], **change)
        store = ObservedStore()
        with pytest.raises(InvalidDocumentError, match=r"not a hash chain|start at"):
            await SnapshotManager(store).import_session(replace(document, events=tuple(events)))
        assert not store.keys_with("")


@pytest.mark.parametrize("kind", ["error", "unknown"])
@async_test
async def test_an_import_succeeds_if_its_keyframe_cannot_be_written(kind, caplog):
    document = await (await make_large_session()).export()
    store = FaultyStateStore(MemoryStateStore())
    store.plan(Fault(2, kind))
    with caplog.at_level(logging.WARNING):
        result = await SnapshotManager(store).import_session(document)
    assert result.created
    assert "was not written" in caplog.text
    assert list_contents(await open_session(store)) == [
        each["content"] for each in document.state.messages
    ]


@async_test
async def test_an_existing_keyframe_is_not_replaced():
    document = await (await make_large_session()).export()
    store = MemoryStateStore()
    await SnapshotManager(store).import_session(document)
    (key,) = [key async for key in store.list("") if "/keyframes/" in key]
    before = await store.get(key)
    incarnation = await Incarnation.read(store, document.location)
    await import_document.write_keyframe(incarnation, Put(key, b"other", if_absent=True))
    assert await store.get(key) == before


@async_test
async def test_an_import_that_loses_the_race_leaves_no_keyframe():
    document = await (await make_large_session()).export()
    store = MemoryStateStore()
    incarnation = await Incarnation.read(store, document.location)
    key = document.location.manifest_key
    await store.put(key, SnapshotManifest().encode())
    with pytest.raises(ConflictError, match="was created concurrently"):
        await import_document.create_session(
            incarnation, document, import_document.prepare_events(document), {}
        )
    assert [key async for key in store.list("")] == [key]


def test_the_keyframe_is_encoded_in_another_thread(monkeypatch):
    threads = set()
    encode = import_document.encode_keyframe_put

    def observed(*arguments):
        threads.add(threading.current_thread())
        return encode(*arguments)

    monkeypatch.setattr(import_document, "encode_keyframe_put", observed)

    async def work():
        document = await (await make_large_session()).export()
        store = MemoryStateStore()
        await SnapshotManager(store).import_session(document)
        return [key async for key in store.list("") if "/keyframes/" in key]

    assert len(asyncio.run(work())) == 1
    assert len(threads) == 1
    assert threading.main_thread() not in threads
