"""SnapshotManager exports, imports, reads and writes documents."""

from __future__ import annotations

from dataclasses import replace

import pytest

import holdfast
from holdfast import (
    Document,
    InvalidDocumentError,
    NotFoundError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotManager,
    StateStoreError,
    ValueMigrations,
)
from holdfast.documents import document as document_module
from holdfast.documents import export
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer import manager as manager_module
from support.async_tests import async_test, run_async
from support.conversations import add_messages, open_session
from support.faults import Crash
from support.observed_store import InterruptedStore, make_state
from support.sample_documents import make_document, update_digest

pytestmark = pytest.mark.usefixtures("one_incarnation")

NAMES = ["snapshot.json", "snapshot.json.gz", "snapshot.json.zst"]


async def make_manager(*sessions, store=None):
    """Return a manager with sessions, each given as agent id, session id and messages."""
    store = store or MemoryStateStore()
    for agent_id, session_id, *texts in sessions:
        await add_messages(await open_session(store, session_id, agent_id=agent_id), *texts)
    return SnapshotManager(store)


# ----------------------------------------------------------------------------------- round trip


@async_test
async def test_a_document_is_exported_written_read_and_imported(
    tmp_path, monkeypatch, new_state_store
):
    monkeypatch.chdir(tmp_path)
    async with new_state_store() as state_store:
        session = await Session.open(state_store, agent_id="research-bot", session_id="ses_abc123")
        session.add_message("user", "Compare the two reports")
        session.status = "completed"
        await session.commit()

        manager = holdfast.SnapshotManager(state_store=state_store)
        snapshot = await manager.export_session(agent_id="research-bot", session_id="ses_abc123")
        manager.to_file(snapshot, "snapshot.json")
        read = manager.from_file("snapshot.json")
        assert read.to_dict() == snapshot.to_dict()
        assert len(snapshot.state.messages) == 1
        assert snapshot.state.status == "completed"
        assert snapshot.event_log_count == 3
        assert snapshot.tags == {}
        result = await manager.import_session(read, dry_run=True)
        assert result.dry_run
        result = await manager.import_session(read, dry_run=False, session_id="ses_copy")
        assert (result.agent_id, result.session_id) == ("research-bot", "ses_copy")
        assert (result.messages_restored, result.events_restored) == (1, 3)
        assert result.diff["added"] == [("messages", "000000000000"), ("session", "status")]
        assert isinstance(result, holdfast.ImportResult)
        there = await Session.open(state_store, agent_id="research-bot", session_id="ses_copy")
        assert (await there.verify()).ok
        assert there.messages == session.messages


# --------------------------------------------------------------------------------------- exporting


@async_test
async def test_without_a_session_id_the_latest_session_is_exported():
    manager = await make_manager(("bot", "z", "first"), ("bot", "a", "last"), ("other", "b", "x"))
    document = await manager.export_session("bot")
    assert document.session_id == "a"
    assert document.event_log_count == len(document.events) == 2
    assert (await manager.export_session("bot", "z")).state.messages[0]["content"] == "first"


@async_test
async def test_a_saved_snapshot_is_exported_with_added_tags():
    store = MemoryStateStore()
    session = await open_session(store)
    session.add_message("user", "a")
    saved = await session.save(tags={"env": "dev", "turn": "1"})
    await add_messages(session, "b")
    document = await SnapshotManager(store).export_session(
        "bot", "ses", snapshot_id=saved.snapshot_id, tags={"env": "production"}
    )
    assert document.snapshot_id == saved.snapshot_id
    assert document.tags == {"env": "production", "turn": "1"}
    assert document.event_log_count == len(document.events) == 2
    assert len(document.state.messages) == 1
    with pytest.raises(NotFoundError, match="no snapshot missing in"):
        await SnapshotManager(store).export_session("bot", "ses", snapshot_id="missing")
    with pytest.raises(TypeError, match="tags must be a mapping"):
        await SnapshotManager(store).export_session("bot", tags="env")


@async_test
async def test_the_environment_is_in_the_document(monkeypatch):
    manager = await make_manager(("bot", "ses", "a"))
    monkeypatch.delenv("HOLDFAST_ENVIRONMENT", raising=False)
    assert (await manager.export_session("bot")).source_environment is None
    monkeypatch.setenv("HOLDFAST_ENVIRONMENT", "production")
    assert (await manager.export_session("bot")).source_environment == "production"


