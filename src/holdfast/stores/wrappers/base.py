"""The base classes of wrappers.

``TransformedStateStore`` is for wrappers that store other bytes than they are given. It transforms
large values in a thread, so that they do not block the event loop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from msgspec.structs import replace

from holdfast.errors import short_repr
from holdfast.stores.base import Condition, Entry, Etags, Problems, Put, StateStore
from holdfast.stores.local import run_in_thread
from holdfast.stores.validation import validate_batch, validate_key, validate_keys, validate_put
from holdfast.stores.watch import StoreWatch

Result = TypeVar("Result")

THREAD_BYTES = 256 * 1024
"""The size from which work takes long enough for a thread."""


class WrappedStateStore(StateStore):
    """A store that passes every call to an inner store. A wrapper overrides what it changes."""

    encrypts = False
    """Whether values are stored encrypted."""

    def __init__(self, inner: StateStore) -> None:
        if not isinstance(inner, StateStore):
            raise TypeError(f"a wrapper takes a StateStore, got {short_repr(inner)}")
        self.inner = inner
        self.atomic_put_many = inner.atomic_put_many
        self.conditional_put_many = inner.conditional_put_many
        self.atomic_get_many = inner.atomic_get_many
        self.durable = inner.durable
        self.shared = inner.shared
        self.writable = inner.writable
        self.runs_inline = inner.runs_inline
        self.is_local = inner.is_local
        self.reports_writes = inner.reports_writes
        self.wakes_other_processes = inner.wakes_other_processes

    async def get(self, key: str) -> Entry | None:
        """Return the entry of a key, or None if there is none."""
        return await self.inner.get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the existing entries of several keys, in the given order."""
        return await self.inner.get_many(keys)

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write a value and return its etag."""
        return await self.inner.put(key, value, if_match=if_match, if_absent=if_absent)

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several values, each key once, and return their etags in the given order."""
        return await self.inner.put_many(puts, conditions=conditions)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Delete a key and return whether it existed."""
        return await self.inner.delete(key, if_match=if_match)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the keys that start with a prefix, in code point order."""
        return self.inner.list(prefix, start_after=start_after, limit=limit)

    def watch(self, prefix: str) -> AbstractAsyncContextManager[StoreWatch]:
        """Watch for writes and deletes of keys that start with a prefix."""
        return self.inner.watch(prefix)

    async def check(self) -> Problems:
        """Check the inner store's structures and return one line per problem."""
        return await self.inner.check()

    async def close(self) -> None:
        """Close the inner store."""
        await self.inner.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} around {self.inner!r}>"


def is_encrypted(store: StateStore) -> bool:
    """Return whether a store, or one inside it, encrypts its values."""
    while isinstance(store, WrappedStateStore):
        if store.encrypts:
            return True
        store = store.inner
    return False


class TransformedStateStore(WrappedStateStore):
    """A store that transforms each value. Keys and etags are those of the inner store."""

    @abstractmethod
    def _encode(self, key: str, value: bytes) -> bytes:
        """Return the bytes that the inner store stores for a value. Called in any thread."""

    @abstractmethod
    def _decode(self, key: str, stored: bytes) -> bytes:
        """Return the value of what was stored, or raise IntegrityError. Called in any thread."""

    def _decoded_size(self, stored: bytes) -> int:
        """Return the number of bytes to process in order to decode a value."""
        return len(stored)

    async def get(self, key: str) -> Entry | None:
        """Return the entry of a key, or None if there is none."""
        key = validate_key(key)
        entry = await self.inner.get(key)
        return None if entry is None else (await self._decode_entries({key: entry}))[key]

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the existing entries of several keys, in the given order."""
        entries = await self.inner.get_many(validate_keys(keys))
        return await self._decode_entries(entries)

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write a value and return its etag."""
        put = (await self._encode_puts([validate_put(key, value, if_match, if_absent)]))[0]
        return await self.inner.put(
            put.key, put.value, if_match=put.if_match, if_absent=put.if_absent
        )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several values, each key once, and return their etags in the given order."""
        writes, needed = validate_batch(puts, conditions)
        return await self.inner.put_many(await self._encode_puts(writes), conditions=needed)

    async def _decode_entries(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        def decode() -> dict[str, Entry]:
            return {
                key: Entry(self._decode(key, entry.value), entry.etag)
                for key, entry in entries.items()
            }

        size = sum(self._decoded_size(entry.value) for entry in entries.values())
        return await run_off_loop(size, decode)

    async def _encode_puts(self, puts: Sequence[Put]) -> Sequence[Put]:
        def encode() -> Sequence[Put]:
            return [replace(put, value=self._encode(put.key, put.value)) for put in puts]

        return await run_off_loop(sum(len(put.value) for put in puts), encode)


async def run_off_loop(size: int, work: Callable[[], Result]) -> Result:
    """Run work on this many bytes: inline if they are few, otherwise in a thread."""
    return work() if size <= THREAD_BYTES else await run_in_thread(work)
