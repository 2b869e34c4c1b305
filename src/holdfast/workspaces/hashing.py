"""Hash a file that other programs may change at the same time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256

from holdfast.workspaces.errors import WorkspaceError, explain_file_error
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.stat_cache import StatKey

CHUNK_SIZE = 512 * 1024
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class HashedFile:
    """The content of a file at one moment: its digest, and the digest of each chunk."""

    digest: str
    size: int
    chunks: tuple[bytes, ...]
    key: StatKey


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
            digest, size, chunks = hash_descriptor(descriptor, before[2])
            after = stat_key(os.fstat(descriptor))
        except OSError as error:
            raise explain_file_error("capture", path, error) from error
        finally:
            os.close(descriptor)
        if before == after and size == before[2]:
            return HashedFile(digest, size, chunks, after)
    raise WorkspaceError(
        f"file {path!r} keeps changing while it is captured; retry, or add it to .holdfastignore",
        path,
    )


def hash_descriptor(descriptor: int, most: int) -> tuple[str, int, tuple[bytes, ...]]:
    """Return the digest of an open file, its size, and the digests of its chunks.

    Of a file that grows, only one byte more than ``most`` is read.
    """
    whole, size, chunks = sha256(), 0, []
    while size <= most:
        chunk = read_chunk(descriptor, min(CHUNK_SIZE, most + 1 - size))
        if not chunk:
            break
        size += len(chunk)
        whole.update(chunk)
        if most > CHUNK_SIZE:
            chunks.append(sha256(chunk).digest())
    if most <= CHUNK_SIZE:
        chunks = [whole.digest()] if size else []
    return whole.hexdigest(), size, tuple(chunks)


def read_chunk(descriptor: int, size: int) -> bytes:
    """Read exactly this many bytes, or less at the end of the file."""
    data = os.read(descriptor, size)
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data
