"""Capture and restore a folder with a session."""

from __future__ import annotations

import os

import pytest

from holdfast import (
    BlockingSession,
    ConflictError,
    IntegrityError,
    NotFoundError,
    StateStoreError,
    WorkspaceChangedError,
    WorkspaceError,
)
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.sessions import workspace as workspace_module
from holdfast.stores.files import FileStateStore
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.sqlite import SqliteStateStore
from holdfast.testing import Crash, Fault, FaultyStateStore
from holdfast.workspaces import hashing, sources
from support.async_tests import async_test, run_async
from support.conversations import list_contents, list_types, open_session, reopen_session
from support.file_trees import read_tree, write_tree


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    return folder


async def open_workspace(root, store=None, **options):
    session = await open_session(store or MemoryStateStore())
    return session, session.workspace(root, **options)


@async_test
async def test_a_folder_is_captured_and_restored_on_every_backend(new_state_store, root):
    write_tree(root, {"a.txt": "one", "src/main.py": "print(1)\n", "link": "->a.txt", "empty": ""})
    (root / "a.txt").chmod(0o750)
    write_tree(root, {"large.bin": os.urandom(CHUNK_SIZE + 10)})
    before = read_tree(root)
    async with new_state_store() as store:
        session, files = await open_workspace(root, store)
        first = await files.capture()
        assert (first.added, first.changed, first.removed, first.unchanged) == (5, 0, 0, 0)
        write_tree(root, {"a.txt": "changed", "new": "x"})
        (root / "src/main.py").unlink()
        second = await files.capture()
        assert (second.added, second.changed, second.removed, second.unchanged) == (1, 1, 1, 3)
        assert second.paths == ["a.txt", "new", "src/main.py"]
    async with new_state_store() as store:
        session = await open_session(store)
        files = session.workspace(root)
        report = await files.restore(at=first.seq)
        assert read_tree(root) == before
        assert (root / "a.txt").stat().st_mode & 0o777 == 0o750
        assert (report.written, report.removed) == (["a.txt", "src/main.py"], ["new"])
        again = await reopen_session(session)
        assert list_types(again.events[-1:]) == ["files.restored"]
        await again.workspace(root).restore(at=report.undo)
        assert (root / "a.txt").read_text() == "changed"
        assert not (root / "src").exists()


@async_test
async def test_an_unchanged_folder_records_nothing(root):
    write_tree(root, {"a": "1"})
    session, files = await open_workspace(root)
    report = await files.capture()
    assert report.size == 1
    session.add_message("user", "hello")
    again = await files.capture()
    assert (again.added, again.unchanged, again.paths) == (0, 1, [])
    assert not session.is_dirty
    assert list_types(session.events) == ["session.started", "files.captured", "message.appended"]
    assert session.events[1].data == {"added": 1, "changed": 0, "removed": 0, "files": 1, "size": 1}


@async_test
async def test_skipped_files_are_reported_and_recorded(root):
    write_tree(root, {"a": "1", "large": "12345", ".gitignore": "*.log", "x.log": ""})
    session, files = await open_workspace(root, max_file_size=4, ignore=["b*"])
    write_tree(root, {".gitignore": "*.t"})
    report = await files.capture()
    assert [(each.path, each.reason) for each in report.skipped] == [
        ("large", "5 bytes, more than max_file_size (4)")
    ]
    assert session.events[-1].data["skipped"] == [
        {"path": "large", "reason": "5 bytes, more than max_file_size (4)"}
    ]
    assert report.to_json()["skipped"][0]["path"] == "large"


@async_test
async def test_save_captures_in_the_same_commit(root):
    write_tree(root, {"a": "1"})
    session, files = await open_workspace(root)
    await session.commit()
    session.add_message("user", "hello")
    segments = len(session.committer.tail.segments)
    saved = await session.save(workspace=files, tags={"step": "1"})
    assert len(session.committer.tail.segments) == segments + 1
    assert saved.snapshot.get("files", "a")["size"] == 1
    (root / "a").write_text("22")
    await files.restore(at=saved, force=True)
    assert (root / "a").read_text() == "1"
    await files.restore(at=saved.snapshot_id)