@async_test
async def test_the_scope_selects_one_of_two_sessions_with_one_name(monkeypatch):
    monkeypatch.setattr(manager_module, "MAX_SUGGESTIONS_READ", 1)
    manager = await make_manager(("crew", "ses", "one agent's"))
    crew = await open_session(manager.state_store, scope="multi_agent", agent_id="crew")
    crew.agent("writer").add_message("assistant", "draft")
    await crew.commit()
    await add_messages(await open_session(manager.state_store, "later", agent_id="crew"), "x")
    for session_id in ("ses", None):
        document = await manager.export_session("crew", session_id, scope="multi_agent")
        assert (document.scope, document.session_id) == ("multi_agent", "ses")
    assert (await manager.export_session("crew", "ses", scope="agent")).scope == "agent"
    assert (await manager.export_session("crew", scope="agent")).session_id == "later"
    assert (await manager.export_session("crew")).session_id == "later"
    with pytest.raises(ValueError, match="scope must be one of agent, multi_agent, got 'group'"):
        await manager.export_session("crew", scope="group")
    with pytest.raises(NotFoundError):
        await (await make_manager(("bot", "ses", "a"))).export_session("bot", scope="multi_agent")


@async_test
async def test_an_export_is_redacted():
    manager = await make_manager(("bot", "ses", "a"))
    document = await manager.export_session(
        "bot", redact=lambda each: replace(each, tags={"r": ""})
    )
    assert document.tags == {"r": ""}


@async_test
async def test_an_unknown_name_is_an_error_with_suggestions():
    manager = await make_manager(("research-bot", "ses_abc", "x"), ("writer", "ses_xyz", "x"))
    with pytest.raises(
        NotFoundError, match="no agent 'reserch-bot' in this store; did you mean resea"
    ):
        await manager.export_session("reserch-bot")
    with pytest.raises(NotFoundError, match="no agent 'reserch-bot'"):
        await manager.export_session("reserch-bot", "ses_abc")
    with pytest.raises(
        NotFoundError, match="research-bot has no session 'ses_abd'; did you mean ses_a"
    ):
        await manager.export_session("research-bot", "ses_abd")
    with pytest.raises(NotFoundError, match="there are research-bot, writer"):
        await manager.export_session("%%%")
    with pytest.raises(NotFoundError, match="no agent 'bot' in this store; there are none"):
        await (await make_manager()).export_session("bot")
    for wrong in ("", 7):
        with pytest.raises((TypeError, ValueError), match="agent_id"):
            await manager.export_session(wrong)


@async_test
async def test_a_session_without_commits_is_not_found():
    store = MemoryStateStore()
    archive = SnapshotArchive(store)
    with pytest.raises(NotFoundError, match="agent bot has no session ses in this store"):
        await export.export_document(archive, (await open_session(store)).location)


@async_test
async def test_an_export_during_a_prune_has_the_remaining_events():
    async def world():
        disk = MemoryStateStore()
        session = await open_session(disk)
        for text in "abcdef":
            session.add_message("user", text)
            await session.save()
        return disk, session

    disk, session = await world()
    counting = InterruptedStore(disk, 0, None)
    digest = (await SnapshotManager(counting).export_session("bot")).digest
    lengths = set()
    for at in range(1, counting.calls + 1):
        disk, session = await world()

        async def prune(session=session):
            await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))

        document = await SnapshotManager(InterruptedStore(disk, at, prune)).export_session("bot")
        assert len(document.state.messages) == 6
        again = Document.from_dict(document.to_dict())
        assert (await SnapshotManager(MemoryStateStore()).import_session(again)).created
        assert document.digest == digest
        lengths.add(len(document.events))
    assert lengths == {1}


@async_test
async def test_exporting_a_damaged_log_is_an_error():
    for seq in (1, 3, 4):
        manager = await make_manager(("bot", "ses", "a", "b", "c"))
        location = await manager.locate("bot")
        saved = await (await open_session(manager.state_store)).save()
        assert await manager.state_store.delete(f"{location.prefix}log/00000000/{seq:012}.json")
        with pytest.raises(holdfast.IntegrityError, match=f"{seq:012}.json is missing"):
            await export.read_events_up_to(manager.archive, location, saved.position)


