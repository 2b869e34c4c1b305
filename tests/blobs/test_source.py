"""Contents that become blobs: in memory, in a file, and from an iterator."""

from __future__ import annotations

import array
import errno
import gc
import hashlib
import io
import random
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import HoldfastError
from holdfast.blobs import source
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.blobs.source import BytesSource, FileSource, SpooledSource, read_chunk, read_file
from support.async_tests import async_test, run_async
from support.observed_store import collect

SIZES = [0, 1, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE]


def make_content(size):
    """Return bytes without a period, so that no two chunks are equal."""
    return random.Random(0).randbytes(size)


async def iterate(*pieces):
    for piece in pieces:
        yield piece


def check_chunks(chunks, content):
    """Check that chunks have the sizes that their keys imply, and yield the content."""
    assert b"".join(chunks) == content
    assert len(chunks) == max(1, -(-len(content) // CHUNK_SIZE))
    assert all(len(chunk) == CHUNK_SIZE for chunk in chunks[:-1])


@pytest.mark.parametrize("size", SIZES)
@async_test
async def test_every_source_yields_its_content_in_chunks_any_number_of_times(size, tmp_path):
    content = make_content(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    for made in (
        BytesSource(content),
        FileSource.hash_file(path),
        await SpooledSource.spool(iterate(content[:7], b"", content[7:])),
        await SpooledSource.spool(read_file(path)),
    ):
        assert (made.digest, made.size) == (hashlib.sha256(content).hexdigest(), size)
        for _ in range(2):
            check_chunks(await collect(made.chunks()), content)


@given(st.lists(st.integers(0, CHUNK_SIZE + 5), max_size=4))
def test_pieces_of_any_size_are_spooled(sizes):
    pieces = [make_content(size) for size in sizes]
    made = run_async(SpooledSource.spool(iterate(*pieces)))
    content = b"".join(pieces)
    assert made.digest == hashlib.sha256(content).hexdigest()
    check_chunks(run_async(collect(made.chunks())), content)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content[:-1] + b"!",
        lambda content: b"!" + content[1:],
        lambda content: content + b"!",
        lambda content: content[:-1],
        lambda content: b"",
    ],
    ids=["last byte", "first byte", "grows", "shrinks", "is emptied"],
)
@pytest.mark.parametrize("size", [10, CHUNK_SIZE, CHUNK_SIZE + 10])
@async_test
async def test_a_file_that_changed_is_an_error_that_names_it(size, change, tmp_path):
    path = tmp_path / "report.pdf"
    path.write_bytes(make_content(size))
    made = FileSource.hash_file(path)
    path.write_bytes(change(make_content(size)))
    with pytest.raises(HoldfastError, match=r"report\.pdf changed while it was stored; retry"):
        await collect(made.chunks())


@async_test
async def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "report.pdf"
    with pytest.raises(HoldfastError, match=r"cannot read .*report\.pdf: No such file.*; check"):
        await collect(read_file(path))
    path.write_bytes(b"x")
    made = FileSource.hash_file(path)
    path.unlink()
    with pytest.raises(HoldfastError, match=r"cannot read .*report\.pdf"):
        await collect(made.chunks())
    with pytest.raises(HoldfastError, match=f"cannot read {tmp_path}"):
        await collect(read_file(tmp_path))
    with pytest.raises(OSError, match="directory"):
        FileSource.hash_file(tmp_path)


@async_test
async def test_a_read_that_fails_midway_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "report.pdf"
    path.write_bytes(make_content(2 * CHUNK_SIZE))
    made = FileSource.hash_file(path)
    reads = []

    def fail_second(file):
        reads.append(file)
        if len(reads) % 2 == 0:
            raise OSError(errno.EIO, "Input/output error")
        return read_chunk(file)

    monkeypatch.setattr(source, "read_chunk", fail_second)
    for chunks in (made.chunks(), read_file(path)):
        with pytest.raises(HoldfastError, match=r"cannot read .*report\.pdf: Input/output error"):
            await collect(chunks)
    assert all(file.closed for file in reads)


class ShortReads(io.RawIOBase):
    """A file whose reads return after at most 1000 bytes, as those of a pipe may."""

    def __init__(self, content=b""):
        self.content = io.BytesIO(content)

    def readable(self):
        return True

    def readinto(self, buffer):
        return self.content.readinto(memoryview(buffer)[:1000])


def test_short_reads_are_continued():
    content = make_content(CHUNK_SIZE + 2500)
    made = FileSource.hash_stream("pipe", ShortReads(content))
    assert (made.digest, made.size) == (hashlib.sha256(content).hexdigest(), len(content))
    file = ShortReads(content)
    assert [len(read_chunk(file)) for _ in range(3)] == [CHUNK_SIZE, 2500, 0]


@async_test
async def test_a_full_disk_is_an_error_with_a_hint(monkeypatch):
    def fail(file, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(source, "append_to_file", fail)
    with pytest.raises(HoldfastError, match=r"cannot write .*No space left.*; the disk is full"):
        await SpooledSource.spool(iterate(b"x"))


def test_a_write_after_a_cancellation_does_not_create_the_deleted_file_again(tmp_path):
    with pytest.raises(FileNotFoundError):
        source.append_to_file(str(tmp_path / "deleted"), b"x")
    assert list(tmp_path.iterdir()) == []


@async_test
async def test_a_folder_for_temporary_files_that_is_missing_is_an_error(monkeypatch):
    monkeypatch.setattr(source.tempfile, "tempdir", "/nonexistent/folder")
    with pytest.raises(HoldfastError, match="cannot write to /nonexistent/folder: No such file"):
        await SpooledSource.spool(iterate(b"x"))


@async_test
async def test_the_temporary_file_is_deleted_with_its_source_but_not_by_a_forked_child():
    made = await SpooledSource.spool(iterate(b"x" * 10))
    path = Path(made.path)
    source.delete_file(made.path, 0)
    assert path.exists()
    del made
    gc.collect()
    assert not path.exists()


@pytest.mark.parametrize("bad", ["text", 5, None, [1]])
@async_test
async def test_other_items_than_bytes_are_refused_and_nothing_is_left(bad, monkeypatch, tmp_path):
    monkeypatch.setattr(source.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(TypeError, match="content must be bytes, got"):
        await SpooledSource.spool(iterate(b"fine", bad))
    assert list(tmp_path.iterdir()) == []


@async_test
async def test_views_and_bytearrays_are_copied():
    piece = bytearray(b"abc")
    made = await SpooledSource.spool(iterate(piece, memoryview(b"def")))
    piece[:] = b"xyz"
    assert await collect(made.chunks()) == [b"abcdef"]
    made = await SpooledSource.spool(iterate(memoryview(array.array("I", [1, 2]))))
    assert made.size == 8


@async_test
async def test_a_large_content_is_spooled_and_read_in_chunks(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(40 * CHUNK_SIZE)
    tracemalloc.start()
    made = await SpooledSource.spool(read_file(path))
    async for _ in made.chunks():
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * CHUNK_SIZE
