"""Ids that sort by the time they were made: UUIDs of version 7 (RFC 9562).

Within a process each is greater than the one before, also many in one millisecond and when the
clock is set back; between processes they are unique, and in order as far as the clocks agree. Who
knows the last one of a series can have the next one after it, whatever the clock says.
"""

from __future__ import annotations

import os
import time
from random import Random
from threading import Lock
from uuid import UUID

VERSION = 0x7 << 76
VARIANT = 0b10 << 62
COUNT_BITS = 12 + 30  # what counts up within a millisecond: rand_a, and the upper part of rand_b
TIME_BITS = 48


class Clock:
    """Gives each id its time and its number within that millisecond."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._millisecond = 0
        self._count = 0
        # Seeded by the system: an id must be unique, and need not be hard to guess.
        self._random = Random(os.urandom(32))  # noqa: S311

    def tick(self) -> tuple[int, int, int]:
        """The next time and number, greater than all before, and some noise."""
        now = time.time_ns() // 1_000_000
        with self._lock:
            if now > self._millisecond:
                self._millisecond = now
                # Half of the room is left to count up in.
                self._count = self._random.getrandbits(COUNT_BITS - 1)
            else:
                self._count += 1
                if self._count >> COUNT_BITS:
                    self._millisecond += 1
                    self._count = 0
            return self._millisecond, self._count, self._random.getrandbits(32)


_clock = Clock()


def _start_anew() -> None:
    global _clock  # noqa: PLW0603
    _clock = Clock()


if hasattr(os, "register_at_fork"):
    # Parent and child would go on with the same noise.
    os.register_at_fork(after_in_child=_start_anew)


def new_id(after: str | None = None) -> str:
    """A new id, as text of 36 characters; greater than ``after``, if that is one of this kind."""
    millisecond, count, noise = _clock.tick()
    if after is not None:
        millisecond, count = max((millisecond, count), next_tick_after(after))
    upper, lower = count >> 30, count & (1 << 30) - 1
    number = millisecond << 80 | VERSION | upper << 64 | VARIANT | lower << 32 | noise
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def next_tick_after(id_: str) -> tuple[int, int]:
    """The first time and number after an id's; the first of all after one of another kind."""
    try:
        found = UUID(id_)
    except ValueError:
        return 0, 0
    if str(found) != id_ or found.version != 7:
        return 0, 0
    upper, lower = found.int >> 64 & 0xFFF, found.int >> 32 & (1 << 30) - 1
    place = (found.int >> 80 << COUNT_BITS | upper << 30 | lower) + 1
    if place >> TIME_BITS + COUNT_BITS:
        return 0, 0  # there is no time after the last
    return place >> COUNT_BITS, place & (1 << COUNT_BITS) - 1
