"""The store in memory: for tests, and the model that every other store is compared with."""

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
    """Keeps everything in this process, and nothing beyond it. Threads may share one."""

    atomic_put_many = True
    conditional_put_many = True
    atomic_get_many = True
    durable = False
    shared = False
    place = "memory:"

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
                found = self._etag(condition.key)
                if found != condition.etag:
                    raise etag_mismatch_error(condition.key, condition.etag, found)
            for put in puts:
                check_condition(put, self._etag(put.key))
            etags = [new_etag() for _ in puts]
            for put, etag in zip(puts, etags, strict=True):
                if put.key not in self._entries:
                    insort(self._keys, put.key)
                self._entries[put.key] = Entry(put.value, etag)
            return etags

    async def _delete(self, key: str, if_match: str | None) -> bool:
        with self._lock:
            found = self._etag(key)
            if if_match is not None and if_match != found:
                raise etag_mismatch_error(key, if_match, found)
            if found is None:
                return False
            del self._entries[key]
            del self._keys[bisect_left(self._keys, key)]
            return True

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        with self._lock:
            find = bisect_right if span.exclusive else bisect_left
            first = find(self._keys, span.low)
            last = len(self._keys) if span.high is None else bisect_left(self._keys, span.high)
            return self._keys[first : min(last, first + count)]

    def _etag(self, key: str) -> str | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.etag


def open_url(url: StoreURL) -> MemoryStateStore:
    """``memory:``, a new and empty one each time."""
    if url.parts.netloc or url.parts.path:
        raise StateStoreError("a store in memory has no place: its URL is memory: and no more")
    url.reject_unknown_options()
    return MemoryStateStore()
