"""Names and links that lead elsewhere: nothing outside of a store is read or written."""

from __future__ import annotations

import os

import pytest

from holdfast import (
    Document,
    InvalidDocumentError,
    Session,
    SnapshotManager,
    StateStoreError,
    open_state_store,
)
from holdfast.snapshots import SnapshotArchive
from holdfast.stores.files.store import FileStateStore
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.observed_store import HERE, list_damage, make_session_store, save_many
from support.sample_documents import make_full_document

pytestmark = pytest.mark.usefixtures("one_incarnation")

MANAGER = SnapshotManager(state_store=MemoryStateStore())
TRICKS = [
    "../../etc/passwd",
    "..",
    ".",
    "%2e%2e%2f%2e%2e",
    "..%2F..",
    "/etc/passwd",
    "//server/share",
    "C:\\Windows\\x",
    "C:evil",
    "..\\..\\x",
    "CON",
    "nul",
    "aux.json",
    "a\x00b",
    "~",
    "~holdfast",
    "~holdfast/locks",
    "a.~",
    "-rf",
    "$(id)",
    "a\n../b",
    "\u202e",
    " ",
]


@pytest.fixture
def frequent_keyframes(monkeypatch):
    """Write small keyframes often."""
    monkeypatch.setattr("holdfast.log.timeline.KEYFRAME_SLACK", 0)
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 4)


def list_files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@async_test
async def test_ids_that_look_like_paths_stay_in_the_folders_of_store_and_backup(tmp_path):
    home = tmp_path / "a" / "b" / "store"
    kept = tmp_path / "a" / "b" / "backup"
    home.parent.mkdir(parents=True)
    async with (
        open_state_store(f"file://{home}") as store,
        open_state_store(f"file://{kept}") as backup,
    ):
        for trick in TRICKS:
            async with Session.open(store, agent_id=trick, session_id=trick) as session:
                session.set(trick, trick)
        copied = await copy_sessions(store, backup)
        assert (copied.sessions, copied.failed) == (len(TRICKS), {})
        for trick in TRICKS:
            session = await Session.open(backup, agent_id=trick, session_id=trick, must_exist=True)
            assert session.get(trick) == trick
    assert {path.split("/")[0] for path in list_files(tmp_path / "a" / "b")} == {"store", "backup"}
    assert {path.split("/")[0] for path in list_files(tmp_path)} == {"a"}
    for path in list_files(home):
        assert path.isascii()
        assert not {"..", ".", "CON", "con", "nul", "aux.json"} & set(path.split("/"))


def test_a_snapshot_id_that_is_a_path_is_refused():
    for trick in (*TRICKS, "", "x" * 129):
        if trick in ("CON", "nul", "-rf"):
            continue  # plain letters, and part of a longer file name
        with pytest.raises(InvalidDocumentError, match="snapshot_id"):
            Document.from_dict({**make_full_document().to_dict(), "snapshot_id": trick})


@async_test
async def test_unknown_keys_do_not_prevent_a_session_from_loading(frequent_keyframes):
    store, snapshots = await make_session_store()
    for stray in ("notes.txt", "..json.gz", "000000000'; DROP TABLE--", "9" * 40 + ".json.gz"):
        await store.put(f"{HERE.prefix}keyframes/00000000/{stray}", b"x")
    found = await SnapshotArchive(store).load_snapshot(
        location=HERE, snapshot_id=list(snapshots)[-1]
    )
    assert found.digest == snapshots[list(snapshots)[-1]].digest
    assert await list_damage(store) == set()


def test_writing_a_document_replaces_a_symlink_and_not_its_target(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    link = tmp_path / "out.json"
    link.symlink_to(precious)
    MANAGER.to_file(make_full_document(), link)
    assert precious.read_text() == "precious"
    assert not link.is_symlink()
    assert MANAGER.from_file(link).agent_id == HERE.scope_id


@async_test
async def test_a_symlink_out_of_a_backup_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    async with FileStateStore(outside) as store:
        await save_many(store, 2)
    backup = tmp_path / "backup"
    async with FileStateStore(backup) as store:
        async with Session.open(store, agent_id="mine", session_id="mine") as session:
            session.set("a", 1)
        # The folder of another session, as an attacker would link it.
        (inside,) = [path for path in (outside / "sessions.~").iterdir() if path.is_dir()]
        (backup / "sessions.~" / inside.name).symlink_to(inside)
        before = list_files(outside)
        target = MemoryStateStore()
        copied = await copy_sessions(store, target)
        assert copied.sessions == 1
        assert [key async for key in target.list("") if "ses_abc123" in key] == []
        with pytest.raises(StateStoreError, match="link|folder"):
            await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    assert list_files(outside) == before


@async_test
async def test_a_folder_replaced_by_a_symlink_is_not_written_through(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    async with FileStateStore(tmp_path / "root") as store:
        await store.put("deep/a", b"1")
        folder = tmp_path / "root" / "deep.~"
        (folder / "a").unlink()
        folder.rmdir()
        folder.symlink_to(outside)
        for work in (store.put("deep/a", b"2"), store.get("deep/a"), store.delete("deep/a")):
            with pytest.raises(StateStoreError, match="link|folder"):
                await work
    assert list(outside.iterdir()) == []


@async_test
async def test_a_symlink_in_place_of_a_temporary_file_is_not_written_through(
    tmp_path,
):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    async with FileStateStore(tmp_path / "root") as store:
        await store.put("a", b"1")
    link = tmp_path / "root" / "~holdfast" / "writing" / "05-0123456789abcdef"
    link.symlink_to(precious)
    async with FileStateStore(tmp_path / "root") as store:
        await store.put("b", b"2")
        assert (await store.get("b")).value == b"2"
    assert precious.read_text() == "precious"
    assert not os.path.lexists(link)
