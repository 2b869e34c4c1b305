"""What must not be half-way done when the process forks.

A forked child has the memory of its parent and one of its threads. A lock that another thread held
stays locked for ever there, and a SQLite connection that was writing stays in the middle of its
transaction. So a fork wait_on_fork until what is registered here has come to rest, sessions before the
stores below them, and the child starts with fresh locks. It does not wait for longer than
``MAX_WAIT`` seconds.
"""

from __future__ import annotations

# Both take a lock before a fork. What is imported first does so last: they would take theirs while
# this module wait_on_fork for threads that need them.
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
    """Something that comes to rest before a fork. ``rank`` orders them: low ones come first."""

    rank = STORES

    def __init__(self) -> None:
        with _guard:
            _all.add(self)

    @abstractmethod
    def before_fork(self, end: float) -> None:
        """Come to rest, waiting until a time of ``time.monotonic()`` at most."""

    @abstractmethod
    def after_fork_in_parent(self) -> None:
        """Go on."""

    @abstractmethod
    def after_fork_in_child(self) -> None:
        """Start afresh, in a process with the forking thread alone."""


class ForkSafeLock(ForkAware):
    """A re-entrant lock that no child inherits locked by a thread that it does not have.

    With ``wait_on_fork`` a fork wait_on_fork for whoever holds it. Where that takes too long, what the lock
    guards may be half-way done in the child, and taking the lock there is refused. Without, the
    lock is free in the child.
    """

    rank = SESSIONS

    def __init__(self, what: str, *, wait_on_fork: bool = True) -> None:
        self._what = what
        self._waits = wait_on_fork
        self._lock = threading.RLock()
        self._gate = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._taken = False
        self._broken = False
        super().__init__()

    def __enter__(self) -> None:
        if self._broken:
            raise StateStoreError(
                f"{self._what} was in use by another thread when this process was forked; open it "
                "again in this process"
            )
        if self._owner != threading.get_ident():
            with self._gate:  # after a fork that wait_on_fork, or it would wait for ever
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

    def before_fork(self, end: float) -> None:
        """Take the lock, if it is waited for."""
        if self._waits:
            self._gate.acquire()
            self._taken = self._lock.acquire(timeout=max(0.0, end - time.monotonic()))

    def after_fork_in_parent(self) -> None:
        """Give the lock back."""
        if self._taken:
            self._taken = False
            self._lock.release()
        if self._waits:
            self._gate.release()

    def after_fork_in_child(self) -> None:
        """Give the lock back; make another where a thread of the parent holds it."""
        self.after_fork_in_parent()
        if self._lock.acquire(blocking=False):
            self._lock.release()  # free, or held by the thread that forked
        else:
            self._lock = threading.RLock()
            self._owner, self._depth = None, 0
            self._broken = self._waits


_guard = threading.Lock()
_turn = threading.RLock()
_all: WeakSet[ForkAware] = WeakSet()
_resting: list[ForkAware] = []


def _before() -> None:
    _turn.acquire()
    end = time.monotonic() + MAX_WAIT
    with _guard:
        _resting[:] = sorted(_all, key=lambda each: each.rank)
    for each in _resting:
        each.before_fork(end)
    # Held until the fork is done, so that nobody in the child finds it taken.
    _guard.acquire()


def _after_in_parent() -> None:
    _guard.release()
    for each in reversed(_resting):
        each.after_fork_in_parent()
    _resting.clear()
    _turn.release()


def _after_in_child() -> None:
    global _turn  # noqa: PLW0603
    _guard.release()
    for each in reversed(_resting):
        each.after_fork_in_child()
    _resting.clear()
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
