"""Conversations of Pydantic AI with Holdfast's own tools: restore, fork, import, delete."""

from __future__ import annotations

import pytest
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelRequest, UserPromptPart

from adapters.pydantic_ai.conversations import MESSAGES
from holdfast import (
    Catalog,
    IntegrityError,
    InvalidDocumentError,
    Session,
    SnapshotArchive,
    SnapshotManager,
)
from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from holdfast.adapters.pydantic_ai.layout import ENTRIES
from holdfast.snapshots import delete
from holdfast.snapshots.delete import delete_incarnation
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from support.async_tests import async_test
from support.backends import SharedMemory


def request(text):
    return ModelRequest(parts=[UserPromptPart(text)])


async def add(store, name, *texts, **options):
    found = await store.load(name) or Conversation(conversation_id=name)
    found.messages += [request(text) for text in texts]
    await store.save(found, **options)
    return found


async def read_texts(store, name):
    found = await store.load(name)
    return None if found is None else [each.parts[0].content for each in found.messages]


def open_session(store, name, **options):
    location = store.location(name)
    return Session.open(
        store.state_store, agent_id=location.scope_id, session_id=location.session_id, **options
    )


# ------------------------------------------------------------------------------ Holdfast's tools


@async_test
async def test_a_restore_is_seen_by_the_store_and_refuses_what_was_loaded_before():
    store = HoldfastConversationStore(MemoryStateStore())
    await add(store, "c", "a", "b")
    session = await open_session(store, "c")
    saved = await session.save()
    stale = await add(store, "c", "wrong")
    await session.refresh()
    await session.restore(saved.snapshot_id)
    assert await read_texts(store, "c") == ["a", "b"]
    assert [each.head_id for each in await store.list_conversations()] == [
        (await store.load_entries("c"))[-1].id
    ]
    with pytest.raises(ConversationConflict):
        await store.save(stale)
    await add(store, "c", "right")
    assert await read_texts(store, "c") == ["a", "b", "right"]


@async_test
async def test_a_fork_by_holdfast_is_a_fork_of_pydantic_ai():
    store = HoldfastConversationStore(MemoryStateStore())
    await add(store, "c", "a", "b", scope="u")
    await (await open_session(store, "c")).fork("what-if")
    record = await store.read_record("what-if")
    head = (await store.load_entries("c"))[-1].id
    assert (record.conversation_id, record.forked_from, record.forked_at) == ("what-if", "c", head)
    assert record.scope == "u"
    await add(store, "what-if", "c")
    await store.delete("c")
    assert await read_texts(HoldfastConversationStore(store.state_store), "what-if") == [*"abc"]
    assert (await HoldfastConversationStore(store.state_store).read_entry(head)).id == head


@async_test
async def test_a_fork_of_pydantic_ai_names_its_origin_in_the_log():
    store = HoldfastConversationStore(MemoryStateStore())
    await add(store, "c", "a", "b")
    await store.fork("c", at=1, new_conversation_id="d")
    session = await open_session(store, "d")
    (event,) = [each async for each in session.events if each.type == "session.forked"]
    assert event.data["session_id"] == "c"
    assert (await store.read_record("d")).forked_from == "c"


@async_test
async def test_an_imported_conversation_continues_and_its_entries_are_found_by_id():
    store = HoldfastConversationStore(MemoryStateStore())
    loaded = await add(store, "c", "a", "b")
    await store.branch("c", at=1, expected_revision=loaded.revision)
    await add(store, "c", "c")
    record = await store.read_record("c")
    document = await (await open_session(store, "c")).export()

    other = HoldfastConversationStore(MemoryStateStore())
    await SnapshotManager(other.state_store).import_session(document)
    assert await other.read_record("c") == record
    assert await other.load_entries("c") == await store.load_entries("c")
    fresh = HoldfastConversationStore(other.state_store)
    assert await fresh.read_entry(record.branches[0]) == await store.read_entry(record.branches[0])
    await add(fresh, "c", "d")
    assert await read_texts(other, "c") == ["a", "c", "d"]
    found = await other.branch(
        "c",
        from_entry=record.branches[0],
        expected_revision=(await other.read_record("c")).revision,
    )
    assert [each.parts[0].content for each in found.messages] == ["a", "b"]


