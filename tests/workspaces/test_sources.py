"""The contents of captured files, read when they are stored."""

from __future__ import annotations

import os

import pytest

from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.errors import WorkspaceError
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.hashing import hash_file
from holdfast.workspaces.sources import ChangedFileError, FolderSource, open_sources
from support.async_tests import run_async
from support.file_trees import write_tree

LARGE = b"x" * CHUNK_SIZE + b"end"


@pytest.fixture
def source(root):
    """A file of two chunks that was hashed."""
    write_tree(root, {"sub/a": LARGE})
    return open_source(root, "sub/a")


def open_source(root, path, *, is_hashed=True):
    with Folder(root) as folder:
        hashed = hash_file(folder, path)
    entry = FileEntry(hashed.digest, hashed.size, 0o644)
    return FolderSource(str(root), path, entry, hashed if is_hashed else None)


def read(source):
    async def collect():
        return [chunk async for chunk in source.chunks()]

    return run_async(collect())


def test_a_file_is_read_in_chunks_any_number_of_times(source):
    assert read(source) == read(source) == [b"x" * CHUNK_SIZE, b"end"]


def test_an_empty_file_is_one_empty_chunk(root):
    write_tree(root, {"empty": ""})
    assert read(open_source(root, "empty")) == [b""]


def test_a_file_of_which_only_the_digest_is_known_is_hashed_first(root):
    write_tree(root, {"a": LARGE})
    source = open_source(root, "a", is_hashed=False)
    assert b"".join(read(source)) == LARGE
    other = open_source(root, "a", is_hashed=False)
    write_tree(root, {"a": b"y" * CHUNK_SIZE + b"end"})
    with pytest.raises(ChangedFileError, match="file 'a' changed while it was captured"):
        read(other)


@pytest.mark.parametrize(
    "content", [b"y" * CHUNK_SIZE + b"end", LARGE[:-1], LARGE + b"more", b"", None]
)
def test_a_changed_file_is_an_error_that_names_it(root, source, content):
    if content is None:
        (root / "sub/a").unlink()
    else:
        write_tree(root, {"sub/a": content})
    with pytest.raises(ChangedFileError, match="file 'sub/a' changed") as caught:
        read(source)
    assert caught.value.path == "sub/a"


def test_a_link_in_the_path_is_not_followed(root, source, tmp_path):
    (root / "sub").rename(tmp_path / "moved")
    (root / "sub").symlink_to(tmp_path / "moved")
    with pytest.raises(WorkspaceError, match="cannot capture 'sub/a': Not a directory"):
        read(source)


def test_a_file_that_cannot_be_read_is_named(source, monkeypatch):
    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", refuse)
    with pytest.raises(WorkspaceError, match="cannot capture 'sub/a': Input/output error"):
        read(source)


def test_a_small_file_is_not_read_twice_and_a_link_not_at_all(root):
    write_tree(root, {"small": "x"})
    with Folder(root) as folder:
        hashed = hash_file(folder, "small")
    files = {"small": FileEntry(hashed.digest, 1), "link": FileEntry(link="small")}
    (found,) = open_sources(str(root), files, files, {"small": hashed})
    (root / "small").unlink()
    assert read(found) == [b"x"]
