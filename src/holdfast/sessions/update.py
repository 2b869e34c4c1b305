"""Read-modify-write: run a function on a session, commit, and run it again after a conflict."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from holdfast.errors import ConflictError, short_repr
from holdfast.sessions.backoff import CommitAttempts, Contention
from holdfast.sessions.commit import Committer
from holdfast.sessions.rebase import StaleSessionError


class Updatable(Protocol):
    """The part of a `Session` that an update needs."""

    @property
    def committer(self) -> Committer:
        """Return the committer, which a reload replaces."""

    async def refresh(self) -> None:
        """Apply what other writers committed."""

    async def commit(self) -> None:
        """Commit the pending events."""


class UpdateAttempts:
    """The attempts of one update, until one is committed or the time for retries is over.

    The caller runs the function, in its own thread and its own way::

        while await attempts.next():
            with attempts.recording():
                result = function(session)
            if await attempts.commit():
                return result
        raise attempts.gave_up()

    Events that were pending before the update are never discarded.
    """

    def __init__(self, session: Updatable, contention: Contention) -> None:
        self._session = session
        self._attempts = CommitAttempts(contention)
        self._recorded: frozenset[str] = frozenset()
        self._conflict: StaleSessionError | None = None

    async def next(self) -> bool:
        """Prepare the next attempt; return False when the time for retries is over.

        Raises:
            ConflictError: Events that were pending before the update conflict with those of
                another writer.

        """
        if not await self._attempts.next():
            return False
        if not self._attempts.is_optimistic:
            await self._session.refresh()
        self._conflict = None
        return True

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Discard the events that are recorded in this block if it raises.

        A conflict of this session, from a commit inside the block, ends the attempt.
        """
        before = self._pending_ids()
        try:
            yield
        except BaseException as error:
            self._session.committer.working.discard(self._pending_ids() - before)
            if not self._is_retried(error):
                raise
        self._recorded = self._pending_ids() - before

    async def commit(self) -> bool:
        """Commit the attempt; on a conflict discard its events and return False.

        Nothing is written if nothing was recorded.
        """
        if self._conflict is not None:
            return False
        if self._session.committer.working.is_unchanged:
            return True
        try:
            await self._session.commit()
        except StaleSessionError as error:
            if not self._is_retried(error):
                raise
            self._session.committer.working.discard(self._recorded)
            return False
        self._attempts.won()
        return True

    def gave_up(self) -> ConflictError:
        """Return the error of an update whose time is over."""
        committer = self._session.committer
        problem = f"other writers committed first in {self._attempts.count} attempts"
        error = committer.stale_error(
            problem, outcome="the update was discarded", remedy="retry it"
        )
        error.__cause__ = self._conflict
        return error

    def _is_retried(self, error: BaseException) -> bool:
        own = self._session.committer.location
        if not isinstance(error, StaleSessionError) or error.location != own:
            return False
        self._conflict = error
        return True

    def _pending_ids(self) -> frozenset[str]:
        return frozenset(each.id for each in self._session.committer.working.pending)


def validate_update_function(function: object) -> None:
    """Raise ``TypeError`` if an argument of `Session.update` cannot be called."""
    if not callable(function):
        raise TypeError(f"update takes a function of the session, got {short_repr(function)}")