@async_test
async def test_conversation_and_folder_are_restored_together(root):
    write_tree(root, {"a": "good"})
    session, files = await open_workspace(root)
    session.add_message("user", "fix it")
    saved = await session.save(workspace=files)
    session.add_message("assistant", "done")
    write_tree(root, {"a": "broken", "junk": "x"})
    await files.capture()
    report = await session.restore(saved.snapshot_id, workspace=files)
    assert read_tree(root) == {"a": b"good"}
    assert list_contents(session) == ["fix it"]
    assert list_types(session.events[-1:]) == ["state.restored"]
    await session.restore(report.undo, workspace=files)
    assert read_tree(root) == {"a": b"broken", "junk": b"x"}
    assert list_contents(session) == ["fix it", "done"]
    assert not await files.diff()


@async_test
async def test_a_folder_can_be_restored_after_its_session(root):
    write_tree(root, {"a": "good"})
    session, files = await open_workspace(root)
    saved = await session.save(workspace=files)
    (root / "a").write_text("broken")
    await files.capture()
    await session.restore(saved.snapshot_id)
    other = (await reopen_session(session)).workspace(root)
    await other.restore(at=saved.snapshot_id)
    assert (root / "a").read_text() == "good"


@async_test
async def test_a_changed_folder_is_refused_unless_forced(root):
    write_tree(root, {"a": "1", "b": "1"})
    session, files = await open_workspace(root)
    first = await files.capture()
    write_tree(root, {"a": "2"})
    await files.capture()
    write_tree(root, {"a": "3", "new": "x"})
    (root / "b").unlink()
    dry = await files.restore(at=first.seq, dry_run=True)
    assert dry.dry_run
    assert dry.changed == ["a", "b", "new"]
    assert (dry.written, dry.removed) == (["a", "b"], ["new"])
    head = session.log.head
    with pytest.raises(WorkspaceChangedError, match="'a', 'b', 'new'; capture it first") as caught:
        await files.restore(at=first.seq)
    assert caught.value.paths == ["a", "b", "new"]
    assert read_tree(root) == {"a": b"3", "new": b"x"}
    assert session.log.head == head
    report = await files.restore(at=first.seq, force=True)
    assert read_tree(root) == {"a": b"1", "b": b"1"}
    await files.restore(at=report.undo)
    assert read_tree(root) == {"a": b"3", "new": b"x"}


@async_test
async def test_a_state_without_files_does_not_empty_the_folder(root):
    session, files = await open_workspace(root)
    await session.commit()
    write_tree(root, {"a": "1", "b": "1"})
    await files.capture()
    assert (await files.restore(at=1, dry_run=True)).removed == ["a", "b"]
    for attempt in (files.restore(at=1), session.restore(1, workspace=files)):
        with pytest.raises(WorkspaceError, match=r"no files at 1: .* empty .* \(2 files\)"):
            await attempt
    assert len(read_tree(root)) == 2
    report = await files.restore(at=1, force=True)
    assert read_tree(root) == {}
    await files.restore(at=report.undo)
    assert len(read_tree(root)) == 2


@async_test
async def test_ignored_files_are_never_touched(root):
    write_tree(root, {".gitignore": ".env\nout/\n", ".env": "secret", "out/x": "1", "a": "1"})
    _session, files = await open_workspace(root)
    first = await files.capture()
    assert first.added == 2
    # The agent removes the rules: what they ignored is captured, but not removed by a restore.
    write_tree(root, {".gitignore": "", "b": "new"})
    assert (await files.capture()).added == 3
    report = await files.restore(at=first.seq)
    assert report.kept == [".env", "out/x"]
    assert read_tree(root) == {
        ".gitignore": b".env\nout/\n", ".env": b"secret", "out/x": b"1", "a": b"1",
    }  # fmt: skip
    assert not await files.diff()


@async_test
async def test_a_file_that_is_ignored_now_is_captured_before_it_is_replaced(root):
    write_tree(root, {"a": "1", "sub/b": "1"})
    session, files = await open_workspace(root, max_file_size=10)
    first = await files.capture()
    write_tree(root, {".gitignore": "a\nsub/\n", "a": "precious", "sub/b": "precious " * 10})
    await files.capture()
    with pytest.raises(WorkspaceChangedError, match="'a', 'sub/b'"):
        await files.restore(at=first.seq)
    report = await files.restore(at=first.seq, force=True)
    assert read_tree(root) == {"a": b"1", "sub/b": b"1"}
    undo = (await session.workspace(root).diff(first.seq, report.undo)).text
    assert "+precious" in undo


