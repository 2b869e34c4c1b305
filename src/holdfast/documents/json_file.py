"""Documents as files: ``.json``, ``.json.gz`` and ``.json.zst``, streamed, written atomically.

A file is there wholly or not at all: it is written under another name, synced, and renamed. One
that it replaces keeps its mode. What is read is not trusted: neither its size before nor after
unpacking, nor its nesting.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from holdfast.documents.limits import (
    DEFAULT_LIMITS,
    DocumentLimits,
    DocumentMeter,
    is_decompression_bomb,
    max_compressed_objects,
)
from holdfast.documents.signing import SignatureError, read_signatures
from holdfast.errors import HoldfastError, InvalidDocumentError, StateStoreError, short_repr
from holdfast.stores.local import sync_descriptor, sync_folder
from holdfast.stores.urls import mask_secrets

READ_BYTES = 1 << 20
JSON_WHITESPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""How a frame begins, or one that is to be skipped, as tools put before the others."""


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that cannot be written, before any work is done for it."""
    target = Path(path)
    try:
        is_folder = target.is_dir()
    except OSError as error:  # a name that is too long
        name, problem = (
            short_repr(mask_secrets(str(target))),
            error.strerror or "the system refuses it",
        )
        raise StateStoreError(
            f"{name} cannot be written: {problem}; choose another path"
        ) from error
    if is_folder:
        raise StateStoreError(f"{target} is a folder: name a file in it, as in {target}/state.json")
    if target.exists() and not target.is_file():
        raise StateStoreError(f"{target} is a device or a pipe, which is not replaced by a file")
    if not target.parent.is_dir():
        name, folder = mask_secrets(str(target)), mask_secrets(str(target.parent))
        raise StateStoreError(f"{name} cannot be written: there is no folder {folder}")
    if not os.access(target.parent, os.W_OK) or (
        target.exists() and not os.access(target, os.W_OK)
    ):
        raise StateStoreError(
            f"{target} cannot be written: this user has no right to it. See its owner and mode, or "
            "choose another path"
        )
    if target.name.endswith(".zst"):
        import_zstandard(target)
    return target


def write_json_file(path: str | os.PathLike[str], chunks: Iterable[bytes]) -> Path:
    """Write a document, all of it or nothing; packed as its name says."""
    target = check_writable(path)
    # Not longer than the name itself, which may be as long as a name can be.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if target.exists():  # while there is nothing in it to be read
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            is_packed = target.name.endswith((".gz", ".zst"))
            meter = DocumentMeter(str(target))
            with open_compressor(target, file) as out:
                for chunk in chunks:
                    out.write(chunk)
                    meter.bytes += len(chunk)
                    if is_packed:
                        meter.count(chunk)
            packed = file.tell()
            if is_decompression_bomb(meter.bytes, packed) or meter.objects > max_compressed_objects(
                packed
            ):
                raise StateStoreError(
                    f"{target} would be refused by a reader: {meter.bytes:,} bytes with "
                    f"{meter.objects:,} values and names are compressed to {packed:,} bytes, which "
                    "looks like a decompression bomb; write it as .json"
                )
            file.flush()
            sync_descriptor(file.fileno())
        # A link is replaced, and what it points to stays: somebody else may have put it there.
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise StateStoreError(
            f"{target} could not be written: {error.strerror or error}"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


@contextmanager
def open_compressor(target: Path, file: IO[bytes]) -> Iterator[Any]:
    """What to write to, so that the file is packed as its name says."""
    with ExitStack() as stack:
        if target.name.endswith(".gz"):
            # Without a time and a name, so that the same document gives the same bytes.
            yield stack.enter_context(
                gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
            )
        elif target.name.endswith(".zst"):
            compressor = import_zstandard(target).ZstdCompressor(level=3, write_checksum=True)
            yield stack.enter_context(compressor.stream_writer(file, closefd=False))
        else:
            yield file


def read_json_file(path: str | os.PathLike[str], *, limits: DocumentLimits = DEFAULT_LIMITS) -> Any:
    """The JSON data of a document's file."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            if file.seekable():
                return read_json_stream(file, str(source), limits=limits)
            # A pipe is read once, and its first bytes are looked at twice.
            with tempfile.TemporaryFile() as kept:
                shutil.copyfileobj(BoundedStream(file, limits.max_bytes), kept)
                return read_json_stream(kept, str(source), limits=limits)
    except FileNotFoundError:
        raise InvalidDocumentError(f"there is no file {mask_secrets(str(source))}") from None
    except IsADirectoryError:
        raise InvalidDocumentError(f"{source} is a folder, not a document") from None
    except HoldfastError:
        raise
    except OSError as error:
        name, problem = mask_secrets(str(source)), error.strerror or "the system refuses it"
        raise InvalidDocumentError(f"{name} cannot be read: {problem}") from error


