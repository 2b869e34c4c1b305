"""How a trial ends before its time: what it started ends as well, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

GLANCE = 0.2
"""Seconds between two looks at whether the parent lives."""


def clean_up_on_sigterm() -> None:
    """Let SIGTERM raise ``SystemExit``, so that servers, mounts and folders are cleaned up."""
    signal.signal(signal.SIGTERM, leave)


def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as a handler is called
    """End as a shell says that a signal ended it."""
    raise SystemExit(128 + number)


def die_with(parent: int) -> None:
    """Kill this process as soon as its parent is another: nobody would kill it any more.

    Every system can be asked for the parent; the kernel's own signal for it is one of Linux only.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(GLANCE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
