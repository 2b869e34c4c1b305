"""Make locks and stores safe when the process forks.

A forked child has a copy of its parent's memory, but only one of its threads. There, a lock held by
another thread would stay locked forever, and a SQLite connection would stay in the middle of its
transaction. So a fork waits, up to ``MAX_WAIT`` seconds, until all registered objects are idle,
sessions before the stores below them, and the child starts with fresh locks.
"""

from __future__ import annotations

# Both take a lock before a fork, in the reverse order of import. Imported after this module, they
# would hold their locks while this module waits for threads that need them.
import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import os
import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from weakref import WeakSet

from holdfast.errors import StateStoreError

MAX_WAIT = 30.0
SESSIONS, STORES = 0, 1


class ForkAware(ABC):
    """An object that becomes idle before a fork. Those with a low ``rank`` come first."""

    rank = STORES

    def __init__(self) -> None:
        with _guard:
            _registered.add(self)

    @abstractmethod
    def before_fork(self, deadline: float) -> None:
        """Become idle; wait at most until ``deadline``, a time of ``time.monotonic()``."""

    @abstractmethod
    def after_fork_in_parent(self) -> None:
        """Resume."""

    @abstractmethod
    def after_fork_in_child(self) -> None:
        """Reset, in a process that has only the forking thread."""


class ForkSafeLock(ForkAware):
    """A reentrant lock that a forked child never inherits in a locked state.

    With ``wait_on_fork``, a fork waits until the lock is free. If that takes too long, the guarded
    data may be inconsistent in the child, and acquiring the lock there raises StateStoreError.
    Without it, the lock is simply free in the child.
    """

    rank = SESSIONS

    def __init__(self, what: str, *, wait_on_fork: bool = True) -> None:
        self._what = what
        self._wait_on_fork = wait_on_fork
        self._lock = threading.RLock()
        self._barrier = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._taken = False
        self._broken = False
        super().__init__()

    def __enter__(self) -> None:
        if self._broken:
            raise StateStoreError(
                f"{self._what} was in use by another thread when this process was forked; open it "
                "again in the child"
            )
        if self._owner != threading.get_ident():
            with self._barrier:  # let a waiting fork go first
                pass
        self._lock.acquire()
        self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
        self._lock.release()

    def before_fork(self, deadline: float) -> None:
        """Acquire the lock, with ``wait_on_fork``."""
        if self._wait_on_fork:
            self._barrier.acquire()
            self._taken = self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def after_fork_in_parent(self) -> None:
        """Release the lock."""
        if self._taken:
            self._taken = False
            self._lock.release()
        if self._wait_on_fork:
            self._barrier.release()

    def after_fork_in_child(self) -> None:
        """Release the lock; replace it if another thread of the parent holds it."""
        self.after_fork_in_parent()
        if self._lock.acquire(blocking=False):
            self._lock.release()  # free, or held by the thread that forked
        else:
            self._lock = threading.RLock()
            self._owner, self._depth = None, 0
            self._broken = self._wait_on_fork


_guard = threading.Lock()
_fork_lock = threading.RLock()
_registered: WeakSet[ForkAware] = WeakSet()
_idle: list[ForkAware] = []


def _before() -> None:
    _fork_lock.acquire()
    deadline = time.monotonic() + MAX_WAIT
    with _guard:
        _idle[:] = sorted(_registered, key=lambda each: each.rank)
    for each in _idle:
        each.before_fork(deadline)
    # Held during the fork, so that no other thread holds it in the child.
    _guard.acquire()


def _after_in_parent() -> None:
    _guard.release()
    for each in reversed(_idle):
        each.after_fork_in_parent()
    _idle.clear()
    _fork_lock.release()


def _after_in_child() -> None:
    global _fork_lock  # noqa: PLW0603
    _guard.release()
    for each in reversed(_idle):
        each.after_fork_in_child()
    _idle.clear()
    _fork_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
