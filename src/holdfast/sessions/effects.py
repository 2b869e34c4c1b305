"""Side effects of a session: whether one was done, and how its result becomes durable.

The result of an effect that ran is kept in memory first and committed on its own, apart from the
pending events, so that no conflict of theirs can lose it. Until it is committed it outlives a
failed commit, a cancelled task and a reload: one living session never does an effect twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import ConflictError
from holdfast.sessions.commit import Committer
from holdfast.sessions.once import (
    EffectResult,
    build_done_event,
    is_effect_done,
    read_effect_result,
)
from holdfast.sessions.working_state import WorkingState


class SideEffects:
    """The side effects that a session does."""

    def __init__(self, writer: Callable[[], Committer], lock: asyncio.Lock) -> None:
        self._committer = writer
        self._lock = lock
        self._results: dict[str, EffectResult] = {}
        """What effects gave that the committed state, as this session knows it, does not have."""

    @property
    def is_pending(self) -> bool:
        """Whether a result is not committed."""
        return any(not each.is_committed for each in self._results.values())

    @property
    def _working(self) -> WorkingState:
        return self._committer().working

    def has(self, key: str) -> bool:
        """Tell whether an effect was done, as far as this session knows."""
        return is_effect_done(self._working, key) or key in self._results

    async def prepare(self, key: str) -> None:
        """Find out whether an effect was done elsewhere, and commit what precedes it if not.

        Raises:
            ConflictError: The pending events conflict with those of another writer.

        """
        if self.has(key):
            return
        async with self._lock:
            await self._committer().catch_up()
            if not self.has(key):
                await self._committer().write("rebase")

    def keep(self, key: str, result: object) -> None:
        """Keep what an effect gave until it is committed."""
        self._results[key] = EffectResult(build_done_event(key, result))

    async def result(self, key: str) -> object:
        """Return what an effect gave, after committing it if that was not done.

        Raises:
            ConflictError: Another process did the effect at the same moment; its result counts.
            UnsupportedValueError: The effect gave what cannot be stored.

        """
        if key in self._results:
            async with self._lock:
                await self._write(key)
        return read_effect_result(self._working, key, self._results.get(key))

    async def write_all(self) -> None:
        """Commit all results that could not be committed before. The lock is the caller's."""
        for key in list(self._results):
            await self._write(key)

    async def _write(self, key: str) -> None:
        result, writer = self._results.get(key), self._committer()
        if result is not None and not result.is_committed:
            if writer.working.end.seq == 0:
                await writer.write("rebase")  # the session was deleted, and begins again
            if not is_effect_done(writer.working, key):
                try:
                    await writer.commit_alone(result.event)
                except ConflictError as error:
                    if error.conflicts:
                        del self._results[key]  # another process did it, and its result counts
                    raise
                result.is_committed = True
        if is_effect_done(writer.working, key):
            self._results.pop(key, None)

    def reloaded(self) -> None:
        """Forget the results that the log has, after the session was read from it again."""
        for key, result in list(self._results.items()):
            if result.is_committed or is_effect_done(self._working, key):
                del self._results[key]

    def adopt(self, origin: SideEffects) -> None:
        """Take over the results of the session that this one is a fork of."""
        for key, result in origin._results.items():
            if not is_effect_done(self._working, key):
                self._results[key] = EffectResult(result.event)