@async_test
async def test_a_diff_compares_events_and_the_folder(root):
    write_tree(root, {"a": "one\n", "b": "x"})
    _session, files = await open_workspace(root)
    first = await files.capture()
    write_tree(root, {"a": "two\n"})
    second = await files.capture()
    found = await files.diff(first.seq, second.seq)
    assert [each.path for each in found.changed] == ["a"]
    assert found.text == "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+two\n"
    assert not await files.diff()
    (root / "b").unlink()
    write_tree(root, {"c": "new"})
    now = await files.diff()
    assert [each.path for each in now.added] == ["c"]
    assert [each.path for each in now.removed] == ["b"]
    assert [each.path for each in (await files.diff(None, second.seq)).added] == ["b"]
    assert len((await files.diff(first.seq)).files) == 3
    assert (await files.diff(first.seq, text=False)).text == ""


@async_test
async def test_a_file_that_changes_before_the_commit_is_captured_again(root, monkeypatch):
    monkeypatch.setattr(hashing, "SMALL_FILE", 0)
    write_tree(root, {"a": "first"})
    session, files = await open_workspace(root)
    real, count = sources.FolderSource._open, 0

    def change_first(self):
        nonlocal count
        count += 1
        if count <= changes:
            (root / "a").write_text(f"version {count}")
        return real(self)

    monkeypatch.setattr(sources.FolderSource, "_open", change_first)
    changes = 2
    await files.capture()
    assert (await files.diff()).files == []
    changes = 10
    (root / "a").write_text("next")
    session.add_message("user", "hello")
    with pytest.raises(WorkspaceError, match="file 'a' changed while it was captured"):
        await files.capture()
    await session.commit()
    assert list_contents(await reopen_session(session)) == ["hello"]
    assert list_types(session.events[-2:]) == ["files.captured", "message.appended"]


@async_test
async def test_a_pending_capture_is_replaced_if_its_files_changed(root, monkeypatch):
    monkeypatch.setattr(hashing, "SMALL_FILE", 0)
    write_tree(root, {"a": "first"})
    store = FaultyStateStore(MemoryStateStore())
    session, files = await open_workspace(root, store)
    await session.commit()
    store.plan(Fault(1, "error"))
    with pytest.raises(StateStoreError):
        await files.capture()
    assert session.is_dirty
    write_tree(root, {"a": "second"})
    session.add_message("user", "hello")
    await files.capture()
    assert not await files.diff()
    assert list_types(session.events) == ["session.started", "message.appended", "files.captured"]


@async_test
async def test_a_growing_file_is_named_and_nothing_is_written(root, monkeypatch):
    write_tree(root, {"a": "1", "grow.log": "x"})
    session, files = await open_workspace(root)
    await session.commit()
    real = os.read

    def read_and_grow(descriptor, size):
        with (root / "grow.log").open("a") as file:
            file.write("more")
        return real(descriptor, size)

    head = session.log.head
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", read_and_grow)
        with pytest.raises(WorkspaceError, match="'grow.log' keeps changing"):
            await files.capture()
    assert not session.is_dirty
    assert session.log.head == head
    assert [each async for each in session.blobs.list()] == []


@async_test
async def test_a_missing_or_damaged_blob_is_named_and_nothing_is_changed(root):
    store = MemoryStateStore()
    write_tree(root, {"a": "one", "b": "two"})
    session, files = await open_workspace(root, store)
    session.add_message("user", "hello")
    first = await files.capture()
    write_tree(root, {"a": "1", "b": "2"})
    await files.capture()
    digest = session.snapshot().get("files", "b")["digest"]
    wanted = (await files.diff(first.seq, text=False)).changed[1].before.digest
    assert wanted != digest
    key = f"{session.location.prefix}blobs/{wanted}/000000"
    await store.put(key, b"wrong")
    with pytest.raises(IntegrityError, match=r"content of file 'b': blob .* is damaged"):
        await files.restore(at=first.seq)
    await store.delete(key)
    for attempt in (files.restore(at=first.seq), files.export(root.parent / "out", at=first.seq)):
        with pytest.raises(IntegrityError, match=r"content of 'b' is not stored"):
            await attempt
    with pytest.raises(IntegrityError, match=r"content of file 'b'"):
        await files.diff(first.seq)
    assert read_tree(root) == {"a": b"1", "b": b"2"}
    assert list_contents(await reopen_session(session)) == ["hello"]
    assert not (root.parent / "out").exists()