# ------------------------------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def large():
    """Return the document of a session with 3,000 messages."""

    async def made():
        session = await open_session(MemoryStateStore())
        for number in range(3000):
            session.add_message("user", f"message number {number}")
            if number % 500 == 0:
                await session.commit()
        await session.commit()
        return await session.export()

    return run_async(made())


@pytest.mark.parametrize("name", NAMES)
@async_test
async def test_three_thousand_messages_are_written_read_and_imported(tmp_path, name, large):
    store = MemoryStateStore()
    manager = SnapshotManager(store)
    manager.to_file(large, tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    document = manager.from_file(tmp_path / name)
    assert document.digest == large.digest
    assert document.events == large.events
    result = await manager.import_session(document)
    assert (result.messages_restored, result.events_restored) == (3000, 3001)
    session = await open_session(store, must_exist=True)
    assert (await session.verify()).damage == []
    assert session.snapshot().digest == large.digest


@pytest.mark.parametrize("failure", [Crash, KeyboardInterrupt, OSError, RuntimeError])
@pytest.mark.parametrize("name", NAMES)
def test_a_failed_write_keeps_the_old_file(tmp_path, name, failure, large, monkeypatch):
    manager = SnapshotManager(MemoryStateStore())
    small = make_document(make_state(1))
    manager.to_file(small, tmp_path / name)
    before = (tmp_path / name).read_bytes()

    def failing(tree):
        yield b"{" * 100_000
        raise failure("in the middle")

    monkeypatch.setattr(document_module, "encode_chunks", failing)
    with pytest.raises(StateStoreError if failure is OSError else failure, match="in the middle"):
        manager.to_file(large, tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == before


def test_an_edited_file_is_read_with_allow_modified(tmp_path):
    manager = SnapshotManager(MemoryStateStore())
    path = tmp_path / "a.json"
    manager.to_file(make_document(make_state(1, plan="old")), path)
    path.write_text(path.read_text().replace('"old"', '"new"'))
    with pytest.raises(InvalidDocumentError, match="does not match its digest"):
        manager.from_file(path)
    assert manager.from_file(path, allow_modified=True).state.values == {"plan": "new"}
    with pytest.raises(InvalidDocumentError, match="more than 10 bytes"):
        manager.from_file(path, max_bytes=10)


@async_test
async def test_only_a_document_is_imported():
    manager = await make_manager()
    for wrong in ({}, "snapshot.json", None, make_state(1)):
        with pytest.raises(TypeError, match="import_session takes a Document, got"):
            await manager.import_session(wrong)


# ----------------------------------------------------------------------------- value migrations


def rename_goal(values):
    return {("plan" if key == "goal" else key): value for key, value in values.items()}


@async_test
async def test_values_of_an_older_version_are_migrated_on_reading():
    store = MemoryStateStore()
    session = await add_messages(await open_session(store), "a")
    session.set("goal", 1)
    session.set("kept", (1, 2))
    await session.commit()
    old = (await SnapshotManager(store).export_session("bot")).to_dict()
    assert "values_version" not in old

    manager = SnapshotManager(MemoryStateStore(), migrations=ValueMigrations(2, {1: rename_goal}))
    document = manager.from_dict(old)
    assert document.state.values == {"plan": 1, "kept": (1, 2)}
    assert document.extra == {"values_version": 2}
    assert manager.to_dict(document)["values_version"] == 2
    assert manager.from_dict(document.to_dict()).digest == document.digest
    await manager.import_session(document)
    there = await open_session(manager.state_store, must_exist=True)
    assert (await there.verify()).ok
    assert there.state == {"plan": 1, "kept": (1, 2)}
    assert [event.type for event in there.events][-1] == "session.imported"
    again = await manager.export_session("bot")
    assert again.extra == {"values_version": 2}
    assert manager.from_dict(again.to_dict()).snapshot.diff(again.snapshot)["changed"] == []


@pytest.mark.parametrize("version", ["2", None, 1.0, True, [], 3])
def test_an_invalid_values_version_is_rejected(version):
    manager = SnapshotManager(MemoryStateStore(), migrations=ValueMigrations(2, {1: rename_goal}))
    tree = {**make_document(make_state(1)).to_dict(), "values_version": version}
    with pytest.raises(InvalidDocumentError, match="values_version.*must be an int|have version 3"):
        manager.from_dict(update_digest(tree))
