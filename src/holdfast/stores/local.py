"""What stores on this machine share: folders that outlive a power cut, and words for failures."""

from __future__ import annotations

import errno
import os
from contextvars import ContextVar
from pathlib import Path

from holdfast.errors import StateStoreError

try:
    from fcntl import F_FULLFSYNC, fcntl  # type: ignore[attr-defined]
except ImportError:
    F_FULLFSYNC = None

RUN_INLINE: ContextVar[bool] = ContextVar("holdfast_in_place", default=False)
"""Whether a call may wait for the disk where it is, rather than in a thread of the store's own.

For loops that serve one caller, who waits anyhow: handing the work over costs more than doing it.
"""

HINTS = {
    errno.ENOSPC: "the disk is full: make room and try again",
    errno.EDQUOT: "the disk quota is used up: make room and try again",
    errno.EFBIG: "the file would be larger than this system allows",
    errno.EROFS: "the disk is mounted read-only",
    errno.EACCES: "this user has no right to it: see its owner and mode",
    errno.EPERM: "this user has no right to it: see its owner and mode",
    errno.ENOTDIR: "a file stands where a folder was expected",
    errno.ELOOP: "a symbolic link stands where a file or folder was expected; it is not followed",
    errno.ENAMETOOLONG: "the path is longer than this system allows: choose a shorter folder",
}


def sync_descriptor(descriptor: int) -> None:
    """Have what was written to a file or folder on the disk itself when this returns."""
    if F_FULLFSYNC is None:
        os.fsync(descriptor)
    else:
        # What fsync does on macOS leaves it in the disk's cache.
        fcntl(descriptor, F_FULLFSYNC)


def make_folder(folder: Path) -> None:
    """A folder and its parents, each known to the disk before anything is put into it."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(exist_ok=True)
        sync_folder(part.parent)


def sync_folder(folder: Path) -> None:
    """Have a folder's list of names on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def explain_os_error(error: OSError, place: str) -> StateStoreError:
    """A failure of the system in words that say what to do."""
    hint = HINTS.get(error.errno or 0, "see whether the place exists and can be written")
    return StateStoreError(f"{place}: {error.strerror or error}: {hint}")