@async_test
async def test_an_unsafe_path_in_a_session_is_refused(root, tmp_path):
    write_tree(root, {"a": "1"})
    session, files = await open_workspace(root)
    await files.capture()
    entry = session.snapshot().get("files", "a")
    session.record("evil", changes={"set": [("files", "../evil", entry)], "delete": []})
    await session.commit()
    seq = session.log.head.seq
    for call in (files.restore(at=seq), files.export(tmp_path / "out", at=seq), files.diff(seq)):
        with pytest.raises(IntegrityError, match="unsafe path"):
            await call
    assert not (tmp_path / "out").exists()


@async_test
async def test_a_conflict_discards_the_capture(root):
    write_tree(root, {"a": "1"})
    session, files = await open_workspace(root)
    await files.capture()
    other = await reopen_session(session)
    other.add_message("user", "first")
    await other.commit()
    (root / "a").write_text("22")
    with pytest.raises(ConflictError):
        await files.capture()
    assert not session.is_dirty
    await session.refresh()
    assert (await files.capture()).changed == 1
    other.add_message("user", "second")
    await other.commit(on_conflict="rebase")
    (root / "a").write_text("333")
    assert (await files.capture(on_conflict="rebase")).changed == 1
    assert list_contents(session) == ["first", "second"]
    with pytest.raises(ValueError, match="on_conflict"):
        await files.capture(on_conflict="ignore")


@async_test
async def test_files_of_other_writers_are_compared(root):
    write_tree(root, {"a": "1", "b": "1"})
    session, files = await open_workspace(root)
    await files.capture()
    other = await reopen_session(session)
    (root / "a").write_text("22")
    (root / "b").unlink()
    await other.workspace(root).capture()
    await session.refresh()
    report = await files.capture()
    assert (report.paths, report.unchanged) == ([], 1)


FAULTS = [("unknown", False), ("unknown", True), ("crash", True)]


@pytest.mark.parametrize(("kind", "done"), FAULTS)
def test_a_failed_write_leaves_no_reference_without_its_content(root, tmp_path, kind, done):
    async def run(at):
        inner = MemoryStateStore()
        store = FaultyStateStore(inner)
        write_tree(root, {"a": "1", "b": "2"})
        session, files = await open_workspace(root, store)
        first = await files.capture()
        write_tree(root, {"a": f"changed {at}", "b": b"x" * (CHUNK_SIZE + at)})
        expected = read_tree(root)
        store.plan(Fault(at, kind, done))
        try:
            await files.capture()
            await files.restore(at=first.seq)
        except StateStoreError:
            await check_export(session, tmp_path / f"{at}")
            await files.capture()  # completes what is pending
            await files.restore(at=first.seq, force=True)
        except Crash:
            session, files = await open_workspace(root, inner)
            await check_export(session, tmp_path / f"{at}")
            await files.restore(at=first.seq, force=True)
        is_over = not store.faults
        store.plan()
        assert read_tree(root) == {"a": b"1", "b": b"2"}
        again = await reopen_session(session)
        await check_export(again, tmp_path / f"{at} again")
        assert not await again.workspace(root).diff()
        captured = [event.seq for event in again.events if event.type == "files.captured"]
        await again.workspace(root).restore(at=captured[1])
        assert read_tree(root) == expected
        return is_over

    async def check_export(session, place):
        """Read every file of the committed state."""
        other = await open_session(getattr(session.state_store, "inner", session.state_store))
        await other.workspace(root).export(place)

    for at in range(1, 20):
        if run_async(run(at)):
            assert at > 3
            return
    pytest.fail("the faults never end")


