"""Several processes that serve one listening socket.

The parent forks the workers before anything is connected, waits for them, and starts another one
for each that ends unexpectedly. It passes a signal to end on to them; a second one kills them. The
workers are in process groups of their own, since a terminal sends Ctrl-C to a whole group, and end
if their parent does.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from holdfast.errors import HoldfastError
from holdfast.stores.base import StateStore

logger = logging.getLogger(__name__)

MIN_SECONDS = 5.0
"""A worker that ends sooner than this after its start has failed."""
MAX_FAILURES = 3


def check_workers(state_store: StateStore, workers: int) -> None:
    """Reject several workers if processes cannot share the store, or the system cannot fork.

    Raises:
        ValueError: There must be one worker.

    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    if workers > 1 and not state_store.shared:
        raise ValueError(
            f"{state_store!r} cannot be shared by several processes; use one worker, or a store "
            "such as sqlite:///state.db"
        )
    if workers > 1 and not hasattr(os, "fork"):
        raise ValueError("several workers need a system with fork(); use one worker")


class Supervisor:
    """Runs workers until it gets a signal to end."""

    def __init__(self, run_worker: Callable[[], None], workers: int) -> None:
        self._run_worker = run_worker
        self._workers = workers
        self._started: dict[int, float] = {}
        """When each running worker was started, by process id."""
        self._signals = 0
        self._alive, self._lifeline = os.pipe()

    def run(self) -> None:
        """Run the workers.

        Raises:
            HoldfastError: Workers ended again and again just after their start.

        """
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, self._stop)
        failures = 0
        try:
            while failures < MAX_FAILURES:
                while len(self._started) < self._workers and not self._signals:
                    self._start()
                if not self._started:
                    return
                process, status = os.wait()
                lived = time.monotonic() - self._started.pop(process, 0.0)
                if not self._signals:
                    logger.error("worker %d ended with status %d", process, status)
                    failures = failures + 1 if lived < MIN_SECONDS else 0
            raise HoldfastError("workers end just after their start; see the lines above")
        finally:
            self._kill(signal.SIGTERM)
            os.close(self._lifeline)
            os.close(self._alive)

    def _start(self) -> None:
        """Fork a worker."""
        process = os.fork()
        if process:
            self._started[process] = time.monotonic()
            if self._signals:  # one that came just now did not reach it
                os.kill(process, signal.SIGTERM)
            return
        code = 1
        try:
            os.setpgid(0, 0)
            os.close(self._lifeline)
            threading.Thread(target=self._watch_parent, daemon=True).start()
            self._run_worker()
            code = 0
        except BaseException:
            logger.exception("worker %d failed", os.getpid())
        finally:
            # Whatever called the parent must not go on in the worker.
            logging.shutdown()
            sys.stderr.flush()
            os._exit(code)

    def _watch_parent(self) -> None:
        """End this worker with its parent: then the other end of the pipe is closed."""
        os.read(self._alive, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._signals += 1
        self._kill(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)

    def _kill(self, number: signal.Signals) -> None:
        for process in list(self._started):
            os.kill(process, number)
