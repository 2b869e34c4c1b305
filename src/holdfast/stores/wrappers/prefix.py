"""A store within a store: every key gets the same prefix, and only those keys are visible."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from holdfast.errors import ConflictError, short_repr
from holdfast.stores.base import Condition, Entry, Etags, Put, StateStore
from holdfast.stores.validation import (
    MAX_KEY_BYTES,
    validate_batch,
    validate_key,
    validate_keys,
    validate_range,
)
from holdfast.stores.watch import PrefixedWatchContext, StoreWatch
from holdfast.stores.wrappers.base import WrappedStateStore


class PrefixedStateStore(WrappedStateStore):
    """A store whose keys have a prefix in the inner store, so that several can share it.

    The prefix counts towards the 8,192 bytes of a key.
    """

    def __init__(self, inner: StateStore, prefix: str) -> None:
        super().__init__(inner)
        self.prefix = validate_key(prefix)
        self._max_key_bytes = MAX_KEY_BYTES - len(self.prefix.encode())
        if self._max_key_bytes < 1:
            raise ValueError(f"prefix {short_repr(prefix)} leaves no room for a key; shorten it")

    async def get(self, key: str) -> Entry | None:
        """Return the entry of a key, or None if there is none."""
        return await self.inner.get(self._add_prefix(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the existing entries of several keys, in the given order."""
        entries = await self.inner.get_many([self._add_prefix(key) for key in validate_keys(keys)])
        return {self._remove_prefix(key): entry for key, entry in entries.items()}

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write a value and return its etag."""
        with self._rename_conflicts():
            return await self.inner.put(
                self._add_prefix(key), value, if_match=if_match, if_absent=if_absent
            )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several values, each key once, and return their etags in the given order."""
        writes, needed = validate_batch(puts, conditions)
        prefixed = [
            Put(self._add_prefix(put.key), put.value, put.if_match, put.if_absent) for put in writes
        ]
        needed = [Condition(self._add_prefix(each.key), each.etag) for each in needed]
        with self._rename_conflicts():
            return await self.inner.put_many(prefixed, conditions=needed)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Delete a key and return whether it existed."""
        with self._rename_conflicts():
            return await self.inner.delete(self._add_prefix(key), if_match=if_match)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the keys that start with a prefix, in code point order."""
        key_range = validate_range(prefix, start_after)
        # Always after the prefix itself, which may be a key of the inner store but not of this one.
        keys = self.inner.list(
            self.prefix + key_range.prefix,
            start_after=self.prefix + key_range.after,
            limit=limit,
        )
        return self._remove_prefixes(keys)

    def watch(self, prefix: str) -> AbstractAsyncContextManager[StoreWatch]:
        """Watch for writes and deletes of keys that start with a prefix."""
        inner = self.inner.watch(self.prefix + validate_range(prefix, "").prefix)
        return PrefixedWatchContext(inner, self.prefix)

    async def _remove_prefixes(self, keys: AsyncIterator[str]) -> AsyncIterator[str]:
        async for key in keys:
            yield self._remove_prefix(key)

    def _add_prefix(self, key: str) -> str:
        key = validate_key(key)
        size = len(key.encode())
        if size > self._max_key_bytes:
            raise ValueError(
                f"key with prefix {short_repr(self.prefix)} must have at most "
                f"{self._max_key_bytes:,} bytes in UTF-8, got {size:,}: {short_repr(key)}"
            )
        return self.prefix + key

    def _remove_prefix(self, key: str) -> str:
        return key[len(self.prefix) :]

    @contextmanager
    def _rename_conflicts(self) -> Iterator[None]:
        """Name the key of a conflict without the prefix."""
        try:
            yield
        except ConflictError as conflict:
            if conflict.key is not None:
                inner_key, conflict.key = conflict.key, self._remove_prefix(conflict.key)
                message = str(conflict).replace(short_repr(inner_key), short_repr(conflict.key))
                conflict.args = (message,)
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.prefix!r} of {self.inner!r}>"