@async_test
async def test_a_read_only_store_is_read():
    content = MemoryStateStore()
    await add(HoldfastConversationStore(content), "c", "a")
    store = HoldfastConversationStore(ReadOnlyStateStore(SharedMemory(content)))
    assert await read_texts(store, "c") == ["a"]
    assert len(await store.list_conversations()) == 1


# --------------------------------------------------------------------------------------- deletion


@async_test
async def test_deleting_a_conversation_leaves_nothing_and_spares_other_agents():
    content = MemoryStateStore()
    store, other = (HoldfastConversationStore(content, agent_id=name) for name in ("one", "two"))
    for each in (store, other):
        await add(each, "c", "a", "b")
    entries = await store.load_entries("c")
    await store.delete("c")
    assert await store.load("c") is None
    assert await read_texts(other, "c") == ["a", "b"]
    with pytest.raises(KeyError):
        await store.read_entry(entries[0].id)
    assert await Catalog(content).agents() == ["two"]
    await other.delete("c")
    assert [key async for key in content.list()] == []


@async_test
async def test_a_deletion_that_was_interrupted_is_finished_by_the_next_call(monkeypatch):
    for resume in ("load", "list_conversations", "add"):
        content = MemoryStateStore()
        store = HoldfastConversationStore(content)
        await add(store, "c", "a", "b")
        entries = await store.load_entries("c")

        async def crash(*_):
            raise RuntimeError("crashed")

        with monkeypatch.context() as patch, pytest.raises(RuntimeError):
            patch.setattr(delete.Deletion, "run", crash)
            patch.setattr(delete.Deletion, "resume", crash)
            await store.delete("c")
        again = HoldfastConversationStore(SharedMemory(content))
        if resume == "load":
            assert await again.load("c") is None
        elif resume == "list_conversations":
            assert await again.list_conversations() == []
        else:
            await add(again, "c", "new")
            assert await read_texts(store, "c") == ["new"]
            assert len(await again.list_conversations()) == 1
        for entry in entries:
            with pytest.raises(KeyError):
                await again.read_entry(entry.id)
        if resume != "add":
            assert [key async for key in content.list()] == []


@async_test
async def test_a_marked_conversation_is_gone_before_its_session_is(monkeypatch):
    content = MemoryStateStore()
    store = HoldfastConversationStore(content)
    loaded = await add(store, "c", "a")
    entry_id = (await store.read_record("c")).head_id

    async def crash(*_):
        raise RuntimeError("crashed")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(store, "_erase", crash)
        await store.delete("c")
    reader = HoldfastConversationStore(ReadOnlyStateStore(SharedMemory(content)))
    assert await reader.load("c") is None
    assert await reader.list_conversations() == []
    with pytest.raises(KeyError):
        await reader.read_entry(entry_id)
    with pytest.raises(ConversationConflict):
        await store.save(loaded)
    with pytest.raises(ConversationConflict):
        await store.delete_record("c", expected_revision=loaded.revision)
    await add(HoldfastConversationStore(SharedMemory(content)), "c", "new")
    assert await read_texts(store, "c") == ["new"]


@async_test
async def test_a_late_deletion_does_not_touch_a_conversation_created_since():
    content = MemoryStateStore()
    store = HoldfastConversationStore(content)
    await add(store, "c", "old")
    old = (await open_session(store, "c")).committer.incarnation.id
    await store.delete("c")
    await add(store, "c", "new")
    await delete_incarnation(content, store.location("c"), old)
    assert await read_texts(store, "c") == ["new"]
    verified = await SnapshotArchive(content).verify(location=store.location("c"))
    assert verified.ok


