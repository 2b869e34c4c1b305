"""JSON files are written atomically, and not trusted when they are read."""

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
from support.sample_documents import make_full_document

TREE = make_full_document().to_dict()
NAMES = ["snapshot.json", "snapshot.json.gz", "snapshot.json.zst", "snapshot"]


def write_tree(path, tree=TREE):
    return json_file.write_json_file(path, encode_chunks(tree))


@pytest.mark.parametrize("name", NAMES)
def test_written_data_is_read_back(tmp_path, name):
    target = tmp_path / name
    assert write_tree(target) == target
    assert json_file.read_json_file(target) == TREE
    assert json_file.read_json_file(str(target)) == TREE
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_the_suffix_selects_the_compression(tmp_path):
    data = b"".join(encode_chunks(TREE))
    assert write_tree(tmp_path / "a.json").read_bytes() == data
    assert gzip.decompress(write_tree(tmp_path / "a.json.gz").read_bytes()) == data
    packed = io.BytesIO(write_tree(tmp_path / "a.json.zst").read_bytes())
    assert zstandard.ZstdDecompressor().stream_reader(packed).read() == data


def test_the_same_data_gives_the_same_bytes(tmp_path):
    for name in NAMES:
        assert write_tree(tmp_path / name).read_bytes() == write_tree(tmp_path / name).read_bytes()


def test_compression_is_detected_by_content(tmp_path):
    for name in NAMES:
        data = write_tree(tmp_path / name).read_bytes()
        (tmp_path / "odd.txt").write_bytes(data)
        assert json_file.read_json_file(tmp_path / "odd.txt") == TREE


def test_a_byte_order_mark_and_whitespace_are_skipped(tmp_path):
    text = json.dumps(TREE).encode()
    for before in (b"\xef\xbb\xbf", b"\n \t\r\n", b"\xef\xbb\xbf\n"):
        (tmp_path / "a.json").write_bytes(before + text)
        assert json_file.read_json_file(tmp_path / "a.json") == TREE


def test_a_failed_write_keeps_the_old_file(tmp_path):
    target = write_tree(tmp_path / "a.json")
    before = target.read_bytes()

    def failing():
        yield b"{"
        raise RuntimeError("in the middle")

    for name in NAMES:
        with pytest.raises(RuntimeError):
            json_file.write_json_file(tmp_path / name, failing())
    assert target.read_bytes() == before
    assert list(tmp_path.iterdir()) == [target]


def test_a_disk_error_is_reported(tmp_path, monkeypatch):
    def failing(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StateStoreError, match=r"cannot write .*a\.json: No space left"):
        write_tree(tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_path_is_rejected_before_writing(tmp_path):
    with pytest.raises(StateStoreError, match="is a directory; name a file in it"):
        json_file.check_writable(tmp_path)
    with pytest.raises(StateStoreError, match="no such directory"):
        json_file.check_writable(tmp_path / "none" / "a.json")
    assert json_file.check_writable(tmp_path / "a.json") == tmp_path / "a.json"


def test_a_directory_without_write_permission_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(StateStoreError, match="permission denied"):
        json_file.check_writable(tmp_path / "a.json")


def test_a_read_only_file_is_not_overwritten(tmp_path, monkeypatch):
    target = write_tree(tmp_path / "a.json")
    monkeypatch.setattr(os, "access", lambda path, mode: path != target)
    with pytest.raises(StateStoreError, match="permission denied"):
        json_file.check_writable(target)


def test_a_missing_file_and_a_directory_are_errors(tmp_path):
    with pytest.raises(InvalidDocumentError, match="no such file"):
        json_file.read_json_file(tmp_path / "none.json")
    with pytest.raises(InvalidDocumentError, match="is a directory, not a document"):
        json_file.read_json_file(tmp_path)


def test_a_read_error_is_reported(tmp_path, monkeypatch):
    target = write_tree(tmp_path / "a.json")

    def failing(*arguments):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(json_file, "read_decompressed", failing)
    with pytest.raises(InvalidDocumentError, match="cannot read .*: Input/output error"):
        json_file.read_json_file(target)


@pytest.mark.parametrize("name", NAMES)
def test_a_truncated_file_is_rejected(tmp_path, name):
    target = write_tree(tmp_path / name)
    data = target.read_bytes()
    # Without its four-byte checksum, the content is still complete.
    for length in range(0, len(data) - 4, 41):
        target.write_bytes(data[:length])
        with pytest.raises(InvalidDocumentError, match=name):
            json_file.read_json_file(target)


@pytest.mark.parametrize("name", NAMES[1:3])
def test_a_damaged_compressed_file_is_rejected(tmp_path, name):
    target = write_tree(tmp_path / name)
    data = target.read_bytes()
    middle = len(data) // 2
    target.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
    with pytest.raises(InvalidDocumentError, match=name):
        json_file.read_json_file(target)


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\x00" * 100, b"{", b'{"a": }', b'{"a": "\xff"}', b"<html>", b"{} {}"],
)
def test_a_file_that_is_not_json_is_rejected(tmp_path, data):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(InvalidDocumentError, match=r"a\.json"):
        json_file.read_json_file(tmp_path / "a.json")


def test_deeply_nested_json_is_rejected(tmp_path):
    (tmp_path / "a.json").write_bytes(b"[" * 200_000 + b"]" * 200_000)
    with pytest.raises(InvalidDocumentError, match=r"a\.json is nested too deeply"):
        json_file.read_json_file(tmp_path / "a.json")


@pytest.mark.parametrize("name", NAMES)
def test_decompression_stops_at_the_limit(tmp_path, name):
    target = write_tree(tmp_path / name, {**TREE, "note": "x" * 5_000_000})
    if name.endswith(("gz", "zst")):
        assert target.stat().st_size < 100_000
    with pytest.raises(InvalidDocumentError, match="more than 1,000,000 bytes"):
        json_file.read_json_file(target, limits=DocumentLimits(max_bytes=1_000_000))
    assert json_file.read_json_file(target, limits=DocumentLimits(max_bytes=6_000_000))["note"]


def test_a_missing_zstandard_is_reported_before_writing(tmp_path, monkeypatch):
    target = write_tree(tmp_path / "a.json.zst")
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


def test_the_longest_possible_file_name_can_be_written(tmp_path):
    target = tmp_path / ("x" * 250 + ".json")
    json_file.write_json_file(target, [b"{}"])
    assert json_file.read_json_file(target) == {}


def test_skippable_zstd_frames_are_skipped(tmp_path):
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


# -------------------------------------------------------------------------------- existing files


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_a_replaced_file_keeps_its_mode(tmp_path, monkeypatch, mode):
    target = write_tree(tmp_path / "a.json")
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


def test_a_new_file_has_the_default_mode(tmp_path):
    before = os.umask(0o027)
    try:
        assert write_tree(tmp_path / "a.json").stat().st_mode & 0o7777 == 0o640
    finally:
        os.umask(before)


def test_a_symbolic_link_is_replaced_and_its_mode_is_kept(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link.json"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_tree(link)
    assert real.read_bytes() == b"old"
    assert not link.is_symlink()
    assert link.stat().st_mode & 0o7777 == 0o600
