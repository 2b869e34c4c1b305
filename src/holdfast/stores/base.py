"""The store interface: a map from text keys to bytes, with etags, listed in key order.

The interface is small, so that any durable backend can implement it. A store declares what else it
can do in attributes of its class or object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from holdfast.errors import StateStoreError
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.validation import validate_batch, validate_keys, validate_range

if TYPE_CHECKING:
    from holdfast.stores.watch import StoreWatch

__all__ = ["Condition", "Entry", "Etags", "Problems", "Put", "StateStore"]

# Aliases, because inside the class the name `list` is a method.
Etags: TypeAlias = list[str]
Problems: TypeAlias = list[str]


class StateStore(ABC):
    """A durable map from keys to bytes, with etags.

    A key is text of 1 to 8,192 bytes in UTF-8, with any characters. Keys are listed in code point
    order. A write is durable when its call returns.

    A store connects on first use. It is an async context manager that closes itself.

    Every method raises ``StateStoreError`` if the backend fails or the store is closed, and
    ``TypeError``, ``ValueError`` or ``UnsupportedValueError`` for invalid arguments.
    """

    atomic_put_many: bool = False
    """Whether ``put_many`` writes all or nothing, even in a crash."""

    conditional_put_many: bool = False
    """Whether ``put_many`` accepts conditions and checks them in the same atomic step."""

    atomic_get_many: bool = False
    """Whether ``get_many`` reads all keys at one point in time, and so never half of a batch."""

    durable: bool = True
    """Whether acknowledged writes survive the end of the process."""

    shared: bool = True
    """Whether several processes may use the same data at once."""

    writable: bool = True
    """Whether the store accepts writes."""

    runs_inline: bool = False
    """Whether its calls never suspend while ``RUN_INLINE`` is set (see `stores.local`)."""

    is_local: bool = False
    """Whether a read takes no longer than one from a local disk, so that code may block on it."""

    reports_writes: bool = False
    """Whether each write wakes the watches of this process (see ``watch``)."""

    wakes_other_processes: bool = False
    """Whether a write wakes the watches of other processes too (see ``watch``)."""

    @abstractmethod
    async def get(self, key: str) -> Entry | None:
        """Return the entry of a key, or None if there is none.

        Raises:
            IntegrityError: The stored value is damaged.
            StateStoreError: The backend failed.

        """

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the existing entries of several keys, in the given order.

        Raises:
            IntegrityError: A stored value is damaged.
            StateStoreError: The backend failed.

        """
        entries = {}
        for key in validate_keys(keys):
            entry = await self.get(key)
            if entry is not None:
                entries[key] = entry
        return entries

    @abstractmethod
    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write a value and return its etag.

        Args:
            key: The key to write.
            value: The new value.
            if_match: Write only if the key still has this etag.
            if_absent: Write only if the key does not exist.

        Raises:
            ConflictError: The condition does not hold; nothing was written.
            StateStoreError: The backend failed. If ``unknown`` is set, the value may have been
                written.

        """

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several values, each key once, and return their etags in the given order.

        If ``atomic_put_many`` is True, all are written or none. Otherwise they are written in
        order, up to the first failure.

        If ``conditional_put_many`` is True, nothing is written unless every key of ``conditions``
        has its etag in the same atomic step. They are checked before the conditions of the puts.

        Raises:
            ConflictError: A condition does not hold; ``key`` is the key of that condition.
            StateStoreError: The backend failed, or the store does not support ``conditions``.

        """
        writes, needed = validate_batch(puts, conditions)
        self._require_conditions(needed)
        return [
            await self.put(put.key, put.value, if_match=put.if_match, if_absent=put.if_absent)
            for put in writes
        ]

    @abstractmethod
    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Delete a key and return whether it existed.

        Args:
            key: The key to delete.
            if_match: Delete only if the key still has this etag.

        Raises:
            ConflictError: The key does not have the etag; nothing was deleted.
            StateStoreError: The backend failed. If ``unknown`` is set, the key may have been
                deleted.

        """

    @abstractmethod
    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the keys that start with a prefix, in code point order.

        A listing is not a snapshot. A key that exists throughout is listed exactly once; a key that
        is written or deleted during the listing may or may not be listed.

        Args:
            prefix: Only keys that start with this text.
            start_after: Only keys greater than this text.
            limit: At most this many keys.

        Raises:
            StateStoreError: The backend failed.

        """

    def watch(self, prefix: str) -> AbstractAsyncContextManager[StoreWatch]:
        """Watch for writes and deletes of keys that start with a prefix.

        A write that is acknowledged after the context was entered wakes the next ``wait``. So
        enter, read, and then wait. A watch is a hint: it may wake without a reason, and a wake-up
        may be lost, so read again after a time without any.

        By default, writes through any store of this process that ``reports_writes`` wake it: after
        each write, such a store calls ``holdfast.stores.watch.report_writes``. A backend with
        notifications extends this method, see ``StoreWatch``, and sets ``wakes_other_processes``.

        Raises:
            StateStoreError: The backend failed.

        """
        # Imports asyncio, which a program that only needs a `Store` does not.
        from holdfast.stores.watch import ProcessWatch  # noqa: PLC0415

        return ProcessWatch(validate_range(prefix, "").prefix)

    async def check(self) -> Problems:
        """Check the backend's own structures and return one line per problem.

        The stored values are not checked; see ``SnapshotArchive.verify``.

        Raises:
            StateStoreError: The backend failed.

        """
        return []

    async def close(self) -> None:
        """Release connections and threads. Later calls raise; closing again does nothing."""
        return

    def _require_conditions(self, conditions: Sequence[Condition]) -> None:
        """Reject conditions if the store does not support them."""
        if conditions and not self.conditional_put_many:
            raise StateStoreError(
                f"{self!r} cannot check conditions in put_many; use a store whose "
                "conditional_put_many is True"
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
