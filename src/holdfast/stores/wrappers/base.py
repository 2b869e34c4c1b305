"""What every wrapper is: all calls go to the store inside, and what it can do is what that can do.

``RecodedStateStore`` is for those that keep other bytes than they are given. Where there are many
bytes they are worked on in a thread, so that nothing else in the event loop waits for them.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from holdfast.errors import short_repr
from holdfast.stores.base import Condition, Entry, Etags, Problems, Put, StateStore
from holdfast.stores.validation import validate_batch, validate_key, validate_keys, validate_put

Result = TypeVar("Result")

MANY_BYTES = 256 * 1024
"""What takes long enough to be worth a thread."""


class WrappedStateStore(StateStore):
    """Passes everything on. A wrapper overrides what it changes."""

    encrypts = False
    """Whether values are kept so that only the holder of a key can read them."""

    def __init__(self, inner: StateStore) -> None:
        if not isinstance(inner, StateStore):
            raise TypeError(f"a wrapper goes around a StateStore, not {short_repr(inner)}")
        self.inner = inner
        self.atomic_put_many = inner.atomic_put_many
        self.conditional_put_many = inner.conditional_put_many
        self.atomic_get_many = inner.atomic_get_many
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

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several, each key once, where the conditions hold; gives the new etags in order."""
        return await self.inner.put_many(puts, conditions=conditions)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Remove, where the key still has this etag if so asked; whether there was one."""
        return await self.inner.delete(key, if_match=if_match)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """The keys that start with the prefix and come after another, in order, at most so many."""
        return self.inner.list(prefix, start_after=start_after, limit=limit)

    async def check(self) -> Problems:
        """Check the structures of the store inside; give one line for each problem."""
        return await self.inner.check()

    async def close(self) -> None:
        """Close the store inside."""
        await self.inner.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} around {self.inner!r}>"


def is_encrypted(store: StateStore) -> bool:
    """Whether a store, or one inside it, keeps its values encrypted."""
    while isinstance(store, WrappedStateStore):
        if store.encrypts:
            return True
        store = store.inner
    return False


class TransformedStateStore(WrappedStateStore):
    """Keeps each value in another form. Keys and etags are those of the store inside."""

    @abstractmethod
    def _stored(self, key: str, value: bytes) -> bytes:
        """The form that the store inside keeps. Called in any thread."""

    @abstractmethod
    def _given(self, key: str, stored: bytes) -> bytes:
        """The value of a form that was kept, or IntegrityError. Called in any thread."""

    def _effort(self, stored: bytes) -> int:
        """How many bytes are to be worked on to give a value."""
        return len(stored)

    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""
        key = validate_key(key)
        entry = await self.inner.get(key)
        return None if entry is None else (await self._all_given({key: entry}))[key]

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """What the keys hold, in the order asked, without those that hold nothing."""
        found = await self.inner.get_many(validate_keys(keys))
        return await self._all_given(found)

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write, where the key still has this etag or is absent if so asked; gives the new etag."""
        put = (await self._all_stored([validate_put(key, value, if_match, if_absent)]))[0]
        return await self.inner.put(
            put.key, put.value, if_match=put.if_match, if_absent=put.if_absent
        )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several, each key once, where the conditions hold; gives the new etags in order."""
        writes, needed = validate_batch(puts, conditions)
        return await self.inner.put_many(await self._all_stored(writes), conditions=needed)

    async def _all_given(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        def recoded() -> dict[str, Entry]:
            return {
                key: Entry(self._given(key, entry.value), entry.etag)
                for key, entry in entries.items()
            }

        return await run_off_loop(
            sum(self._effort(entry.value) for entry in entries.values()), recoded
        )

    async def _all_stored(self, puts: Sequence[Put]) -> Sequence[Put]:
        def recoded() -> Sequence[Put]:
            return [replace(put, value=self._stored(put.key, put.value)) for put in puts]

        return await run_off_loop(sum(len(put.value) for put in puts), recoded)


async def run_off_loop(size: int, work: Callable[[], Result]) -> Result:
    """Do the work on so many bytes: at once where they are few, else in a thread."""
    return work() if size <= MANY_BYTES else await asyncio.to_thread(work)