# --------------------------------------------------------------------------- data of other versions


async def edit(store, name, namespace, key, value):
    """Change what is stored, as another version would have written it."""
    session = await open_session(store, name, must_exist=True)
    session.record("edited", changes={"set": [(namespace, key, value)], "delete": []})
    await session.commit()


@async_test
async def test_a_newer_format_version_is_one_clear_error_and_is_kept():
    store = HoldfastConversationStore(MemoryStateStore())
    loaded = await add(store, "c", "a")
    record = (await open_session(store, "c")).get("conversation")
    newer = {**record, "format_version": 2, "future": {"x": 1}}
    await edit(store, "c", "state", "conversation", newer)
    calls = [
        lambda: store.load("c"),
        lambda: store.list_conversations(),
        lambda: store.save(loaded),
        lambda: store.delete_record("c", expected_revision=loaded.revision),
    ]
    for call in calls:
        with pytest.raises(InvalidDocumentError, match="format_version 2.*install"):
            await call()
    assert (await open_session(store, "c")).get("conversation") == newer


@async_test
async def test_a_message_of_an_unknown_kind_is_kept_and_reading_it_names_its_entry():
    store = HoldfastConversationStore(MemoryStateStore())
    await store.save(Conversation(conversation_id="c", messages=list(MESSAGES)))
    entries = await store.load_entries("c")
    session = await open_session(store, "c")
    key = session.snapshot().get(ENTRIES, entries[2].id)["at"]
    odd = {**session.messages[2], "parts": [{"part_kind": "hologram", "beam": [1]}]}
    await edit(store, "c", "messages", key, odd)
    with pytest.raises(InvalidDocumentError, match=f"cannot read entry '{entries[2].id}'"):
        await store.load("c")
    # The rest is read, and the conversation goes on.
    found = await store.load("c", limit=2)
    assert found.messages == MESSAGES[3:]
    found.messages.append(request("next"))
    await store.save(found)
    forked = await store.read_record("c")
    assert (await store.read_entry(forked.head_id)).message.parts[0].content == "next"
    assert (await open_session(store, "c")).messages[2] == odd


@async_test
async def test_unknown_fields_of_a_message_survive_a_branch_and_a_return():
    store = HoldfastConversationStore(MemoryStateStore())
    await add(store, "c", "a", "b")
    session = await open_session(store, "c")
    newer = {**session.messages[1], "future": {"x": [1]}}
    await edit(store, "c", "messages", "000000000001", newer)
    record = await store.read_record("c")
    found = await store.branch("c", at=1, expected_revision=record.revision)
    assert await read_texts(store, "c") == ["a"]
    await store.branch("c", from_entry=record.head_id, expected_revision=found.revision)
    assert (await open_session(store, "c")).messages[1] == newer


@pytest.mark.parametrize(
    ("namespace", "key", "value"),
    [
        ("state", "conversation", "not a record"),
        ("state", "conversation", {"format_version": 1, "head_id": 5}),
        (ENTRIES, "<head>", "not an entry"),
        (ENTRIES, "<head>", {"parent_id": "<head>", "kind": "message", "at": "000000000001"}),
        (ENTRIES, "<head>", {"parent_id": None, "kind": "message", "at": "000000000099"}),
        (ENTRIES, "<head>", {"parent_id": None, "kind": "message"}),
    ],
)
@async_test
async def test_damaged_data_is_an_error(namespace, key, value):
    store = HoldfastConversationStore(MemoryStateStore())
    await add(store, "c", "a", "b")
    head = (await store.read_record("c")).head_id
    if isinstance(value, dict) and value.get("parent_id") == "<head>":
        value = {**value, "parent_id": head}
    await edit(store, "c", namespace, key.replace("<head>", head), value)
    with pytest.raises(IntegrityError, match="restore the session"):
        await store.load("c")
