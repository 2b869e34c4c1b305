"""Side effects that are done once per key: `Session.once`.

The result of an effect is part of the state, in the namespace ``once``::

    <key>   {"result": …}, or {"error": "…"} if the result cannot be stored

It is first kept in memory and then committed on its own, apart from the pending events, so that no
conflict of theirs can lose it. Until it is committed it survives a failed commit, a cancelled task
and a reload: one living session never does an effect twice. Restoring a snapshot keeps the entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConflictError, UnsupportedValueError, short_repr
from holdfast.log.encoded_event import EncodedEvent, new_event
from holdfast.sessions.commit import Committer
from holdfast.sessions.working_state import ONCE_DONE, WorkingState
from holdfast.snapshots.session_state import ONCE
from holdfast.state.store import Store


@dataclass(slots=True)
class EffectResult:
    """The result of an effect, until the committed state in memory has it."""

    event: EncodedEvent
    is_committed: bool = False
    """Whether the log has it, and only the state in memory is behind."""


class SideEffects:
    """The side effects of one session.

    ``committer`` returns the current committer, ``lock`` is held during commits.
    """

    def __init__(self, committer: Callable[[], Committer], lock: asyncio.Lock) -> None:
        self._committer = committer
        self._lock = lock
        self._results: dict[str, EffectResult] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing for `commit_all` to do."""
        return not self._results

    @property
    def is_pending(self) -> bool:
        """Whether a result is not committed."""
        return any(not each.is_committed for each in self._results.values())

    @property
    def _working(self) -> WorkingState:
        return self._committer().working

    def has(self, key: str) -> bool:
        """Return whether an effect was done, as far as this session knows."""
        return is_effect_done(self._working, key) or key in self._results

    async def prepare(self, key: str) -> None:
        """Find out whether an effect was done elsewhere; if not, commit the pending events.

        Raises:
            ConflictError: The pending events conflict with those of another writer.

        """
        if self.has(key):
            return
        async with self._lock:
            await self._committer().catch_up()
            if not self.has(key):
                await self._committer().commit("rebase")

    def keep(self, key: str, result: object) -> None:
        """Keep the result of an effect until it is committed."""
        self._results[key] = EffectResult(build_done_event(key, result))

    async def result(self, key: str) -> object:
        """Return the result of an effect, after committing it if necessary.

        Raises:
            ConflictError: Another process did the same effect concurrently; its result counts.
            UnsupportedValueError: The result cannot be stored.

        """
        if key in self._results:
            async with self._lock:
                await self._commit(key)
        return read_effect_result(self._working, key, self._results.get(key))

    async def commit_all(self) -> None:
        """Commit all results that are not committed. The caller holds the lock."""
        for key in list(self._results):
            await self._commit(key)

    async def _commit(self, key: str) -> None:
        result, committer = self._results.get(key), self._committer()
        if result is not None and not result.is_committed:
            if committer.working.head.seq == 0:
                await committer.commit("rebase")  # the session was deleted, and starts again
            if not is_effect_done(committer.working, key):
                try:
                    await committer.commit_alone(result.event)
                except ConflictError as error:
                    if error.conflicts:
                        del self._results[key]  # another process did it, and its result counts
                    raise
                result.is_committed = True
        if is_effect_done(committer.working, key):
            self._results.pop(key, None)

    def drop_committed(self) -> None:
        """Drop the results that the log has, after the session was reloaded."""
        for key, result in list(self._results.items()):
            if result.is_committed or is_effect_done(self._working, key):
                del self._results[key]

    def copy_results(self, origin: SideEffects) -> None:
        """Copy the results of the session that this one is a fork of."""
        for key, result in origin._results.items():
            if not is_effect_done(self._working, key):
                self._results[key] = EffectResult(result.event)


def is_effect_done(working: WorkingState, key: str) -> bool:
    """Return whether an effect was done and its result is committed."""
    return working.base.contains(ONCE, key)


def build_done_event(key: str, result: object) -> EncodedEvent:
    """Return the event that records the result of an effect."""
    data = {"key": key}
    try:
        return new_event(ONCE_DONE, data, {"set": [(ONCE, key, {"result": result})], "delete": []})
    except UnsupportedValueError as error:
        return new_event(
            ONCE_DONE, data, {"set": [(ONCE, key, {"error": str(error)})], "delete": []}
        )


def read_effect_result(working: WorkingState, key: str, result: EffectResult | None) -> Any:
    """Return the committed result of an effect, or else the one that is kept in memory.

    Raises:
        UnsupportedValueError: The result could not be stored.

    """
    if result is None or is_effect_done(working, key):
        stored = working.base.get(ONCE, key)
    else:
        stored = result.event.changes["set"][0][2]
    if "error" in stored:
        raise UnsupportedValueError(
            f"result of once({short_repr(key)}) could not be stored: {stored['error']}; the effect "
            "was done and is not repeated, so let its function return plain data or None"
        )
    return stored["result"]


def validate_once_call(key: object, function: object) -> str:
    """Return the key as a plain string, after validating the arguments of `Session.once`."""
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, got {short_repr(key)}")
    Store(max_history=0).set(ONCE, key, None)
    if not callable(function):
        raise TypeError(f"once takes a function, got {short_repr(function)}")
    return str.__str__(key)


@dataclass(slots=True)
class RunningEffect:
    """A side effect whose function runs."""

    session: object
    key: str
    is_over: bool = False


_running_effects: ContextVar[tuple[RunningEffect, ...]] = ContextVar("holdfast_once", default=())


@contextmanager
def reject_nested_once(session: object, key: str) -> Iterator[None]:
    """Raise ``RuntimeError`` if the function of an effect does the same effect: a deadlock."""
    # A task that a function started has its context, and may outlive the function.
    running = tuple(each for each in _running_effects.get() if not each.is_over)
    if any(each.session is session and each.key == key for each in running):
        raise RuntimeError(f"once({key!r}) was called by the function of once({key!r})")
    this = RunningEffect(session, key)
    token = _running_effects.set((*running, this))
    try:
        yield
    finally:
        this.is_over = True
        _running_effects.reset(token)
