"""Ids that sort by creation time: UUIDv7 (RFC 9562).

Within a process, each id is greater than the one before, even within a millisecond and when the
clock is set back. Across processes, ids are unique and sort as far as the clocks agree. `new_id`
can also return an id greater than a given one, whatever the clock says.
"""

from __future__ import annotations

import os
import time
from random import Random
from threading import Lock
from uuid import UUID

COUNT_BITS = 12 + 30  # the counter within a millisecond: rand_a, and the upper part of rand_b
TIME_BITS = 48


class Clock:
    """Assigns each id a millisecond and a counter value within it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._millisecond = 0
        self._count = 0
        # Seeded by the system: ids must be unique, not unpredictable.
        self._random = Random(os.urandom(32))  # noqa: S311

    def tick(self) -> tuple[int, int, int]:
        """Return a millisecond and a counter, greater than all before, and random bits."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._millisecond:
                self._millisecond = now
                # Half of the range is left for counting.
                self._count = self._random.getrandbits(COUNT_BITS - 1)
            else:
                self._count += 1
                if self._count >> COUNT_BITS:
                    self._millisecond += 1
                    self._count = 0
            return self._millisecond, self._count, self._random.getrandbits(32)


_clock = Clock()


def _reset_clock() -> None:
    global _clock  # noqa: PLW0603
    _clock = Clock()


if hasattr(os, "register_at_fork"):
    # Otherwise parent and child would generate the same random bits.
    os.register_at_fork(after_in_child=_reset_clock)


def new_id(after: str | None = None) -> str:
    """Return a new id of 36 characters, greater than ``after`` if that is a UUIDv7."""
    millisecond, count, random_bits = _clock.tick()
    text = format_id(millisecond, count, random_bits)
    # Ids of one form compare as their texts do; one of another form is only parsed if greater.
    if after is None or text > after:
        return text
    return format_id(*max((millisecond, count), next_tick_after(after)), random_bits)


def format_id(millisecond: int, count: int, random_bits: int) -> str:
    """Return a UUIDv7 as text."""
    return "%08x-%04x-7%03x-%04x-%04x%08x" % (  # noqa: UP031 - twice as fast as an f-string
        millisecond >> 16,
        millisecond & 0xFFFF,
        count >> 30,
        0x8000 | count >> 16 & 0x3FFF,
        count & 0xFFFF,
        random_bits,
    )


def next_tick_after(id_: str) -> tuple[int, int]:
    """Return the millisecond and counter that follow those of an id; zeros if it has none."""
    try:
        found = UUID(id_)
    except ValueError:
        return 0, 0
    if str(found) != id_ or found.version != 7:
        return 0, 0
    upper, lower = found.int >> 64 & 0xFFF, found.int >> 32 & (1 << 30) - 1
    position = (found.int >> 80 << COUNT_BITS | upper << 30 | lower) + 1
    if position >> TIME_BITS + COUNT_BITS:
        return 0, 0  # nothing follows the greatest id
    return position >> COUNT_BITS, position & (1 << COUNT_BITS) - 1
