"""Limit repeated log lines, so that a client cannot fill the log."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from holdfast.server.middleware import access_log

MOST = 10
SECONDS = 10.0
KINDS = 1000
"""Kinds of records that are tracked; messages may contain client data."""


@dataclass(slots=True)
class RateWindow:
    """Records of one kind in the current time window."""

    since: float
    logged: int = 0
    left_out: int = 0


class RateLimit(logging.Filter):
    """Pass a few records of each kind per time window, then the number of suppressed ones.

    Records of one kind have the same logger and the same text before arguments are inserted. The
    access log is not limited: it has one line per request.
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
                record.msg = f"{record.msg} ({window.left_out} similar lines suppressed)"
            window = self._windows[kind] = RateWindow(now)
        if window.logged == self._most:
            window.left_out += 1
            return False
        window.logged += 1
        return True