class BoundedStream:
    """A stream that ends a little after so many bytes, whatever it has."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._left = most + 1

    def read(self, size: int = READ_BYTES, /) -> bytes:
        """The next bytes."""
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data


def read_json_stream(file: IO[bytes], name: str, *, limits: DocumentLimits = DEFAULT_LIMITS) -> Any:
    """The JSON data of an open file, which errors call by this name."""
    packed = file.seek(0, os.SEEK_END)
    file.seek(0)
    try:
        with open_decompressor(name, file) as reading:
            return parse_json(read_within_limits(reading, name, packed, limits), name)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidDocumentError(
            f"{name} is not packed as its first bytes say, or is cut short: {error}"
        ) from error


@contextmanager
def open_decompressor(source: str, file: IO[bytes]) -> Iterator[Any]:
    """What to read from, so that a packed file is unpacked. The first bytes tell, not the name."""
    start = file.read(4)
    file.seek(0)
    with ExitStack() as stack:
        if start[:2] == b"\x1f\x8b":
            yield stack.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        elif ZSTD.match(start):
            zstd = import_zstandard(source)
            try:
                decompressor = zstd.ZstdDecompressor(max_window_size=1 << 27)
                with decompressor.stream_reader(
                    file, closefd=False, read_across_frames=True
                ) as reading:
                    yield reading
            except zstd.ZstdError as error:
                raise InvalidDocumentError(f"{source} is damaged or cut short: {error}") from error
        else:
            yield file


def read_within_limits(reading: Any, source: str, packed: int, limits: DocumentLimits) -> bytearray:
    """All that is to be read, if it begins like a document and is within the limits."""
    data = bytearray()
    meter = DocumentMeter(source, limits)
    while chunk := reading.read(READ_BYTES):
        meter.read(chunk, packed)
        if not data and not chunk.removeprefix(BOM).lstrip(JSON_WHITESPACE).startswith(
            (b"{", b"[")
        ):
            raise InvalidDocumentError(f"{source} is not JSON: it does not begin with {{")
        data += chunk
    return data


def parse_json(data: bytes | bytearray, source: str) -> Any:
    """The JSON data of a text."""
    text = data.removeprefix(BOM) if data.startswith(BOM) else data
    try:
        tree = msgspec.json.decode(text)
        if has_signatures(tree):
            reject_duplicate_names(text, source)
        return tree
    except RecursionError:
        raise InvalidDocumentError(f"{source} is nested too deep to be a document") from None
    except (msgspec.DecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InvalidDocumentError(
            f"{source} is not JSON, or is cut short: {error!s:.400}"
        ) from error


def has_signatures(tree: object) -> bool:
    """Whether data has signatures in their form; others are refused by whoever requires one."""
    try:
        return bool(read_signatures(tree))
    except SignatureError:
        return False


def reject_duplicate_names(text: bytes | bytearray, source: str) -> None:
    """Refuse a signed document in which an object has a name twice.

    Parsers differ in which of the two they take: what one has checked, another would not read.
    """

    def named_once(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise InvalidDocumentError(
                f"{source} is signed and has the name {short_repr(twice)} twice in one object: readers "
                "differ in what that means, and it is refused. Get another copy"
            )

    json.loads(text, object_pairs_hook=named_once, parse_int=str, parse_float=str, strict=False)


def import_zstandard(path: Path | str) -> Any:
    """The module that packs with zstd, or an error that says how to get it."""
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name != "zstandard":
            raise
        raise StateStoreError(
            f"{path} needs zstandard: pip install 'holdfast[compression]', or use .json.gz"
        ) from None
    return zstandard
