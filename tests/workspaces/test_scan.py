"""Finding the files of a folder, with and without a cache."""

from __future__ import annotations

import os
import socket
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.workspaces import scan as scan_module
from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.errors import WorkspaceError
from holdfast.workspaces.folder import Directory, Folder
from holdfast.workspaces.hashing import hash_file
from holdfast.workspaces.scan import ScanOptions, SkippedFile, scan_folder
from holdfast.workspaces.stat_cache import StatCache
from support.file_trees import write_tree


def run_scan(root, cache=None, include=(), **options):
    with Folder(root) as folder:
        return scan_folder(folder, ScanOptions(**options), cache or StatCache(), include)


@pytest.fixture
def trust_new_files(monkeypatch):
    """Trust the times of files that were just written; the tests change their sizes."""
    monkeypatch.setattr(scan_module, "RACY_NS", -(10**12))


def test_files_links_and_modes_are_found(root):
    write_tree(root, {"a.txt": "one", "b/c.txt": b"\0two", "b/link": "->../a.txt", "dir": "->b"})
    (root / "a.txt").chmod(0o751)
    (root / "b/c.txt").chmod(0o4644)
    (root / "empty").mkdir()
    found = run_scan(root)
    assert found.files == {
        "a.txt": FileEntry(sha256(b"one").hexdigest(), 3, 0o751),
        "b/c.txt": FileEntry(sha256(b"\0two").hexdigest(), 4, 0o644),
        "b/link": FileEntry(link="../a.txt"),
        "dir": FileEntry(link="b"),
    }
    assert found.folders == {"b", "empty"}
    assert found.skipped == []


def test_what_cannot_be_captured_is_reported(root):
    write_tree(
        root, {"a": "", ".GIT/config": "x", "store.db": "", "store.db-wal": "", "store.dbx": ""}
    )
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(root)  # the path of a socket is limited to 108 bytes
        server.bind("sock")
    (root / "target").symlink_to(os.fsdecode(b"\xff"))
    os.close(os.open(os.fsencode(root) + b"/n\xff", os.O_CREAT))
    Path(root, os.fsdecode(b"d\xff")).mkdir()
    (root / ".git").mkdir()
    (root / ".holdfast").mkdir()
    found = run_scan(root, excluded=frozenset([str(root / "store.db")]))
    assert sorted(found.files) == ["a", "store.dbx"]
    assert found.skipped == [
        SkippedFile(".GIT", "its name is reserved"),
        SkippedFile("d\\xff", "its name is not UTF-8"),
        SkippedFile("n\\xff", "its name is not UTF-8"),
        SkippedFile("pipe", "a FIFO"),
        SkippedFile("sock", "a socket"),
        SkippedFile("target", "a link whose target is not UTF-8"),
    ]
    assert found.ignored == {"store.db", "store.db-wal"}
    assert found.ignored_folders == {".git", ".holdfast"}


@pytest.fixture(autouse=True)
def keep_working_folder(monkeypatch):
    """Return to the working folder after a test that leaves it."""
    monkeypatch.chdir(Path.cwd())


def test_files_beyond_the_limits_are_skipped(root):
    write_tree(root, {"a": "x" * 10, "b": "x" * 11, "c": "x" * 5, "d": "x" * 3, "e": ""})
    found = run_scan(root, max_file_size=10, max_total_size=14)
    assert sorted(found.files) == ["a", "d", "e"]
    assert found.skipped == [
        SkippedFile("b", "11 bytes, more than max_file_size (10)"),
        SkippedFile("c", "5 bytes, beyond max_total_size (14)"),
    ]
    again = run_scan(root, found.cache, max_file_size=3)
    assert sorted(again.files) == ["d", "e"]
    assert sorted(run_scan(root, include=["b"], max_file_size=10).files) == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]


@pytest.mark.usefixtures("trust_new_files")
def test_an_unchanged_file_is_not_read_again(root):
    write_tree(root, {"a": "one", "b/c": "two", "link": "->a"})
    first = run_scan(root)
    assert sorted(first.hashed) == ["a", "b/c"]
    again = run_scan(root, first.cache)
    assert again.hashed == {}
    assert again.files == first.files
    (root / "a").write_text("changed")
    third = run_scan(root, again.cache)
    assert sorted(third.hashed) == ["a"]
    assert third.files["a"].digest == sha256(b"changed").hexdigest()
    (root / "a").chmod(0o600)
    assert run_scan(root, third.cache).files["a"].mode == 0o600


