"""The in-memory store: for tests, and the model that other stores are compared with."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from threading import Lock

from holdfast.errors import StateStoreError
from holdfast.stores.backend import Backend, check_condition, etag_mismatch_error, new_etag
from holdfast.stores.base import Condition, Entry, Put
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange


class MemoryStateStore(Backend):
    """A store in the memory of this process. Threads may share one."""

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True
    durable = False
    shared = False
    runs_inline = True
    is_local = True
    display_url = "memory:"

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []  # sorted
        self._lock = Lock()

    async def _get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        with self._lock:
            return {key: self._entries[key] for key in keys if key in self._entries}

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(
        self, puts: Sequence[Put], conditions: Sequence[Condition] = ()
    ) -> list[str]:
        with self._lock:
            for condition in conditions:
                etag = self._etag(condition.key)
                if etag != condition.etag:
                    raise etag_mismatch_error(condition.key, condition.etag, etag)
            for put in puts:
                check_condition(put, self._etag(put.key))
            etags = [new_etag() for _ in puts]
            for put, new in zip(puts, etags, strict=True):
                if put.key not in self._entries:
                    insort(self._keys, put.key)
                self._entries[put.key] = Entry(put.value, new)
            return etags

    async def _delete(self, key: str, if_match: str | None) -> bool:
        with self._lock:
            etag = self._etag(key)
            if if_match is not None and if_match != etag:
                raise etag_mismatch_error(key, if_match, etag)
            if etag is None:
                return False
            del self._entries[key]
            del self._keys[bisect_left(self._keys, key)]
            return True

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        with self._lock:
            find = bisect_right if key_range.exclusive else bisect_left
            first = find(self._keys, key_range.low)
            high = key_range.high
            last = len(self._keys) if high is None else bisect_left(self._keys, high)
            return self._keys[first : min(last, first + count)]

    def _etag(self, key: str) -> str | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.etag


def open_url(url: StoreURL) -> MemoryStateStore:
    """Open ``memory:``, a new and empty store each time."""
    if url.parts.netloc or url.parts.path:
        raise StateStoreError("a memory URL must not have a host or path; use memory:")
    url.reject_unknown_options()
    return MemoryStateStore()
