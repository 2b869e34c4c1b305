"""JSON files, plain or compressed with gzip or zstd: read within limits, written atomically.

Nothing about a file is trusted: neither its size before or after decompression, nor the depth of
its nesting. A file is written under a temporary name, synced and renamed; a file that it replaces
keeps its mode.
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

from holdfast.documents.errors import SignatureError, UnreadableDocumentError
from holdfast.documents.limits import (
    DEFAULT_LIMITS,
    DocumentLimits,
    DocumentMeter,
    is_decompression_bomb,
    max_compressed_objects,
)
from holdfast.documents.signatures import decode_signatures
from holdfast.errors import HoldfastError, InvalidDocumentError, StateStoreError, short_repr
from holdfast.extras import require_extra
from holdfast.stores.local import sync_descriptor, sync_folder
from holdfast.stores.urls import mask_secrets

READ_BYTES = 1 << 20
JSON_WHITESPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"
ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
"""The start of a zstd frame, or of a skippable frame, which some tools write first."""


# --------------------------------------------------------------------------------------- writing


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Check that a file can be written, before any work is done for it.

    Raises:
        StateStoreError: It cannot be written.
        MissingExtraError: It is to be compressed with zstd, which is not installed.

    """
    target = Path(path)
    name = mask_secrets(str(target))
    try:
        is_folder = target.is_dir()
    except OSError as error:  # the name is too long
        problem = error.strerror or "invalid path"
        raise StateStoreError(
            f"cannot write {short_repr(name)}: {problem}; choose another path"
        ) from error
    if is_folder:
        raise StateStoreError(
            f"cannot write {target}: it is a directory; name a file in it, such as "
            f"{target}/state.json"
        )
    if target.exists() and not target.is_file():
        raise StateStoreError(f"cannot write {target}: it is a device or a pipe")
    if not target.parent.is_dir():
        folder = mask_secrets(str(target.parent))
        raise StateStoreError(f"cannot write {name}: no such directory {folder}")
    if not os.access(target.parent, os.W_OK) or (
        target.exists() and not os.access(target, os.W_OK)
    ):
        raise StateStoreError(
            f"cannot write {target}: permission denied; check its owner and mode, or choose "
            "another path"
        )
    if target.name.endswith(".zst"):
        import_zstandard()
    return target


def write_json_file(path: str | os.PathLike[str], chunks: Iterable[bytes]) -> Path:
    """Write JSON text to a file atomically, compressed if it ends in ``.gz`` or ``.zst``.

    Raises:
        StateStoreError: The file cannot be written, or readers would reject it.

    """
    target = check_writable(path)
    # A longer temporary name could exceed the limit of the file system.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            if target.exists():  # before there is anything in it to be read
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            is_compressed = target.name.endswith((".gz", ".zst"))
            meter = DocumentMeter(str(target))
            with open_compressor(target, file) as out:
                for chunk in chunks:
                    out.write(chunk)
                    meter.bytes += len(chunk)
                    if is_compressed:
                        meter.count(chunk)
            size = file.tell()
            if is_decompression_bomb(meter.bytes, size) or meter.objects > max_compressed_objects(
                size
            ):
                raise StateStoreError(
                    f"cannot write {target}: {meter.bytes:,} bytes with {meter.objects:,} values "
                    f"and names compress to {size:,} bytes, which readers refuse as a "
                    "decompression bomb; write it as .json"
                )
            file.flush()
            sync_descriptor(file.fileno())
        # Replaces a symbolic link, not the file that it points to, which may not be ours.
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise StateStoreError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    return target


@contextmanager
def open_compressor(target: Path, file: IO[bytes]) -> Iterator[Any]:
    """Yield a stream that compresses to a file as the target's suffix says."""
    with ExitStack() as stack:
        if target.name.endswith(".gz"):
            # Without time and name, so that the same document gives the same bytes.
            yield stack.enter_context(
                gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
            )
        elif target.name.endswith(".zst"):
            compressor = import_zstandard().ZstdCompressor(level=3, write_checksum=True)
            yield stack.enter_context(compressor.stream_writer(file, closefd=False))
        else:
            yield file


# --------------------------------------------------------------------------------------- reading


def read_json_file(path: str | os.PathLike[str], *, limits: DocumentLimits = DEFAULT_LIMITS) -> Any:
    """Read the JSON data of a file.

    Raises:
        UnreadableDocumentError: It is not JSON, or cannot be decompressed.
        DocumentTooLargeError: It exceeds a limit.
        InvalidDocumentError: There is no such file, or it cannot be read.

    """
    return parse_json(read_text_file(path, limits=limits), mask_secrets(str(Path(path))))


