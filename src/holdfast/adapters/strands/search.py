"""Reading a whole storage for a keyword search, within Holdfast's loop.

A search reads every entry. Going from thread to thread, and to the store, for each of them would
cost most of its time, so entries that are not sessions are read ahead, many at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from holdfast.adapters.requirement import import_requirement
from holdfast.errors import HoldfastError, short_repr

AHEAD = 64

exceptions = import_requirement("strands.types.exceptions", "strands")

Keys: TypeAlias = list[str]


class ScannedStorage:
    """What a search strategy that only lists and reads takes as a storage."""

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
        """Listed keys that were not read yet, the next one last."""
        self._entries: dict[str, bytes] = {}
        self._lock = asyncio.Lock()

    async def list(self, query: str = "") -> Keys:
        """Return the keys that begin with a text, in order."""
        with storage_errors(f"list {short_repr(query)}"):
            found = await self._list_keys(query)
        self._unread = found[::-1]
        return found

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, or None; fast for listed keys in their order."""
        with storage_errors(f"read {short_repr(key)}"):
            async with self._lock:
                if self._unread and self._unread[-1] == key:
                    chunk = [self._unread.pop() for _ in range(min(AHEAD, len(self._unread)))]
                    found = await self._read_ahead(chunk)
                    self._entries.update(found)
            if key in self._entries:
                return self._entries.pop(key)
            return await self._read_key(key)


@contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Raise errors of Holdfast as the ``StorageError`` that Strands expects."""
    try:
        yield
    except (HoldfastError, ValueError, TypeError) as error:
        raise exceptions.StorageError(f"Holdfast could not {what}: {error}") from error
