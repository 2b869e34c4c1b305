"""File operations that stay inside a folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.workspaces import folder as folder_module
from holdfast.workspaces.errors import WorkspaceError
from holdfast.workspaces.folder import Folder
from support.file_trees import read_tree, write_tree


@pytest.fixture(params=["relative", "by path"], autouse=True)
def call_style(request, monkeypatch):
    """Run each test with calls relative to an open folder, and with whole paths."""
    if request.param == "by path":
        monkeypatch.setattr(folder_module, "HAS_DIR_FD", False)


def stage(folder, name, content):
    Path(folder.root, "stage").mkdir()
    staging = folder.top.open_folder("stage")
    with os.fdopen(staging.create_file(name), "wb") as file:
        file.write(content)
    return staging


def test_a_staged_file_replaces_another_one(root):
    write_tree(root, {"a/b": "old"})
    with Folder(root) as folder:
        staging = stage(folder, "0", b"new")
        folder.move_into(staging, "0", "a/b")
        with os.fdopen(staging.create_file("1"), "wb") as file:
            file.write(b"deep")
        folder.move_into(staging, "1", "x/y/z")
        folder.sync_parent("x/y/z")
        staging.close()
    assert read_tree(root) == {"a/b": b"new", "x/y/z": b"deep"}


def test_a_link_in_a_path_is_never_followed(root, tmp_path):
    outside = tmp_path / "outside"
    write_tree(outside, {"file": "keep"})
    write_tree(root, {"link": f"->{outside}", "a/link": f"->{outside}"})
    with Folder(root) as folder:
        staging = stage(folder, "0", b"bad")
        calls = [
            lambda: folder.move_into(staging, "0", "link/file"),
            lambda: folder.move_into(staging, "0", "a/link/new/file"),
            lambda: folder.remove_file("link/file"),
            lambda: folder.set_mode("link/file", 0),
            lambda: folder.remove_folder("a/link/x"),
        ]
        for call in calls:
            with pytest.raises(NotADirectoryError):
                call()
        with pytest.raises(WorkspaceError, match="cannot read 'link/file'"):
            folder.read_file("link/file", 10)
        staging.close()
    assert read_tree(outside) == {"file": b"keep"}


def test_a_link_in_place_of_a_file_is_not_opened(root, tmp_path):
    (tmp_path / "target").write_text("secret")
    write_tree(root, {"link": f"->{tmp_path / 'target'}"})
    os.mkfifo(root / "pipe")
    with Folder(root) as folder:
        with pytest.raises(WorkspaceError, match="cannot read 'link'"):
            folder.read_file("link", 10)
        with pytest.raises(WorkspaceError, match="cannot read 'pipe': not a regular file"):
            folder.read_file("pipe", 10)


def test_a_link_replaces_a_file_and_a_file_a_link(root):
    write_tree(root, {"a": "old", "b": "->a"})
    with Folder(root) as folder:
        staging = stage(folder, "0", b"new")
        Path(staging.path, "1").symlink_to("b")
        folder.move_into(staging, "1", "a")
        folder.move_into(staging, "0", "b")
        staging.close()
    assert read_tree(root) == {"a": b"->b", "b": b"new"}


def test_only_an_empty_folder_is_removed(root):
    write_tree(root, {"a/b/c": ""})
    with Folder(root) as folder:
        assert not folder.remove_folder("a/b")
        folder.remove_file("a/b/c")
        folder.remove_file("a/b/c")  # it is gone already
        assert folder.remove_folder("a/b")
        assert folder.remove_folder("a/b")
    assert list((root / "a").iterdir()) == []


def test_a_mode_is_set(root):
    write_tree(root, {"a/b": ""})
    with Folder(root) as folder:
        folder.set_mode("a/b", 0o750)
    assert (root / "a/b").stat().st_mode & 0o777 == 0o750


def test_a_read_only_folder_is_changed_and_stays_read_only(root):
    write_tree(root, {"a/b": "old"})
    (root / "a").chmod(0o555)
    with Folder(root) as folder:
        staging = stage(folder, "0", b"new")
        folder.move_into(staging, "0", "a/b")
        staging.close()
    assert (root / "a/b").read_text() == "new"
    assert (root / "a").stat().st_mode & 0o777 == 0o555


def test_a_file_is_copied_to_another_disk_that_is_mounted_in_the_folder(root, monkeypatch):
    write_tree(root, {"a/b": "old"})
    replace = folder_module.replace_file
    calls = []

    def replace_on_one_disk(source, name, target, new):
        calls.append(source.path)
        if source.path != target.path:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, name, target, new)

    monkeypatch.setattr(folder_module, "replace_file", replace_on_one_disk)
    with Folder(root) as folder:
        staging = stage(folder, "0", b"new")
        Path(staging.path, "1").symlink_to("b")
        folder.move_into(staging, "0", "a/b")
        folder.move_into(staging, "1", "a/link")
        staging.close()
    assert (root / "a/b").read_text() == "new"
    assert (root / "a/link").readlink() == Path("b")
    assert len(calls) == 4


def test_a_file_is_not_a_workspace(root):
    write_tree(root, {"a": ""})
    with pytest.raises(WorkspaceError, match="cannot open folder .*a: Not a directory"):
        Folder(root / "a").__enter__()
    with pytest.raises(RuntimeError, match="not open"):
        _ = Folder(root).top
