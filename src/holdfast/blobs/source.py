"""Where the content of a blob comes from until it is stored."""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from pathlib import Path
from typing import IO, Self

from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.errors import HoldfastError
from holdfast.stores.local import HINTS, run_in_thread


class BlobSource(ABC):
    """Content that can be read any number of times, with its sha256 and size."""

    def __init__(self, digest: str, size: int) -> None:
        self.digest = digest
        self.size = size

    @abstractmethod
    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content in chunks of `CHUNK_SIZE`; an empty content is one empty chunk."""


class ContentSources(Mapping[str, bytes]):
    """Contents of blobs by digest, which can also be read in chunks."""

    @abstractmethod
    def source(self, digest: str) -> BlobSource:
        """Return the source of a content.

        Raises:
            NotFoundError: There is no such content here.

        """


class BytesSource(BlobSource):
    """Content in memory."""

    def __init__(self, content: bytes, digest: str | None = None) -> None:
        super().__init__(digest or hashlib.sha256(content).hexdigest(), len(content))
        self._content = content

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content in chunks."""
        if self.size <= CHUNK_SIZE:
            yield self._content
            return
        view = memoryview(self._content)
        for start in range(0, self.size, CHUNK_SIZE):
            yield bytes(view[start : start + CHUNK_SIZE])


class FileSource(BlobSource):
    """A file on disk. Each chunk is verified when it is read, so a changed file is an error."""

    def __init__(self, path: str, digest: str, size: int, chunk_digests: list[bytes]) -> None:
        super().__init__(digest, size)
        self.path = path
        self._chunk_digests = chunk_digests

    @classmethod
    def hash_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, and return it as a source.

        Raises:
            OSError: The file cannot be read.

        """
        name = os.fspath(path)
        with open(name, "rb", buffering=0) as file:  # noqa: PTH123 - by name: this is a hot path
            return cls.hash_stream(name, file)

    @classmethod
    def hash_stream(cls, path: str, file: IO[bytes]) -> Self:
        """Read an open file to its end, and return it as a source; ``path`` is for later reads."""
        whole = hashlib.sha256()
        size = 0
        digests: list[bytes] = []
        while chunk := read_chunk(file):
            whole.update(chunk)
            size += len(chunk)
            digests.append(hashlib.sha256(chunk).digest())
        return cls(path, whole.hexdigest(), size, digests or [hashlib.sha256().digest()])

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the content in chunks.

        Raises:
            HoldfastError: The file changed since it was hashed, or cannot be read.

        """
        file = await run_in_thread(self._open)
        try:
            for expected in self._chunk_digests:
                try:
                    chunk = await run_in_thread(read_chunk, file)
                except OSError as error:
                    raise unreadable_error(self.path, error) from error
                if hashlib.sha256(chunk).digest() != expected:
                    raise self._changed_error()
                yield chunk
            if await run_in_thread(file.read, 1):
                raise self._changed_error()
        finally:
            file.close()

    def _open(self) -> IO[bytes]:
        try:
            return open(self.path, "rb", buffering=0)  # noqa: PTH123
        except OSError as error:
            raise unreadable_error(self.path, error) from error

    def _changed_error(self) -> HoldfastError:
        return HoldfastError(
            f"file {self.path} changed while it was stored; retry when nothing writes to it"
        )


class SpooledSource(FileSource):
    """Content copied to a temporary file, which is deleted with this object."""

    def __init__(self, path: str, digest: str, size: int, chunk_digests: list[bytes]) -> None:
        super().__init__(path, digest, size, chunk_digests)
        self._finalizer = weakref.finalize(self, delete_file, path, os.getpid())

    def close(self) -> None:
        """Delete the temporary file now."""
        self._finalizer()

    @classmethod
    async def spool(cls, content: AsyncIterable[bytes]) -> Self:
        """Copy content to a temporary file, holding one chunk in memory.

        Raises:
            HoldfastError: The temporary file cannot be written.
            TypeError: An item of the content is not bytes.

        """
        try:
            descriptor, path = tempfile.mkstemp(prefix="holdfast-", suffix=".blob")
        except OSError as error:
            raise unreadable_error(tempfile.gettempdir(), error, "write to") from error
        os.close(descriptor)
        whole = hashlib.sha256()
        size = 0
        digests: list[bytes] = []
        buffer = bytearray()

        async def flush(count: int) -> None:
            chunk = bytes(buffer[:count])
            del buffer[:count]
            digests.append(hashlib.sha256(chunk).digest())
            try:
                await run_in_thread(append_to_file, path, chunk)
            except OSError as error:
                raise unreadable_error(path, error, "write") from error

        try:
            async for piece in content:
                if not isinstance(piece, bytes | bytearray | memoryview):
                    raise TypeError(f"content must be bytes, got {type(piece).__name__}")
                # A large piece is not copied as a whole.
                view = memoryview(piece).cast("B")
                whole.update(view)
                size += len(view)
                for start in range(0, len(view), CHUNK_SIZE):
                    buffer += view[start : start + CHUNK_SIZE]
                    while len(buffer) >= CHUNK_SIZE:
                        await flush(CHUNK_SIZE)
            if buffer or not digests:
                await flush(len(buffer))
        except BaseException:
            delete_file(path, os.getpid())
            raise
        return cls(path, whole.hexdigest(), size, digests)


def read_chunk(file: IO[bytes]) -> bytes:
    """Read a whole chunk, or what is left of a file; a raw read may return less."""
    chunk = file.read(CHUNK_SIZE) or b""
    while 0 < len(chunk) < CHUNK_SIZE and (more := file.read(CHUNK_SIZE - len(chunk))):
        chunk += more
    return chunk


def append_to_file(path: str, data: bytes) -> None:
    """Append to an existing file.

    It is opened here: after a cancellation this thread may still run, and must not write to a
    descriptor that was closed and is another file by now, or create the file again.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
    with open(descriptor, "wb") as file:  # noqa: PTH123
        file.write(data)


def delete_file(path: str, process: int) -> None:
    """Delete a temporary file, unless this is a forked child of the process that created it."""
    if process == os.getpid():
        Path(path).unlink(missing_ok=True)


async def read_file(path: str | os.PathLike[str]) -> AsyncIterator[bytes]:
    """Yield the content of a file in chunks.

    Raises:
        HoldfastError: The file cannot be read.

    """
    name = os.fspath(path)
    try:
        file = await run_in_thread(open, name, "rb", 0)
    except OSError as error:
        raise unreadable_error(name, error) from error
    try:
        while True:
            try:
                chunk: bytes = await run_in_thread(read_chunk, file)
            except OSError as error:
                raise unreadable_error(name, error) from error
            if not chunk:
                return
            yield chunk
    finally:
        file.close()


def unreadable_error(path: str, error: OSError, action: str = "read") -> HoldfastError:
    """Return the error for a file that cannot be read or written."""
    hint = HINTS.get(error.errno or 0, "check that it exists and is readable")
    return HoldfastError(f"cannot {action} {path}: {error.strerror or error}; {hint}")
