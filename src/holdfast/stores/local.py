"""Shared by stores on the local disk: calls without a thread, durable folders, OS errors."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import ParamSpec, TypeVar

from holdfast.errors import StateStoreError

try:
    from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined]
except ImportError:
    F_FULLFSYNC = None

P = ParamSpec("P")
T = TypeVar("T")

RUN_INLINE: ContextVar[bool] = ContextVar("holdfast_run_inline", default=False)
"""Whether calls do their work on the calling thread, and block it where they have to wait.

For a caller that waits anyway: a thread would only add overhead. A coroutine that awaits only
stores with ``runs_inline``, and the functions below, then never suspends.
"""


async def pause(seconds: float) -> None:
    """Sleep; on the calling thread if work runs inline."""
    if RUN_INLINE.get():
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop
    else:
        await asyncio.sleep(seconds)


async def gather(works: Iterable[Awaitable[T]]) -> list[T]:
    """Run coroutines concurrently; one after the other if work runs inline."""
    if RUN_INLINE.get():
        return [await each for each in works]
    return await asyncio.gather(*works)


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in another thread; on the calling thread if work runs inline."""
    if RUN_INLINE.get():
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)


HINTS = {
    errno.ENOSPC: "the disk is full; free some space and retry",
    errno.EDQUOT: "the disk quota is exceeded; free some space and retry",
    errno.EFBIG: "the file would be larger than this system allows",
    errno.EROFS: "the disk is mounted read-only",
    errno.EACCES: "permission denied; check its owner and mode",
    errno.EPERM: "permission denied; check its owner and mode",
    errno.ENOTDIR: "found a file where a folder was expected",
    errno.ELOOP: "found a symbolic link where a file or folder was expected; it is not followed",
    errno.ENAMETOOLONG: "the path is longer than this system allows; choose a shorter folder",
}


def sync_descriptor(descriptor: int) -> None:
    """Flush a file or folder to the disk itself."""
    if F_FULLFSYNC is None:
        os.fsync(descriptor)
    else:
        # On macOS, fsync leaves the data in the disk's cache.
        fcntl(descriptor, F_FULLFSYNC)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each durable before anything is put into it."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(exist_ok=True)
        sync_folder(part.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def explain_os_error(error: OSError, display_url: str) -> StateStoreError:
    """Return a ``StateStoreError`` that says what to do about an OS error."""
    hint = HINTS.get(error.errno or 0, "check that it exists and is writable")
    return StateStoreError(f"{display_url}: {error.strerror or error}: {hint}")
