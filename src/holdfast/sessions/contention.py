"""Turns of several writers of one session, in processes that know nothing of each other.

A commit is one conditional write, so of those who collide one always succeeds: retries need no
exponential backoff to make progress, they need fairness. A writer that lost waits for a random time
whose bound shrinks with each loss, so that the one that has lost most goes first. A writer that met
others within the last second waits before its first attempt too; otherwise it would write again
while the others still read what it wrote. One that always wins never meets them, so a writer that
commits without a gap pauses now and then for long enough that another can read and write.
"""

from __future__ import annotations

import asyncio
import random
import time

GIVE_UP_AFTER = 30.0
"""Seconds of lost attempts after which a write fails with ``ConflictError``."""
CONTENDED_SECONDS = 1.0
"""Seconds after a conflict during which a writer expects more of them."""
MAX_ATTEMPTS_AHEAD = 4
"""How many attempts of others a writer waits for at most."""
MIN_ATTEMPT_SECONDS, MAX_ATTEMPT_SECONDS = 0.001, 0.25
"""Bounds in seconds of what an attempt is assumed to take."""
GAP = 0.5
"""Part of a commit's duration between two commits that is enough for others to come in."""
RUN, RUN_COMMITS, PAUSE_COMMITS = 0.25, 48, 4
"""A run without gaps of so many seconds and commits is followed by a pause of some commits."""


class Contention:
    """What one writer knows about others of the same session."""

    def __init__(self) -> None:
        self._until = 0.0
        self._step = MIN_ATTEMPT_SECONDS
        self._commit = 0.0
        self._run_began = self._last_end = time.monotonic()

    @property
    def is_contended(self) -> bool:
        """Whether an attempt was lost within the last second."""
        return time.monotonic() < self._until

    def note_loss(self, seconds: float) -> None:
        """Take note of a lost attempt and how long it took."""
        self._until = time.monotonic() + CONTENDED_SECONDS
        self._step = min(
            max(MIN_ATTEMPT_SECONDS, (3 * self._step + seconds) / 4), MAX_ATTEMPT_SECONDS
        )

    def note_win(self, began: float) -> None:
        """Take note of a commit that succeeded, and when it began."""
        now = time.monotonic()
        seconds = now - began
        if began - self._last_end > GAP * seconds:
            self._run_began = began
        self._last_end = now
        self._commit = seconds if not self._commit else (3 * self._commit + seconds) / 4

    async def yield_turn(self) -> None:
        """Pause where this writer has committed without a gap for a while."""
        now = time.monotonic()
        is_run = now - self._last_end <= GAP * self._commit
        if is_run and now - self._run_began >= max(RUN, RUN_COMMITS * self._commit):
            await asyncio.sleep(min(PAUSE_COMMITS * self._commit, MAX_ATTEMPT_SECONDS))
            self._run_began = time.monotonic()

    async def wait(self, lost: int) -> None:
        """Wait for a random time, on average the shorter the more attempts were lost."""
        bound = self._step * max(1.0, MAX_ATTEMPTS_AHEAD / (lost + 1))
        await asyncio.sleep(random.uniform(0, bound))  # noqa: S311


class CommitAttempts:
    """The attempts of one write, until it succeeds or its time is over."""

    def __init__(self, contention: Contention) -> None:
        self._contention = contention
        self._began = self._since = time.monotonic()
        self.count = 0

    @property
    def is_optimistic(self) -> bool:
        """Whether the next attempt may assume that the log ends where it was last seen."""
        return self.count == 1 and not self._contention.is_contended

    async def next(self) -> bool:
        """Wait for the next attempt; False where the time is over."""
        now = time.monotonic()
        if self.count:
            self._contention.note_loss(now - self._since)
            if now - self._began >= GIVE_UP_AFTER:
                return False
        if self._contention.is_contended:
            # Wait first and look then: what was seen before a wait is out of date after it.
            await self._contention.wait(self.count)
        elif not self.count:
            await self._contention.yield_turn()
        self.count += 1
        self._since = time.monotonic()
        return True

    def won(self) -> None:
        """Take note that the last attempt succeeded."""
        self._contention.note_win(self._since)
