"""Side effects of a session: whether one was done, and how its result becomes durable.

The result of an effect that ran is kept in memory first and committed on its own, apart from the
pending events, so that no conflict of theirs can lose it. Until it is committed it outlives a
failed commit, a cancelled task and a reload: one living session never does an effect twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import ConflictError
from holdfast.sessions import once
from holdfast.sessions.commit import Writer
from holdfast.sessions.once import Result
from holdfast.sessions.working_state import Recording


class Effects:
    """The side effects that a session does."""

    def __init__(self, writer: Callable[[], Writer], lock: asyncio.Lock) -> None:
        self._writer = writer
        self._lock = lock
        self._results: dict[str, Result] = {}
        """What effects gave that the committed state, as this session knows it, does not have."""

    @property
    def is_pending(self) -> bool:
        """Whether a result is not committed."""
        return any(not each.is_committed for each in self._results.values())

    @property
    def _recording(self) -> Recording:
        return self._writer().recording

    def has(self, key: str) -> bool:
        """Tell whether an effect was done, as far as this session knows."""
        return once.is_done(self._recording, key) or key in self._results

    async def prepare(self, key: str) -> None:
        """Find out whether an effect was done elsewhere, and commit what precedes it if not.

        Raises:
            ConflictError: The pending events conflict with those of another writer.

        """
        if self.has(key):
            return
        async with self._lock:
            await self._writer().catch_up()
            if not self.has(key):
                await self._writer().write("rebase")

    def keep(self, key: str, result: object) -> None:
        """Keep what an effect gave until it is committed."""
        self._results[key] = Result(once.done_event(key, result))

    async def result(self, key: str) -> object:
        """Return what an effect gave, after committing it if that was not done.

        Raises:
            ConflictError: Another process did the effect at the same moment; its result counts.
            UnsupportedValueError: The effect gave what cannot be stored.

        """
        if key in self._results:
            async with self._lock:
                await self._write(key)
        return once.result_of(self._recording, key, self._results.get(key))

    async def write_all(self) -> None:
        """Commit all results that could not be committed before. The lock is the caller's."""
        for key in list(self._results):
            await self._write(key)

    async def _write(self, key: str) -> None:
        result, writer = self._results.get(key), self._writer()
        if result is not None and not result.is_committed:
            if writer.recording.end.seq == 0:
                await writer.write("rebase")  # the session was deleted, and begins again
            if not once.is_done(writer.recording, key):
                try:
                    await writer.write_alone(result.event)
                except ConflictError as error:
                    if error.conflicts:
                        del self._results[key]  # another process did it, and its result counts
                    raise
                result.is_committed = True
        if once.is_done(writer.recording, key):
            self._results.pop(key, None)

    def reloaded(self) -> None:
        """Forget the results that the log has, after the session was read from it again."""
        for key, result in list(self._results.items()):
            if result.is_committed or once.is_done(self._recording, key):
                del self._results[key]

    def adopt(self, origin: Effects) -> None:
        """Take over the results of the session that this one is a fork of."""
        for key, result in origin._results.items():
            if not once.is_done(self._recording, key):
                self._results[key] = Result(result.event)
