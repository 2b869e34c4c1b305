"""A store within a store: every key gets the same beginning, and only those keys are seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

from holdfast.errors import ConflictError, short_repr
from holdfast.stores.base import Condition, Entry, Etags, Put, StateStore
from holdfast.stores.validation import (
    MAX_KEY_BYTES,
    validate_batch,
    validate_key,
    validate_keys,
    validate_range,
)
from holdfast.stores.wrappers.base import WrappedStateStore


class PrefixedStateStore(WrappedStateStore):
    """Keeps its keys under a prefix of another store, so that several share one place.

    The prefix counts towards the 8,192 bytes that a key may have.
    """

    def __init__(self, inner: StateStore, prefix: str) -> None:
        super().__init__(inner)
        self.prefix = validate_key(prefix)
        self._room = MAX_KEY_BYTES - len(self.prefix.encode())
        if self._room < 1:
            raise ValueError(f"the prefix {short_repr(prefix)} leaves no room for a key")

    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""
        return await self.inner.get(self._under(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """What the keys hold, in the order asked, without those that hold nothing."""
        found = await self.inner.get_many([self._under(key) for key in validate_keys(keys)])
        return {self._without(key): entry for key, entry in found.items()}

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write, where the key still has this etag or is absent if so asked; gives the new etag."""
        with self._named():
            return await self.inner.put(
                self._under(key), value, if_match=if_match, if_absent=if_absent
            )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several, each key once, where the conditions hold; gives the new etags in order."""
        writes, needed = validate_batch(puts, conditions)
        under = [
            Put(self._under(put.key), put.value, put.if_match, put.if_absent) for put in writes
        ]
        needed = [Condition(self._under(each.key), each.etag) for each in needed]
        with self._named():
            return await self.inner.put_many(under, conditions=needed)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Remove, where the key still has this etag if so asked; whether there was one."""
        with self._named():
            return await self.inner.delete(self._under(key), if_match=if_match)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """The keys that start with the prefix and come after another, in order, at most so many."""
        span = validate_range(prefix, start_after)
        # After the prefix itself in any case: that may be a key of the store inside, but none here.
        inner = self.inner.list(
            self.prefix + span.prefix, start_after=self.prefix + span.after, limit=limit
        )
        return self._shortened(inner)

    async def _shortened(self, keys: AsyncIterator[str]) -> AsyncIterator[str]:
        async for key in keys:
            yield self._without(key)

    def _under(self, key: str) -> str:
        size = len(validate_key(key).encode())
        if size > self._room:
            raise ValueError(
                f"a key under the prefix {short_repr(self.prefix)} has at most {self._room:,} bytes in "
                f"UTF-8; this one has {size:,}: {short_repr(key)}"
            )
        return self.prefix + validate_key(key)

    def _without(self, key: str) -> str:
        return key[len(self.prefix) :]

    @contextmanager
    def _named(self) -> Iterator[None]:
        """A conflict names the key as this store's users know it."""
        try:
            yield
        except ConflictError as conflict:
            if conflict.key is not None:
                inside, conflict.key = conflict.key, self._without(conflict.key)
                conflict.args = (
                    str(conflict).replace(short_repr(inside), short_repr(conflict.key)),
                )
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.prefix!r} of {self.inner!r}>"
