"""Documents as files: ``.json``, ``.json.gz`` and ``.json.zst``, streamed, written atomically.

A file is there wholly or not at all: it is written under another name, synced, and renamed. What is
read is not trusted: neither its size before nor after unpacking, nor its nesting.
"""

from __future__ import annotations

import gzip
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from holdfast.errors import HoldfastError, InvalidDocumentError, StateStoreError
from holdfast.stores.local import sync, sync_folder

CHUNK = 1 << 20
MAX_BYTES = 1 << 30
SURELY_FINE = 1 << 26
HIGHEST_RATIO = 200
SPACE = b" \t\r\n"
BOM = b"\xef\xbb\xbf"


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Refuse a path that cannot be written, before any work is done for it."""
    target = Path(path)
    if target.is_dir():
        raise StateStoreError(f"{target} is a folder: name a file in it, as in {target}/state.json")
    if not target.parent.is_dir():
        raise StateStoreError(f"{target} cannot be written: there is no folder {target.parent}")
    if not os.access(target.parent, os.W_OK) or (
        target.exists() and not os.access(target, os.W_OK)
    ):
        raise StateStoreError(
            f"{target} cannot be written: this user has no right to it. See its owner and mode, or "
            "choose another path"
        )
    if target.name.endswith(".zst"):
        zstd_of(target)
    return target


def write(path: str | os.PathLike[str], chunks: Iterable[bytes]) -> Path:
    """Write a document, all of it or nothing; packed as its name says."""
    target = check_writable(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            with packing(target, file) as out:
                for chunk in chunks:
                    out.write(chunk)
            file.flush()
            sync(file.fileno())
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
def packing(target: Path, file: IO[bytes]) -> Iterator[Any]:
    """What to write to, so that the file is packed as its name says."""
    with ExitStack() as stack:
        if target.name.endswith(".gz"):
            # Without a time and a name, so that the same document gives the same bytes.
            yield stack.enter_context(
                gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
            )
        elif target.name.endswith(".zst"):
            compressor = zstd_of(target).ZstdCompressor(level=3, write_checksum=True)
            yield stack.enter_context(compressor.stream_writer(file, closefd=False))
        else:
            yield file


def read(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """The JSON data of a document's file."""
    source = Path(path)
    try:
        with source.open("rb") as file, unpacking(source, file) as reading:
            return parsed(bounded(reading, source, max_bytes), str(source))
    except FileNotFoundError:
        raise InvalidDocumentError(f"there is no file {source}") from None
    except IsADirectoryError:
        raise InvalidDocumentError(f"{source} is a folder, not a document") from None
    except HoldfastError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidDocumentError(
            f"{source} is not packed as its name says, or is cut short: {error}"
        ) from error
    except OSError as error:
        raise InvalidDocumentError(f"{source} cannot be read: {error.strerror or error}") from error


@contextmanager
def unpacking(source: Path, file: IO[bytes]) -> Iterator[Any]:
    """What to read from, so that a packed file is unpacked. The first bytes tell, not the name."""
    start = file.read(4)
    file.seek(0)
    with ExitStack() as stack:
        if start[:2] == b"\x1f\x8b":
            yield stack.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
        elif start == b"\x28\xb5\x2f\xfd":
            zstd = zstd_of(source)
            try:
                with zstd.ZstdDecompressor(max_window_size=1 << 27).stream_reader(file) as reading:
                    yield reading
            except zstd.ZstdError as error:
                raise InvalidDocumentError(f"{source} is damaged or cut short: {error}") from error
        else:
            yield file


def bounded(reading: Any, source: Path, max_bytes: int) -> bytes:
    """All that is to be read, if it begins like a document and is not too much."""
    chunks: list[bytes] = []
    size = 0
    packed = source.stat().st_size
    while chunk := reading.read(CHUNK):
        size += len(chunk)
        if size > max_bytes:
            raise InvalidDocumentError(
                f"{source} has more than {max_bytes:,} bytes when it is unpacked: it is no "
                "document, or it is read with a larger max_bytes"
            )
        if size > SURELY_FINE and size > HIGHEST_RATIO * packed:
            raise InvalidDocumentError(
                f"{source} has {packed:,} bytes and more than {size:,} when it is unpacked: no "
                "document is packed so well, and it is not read"
            )
        chunks.append(chunk)
        if len(chunks) == 1 and not chunk.removeprefix(BOM).lstrip(SPACE).startswith((b"{", b"[")):
            raise InvalidDocumentError(f"{source} is not JSON: it does not begin with {{")
    return b"".join(chunks)


def parsed(data: bytes, source: str) -> Any:
    """The JSON data of a text."""
    try:
        return msgspec.json.decode(data.removeprefix(BOM))
    except RecursionError:
        raise InvalidDocumentError(f"{source} is nested too deep to be a document") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidDocumentError(f"{source} is not JSON, or is cut short: {error}") from error


def zstd_of(path: Path) -> Any:
    """The module that packs with zstd, or an error that says how to get it."""
    try:
        import zstandard  # noqa: PLC0415 - an extra
    except ImportError:
        raise StateStoreError(
            f"{path} needs zstandard: pip install 'holdfast[compression]', or use .json.gz"
        ) from None
    return zstandard
