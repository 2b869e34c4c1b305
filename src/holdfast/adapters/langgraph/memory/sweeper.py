"""Delete expired items now and then, in a thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

from holdfast.errors import HoldfastError

logger = logging.getLogger(__name__)

DEFAULT_INTERVAL = 5.0


class Sweeper:
    """Calls a function at intervals, until it is stopped."""

    def __init__(self, sweep: Callable[[], int]) -> None:
        self._sweep = sweep
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._future: Future[None] = Future()

    @property
    def is_running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, interval_minutes: float) -> Future[None]:
        """Start the thread, unless it is running; return a future whose cancellation stops it."""
        if not self.is_running:
            self._stop, self._future = threading.Event(), Future()
            self._thread = threading.Thread(
                target=self._run,
                args=(self._stop, self._future, interval_minutes * 60),
                name="holdfast-ttl-sweeper",
                daemon=True,
            )
            stop = self._stop
            self._future.add_done_callback(lambda _: stop.set())
            self._thread.start()
        return self._future

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the thread; return False if it is still running after the timeout."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.is_running

    def _run(self, stop: threading.Event, future: Future[None], seconds: float) -> None:
        while not stop.wait(seconds):
            try:
                self._sweep()
            except HoldfastError:
                if stop.is_set():
                    break  # the store was closed during the sweep
                logger.exception("expired memories could not be deleted; the next sweep retries")
        if future.set_running_or_notify_cancel():
            future.set_result(None)
