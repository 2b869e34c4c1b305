"""What every wrapper is: all calls go to the store inside, and what it can do is what that can do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from holdfast.stores.contract import Entry, Etags, Put, StateStore


class WrappedStateStore(StateStore):
    """Passes everything on. A wrapper overrides what it changes."""

    def __init__(self, inner: StateStore) -> None:
        if not isinstance(inner, StateStore):
            raise TypeError(f"a wrapper goes around a StateStore, not {inner!r}")
        self.inner = inner
        self.atomic_put_many = inner.atomic_put_many
        self.durable = inner.durable
        self.shared = inner.shared
        self.writable = inner.writable

    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""
        return await self.inner.get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """What the keys hold, in the order asked, without those that hold nothing."""
        return await self.inner.get_many(keys)

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write, where the key still has this etag or is absent if so asked; gives the new etag."""
        return await self.inner.put(key, value, if_match=if_match, if_absent=if_absent)

    async def put_many(self, puts: Iterable[Put]) -> Etags:
        """Write several, each key once; gives the new etags in order."""
        return await self.inner.put_many(puts)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Remove, where the key still has this etag if so asked; whether there was one."""
        return await self.inner.delete(key, if_match=if_match)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """The keys that start with the prefix and come after another, in order, at most so many."""
        return self.inner.list(prefix, start_after=start_after, limit=limit)

    async def close(self) -> None:
        """Close the store inside."""
        await self.inner.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} around {self.inner!r}>"
