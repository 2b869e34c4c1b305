"""Changing a folder, with interruptions and failures."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from functools import partial
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import IntegrityError
from holdfast.workspaces import apply as apply_module
from holdfast.workspaces.apply import apply_plan, lock_folder
from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.errors import WorkspaceError
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.plan import plan_restore
from holdfast.workspaces.scan import ScanOptions, scan_folder
from holdfast.workspaces.stat_cache import StatCache
from support.async_tests import run_async
from support.file_trees import read_tree, write_tree


def describe(files):
    """Return entries of files, and their contents by digest."""
    target, contents = {}, {}
    for path, content in files.items():
        if isinstance(content, str) and content.startswith("->"):
            target[path] = FileEntry(link=content[2:])
            continue
        data = content.encode() if isinstance(content, str) else content
        digest = sha256(data).hexdigest()
        target[path] = FileEntry(digest, len(data), 0o644)
        contents[digest] = data
    return target, contents


def restore(root, files, **options):
    """Lead a folder to the given files."""
    target, contents = describe(files)

    async def stream(path, entry):
        if entry.digest not in contents:
            raise IntegrityError("blob is missing")
        data = contents[entry.digest]
        for start in range(0, len(data), 3):
            yield data[start : start + 3]

    with Folder(root) as folder:
        lock_folder(folder, exclusive=True)
        scan = scan_folder(folder, ScanOptions(), StatCache(), target)
        plan = plan_restore(scan, target, **options)
        run_async(apply_plan(folder, plan, stream))
    return plan


def expected(files):
    return {
        path: text if isinstance(text, bytes) else text.encode() for path, text in files.items()
    }


def test_a_folder_gets_the_files_of_the_target(root):
    write_tree(root, {"same": "1", "old/deep/x": "1", "changed": "1", "a": "file", "l": "->same"})
    (root / "kept empty").mkdir()
    (root / "same").chmod(0o600)
    target = {
        "same": "1",
        "changed": "22",
        "a/b/c": "333",
        "l": "->changed",
        "empty": "",
        "n": "->x",
    }
    restore(root, target)
    assert read_tree(root) == expected(target)
    assert (root / "same").stat().st_mode & 0o777 == 0o644
    assert sorted(each.name for each in root.iterdir()) == [
        "a",
        "changed",
        "empty",
        "kept empty",
        "l",
        "n",
        "same",
    ]
    assert restore(root, target).is_empty


def test_a_file_takes_the_place_of_a_folder(root):
    write_tree(root, {"a/b/c": "1", "a/d": "2"})
    (root / "a/empty").mkdir()
    restore(root, {"a": "file"})
    assert read_tree(root) == {"a": b"file"}


names = st.sampled_from(["a", "b", "a/b", "a/b/c", "b/a", "c/a", "c"])
contents = st.sampled_from(["", "one", "two", "->a", "->x/y"])


def is_tree(files):
    return not any(one.startswith(f"{other}/") for one in files for other in files)


trees = st.dictionaries(names, contents, max_size=5).filter(is_tree)


@given(before=trees, after=trees)
def test_any_tree_becomes_any_other(before, after, tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    write_tree(root, before)
    restore(root, after)
    assert read_tree(root) == expected(after)


class KilledError(BaseException):
    """Stands for a kill at a system call."""


@pytest.mark.parametrize("last", range(1, 40, 2))
def test_after_a_kill_each_file_is_old_or_new_and_a_rerun_completes(root, monkeypatch, last):
    before = {"a": "old a", "b/c": "old c", "d/e": "old e", "x": "->a", "f": "file"}
    after = {"a": "new a", "b": "new b", "d/e": "new e", "x": "->d", "f/g": "new g"}
    write_tree(root, before)
    count = 0

    def count_call(call, *args, **kwargs):
        nonlocal count
        count += 1
        if count >= last:
            raise KilledError
        return call(*args, **kwargs)

    with monkeypatch.context() as patch:
        for name in ("replace", "unlink", "rmdir", "mkdir", "symlink", "fsync", "write"):
            patch.setattr(os, name, partial(count_call, getattr(os, name)))
        with suppress(KilledError):
            restore(root, after)
    old, new = expected(before), expected(after)
    for path, content in read_tree(root).items():
        if not path.startswith(".holdfast-restore-"):
            assert content in (old.get(path), new.get(path))
    restore(root, after)
    assert read_tree(root) == new


def test_a_full_disk_changes_nothing(root, monkeypatch):
    before = {"a": "old", "b": "old", "c": "old"}
    write_tree(root, before)
    real, written = os.write, 0

    def write_until_full(descriptor, data):
        nonlocal written
        written += len(data)
        if written > 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write_until_full)
    with pytest.raises(WorkspaceError, match="cannot write 'b': No space left on device") as caught:
        restore(root, {"a": "new", "b": "newer"})
    assert caught.value.path == "b"
    assert read_tree(root) == expected(before)
    assert sorted(each.name for each in root.iterdir()) == ["a", "b", "c"]


def test_a_missing_content_changes_nothing(root):
    write_tree(root, {"a": "old"})
    target, _ = describe({"a": "new", "b": "new"})

    async def stream(path, entry):
        raise IntegrityError("blob is missing")
        yield b""

    with Folder(root) as folder:
        plan = plan_restore(scan_folder(folder, ScanOptions(), StatCache()), target)
        with pytest.raises(IntegrityError):
            run_async(apply_plan(folder, plan, stream))
    assert read_tree(root) == {"a": b"old"}


def test_a_file_that_cannot_be_written_is_named(root, monkeypatch):
    write_tree(root, {"a": "old", "b": "old"})
    real = os.replace

    def refuse_b(source, target, **options):
        if target == "b":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        real(source, target, **options)

    monkeypatch.setattr(os, "replace", refuse_b)
    with pytest.raises(WorkspaceError, match="cannot write 'b': .* changed in part, repeat"):
        restore(root, {"a": "new", "b": "new"})
    assert read_tree(root) == {"a": b"new", "b": b"old"}


def test_leftovers_of_an_interrupted_restore_are_removed(root):
    write_tree(root, {".holdfast-restore-1/0": "x", "a": "1"})
    restore(root, {"a": "2"})
    assert read_tree(root) == {"a": b"2"}


def test_two_restores_do_not_run_at_the_same_time(root):
    with Folder(root) as one, Folder(root) as two:
        lock_folder(one, exclusive=False)
        lock_folder(two, exclusive=False)
        with pytest.raises(WorkspaceError, match="is being restored or captured"):
            lock_folder(one, exclusive=True)
    with Folder(root) as one, Folder(root) as two:
        lock_folder(one, exclusive=True)
        with pytest.raises(WorkspaceError, match="is being restored or captured"):
            lock_folder(two, exclusive=False)


def test_a_file_system_without_locks_is_used_without(root, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(apply_module, "flock", refuse)
    with Folder(root) as folder:
        lock_folder(folder, exclusive=True)

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(apply_module, "flock", fail)
    with Folder(root) as folder, pytest.raises(OSError, match="Input/output"):
        lock_folder(folder, exclusive=True)


def test_a_folder_that_cannot_be_written_to_is_named(root, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(WorkspaceError, match="cannot write to .*Read-only file system"):
        restore(root, {"a": "1"})
