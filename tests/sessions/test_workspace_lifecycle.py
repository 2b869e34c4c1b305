"""Files of a workspace through prunes, forks, documents and concurrent writers."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import NotFoundError, RetentionPolicy, SnapshotManager, WorkspaceChangedError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.sqlite import SqliteStateStore
from support.async_tests import async_test
from support.conversations import open_session, reopen_session
from support.file_trees import read_tree, write_tree


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    return folder


async def save_versions(root, store, count):
    """Save a session with this many versions of a folder; return it and the snapshots."""
    session = await open_session(store)
    files = session.workspace(root)
    saved = []
    for number in range(count):
        write_tree(root, {"same": "same", "a": f"version {number}"})
        saved.append(await session.save(workspace=files))
    return session, files, saved


async def list_blobs(session):
    return {digest async for digest in session.blobs.list()}


@async_test
async def test_a_prune_keeps_the_contents_of_kept_snapshots_only(root):
    session, files, saved = await save_versions(root, MemoryStateStore(), 5)
    assert len(await list_blobs(session)) == 6
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    assert len(await list_blobs(session)) == 3
    for number in (3, 4):
        await files.restore(at=saved[number].snapshot_id)
        assert (root / "a").read_text() == f"version {number}"
    with pytest.raises(NotFoundError):
        await files.restore(at=saved[0].snapshot_id)
    assert (await session.verify()).ok


@async_test
async def test_a_content_that_a_prune_deleted_is_stored_again(root):
    session, files, saved = await save_versions(root, MemoryStateStore(), 4)
    other = await reopen_session(session)
    await other.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    # The writer of the session still believes that the first version is stored.
    write_tree(root, {"a": "version 0"})
    report = await files.capture()
    write_tree(root, {"a": "later"})
    await files.capture()
    await files.restore(at=report.seq)
    assert (root / "a").read_text() == "version 0"
    assert (await session.verify()).ok
    assert saved


@async_test
async def test_captures_and_prunes_at_the_same_time_lose_nothing(root, tmp_path):
    async with SqliteStateStore(tmp_path / "state.db") as store:
        session, files, _ = await save_versions(root, store, 2)
        other = await reopen_session(session)

        async def prune():
            for _ in range(6):
                await other.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
                await asyncio.sleep(0)

        async def capture():
            for number in range(12):
                write_tree(root, {"a": f"version {number % 3}", f"b{number % 2}": "x" * number})
                await session.save(workspace=files, on_conflict="rebase")

        await asyncio.gather(prune(), capture())
        again = await reopen_session(session)
        assert (await again.verify()).ok
        await again.workspace(root).export(tmp_path / "out")
        assert read_tree(tmp_path / "out") == read_tree(root)


@async_test
async def test_a_fork_has_the_files_of_its_origin(root, tmp_path):
    session, files, saved = await save_versions(root, MemoryStateStore(), 3)
    fork = await session.fork("fork", at=saved[1].snapshot_id)
    await session.archive.delete_session(session_id=session.session_id)
    await fork.workspace(root).export(tmp_path / "out")
    assert (tmp_path / "out/a").read_text() == "version 1"
    assert (await fork.verify()).ok
    assert files.folder == str(root)


@async_test
async def test_a_document_carries_the_files(root, tmp_path):
    session, _, saved = await save_versions(root, MemoryStateStore(), 3)
    manager = SnapshotManager(session.state_store)
    document = await manager.export_session(agent_id="bot", session_id="ses")
    manager.to_file(document, tmp_path / "session.json")
    other = SnapshotManager(MemoryStateStore())
    await other.import_session(other.from_file(tmp_path / "session.json"))
    imported = await open_session(other.state_store)
    files = imported.workspace(root)
    assert not await files.diff()
    write_tree(root, {"a": "broken"})
    await files.capture()
    await files.restore(at=3)
    assert (root / "a").read_text() == f"version {len(saved) - 2}"


@async_test
async def test_the_state_alone_can_be_rolled_back_in_memory(root):
    session, files, _ = await save_versions(root, MemoryStateStore(), 1)
    mark = session.snapshot()
    write_tree(root, {"a": "changed"})
    await files.capture()
    session.rollback(mark)
    await session.commit()
    assert [each.path for each in (await files.diff()).changed] == ["a"]
    await files.restore(at=mark)
    assert not await files.diff()


@async_test
async def test_the_last_capture_may_be_pruned(root):
    session, files, saved = await save_versions(root, MemoryStateStore(), 3)
    await session.restore(saved[0].snapshot_id)
    await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    # It is not known any more that the folder was captured, so the restore has to be forced.
    other = (await reopen_session(session)).workspace(root)
    newest = session.log.head.seq
    with pytest.raises(WorkspaceChangedError):
        await other.restore(at=newest)
    await other.restore(at=newest, force=True)
    assert (root / "a").read_text() == "version 0"
    assert files.folder == other.folder
