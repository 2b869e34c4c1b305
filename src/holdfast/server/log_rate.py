"""Keep a client from filling the log: lines that say the same are limited in number."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from holdfast.server.middleware import access_log

MOST = 10
SECONDS = 10.0
KINDS = 1000
"""Of records that are told apart; a text may be made of what was sent."""


@dataclass(slots=True)
class RateWindow:
    """What was logged of one kind since a moment."""

    since: float
    logged: int = 0
    left_out: int = 0


class RateLimit(logging.Filter):
    """Pass some records of each kind in some seconds, and then the number of those left out.

    Records are of one kind where their logger is the same and their text before its arguments are
    put in. The access log is not limited: it has a line for each request.
    """

    def __init__(self, most: int = MOST, seconds: float = SECONDS) -> None:
        super().__init__()
        self._most = most
        self._seconds = seconds
        self._windows: dict[tuple[str, str], RateWindow] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if record.name == access_log.name:
            return True
        kind, now = (record.name, str(record.msg)), time.monotonic()
        if len(self._windows) >= KINDS:
            self._windows.clear()
        window = self._windows.setdefault(kind, RateWindow(now))
        if now - window.since >= self._seconds:
            if window.left_out:
                record.msg = f"{record.msg} (and {window.left_out} lines like this before)"
            window = self._windows[kind] = RateWindow(now)
        if window.logged == self._most:
            window.left_out += 1
            return False
        window.logged += 1
        return True