def test_a_blocking_session_has_a_blocking_workspace(root):
    write_tree(root, {"a": "1"})
    session = BlockingSession.open(MemoryStateStore(), agent_id="bot", session_id="ses")
    files = session.workspace(root)
    session.add_message("user", "hello")
    saved = session.save(workspace=files)
    write_tree(root, {"a": "2"})
    assert files.diff().text.endswith(
        "-1\n\\ No newline at end of file\n+2\n\\ No newline at end of file\n"
    )
    assert files.capture().changed == 1
    session.add_message("assistant", "done")
    session.commit()
    assert files.restore(at=saved, dry_run=True).written == ["a"]
    report = session.restore(saved, workspace=files)
    assert (root / "a").read_text() == "1"
    assert len(session.messages) == 1
    files.restore(at=report.undo)
    session.restore(saved)
    assert files.export(root.parent / "out", at=saved) == 1
    assert files.folder == str(root)
    assert repr(files) == f"<BlockingWorkspace {root} of session ses>"
    with pytest.raises(TypeError, match="workspace must be what session.workspace"):
        session.save(workspace=files.workspace)


@async_test
async def test_options_and_workspaces_are_validated(root):
    session, files = await open_workspace(root)
    for options in ({"max_file_size": -1}, {"max_total_size": 1.5}, {"max_file_size": True}):
        with pytest.raises(ValueError, match="must be a number of bytes"):
            session.workspace(root, **options)
    for ignore in ("*.log", [1]):
        with pytest.raises(TypeError, match="ignore must be a list of patterns"):
            session.workspace(root, ignore=ignore)
    with pytest.raises(TypeError, match="workspace must be what"):
        await session.save(workspace=str(root))
    other = await open_session(session.state_store, "other")
    with pytest.raises(ValueError, match="belongs to another session"):
        await other.save(workspace=files)
    assert session.workspace(os.fsencode(root)).folder == files.folder
    with pytest.raises(WorkspaceError, match="cannot open folder"):
        await session.workspace(root / "missing").capture()
    with pytest.raises(NotFoundError):
        await files.restore(at="nothing")


@pytest.mark.parametrize("kind", [SqliteStateStore, FileStateStore])
def test_a_store_inside_the_folder_is_not_captured(root, kind):
    async def run():
        write_tree(root, {"a": "1", "state.db.txt": "mine"})
        async with kind(root / "state.db") as store:
            _session, files = await open_workspace(root, store)
            await files.capture()
            (root / "a").write_text("2")
            second = await files.capture()
            assert second.paths == ["a"]
            assert second.unchanged == 1
            assert second.skipped == []
            await files.restore(at=second.seq - 1)
            assert (root / "a").read_text() == "1"

    run_async(run())


@async_test
async def test_a_new_process_does_not_read_unchanged_files(root, monkeypatch):
    monkeypatch.setattr("holdfast.workspaces.scan.RACY_NS", -(10**12))
    write_tree(root, {f"f{number}": str(number) for number in range(5)})
    session, files = await open_workspace(root)
    await files.capture()
    hashed = []
    real = hashing.hash_file

    def hash_and_note(folder, path):
        hashed.append(path)
        return real(folder, path)

    monkeypatch.setattr("holdfast.workspaces.scan.hash_file", hash_and_note)
    other = (await reopen_session(session)).workspace(root)
    (root / "f1").write_text("changed")
    report = await other.capture()
    assert report.paths == ["f1"]
    assert hashed == ["f1"]
    third = (await reopen_session(session)).workspace(root)
    hashed.clear()
    await third.capture()
    assert hashed == []
    # A small part of the files may be missing in the cache on disk.
    monkeypatch.setattr(workspace_module, "UNSAVED_PART", 0.5)
    (root / "f2").write_text("changed")
    await third.capture()
    hashed.clear()
    await third.capture()
    await (await reopen_session(session)).workspace(root).capture()
    assert hashed == ["f2"]


@async_test
async def test_content_that_was_captured_before_is_stored_again_after_a_fork(root):
    write_tree(root, {"a": "1", "b": b"x" * (CHUNK_SIZE + 1)})
    session, files = await open_workspace(root)
    first = await files.capture()
    fork = await session.fork("fork")
    await session.archive.delete_session(session_id=session.session_id)
    write_tree(root, {"a": "2"})
    other = fork.workspace(root)
    await other.capture()
    await other.restore(at=1)
    assert (root / "a").read_text() == "1"
    assert first.seq
