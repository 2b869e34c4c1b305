"""Write the files of a session to a folder or an archive."""

from __future__ import annotations

import errno
import os
import tarfile
import zipfile

import pytest

from holdfast import WorkspaceError
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.conversations import open_session
from support.file_trees import read_tree, write_tree

FILES = {
    "a.txt": "one",
    "sub/run.sh": "#!/bin/sh\n",
    "link": "->sub/run.sh",
    "large": b"x" * (CHUNK_SIZE + 1),
    "empty": "",
}


async def capture(tmp_path):
    root = tmp_path / "repo"
    write_tree(root, FILES)
    (root / "sub/run.sh").chmod(0o755)
    session = await open_session(MemoryStateStore())
    files = session.workspace(root)
    report = await files.capture()
    return files, report.seq, read_tree(root)


@async_test
async def test_files_are_written_to_a_new_folder(tmp_path):
    files, seq, expected = await capture(tmp_path)
    assert await files.export(tmp_path / "new/folder", at=seq) == 5
    assert read_tree(tmp_path / "new/folder") == expected
    assert (tmp_path / "new/folder/sub/run.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", ["out.tar", "out.tar.gz", "out.tgz", "OUT.TAR"])
@async_test
async def test_files_are_written_to_a_tar_archive(tmp_path, name):
    files, _, expected = await capture(tmp_path)
    await files.export(tmp_path / name)
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path / "extracted", filter="data")
    assert read_tree(tmp_path / "extracted") == expected
    assert (tmp_path / "extracted/sub/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o644


@async_test
async def test_files_are_written_to_a_zip_archive(tmp_path):
    files, _, expected = await capture(tmp_path)
    await files.export(tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        assert archive.testzip() is None
        found = {info.filename: archive.read(info) for info in archive.infolist()}
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert found.pop("link") == b"sub/run.sh"
    assert found == {path: data for path, data in expected.items() if path != "link"}
    assert modes["sub/run.sh"] == 0o100755
    assert modes["link"] == 0o120777


@async_test
async def test_an_existing_destination_is_refused(tmp_path):
    files, *_ = await capture(tmp_path)
    (tmp_path / "there").mkdir()
    with pytest.raises(WorkspaceError, match="there exists; choose a new name"):
        await files.export(tmp_path / "there")


@pytest.mark.parametrize("name", ["out.zip", "out.tar", "out"])
@async_test
async def test_a_failed_export_leaves_nothing_behind(tmp_path, monkeypatch, name):
    files, *_ = await capture(tmp_path)
    before = sorted(each.name for each in tmp_path.iterdir())

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(WorkspaceError, match="cannot write .*No space left on device"):
        await files.export(tmp_path / name)
    assert sorted(each.name for each in tmp_path.iterdir()) == before
    with pytest.raises(WorkspaceError, match="cannot write .*No such file"):
        await files.export(tmp_path / "missing" / "x.zip")
