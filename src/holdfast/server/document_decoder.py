"""Decode documents in worker processes, within limits of time and memory.

Workers are started on demand, decode one document at a time, and are killed if that takes too long
or the client disconnects. Small uncompressed documents need no worker.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from holdfast.documents.document import Document
from holdfast.documents.errors import (
    DocumentTooLargeError,
    ModifiedDocumentError,
    SignatureError,
    UnreadableDocumentError,
)
from holdfast.documents.limits import DocumentLimits
from holdfast.documents.signing import PublicKey
from holdfast.errors import (
    HoldfastError,
    InvalidDocumentError,
    StateStoreError,
    UnregisteredTypeError,
    UnsupportedValueError,
)
from holdfast.server import decode_worker
from holdfast.server.decode_worker import LENGTH
from holdfast.server.limits import Limits
from holdfast.server.problems import Problem
from holdfast.values.lowering import registered_names

WORKERS = 2
"""Documents that are decoded concurrently."""
SMALL = 1 << 16
"""Uncompressed documents up to this size need no worker: they cost at most 10 MB and 0.1 s."""
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
MAX_EXPANSION = 4
"""Decompressed size limit, as a multiple of the largest body."""
MIN_OBJECTS = 100_000
BYTES_PER_OBJECT = 16
"""Bytes of the largest body per object that a document may have."""
SHARE_OF_TIME = 2
"""A worker gets 1/n of the request's time, since the server decodes the document again."""
BASE_MEMORY = 1 << 27
PREFIX = "HOLDFAST_"
SIGPROF = getattr(signal, "SIGPROF", 0)
"""The signal that ends a worker that used up its CPU time."""
END_SECONDS = 5.0
MEMORY_PER_BYTE = 6
ERRORS: dict[str, type[HoldfastError]] = {
    kind.__name__: kind
    for kind in (
        DocumentTooLargeError,
        InvalidDocumentError,
        ModifiedDocumentError,
        SignatureError,
        StateStoreError,
        UnreadableDocumentError,
        UnregisteredTypeError,
        UnsupportedValueError,
    )
}


