"""The worker process that decodes documents, with limits.

A document may cost far more than its size suggests, and a thread that decodes it cannot be stopped.
So a worker decodes it first, and the server only if that succeeded. This file runs as a script and
imports neither the rest of the server nor the program that embeds it.

A job is the length of a header, the header as JSON, and the document. The reply is the length of a
JSON object and that object: empty for a valid document, else the error. The worker exits at the end
of its standard input, or after some time without a job.
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import IO, Any

from holdfast.documents.document import Document
from holdfast.documents.files import read_document
from holdfast.documents.limits import DocumentLimits
from holdfast.documents.signing import PublicKey
from holdfast.values import register_type

NAME = "the body"
"""The name of the document in errors."""
LENGTH = struct.Struct(">I")
IDLE_SECONDS = 30.0
TOO_LARGE = "MemoryError"


def decode(
    file: IO[bytes],
    limits: DocumentLimits,
    *,
    allow_modified: bool,
    trusted: Iterable[PublicKey] | None,
) -> Document:
    """Read the document in a file, as `read_document` does."""
    return read_document(
        file, name=NAME, limits=limits, allow_modified=allow_modified, trusted=trusted
    )


def serve_jobs(jobs: int, replies: IO[bytes]) -> None:
    """Handle jobs until the input ends."""
    while os.name != "posix" or select.select([jobs], [], [], IDLE_SECONDS)[0]:
        start = read_pipe(jobs, LENGTH.size)
        if len(start) < LENGTH.size:
            return
        header = json.loads(read_pipe(jobs, *LENGTH.unpack(start)))
        limit_process(header["cpu_seconds"], header["seconds"], header["memory"])
        reply = decode_job(header, jobs)
        limit_process(0, 0, None)
        data = json.dumps(reply).encode()
        replies.write(LENGTH.pack(len(data)) + data)
        replies.flush()
        if reply.get("kind") == TOO_LARGE:
            return  # the allocated memory may not be returned


def decode_job(header: dict[str, Any], jobs: int) -> dict[str, Any]:
    """Decode a document and return the error, if any."""
    try:
        register_names(header["types"])
        body = read_pipe(jobs, header["size"])
        keys = header["trusted"]
        decode(
            io.BytesIO(body),
            DocumentLimits(header["max_bytes"], header["max_objects"]),
            allow_modified=header["allow_modified"],
            trusted=None if keys is None else [PublicKey(bytes.fromhex(key)) for key in keys],
        )
    except Exception as error:  # noqa: BLE001 - every error goes to the server
        return {"kind": type(error).__name__, "message": str(error)}
    return {}


def limit_process(cpu_seconds: float, seconds: float, memory: int | None) -> None:
    """Limit the time and memory of this process, as far as the system supports it.

    The server waits no longer than ``seconds``; a worker whose server was killed ends by this.
    """
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    soft = hard if memory is None else allocated_bytes() + memory
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    with suppress(ValueError, OSError):  # not supported on macOS
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def allocated_bytes() -> int:
    """Return the address space of this process."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - avoids an import
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 1 << 30


class Unknown:
    """The content of a value whose type is registered only in the server."""

    def __init__(self, content: object) -> None:
        self.content = content


known: set[str] = set()


def register_names(names: Iterable[str]) -> None:
    """Accept the types that the server has registered, without their classes."""
    for name in names:
        if name not in known:
            kind = type("Unknown", (Unknown,), {})
            register_type(kind, name=name, encode=lambda value: value.content, decode=kind)
            known.add(name)


def main() -> None:
    """Run the worker."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # prints must not mix with replies
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    serve_jobs(0, replies)


def read_pipe(pipe: int, size: int) -> bytearray:
    """Read exactly ``size`` bytes, fewer only at the end, without reading ahead."""
    found = bytearray()
    while len(found) < size and (part := os.read(pipe, min(size - len(found), 1 << 20))):
        found += part
    return found


if __name__ == "__main__":
    main()