def test_a_file_that_was_just_changed_is_read_again(root):
    write_tree(root, {"a": "one", "b": "old"})
    first = run_scan(root)
    assert first.cache.files == {}
    before = (root / "a").stat()
    (root / "a").write_text("two")
    os.utime(root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert run_scan(root, first.cache).files["a"].digest == sha256(b"two").hexdigest()


@pytest.mark.usefixtures("trust_new_files")
def test_a_changed_rule_is_applied_to_known_files(root):
    write_tree(root, {"a.log": "", "b/x.log": "", "b/y": "", ".gitignore": "*.tmp", "z.tmp": ""})
    first = run_scan(root)
    assert first.ignored == {"z.tmp"}
    assert run_scan(root, first.cache).ignored == {"z.tmp"}
    (root / "b/.gitignore").write_text("*.log")
    second = run_scan(root, first.cache)
    assert sorted(second.files) == [".gitignore", "a.log", "b/.gitignore", "b/y"]
    (root / ".holdfastignore").write_text("!z.tmp")
    third = run_scan(root, second.cache)
    assert "z.tmp" in third.files
    (root / "b/.gitignore").unlink()
    (root / ".holdfastignore").unlink()
    assert run_scan(root, third.cache).files.keys() == first.files.keys()
    assert "b/y" not in run_scan(root, third.cache, ignore=("y",)).files
    everything = run_scan(root, third.cache, respect_gitignore=False)
    assert "z.tmp" in everything.files


@pytest.mark.usefixtures("trust_new_files")
def test_an_ignored_file_is_included_on_demand_only(root):
    write_tree(root, {".gitignore": "*.log\nout/\n", "a.log": "1", "out/b/c": "2", "out/d": "3"})
    found = run_scan(root, include=["a.log", "out/b/c", "missing/x"])
    assert sorted(found.files) == [".gitignore", "a.log", "out/b/c"]
    assert sorted(run_scan(root, found.cache).files) == [".gitignore"]


def test_a_file_that_keeps_changing_is_named(root, monkeypatch):
    write_tree(root, {"a": "1", "grow.log": "x"})
    read = os.read

    def read_and_grow(descriptor, size):
        with (root / "grow.log").open("a") as file:
            file.write("more")
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", read_and_grow)
    with pytest.raises(WorkspaceError, match=r"file 'grow.log' keeps changing") as caught:
        run_scan(root)
    assert caught.value.path == "grow.log"


def test_a_file_that_changes_once_is_read_again(root, monkeypatch):
    write_tree(root, {"a": "old"})
    read, done = os.read, []

    def read_and_change(descriptor, size):
        data = read(descriptor, size)
        if not done:
            done.append((root / "a").write_text("newer"))
        return data

    monkeypatch.setattr(os, "read", read_and_change)
    assert run_scan(root).files["a"].digest == sha256(b"newer").hexdigest()


def test_an_unreadable_file_is_named(root, monkeypatch):
    write_tree(root, {"a": "1", "b/secret": "x"})

    def refuse(self, name):
        if name == "secret":
            raise PermissionError(13, "Permission denied")
        return open_file(self, name)

    open_file = Directory.open_file
    monkeypatch.setattr(Directory, "open_file", refuse)
    with pytest.raises(WorkspaceError, match=r"cannot capture 'b/secret': Permission denied; make"):
        run_scan(root)


def test_an_unreadable_folder_is_named(root, monkeypatch):
    write_tree(root, {"b/c": "x"})

    def refuse(self, name):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Directory, "open_folder", refuse)
    with pytest.raises(WorkspaceError, match=r"cannot read '.git/info/exclude': Permission denied"):
        run_scan(root)
    with pytest.raises(WorkspaceError, match=r"cannot read folder 'b': Permission denied"):
        run_scan(root, respect_gitignore=False)


def test_a_file_that_disappears_is_left_out(root, monkeypatch):
    write_tree(root, {"a": "1", "b": "2"})
    real = scan_module.hash_file
    monkeypatch.setattr(
        scan_module, "hash_file", lambda folder, path: None if path == "a" else real(folder, path)
    )
    assert sorted(run_scan(root).files) == ["b"]
    with Folder(root) as folder:
        assert hash_file(folder, "missing/x") is None


def test_a_folder_that_is_nested_too_deep_is_named(root):
    deep = root.joinpath(*["d"] * 202)
    deep.mkdir(parents=True)
    with pytest.raises(WorkspaceError, match="nested more than 200 deep"):
        run_scan(root)


def test_a_link_in_place_of_an_ignore_file_is_not_followed(root, tmp_path):
    (tmp_path / "rules").write_text("*")
    write_tree(root, {"a": "", ".gitignore": f"->{tmp_path / 'rules'}"})
    assert sorted(run_scan(root).files) == [".gitignore", "a"]


def test_a_missing_folder_is_named(root):
    with pytest.raises(WorkspaceError, match="cannot open folder .*missing: No such file"):
        run_scan(root / "missing")


def test_chunks_of_a_large_file_are_hashed(root):
    data = bytes(CHUNK_SIZE) + b"end"
    write_tree(root, {"a": data, "b": b"", "c": "x"})
    with Folder(root) as folder:
        found = hash_file(folder, "a")
        assert found.digest == sha256(data).hexdigest()
        assert found.chunks == (sha256(bytes(CHUNK_SIZE)).digest(), sha256(b"end").digest())
        assert hash_file(folder, "b").chunks == (sha256().digest(),)
        assert hash_file(folder, "c").chunks == (sha256(b"x").digest(),)