def document_limits(limits: Limits) -> DocumentLimits:
    """Return document limits derived from the request limits."""
    return DocumentLimits(
        max_bytes=MAX_EXPANSION * limits.body_bytes,
        max_objects=max(MIN_OBJECTS, limits.body_bytes // BYTES_PER_OBJECT),
    )


class Decoder:
    """Decodes the documents of one app with worker processes."""

    def __init__(self, limits: Limits, trusted: Collection[PublicKey] | None = None) -> None:
        self.limits = document_limits(limits)
        self.cpu_seconds = limits.seconds / SHARE_OF_TIME
        self._seconds = limits.seconds
        self.memory = BASE_MEMORY + MEMORY_PER_BYTE * self.limits.max_bytes
        self._trusted = trusted
        self._idle: list[Worker] = []
        self._slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    async def decode(self, file: IO[bytes], *, allow_modified: bool) -> Document:
        """Return the validated document in a file, decoded by a worker first.

        Raises:
            Problem: It is unreadable, or exceeds the limits.
            HoldfastError: It is not a valid document.

        """
        # A semaphore belongs to an event loop, and an app may be run by several.
        loop = asyncio.get_running_loop()
        async with self._slots.setdefault(loop, asyncio.Semaphore(WORKERS)):
            await self._check(file, allow_modified=allow_modified)
            return await asyncio.to_thread(self.decode_here, file, allow_modified=allow_modified)

    def close(self) -> None:
        """Stop idle workers."""
        while self._idle:
            self._idle.pop().kill()

    def decode_here(self, file: IO[bytes], *, allow_modified: bool) -> Document:
        """Return the validated document in a file, without a worker, as `decode` does."""
        try:
            return decode_worker.decode(
                file, self.limits, allow_modified=allow_modified, trusted=self._trusted
            )
        except (HoldfastError, ValueError, TypeError) as error:
            raise to_document_error(error) from error

    async def _check(self, file: IO[bytes], *, allow_modified: bool) -> None:
        """Have a worker decode a document, and raise its error."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        header = {
            "size": size,
            "max_bytes": self.limits.max_bytes,
            "max_objects": self.limits.max_objects,
            "allow_modified": allow_modified,
            "trusted": None if self._trusted is None else [key.raw.hex() for key in self._trusted],
            "types": list(registered_names),
            "cpu_seconds": self.cpu_seconds,
            "seconds": self._seconds,
            "memory": self.memory,
        }
        reply = await self._ask(header, file)
        file.seek(0)
        kind = reply.get("kind")
        if kind == decode_worker.TOO_LARGE:
            raise too_costly_error(f"more than {self.memory >> 20:,} MiB of memory")
        if kind is not None:
            raise to_document_error(ERRORS.get(kind, ValueError)(reply["message"]))

    async def _ask(self, header: dict[str, Any], file: IO[bytes]) -> dict[str, Any]:
        """Return the reply of a worker; kill it if the request is cancelled."""
        while True:
            worker = await self._take_worker()
            asking = asyncio.ensure_future(asyncio.to_thread(worker.ask, header, file))
            try:
                reply = await asyncio.shield(asking)
            finally:
                if not asking.done():
                    worker.kill()
                    await asyncio.wait([asking])
            if reply is not None:
                self._idle.append(worker)
                return reply
            code = worker.end()
            if code == -SIGPROF:
                raise too_costly_error(f"more than {self.cpu_seconds:g} s of CPU")
            if code != 0 and worker.jobs == 1:
                raise too_costly_error("more memory than the system allows")
            file.seek(0)  # an idle worker may have exited just before: retry with a new one

    async def _take_worker(self) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if worker.is_alive:
                return worker
            worker.kill()
        return await asyncio.to_thread(Worker)


class Worker:
    """A process that decodes documents, one at a time."""

    def __init__(self) -> None:
        # The worker gets this process's module path, but not its configuration.
        paths = [each for each in sys.path if each]
        others = {name: each for name, each in os.environ.items() if not name.startswith(PREFIX)}
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-P", "-W", "ignore", str(Path(decode_worker.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**others, "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._stop = weakref.finalize(self, stop_worker, self._process)
        self.jobs = 0
        """Jobs that it was given."""

    def ask(self, header: dict[str, Any], file: IO[bytes]) -> dict[str, Any] | None:
        """Return the reply to a job; None if the process exited first."""
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        text = json.dumps(header).encode()
        self.jobs += 1
        try:
            self._process.stdin.write(LENGTH.pack(len(text)) + text)
            while chunk := file.read(1 << 20):
                self._process.stdin.write(chunk)
            self._process.stdin.flush()
            start = self._process.stdout.read(LENGTH.size)
            if len(start) < LENGTH.size:
                return None
            reply: dict[str, Any] = json.loads(self._process.stdout.read(*LENGTH.unpack(start)))
        except OSError:
            return None
        return reply

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def end(self) -> int:
        """Wait for the process to exit and return its exit code."""
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def kill(self) -> None:
        """Kill the process."""
        self._stop()


def stop_worker(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # unsent data is lost
                pipe.close()


def needs_no_worker(file: IO[bytes]) -> bool:
    """Return whether a document is small and uncompressed."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(4)
    file.seek(0)
    return size <= SMALL and not start.startswith(COMPRESSED) and not is_skippable_frame(start)


def is_skippable_frame(start: bytes) -> bool:
    """Return whether data starts with a skippable zstd frame."""
    return start[1:4] == b"\x2a\x4d\x18"


def too_costly_error(what: str) -> Problem:
    """Return the problem of a document that is too expensive to decode."""
    return Problem(
        413,
        f"the document takes {what} to decode",
        hint="import it with the command line, or start the server with a larger --max-body",
    )


def to_document_error(error: Exception) -> Exception:
    """Return the problem for a document error, or the error itself."""
    if isinstance(error, SignatureError):
        return Problem(
            422,
            str(error),
            hint="this server accepts only documents signed by a trusted key",
            more={
                "type": "urn:holdfast:not-trusted",
                "title": "Not signed by a trusted key",
            },
        )
    if isinstance(error, DocumentTooLargeError):
        return Problem(
            413,
            str(error),
            hint="import it with the command line, or start the server with a larger --max-body",
        )
    if isinstance(error, UnreadableDocumentError):
        return Problem(
            400,
            str(error),
            hint="send a document as it was exported, or packed with gzip or zstd",
        )
    if isinstance(error, HoldfastError):
        return error
    return Problem(422, str(error), hint="see /docs for what is taken")
