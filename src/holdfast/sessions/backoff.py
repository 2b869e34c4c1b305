"""Fair retries for writers of one session, in processes that do not know of each other.

A commit is one conditional write, so of colliding writers one always succeeds (creations on stores
without atomic batches take two): retries do not need exponential backoff to make progress, they
need fairness. A writer that lost waits for a random time
whose bound shrinks with each loss, so that the one that lost most often goes first. A writer that
lost within the last second also waits before its first attempt; otherwise it would commit again
while the others still read its last commit. A writer that always wins never learns of the others,
so one that commits without a gap pauses now and then, long enough for another to read and commit.
"""

from __future__ import annotations

import random
import time

from holdfast.stores.local import pause

GIVE_UP_AFTER = 30.0
"""Seconds of lost attempts after which a commit fails with ``ConflictError``."""
CONTENDED_SECONDS = 1.0
"""Time after a conflict during which a writer expects more of them."""
MAX_ATTEMPTS_AHEAD = 4
"""The number of attempts of other writers that a writer waits for at most."""
MIN_ATTEMPT_SECONDS, MAX_ATTEMPT_SECONDS = 0.001, 0.25
"""Bounds of the assumed duration of an attempt."""
GAP = 0.5
"""The time between two commits, in commits, that is enough for another writer."""
RUN_SECONDS, RUN_COMMITS, PAUSE_COMMITS = 0.25, 48, 4
"""After a run without gaps of this time and number of commits, a writer pauses for some commits."""


class Contention:
    """What one writer knows about concurrent writers of the same session."""

    def __init__(self) -> None:
        self._contended_until = 0.0
        self._attempt_seconds = MIN_ATTEMPT_SECONDS
        self._commit_seconds = 0.0
        self._run_start = self._last_end = time.monotonic()

    @property
    def is_contended(self) -> bool:
        """Whether an attempt was lost recently."""
        return self._contended_until > 0.0 and time.monotonic() < self._contended_until

    def note_loss(self, seconds: float) -> None:
        """Record a lost attempt and its duration."""
        self._contended_until = time.monotonic() + CONTENDED_SECONDS
        average = (3 * self._attempt_seconds + seconds) / 4
        self._attempt_seconds = min(max(MIN_ATTEMPT_SECONDS, average), MAX_ATTEMPT_SECONDS)

    def note_win(self, start: float) -> None:
        """Record a successful commit and when it started."""
        now = time.monotonic()
        seconds = now - start
        if start - self._last_end > GAP * seconds:
            self._run_start = start
        self._last_end = now
        known = self._commit_seconds
        self._commit_seconds = (3 * known + seconds) / 4 if known else seconds

    def is_run_over(self, now: float) -> bool:
        """Whether this writer has committed without a gap for a while, and should pause."""
        run, commit = now - self._run_start, self._commit_seconds
        return (
            run >= RUN_SECONDS
            and run >= RUN_COMMITS * commit
            and now - self._last_end <= GAP * commit
        )

    async def pause_after_run(self) -> None:
        """Let others commit, and start a new run."""
        await pause(min(PAUSE_COMMITS * self._commit_seconds, MAX_ATTEMPT_SECONDS))
        self._run_start = time.monotonic()

    async def wait(self, lost: int) -> None:
        """Wait for a random time, on average shorter the more attempts were lost."""
        bound = self._attempt_seconds * max(1.0, MAX_ATTEMPTS_AHEAD / (lost + 1))
        await pause(random.uniform(0, bound))  # noqa: S311


class CommitAttempts:
    """The attempts of one commit, until it succeeds or its time is over."""

    def __init__(self, contention: Contention) -> None:
        self._contention = contention
        self._first_start = self._start = time.monotonic()
        self.count = 0

    @property
    def is_optimistic(self) -> bool:
        """Whether the attempt may assume that the head of the log is the one last seen."""
        return self.count == 1 and not self._contention.is_contended

    def start_at_once(self) -> bool:
        """Start the first attempt if it need not wait; otherwise return False and do nothing."""
        contention = self._contention
        if self.count or contention.is_contended or contention.is_run_over(self._start):
            return False
        self.count = 1
        return True

    async def next(self) -> bool:
        """Wait for the next attempt; return False when the time is over."""
        if self.start_at_once():
            return True
        if self.count:
            now = time.monotonic()
            self._contention.note_loss(now - self._start)
            if now - self._first_start >= GIVE_UP_AFTER:
                return False
        if self._contention.is_contended:
            # Wait first and read then: what was read before a wait is out of date after it.
            await self._contention.wait(self.count)
        elif not self.count:
            await self._contention.pause_after_run()
        self.count += 1
        self._start = time.monotonic()
        return True

    def won(self) -> None:
        """Record that the last attempt succeeded."""
        self._contention.note_win(self._start)
