"""The base class of Holdfast's backends: validation, paging and closing.

The public methods validate their arguments and call the methods with an underscore, which a backend
implements for valid keys.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

from holdfast.errors import ConflictError, StateStoreError, short_repr
from holdfast.stores.base import Condition, Entry, Etags, Problems, Put, StateStore
from holdfast.stores.validation import (
    KeyRange,
    validate_batch,
    validate_etag,
    validate_key,
    validate_keys,
    validate_limit,
    validate_put,
    validate_range,
)
from holdfast.stores.watch import HUB, StoreWatch

PAGE_SIZE = 1000


class Backend(StateStore):
    """A ``StateStore`` that validates every argument before the backend sees it."""

    display_url: str = ""
    """The store's URL without secrets, for messages."""

    reports_writes = True

    _closed = False
    _released = False

    async def get(self, key: str) -> Entry | None:
        """Return the entry of a key, or None if there is none."""
        self._check_open()
        return await self._get(validate_key(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the existing entries of several keys, in the given order."""
        self._check_open()
        wanted = validate_keys(keys)
        found = await self._get_many(wanted) if wanted else {}
        return {key: found[key] for key in wanted if key in found}

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write a value and return its etag."""
        self._check_open()
        put = validate_put(key, value, if_match, if_absent)
        try:
            return await self._put(put)
        finally:
            # After an error too: the write may have been applied.
            if HUB.watches:
                HUB.report([put.key])

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several values, each key once, and return their etags in the given order."""
        self._check_open()
        writes, needed = validate_batch(puts, conditions)
        self._require_conditions(needed)
        try:
            return await self._put_many(writes, needed) if writes or needed else []
        finally:
            if HUB.watches:
                HUB.report([put.key for put in writes])

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Delete a key and return whether it existed."""
        self._check_open()
        key, etag = validate_key(key), validate_etag(if_match)
        try:
            return await self._delete(key, etag)
        finally:
            if HUB.watches:
                HUB.report([key])

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the keys that start with a prefix, in code point order."""
        self._check_open()
        key_range = validate_range(prefix, start_after)
        return self._list(key_range, validate_limit(limit))

    def watch(self, prefix: str) -> AbstractAsyncContextManager[StoreWatch]:
        """Watch for writes and deletes of keys that start with a prefix."""
        self._check_open()
        return super().watch(prefix)

    async def check(self) -> Problems:
        """Check the backend's own structures and return one line per problem."""
        self._check_open()
        return await self._check()

    async def close(self) -> None:
        """Release connections and threads. Later calls raise; closing again does nothing."""
        self._closed = True
        if not self._released:
            # Set last: if this call is cancelled, the next one releases the rest.
            await self._close()
            self._released = True

    async def _check(self) -> Problems:
        return []

    @abstractmethod
    async def _get(self, key: str) -> Entry | None: ...

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        entries = {key: await self._get(key) for key in keys}
        return {key: entry for key, entry in entries.items() if entry is not None}

    @abstractmethod
    async def _put(self, put: Put) -> str: ...

    async def _put_many(
        self,
        puts: Sequence[Put],
        conditions: Sequence[Condition] = (),  # noqa: ARG002 - for stores that check them
    ) -> Etags:
        """Write a batch. It has conditions only if ``conditional_put_many`` is True."""
        return [await self._put(put) for put in puts]

    @abstractmethod
    async def _delete(self, key: str, if_match: str | None) -> bool: ...

    @abstractmethod
    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        """Return the first ``count`` keys of a range in order, or all if there are fewer."""

    async def _list(self, key_range: KeyRange, limit: int | None) -> AsyncIterator[str]:
        left = limit
        while left is None or left > 0:
            self._check_open()
            count = PAGE_SIZE if left is None else min(PAGE_SIZE, left)
            page = await self._page(key_range, count)
            for key in page:
                yield key
            if len(page) < count:
                return
            key_range = key_range.rest_after(page[-1])
            left = None if left is None else left - count

    async def _close(self) -> None:
        """Release resources. Called again if it was cancelled."""
        return

    def _check_open(self) -> None:
        if self._closed:
            raise StateStoreError(f"{self!r} is closed; open a new one with open_state_store(url)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.display_url}>"


def new_etag() -> str:
    """Return a random etag, unique across keys, processes and machines."""
    return os.urandom(8).hex()


def make_etags(count: int) -> Iterator[str]:
    """Yield some random etags, as `new_etag` returns them."""
    text = os.urandom(8 * count).hex()
    return (text[start : start + 16] for start in range(0, len(text), 16))


def check_condition(put: Put, etag: str | None) -> None:
    """Check the condition of a put against the key's etag, which is None if the key is absent.

    Raises:
        ConflictError: The condition does not hold.

    """
    if put.if_absent:
        if etag is not None:
            raise key_exists_error(put.key)
    elif put.if_match is not None and put.if_match != etag:
        raise etag_mismatch_error(put.key, put.if_match, etag)


def key_exists_error(key: str) -> ConflictError:
    """Return the error for ``if_absent`` on an existing key."""
    return ConflictError(
        f"key {short_repr(key)} already exists; read it, or write with its etag as if_match",
        key=key,
    )


def etag_mismatch_error(key: str, expected: str, etag: str | None) -> ConflictError:
    """Return the error for ``if_match`` on a key with another etag, or None if it is absent."""
    actual = "it does not exist" if etag is None else f"it has {short_repr(etag)}"
    return ConflictError(
        f"key {short_repr(key)} was changed by another writer: expected etag "
        f"{short_repr(expected)}, {actual}; read it again and retry",
        key=key,
    )
