"""Documents as files: there wholly or not at all, and not trusted when they are read."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import sys
import threading

import pytest
import zstandard

from holdfast import InvalidDocumentError, StateStoreError
from holdfast.documents import json_file
from holdfast.documents.encode import encode_chunks
from holdfast.documents.limits import DocumentLimits
from holdfast.extras import MissingExtraError
from support.sample_documents import full_document

TREE = full_document().to_dict()
NAMES = ["snapshot.json", "snapshot.json.gz", "snapshot.json.zst", "snapshot"]


def written(path, tree=TREE):
    return json_file.write_json_file(path, encode_chunks(tree))


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_is_read(tmp_path, name):
    target = tmp_path / name
    assert written(target) == target
    assert json_file.read_json_file(target) == TREE
    assert json_file.read_json_file(str(target)) == TREE
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_file_is_packed_as_its_name_says(tmp_path):
    data = b"".join(encode_chunks(TREE))
    assert written(tmp_path / "a.json").read_bytes() == data
    assert gzip.decompress(written(tmp_path / "a.json.gz").read_bytes()) == data
    packed = io.BytesIO(written(tmp_path / "a.json.zst").read_bytes())
    assert zstandard.ZstdDecompressor().stream_reader(packed).read() == data


def test_the_same_document_gives_the_same_bytes(tmp_path):
    for name in NAMES:
        assert written(tmp_path / name).read_bytes() == written(tmp_path / name).read_bytes()


def test_what_is_packed_is_known_by_its_bytes_and_not_by_its_name(tmp_path):
    for name in NAMES:
        data = written(tmp_path / name).read_bytes()
        (tmp_path / "odd.txt").write_bytes(data)
        assert json_file.read_json_file(tmp_path / "odd.txt") == TREE


def test_what_an_editor_puts_before_a_document_does_not_disturb(tmp_path):
    text = json.dumps(TREE).encode()
    for before in (b"\xef\xbb\xbf", b"\n \t\r\n", b"\xef\xbb\xbf\n"):
        (tmp_path / "a.json").write_bytes(before + text)
        assert json_file.read_json_file(tmp_path / "a.json") == TREE


def test_writing_that_fails_leaves_what_was_there(tmp_path):
    target = written(tmp_path / "a.json")
    before = target.read_bytes()

    def failing():
        yield b"{"
        raise RuntimeError("in the middle")

    for name in NAMES:
        with pytest.raises(RuntimeError):
            json_file.write_json_file(tmp_path / name, failing())
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_disk_that_fails_is_said(tmp_path, monkeypatch):
    def failing(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StateStoreError, match=r"cannot write .*a\.json: No space left"):
        written(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_refused_before_any_work(tmp_path):
    with pytest.raises(StateStoreError, match="is a directory; name a file in it"):
        json_file.check_writable(tmp_path)
    with pytest.raises(StateStoreError, match="no such directory"):
        json_file.check_writable(tmp_path / "none" / "a.json")
    assert json_file.check_writable(tmp_path / "a.json") == tmp_path / "a.json"


def test_a_path_that_this_user_has_no_right_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StateStoreError, match="permission denied"):
        json_file.check_writable(tmp_path / "a.json")


def test_a_file_that_this_user_may_not_overwrite_is_refused(tmp_path, monkeypatch):
    target = written(tmp_path / "a.json")
    monkeypatch.setattr(os, "access", lambda path, mode: path != target)
    with pytest.raises(StateStoreError, match="permission denied"):
        json_file.check_writable(target)


def test_what_is_not_there_or_is_a_folder_is_refused(tmp_path):
    with pytest.raises(InvalidDocumentError, match="no such file"):
        json_file.read_json_file(tmp_path / "none.json")
    with pytest.raises(InvalidDocumentError, match="is a directory, not a document"):
        json_file.read_json_file(tmp_path)


def test_what_cannot_be_read_is_said(tmp_path, monkeypatch):
    target = written(tmp_path / "a.json")

    def failing(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(json_file, "read_text", failing)
    with pytest.raises(InvalidDocumentError, match="cannot read .*: Input/output error"):
        json_file.read_json_file(target)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_was_cut_short_is_refused(tmp_path, name):
    target = written(tmp_path / name)
    data = target.read_bytes()
    # What lacks nothing but the checksum, of four bytes, has all of its content.
    for length in range(0, len(data) - 4, 41):
        target.write_bytes(data[:length])
        with pytest.raises(InvalidDocumentError, match=name):
            json_file.read_json_file(target)


@pytest.mark.parametrize("name", NAMES[1:3])
def test_a_packed_file_that_was_changed_is_refused(tmp_path, name):
    target = written(tmp_path / name)
    data = target.read_bytes()
    middle = len(data) // 2
    target.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
    with pytest.raises(InvalidDocumentError, match=name):
        json_file.read_json_file(target)


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\x00" * 100, b"{", b'{"a": }', b'{"a": "\xff"}', b"<html>", b"{} {}"],
)
def test_what_is_no_json_is_refused(tmp_path, data):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(InvalidDocumentError, match=r"a\.json"):
        json_file.read_json_file(tmp_path / "a.json")


def test_json_that_is_nested_without_end_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(b"[" * 200_000 + b"]" * 200_000)
    with pytest.raises(InvalidDocumentError, match=r"a\.json is nested too deep"):
        json_file.read_json_file(tmp_path / "a.json")


@pytest.mark.parametrize("name", NAMES)
def test_no_more_is_unpacked_than_is_allowed(tmp_path, name):
    target = written(tmp_path / name, {**TREE, "note": "x" * 5_000_000})
    if name.endswith(("gz", "zst")):
        assert target.stat().st_size < 100_000
    with pytest.raises(InvalidDocumentError, match="more than 1,000,000 bytes"):
        json_file.read_json_file(target, limits=DocumentLimits(max_bytes=1_000_000))
    assert json_file.read_json_file(target, limits=DocumentLimits(max_bytes=6_000_000))["note"]


def test_where_zstandard_is_not_installed_it_is_said_before_any_work(tmp_path, monkeypatch):
    target = written(tmp_path / "a.json.zst")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    for asked in (json_file.check_writable, json_file.read_json_file):
        with pytest.raises(MissingExtraError, match=r"holdfast\[compression\]"):
            asked(target)


def test_a_pipe_is_read_and_never_replaced(tmp_path):
    pipe = tmp_path / "a.json"
    os.mkfifo(pipe)

    def write(data: bytes) -> None:
        with pipe.open("wb") as stream, contextlib.suppress(BrokenPipeError):
            stream.write(data)

    for data in (b'{"a": 1}', gzip.compress(b'{"a": 1}')):
        writer = threading.Thread(target=write, args=(data,))
        writer.start()
        assert json_file.read_json_file(pipe) == {"a": 1}
        writer.join()
    writer = threading.Thread(target=write, args=(b'{"a": "' + b"x" * 100_000,))
    writer.start()
    with pytest.raises(InvalidDocumentError, match="more than 1,000 bytes"):
        json_file.read_json_file(pipe, limits=DocumentLimits(max_bytes=1000))
    writer.join()
    with pytest.raises(StateStoreError, match="a device or a pipe"):
        json_file.write_json_file(pipe, [b"{}"])
    assert pipe.is_fifo()


def test_a_name_may_be_as_long_as_names_can_be(tmp_path):
    target = tmp_path / ("x" * 250 + ".json")
    json_file.write_json_file(target, [b"{}"])
    assert json_file.read_json_file(target) == {}


def test_frames_of_zstd_that_are_to_be_skipped_are(tmp_path):
    text = json.dumps(TREE).encode()
    half = len(text) // 2
    first, second = (zstandard.compress(part) for part in (text[:half], text[half:]))
    skipped = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"
    file = tmp_path / "a.json.zst"
    for data in (
        skipped + zstandard.compress(text),
        skipped + skipped + first + skipped + second + skipped,
        first + second,
    ):
        file.write_bytes(data)
        assert json_file.read_json_file(file) == TREE
    for data in (skipped, skipped[:6], skipped + first, skipped + b"{}", skipped + first[:-9]):
        file.write_bytes(data)
        with pytest.raises(InvalidDocumentError):
            json_file.read_json_file(file)


# -------------------------------------------------------------------- what is there already


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, monkeypatch, mode):
    target = written(tmp_path / "a.json")
    target.chmod(mode)
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    seen = []

    def looking():
        (temporary,) = tmp_path.glob(".*.tmp")
        seen.append(temporary.stat().st_mode & 0o7777)
        yield b"{}"

    json_file.write_json_file(target, looking())
    assert [*seen, target.stat().st_mode & 0o7777] == [mode, mode]
    assert target.read_bytes() == b"{}"


def test_a_new_file_has_the_mode_that_the_user_gives_to_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        assert written(tmp_path / "a.json").stat().st_mode & 0o7777 == 0o640
    finally:
        os.umask(before)


def test_a_link_is_replaced_by_a_file_that_others_can_read_no_better(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link.json"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    written(link)
    assert real.read_bytes() == b"old"
    assert not link.is_symlink()
    assert link.stat().st_mode & 0o7777 == 0o600
