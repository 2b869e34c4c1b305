"""Hash a file that other programs may change at the same time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256

from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.workspaces.errors import WorkspaceError, explain_file_error
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.stat_cache import StatKey

MAX_ATTEMPTS = 3
SMALL_FILE = 64 * 1024
"""The size up to which the content of a file is kept in memory until it is stored."""


@dataclass(frozen=True, slots=True)
class HashedFile:
    """The content of a file at one moment: its digest, and the digest of each chunk."""

    digest: str
    size: int
    chunks: tuple[bytes, ...]
    key: StatKey
    content: bytes | None = None
    """The content of a small file, so that it is not read twice."""


def stat_key(status: os.stat_result) -> StatKey:
    """Return what changes with the content of a file."""
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        status.st_mode,
    )


def hash_file(folder: Folder, path: str) -> HashedFile | None:
    """Hash a file that does not change in the meantime; return None if it does not exist.

    Raises:
        WorkspaceError: It cannot be read, or changes all the time; the error names it.

    """
    for _ in range(MAX_ATTEMPTS):
        try:
            directory, name = folder.parent_of(path)
            descriptor = directory.open_file(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain_file_error("capture", path, error) from error
        try:
            before = stat_key(os.fstat(descriptor))
            digest, size, chunks, content = hash_descriptor(descriptor, before[2])
            after = stat_key(os.fstat(descriptor))
        except OSError as error:
            raise explain_file_error("capture", path, error) from error
        finally:
            os.close(descriptor)
        if before == after and size == before[2]:
            return HashedFile(digest, size, chunks, after, content)
    raise WorkspaceError(
        f"file {path!r} keeps changing while it is captured; retry, or add it to .holdfastignore",
        path,
    )


def hash_descriptor(descriptor: int, most: int) -> tuple[str, int, tuple[bytes, ...], bytes | None]:
    """Return the digest of an open file, its size, the digests of its chunks, and its content.

    The content of a large file is None. Of a file that grows, only one byte more than ``most`` is
    read.
    """
    if most <= SMALL_FILE:
        content = read_chunk(descriptor, most + 1)
        small = sha256(content)
        return small.hexdigest(), len(content), (small.digest(),), content
    whole, size, chunks = sha256(), 0, []
    while size <= most:
        chunk = read_chunk(descriptor, min(CHUNK_SIZE, most + 1 - size))
        if not chunk:
            break
        size += len(chunk)
        whole.update(chunk)
        chunks.append(sha256(chunk).digest())
    return whole.hexdigest(), size, tuple(chunks), None


def read_chunk(descriptor: int, size: int) -> bytes:
    """Read exactly this many bytes, or less at the end of the file."""
    data = os.read(descriptor, size)
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data
