"""Record the threads in which a wrapper encodes and decodes."""

from __future__ import annotations

import threading


class ThreadRecorder:
    """A mixin for wrappers."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.threads = []

    def _encode(self, key, value):
        self.threads.append(threading.current_thread())
        return super()._encode(key, value)

    def _decode(self, key, stored):
        self.threads.append(threading.current_thread())
        return super()._decode(key, stored)
