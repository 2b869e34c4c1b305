"""A cache that is bounded by size, for the threads of a process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """Values of a total size; the least recently used ones are dropped."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self.size = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """Return a value, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, size: int = 1) -> list[K]:
        """Store a value, and return the keys dropped for it: its own if it is too large."""
        dropped: list[K] = []
        with self._lock:
            before = self._values.pop(key, None)
            if before is not None:
                self.size -= before[1]
            if size > self.max_size:
                return [key]
            self._values[key] = (value, size)
            self.size += size
            while self.size > self.max_size:
                gone, (_, its_size) = self._values.popitem(last=False)
                self.size -= its_size
                dropped.append(gone)
        return dropped

    def pop(self, key: K) -> None:
        """Drop a value, if there is one."""
        with self._lock:
            found = self._values.pop(key, None)
            if found is not None:
                self.size -= found[1]
