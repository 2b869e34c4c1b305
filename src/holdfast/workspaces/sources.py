"""The contents of captured files, on their way to the store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from hashlib import sha256

from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.blobs.source import BlobSource, BytesSource
from holdfast.workspaces.entries import FileEntries, FileEntry
from holdfast.workspaces.errors import WorkspaceError, explain_file_error
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.hashing import HashedFile, hash_file, read_chunk
from holdfast.workspaces.threads import run_to_end


class ChangedFileError(WorkspaceError):
    """A file changed between the moment it was hashed and the moment it was stored."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"file {path!r} changed while it was captured; retry when nothing writes to it", path
        )


class FolderSource(BlobSource):
    """A file of a folder. Each chunk is verified when it is read, so a changed file is an error.

    If only the digest of the file is known, it is hashed again first.
    """

    def __init__(self, root: str, path: str, entry: FileEntry, hashed: HashedFile | None) -> None:
        super().__init__(entry.digest, entry.size)
        self._root = root
        self._path = path
        self._hashed = hashed

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content in chunks.

        Raises:
            WorkspaceError: The file changed since it was hashed, or cannot be read.

        """
        chunk_digests = await run_to_end(self._find_chunk_digests)
        descriptor = await run_to_end(self._open)
        try:
            for expected in chunk_digests:
                chunk = await run_to_end(self._read, descriptor)
                if sha256(chunk).digest() != expected:
                    raise ChangedFileError(self._path)
                yield chunk
            if await run_to_end(self._read, descriptor):
                raise ChangedFileError(self._path)
        finally:
            os.close(descriptor)

    def _find_chunk_digests(self) -> tuple[bytes, ...]:
        if self._hashed is None:
            with Folder(self._root) as folder:
                self._hashed = hash_file(folder, self._path)
        if self._hashed is None or self._hashed.digest != self.digest:
            raise ChangedFileError(self._path)
        return self._hashed.chunks

    def _open(self) -> int:
        try:
            with Folder(self._root) as folder:
                directory, name = folder.parent_of(self._path)
                return directory.open_file(name)
        except FileNotFoundError as error:
            raise ChangedFileError(self._path) from error
        except OSError as error:
            raise explain_file_error("capture", self._path, error) from error

    def _read(self, descriptor: int) -> bytes:
        try:
            return read_chunk(descriptor, CHUNK_SIZE)
        except OSError as error:
            raise explain_file_error("capture", self._path, error) from error


def open_sources(
    root: str, files: FileEntries, paths: Iterable[str], hashed: Mapping[str, HashedFile]
) -> list[BlobSource]:
    """Return the contents of some files of a folder; links have none.

    ``hashed`` has what was read of them just now.
    """
    found: list[BlobSource] = []
    for path in paths:
        entry, known = files[path], hashed.get(path)
        if entry.link is not None:
            continue
        if known is not None and known.content is not None:
            found.append(BytesSource(known.content, known.digest))
        else:
            found.append(FolderSource(root, path, entry, known))
    return found
