"""End a trial early without leaving processes, servers or mounts behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

GLANCE = 0.2
"""Seconds between two checks for the parent."""


def clean_up_on_sigterm() -> None:
    """Make SIGTERM raise ``SystemExit``, so that servers, mounts and folders are cleaned up."""
    signal.signal(signal.SIGTERM, leave)


def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler
    """Exit with the code that a shell reports for a signal."""
    raise SystemExit(128 + number)


def die_with(parent: int) -> None:
    """Kill this process when its parent ends.

    Polls the parent's pid, as the kernel's signal for this exists on Linux only.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(GLANCE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
