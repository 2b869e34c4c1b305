"""Read a whole storage for a keyword search, in Holdfast's event loop.

A search reads every entry. A thread switch and a read of the store for each of them would take most
of its time, so entries that are not sessions are read ahead in batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from holdfast.adapters.requirement import import_requirement
from holdfast.errors import HoldfastError, short_repr

BATCH_SIZE = 64

exceptions = import_requirement("strands.types.exceptions", "strands")

Keys: TypeAlias = list[str]


class ScannedStorage:
    """A storage for search strategies, which only list and read."""

    def __init__(
        self,
        list_keys: Callable[[str], Awaitable[Keys]],
        read_key: Callable[[str], Awaitable[bytes | None]],
        read_ahead: Callable[[Keys], Awaitable[dict[str, bytes]]],
    ) -> None:
        self._list_keys = list_keys
        self._read_key = read_key
        self._read_ahead = read_ahead
        self._unread: Keys = []
        """Listed keys that are not read yet, the next one last."""
        self._entries: dict[str, bytes] = {}
        self._lock = asyncio.Lock()

    async def list(self, query: str = "") -> Keys:
        """Return the keys with a prefix, in order."""
        with storage_errors(f"list {short_repr(query)}"):
            found = await self._list_keys(query)
        self._unread = found[::-1]
        return found

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, or None; fast for listed keys in order."""
        with storage_errors(f"read {short_repr(key)}"):
            async with self._lock:
                if self._unread and self._unread[-1] == key:
                    chunk = [self._unread.pop() for _ in range(min(BATCH_SIZE, len(self._unread)))]
                    found = await self._read_ahead(chunk)
                    self._entries.update(found)
            if key in self._entries:
                return self._entries.pop(key)
            return await self._read_key(key)


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Raise Holdfast's errors as the ``StorageError`` that Strands expects."""
    try:
        yield
    except (HoldfastError, ValueError, TypeError) as error:
        raise exceptions.StorageError(f"Holdfast could not {what}: {error}") from error