def read_text_file(
    path: str | os.PathLike[str], *, limits: DocumentLimits = DEFAULT_LIMITS
) -> bytearray:
    """Read and decompress the text of a file that starts like JSON.

    Raises:
        UnreadableDocumentError: It does not start like JSON, or cannot be decompressed.
        DocumentTooLargeError: It exceeds a limit.
        InvalidDocumentError: There is no such file, or it cannot be read.

    """
    source = Path(path)
    name = mask_secrets(str(source))
    try:
        with source.open("rb") as file:
            if file.seekable():
                return read_decompressed(file, str(source), limits)
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(BoundedStream(file, limits.max_bytes), copy)
                return read_decompressed(copy, str(source), limits)
    except FileNotFoundError:
        raise InvalidDocumentError(f"no such file: {name}") from None
    except IsADirectoryError:
        raise InvalidDocumentError(f"{source} is a directory, not a document") from None
    except HoldfastError:
        raise
    except OSError as error:
        problem = error.strerror or "invalid path"
        raise InvalidDocumentError(f"cannot read {name}: {problem}") from error


class BoundedStream:
    """A stream that ends one byte after a limit, so that a reader sees that it was exceeded."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream = stream
        self._left = limit + 1

    def read(self, size: int = READ_BYTES, /) -> bytes:
        """Read the next bytes."""
        data = self._stream.read(min(size, self._left))
        self._left -= len(data)
        return data


def read_decompressed(file: IO[bytes], name: str, limits: DocumentLimits) -> bytearray:
    """Read and decompress a stream, if it starts like JSON and is within the limits.

    Raises:
        UnreadableDocumentError: It does not start like JSON, or cannot be decompressed.
        DocumentTooLargeError: It exceeds a limit.

    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    text = bytearray()
    meter = DocumentMeter(name, limits)
    with open_decompressor(file, name) as stream:
        while chunk := stream.read(READ_BYTES):
            meter.read(chunk, size)
            start = b"" if text else chunk.removeprefix(BOM).lstrip(JSON_WHITESPACE)
            if not text and not start.startswith((b"{", b"[")):
                raise UnreadableDocumentError(f"{name} is not JSON: it does not start with {{")
            text += chunk
    return text


@contextmanager
def open_decompressor(file: IO[bytes], name: str) -> Iterator[Any]:
    """Yield the decompressed file; the format is detected from its first bytes."""
    start = file.read(4)
    file.seek(0)
    errors: tuple[type[Exception], ...] = (EOFError, zlib.error, gzip.BadGzipFile)
    try:
        if start[:2] == b"\x1f\x8b":
            with gzip.GzipFile(fileobj=file, mode="rb") as stream:
                yield stream
        elif ZSTD.match(start):
            zstandard = import_zstandard()
            errors = (zstandard.ZstdError,)
            decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
            with decompressor.stream_reader(file, closefd=False, read_across_frames=True) as stream:
                yield stream
        else:
            yield file
    except errors as error:
        raise UnreadableDocumentError(
            f"cannot decompress {name}: it is damaged or truncated: {error}"
        ) from error


def parse_json(data: bytes | bytearray, name: str) -> Any:
    """Parse JSON text.

    Raises:
        UnreadableDocumentError: It is not JSON, or nested too deeply.

    """
    text = data.removeprefix(BOM) if data.startswith(BOM) else data
    try:
        parsed = msgspec.json.decode(text)
        if has_signatures(parsed):
            reject_duplicate_names(text, name)
        return parsed
    except RecursionError:
        raise UnreadableDocumentError(f"{name} is nested too deeply") from None
    except (msgspec.DecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UnreadableDocumentError(
            f"{name} is not JSON, or is truncated: {error!s:.400}"
        ) from error


def has_signatures(data: object) -> bool:
    """Return whether data has well-formed signatures; malformed ones are never valid."""
    try:
        return bool(decode_signatures(data))
    except SignatureError:
        return False


def reject_duplicate_names(text: bytes | bytearray, name: str) -> None:
    """Reject a signed document with a duplicate name in an object.

    Parsers differ in which value they keep, so another parser would read what was not
    verified.

    Raises:
        UnreadableDocumentError: An object has a name twice.

    """

    def check(pairs: list[tuple[str, Any]]) -> None:
        names = [each for each, _ in pairs]
        if len(set(names)) != len(names):
            duplicate = Counter(names).most_common(1)[0][0]
            raise UnreadableDocumentError(
                f"{name} is signed, but has the name {short_repr(duplicate)} twice in one object; "
                "get another copy"
            )

    json.loads(text, object_pairs_hook=check, parse_int=str, parse_float=str, strict=False)


def import_zstandard() -> Any:
    """Import zstandard, which the extra ``compression`` installs."""
    with require_extra("compression"):
        import zstandard  # noqa: PLC0415 - an extra
    return zstandard
