"""File locks (``flock``) that survive neither their process nor a fork."""

from __future__ import annotations

import os
from threading import Lock

from holdfast.errors import StateStoreError
from holdfast.process_fork import ForkAware

try:
    import fcntl
except ImportError as missing:
    raise StateStoreError(
        "a file store needs the file locks of Linux or macOS, which this system does not have; "
        "use sqlite:///state.db"
    ) from missing

EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB


class FileLocks(ForkAware):
    """The file locks that this process holds, by their descriptors.

    A lock belongs to the open file, which a forked child shares: closing the descriptor here would
    leave the lock with the child. So locks are released explicitly, and a child closes the
    descriptors it inherits, so that it does not keep the lock of a parent that was killed.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._descriptors: set[int] = set()
        super().__init__()

    def take(self, name: str, folder: int) -> int | None:
        """Take a lock in a folder and return its descriptor, or None if another process has it."""
        with self._guard:
            create = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(name, create, 0o666, dir_fd=folder)
            self._descriptors.add(descriptor)
        try:
            fcntl.flock(descriptor, EXCLUSIVE)
        except BaseException as error:
            self._close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return descriptor

    def release(self, descriptor: int) -> None:
        """Release a lock."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        with self._guard:
            self._descriptors.discard(descriptor)
            os.close(descriptor)

    def before_fork(self, end: float) -> None:  # noqa: ARG002 - it does not wait
        """Block opening and closing of descriptors until the fork is done."""
        self._guard.acquire()

    def after_fork_in_parent(self) -> None:
        """Unblock."""
        self._guard.release()

    def after_fork_in_child(self) -> None:
        """Close the parent's descriptors, which leaves the parent its locks."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._guard.release()


FILE_LOCKS = FileLocks()
