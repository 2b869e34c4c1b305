"""What our backends share: the gate, listing by pages, and the end of a store's life.

A backend says how to do one thing to keys that are known to be good, in methods that begin with an
underscore; this class is what the outside calls.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence

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

PAGE_SIZE = 1000


class Backend(StateStore):
    """A ``StateStore`` whose every call passes the gate."""

    place: str = ""
    """Where it keeps things, as a person may see it: no secrets."""

    _closed = False
    _ended = False

    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""
        self._check_open()
        return await self._get(validate_key(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """What the keys hold, in the order asked, without those that hold nothing."""
        self._check_open()
        wanted = validate_keys(keys)
        found = await self._get_many(wanted) if wanted else {}
        return {key: found[key] for key in wanted if key in found}

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write, where the key still has this etag or is absent if so asked; gives the new etag."""
        self._check_open()
        return await self._put(validate_put(key, value, if_match, if_absent))

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several, each key once, where the conditions hold; gives the new etags in order."""
        self._check_open()
        writes, needed = validate_batch(puts, conditions)
        self._require_conditions(needed)
        return await self._put_many(writes, needed) if writes or needed else []

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Remove, where the key still has this etag if so asked; whether there was one."""
        self._check_open()
        return await self._delete(validate_key(key), validate_etag(if_match))

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """The keys that start with the prefix and come after another, in order, at most so many."""
        self._check_open()
        span = validate_range(prefix, start_after)
        return self._list(span, validate_limit(limit))

    async def check(self) -> Problems:
        """Check the backend's own structures, where it can; give one line for each problem."""
        self._check_open()
        return await self._check()

    async def _check(self) -> Problems:
        return []

    async def close(self) -> None:
        """Give back what was opened. Closing twice is once; any later call is refused."""
        self._closed = True
        if not self._ended:
            # Set at the end alone: a call that was cancelled leaves the rest to the next.
            await self._close()
            self._ended = True

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
        conditions: Sequence[Condition] = (),  # noqa: ARG002 - for those that check them
    ) -> Etags:
        """Write a batch. Conditions are given only where ``conditional_put_many`` is True."""
        return [await self._put(put) for put in puts]

    @abstractmethod
    async def _delete(self, key: str, if_match: str | None) -> bool: ...

    @abstractmethod
    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        """The first keys of a span, in order: fewer than asked only where there are no more."""

    async def _list(self, span: KeyRange, limit: int | None) -> AsyncIterator[str]:
        left = limit
        while left is None or left > 0:
            self._check_open()
            count = PAGE_SIZE if left is None else min(PAGE_SIZE, left)
            page = await self._page(span, count)
            for key in page:
                yield key
            if len(page) < count:
                return
            span = span.beyond(page[-1])
            left = None if left is None else left - count

    async def _close(self) -> None:
        """Give back what was opened; called again where it was cancelled."""
        return

    def _check_open(self) -> None:
        if self._closed:
            raise StateStoreError(f"{self!r} is closed: open another with open_state_store(url)")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.place}>"


def new_etag() -> str:
    """An etag that no other write has, of any key, process or machine."""
    return secrets.token_hex(8)


def check_condition(put: Put, found: str | None) -> None:
    """Raise ConflictError unless the etag found (None: the key is absent) is what the put wants."""
    if put.if_absent:
        if found is not None:
            raise key_exists_error(put.key)
    elif put.if_match is not None and put.if_match != found:
        raise etag_mismatch_error(put.key, put.if_match, found)


def key_exists_error(key: str) -> ConflictError:
    """The error for ``if_absent`` of a key that exists."""
    return ConflictError(
        f"the key {short_repr(key)} exists already, and was to be absent: "
        "read it and decide, or write with its etag as if_match",
        key=key,
    )


def etag_mismatch_error(key: str, expected: str, found: str | None) -> ConflictError:
    """The error for ``if_match`` of a key that has another etag, or none."""
    now = "it does not exist" if found is None else f"it has {short_repr(found)} now"
    return ConflictError(
        f"the key {short_repr(key)} was changed by another writer: etag {short_repr(expected)} was expected, "
        f"{now}. Read it again and decide",
        key=key,
    )
