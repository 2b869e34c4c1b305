"""The contract: a map from text keys to bytes, with etags, listed in the order of keys.

It is small so that any durable home can keep it. What a store can do beyond it is declared in
attributes of the class or the object, never guessed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Self, TypeAlias

from holdfast.errors import StateStoreError
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.validation import validate_batch, validate_keys

__all__ = ["Condition", "Entry", "Etags", "Problems", "Put", "StateStore"]

# Under another name, as the design calls a method of the store `list`.
Etags: TypeAlias = list[str]
Problems: TypeAlias = list[str]


class StateStore(ABC):
    """A durable home of bytes: ``key -> bytes`` with etags.

    Keys are text of 1 to 8,192 bytes in UTF-8, of any characters, and listed in the order of their
    code points. A write is durable when its call returns. A condition that does not hold raises
    ``ConflictError``, and nothing of that call is written. What fails otherwise raises
    ``StateStoreError``.

    A store connects on first use. It is an async context manager that closes itself.
    """

    atomic_put_many: bool = False
    """Whether ``put_many`` is all or nothing, also in a crash."""

    conditional_put_many: bool = False
    """Whether ``put_many`` accepts conditions and checks them in the same atomic step."""

    atomic_get_many: bool = False
    """Whether ``get_many`` sees all its keys at one moment, and so never half of a batch."""

    durable: bool = True
    """Whether what was acknowledged survives the end of the process."""

    shared: bool = True
    """Whether several processes may use the same place at once."""

    writable: bool = True
    """Whether it takes writes at all."""

    @abstractmethod
    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """What the keys hold, in the order asked, without those that hold nothing."""
        found = {}
        for key in validate_keys(keys):
            entry = await self.get(key)
            if entry is not None:
                found[key] = entry
        return found

    @abstractmethod
    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write, where the key still has this etag or is absent if so asked; gives the new etag."""

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several, each key once; gives the new etags in order.

        Where ``atomic_put_many`` is True all are written or none. Elsewhere they are written in
        order, and the first that fails ends it.

        Where ``conditional_put_many`` is True, nothing is written unless every key of the
        conditions has its etag in the same atomic step. Conditions are checked before those of the
        puts, so where both fail the error names the key of a condition.

        Raises:
            ConflictError: A condition does not hold; ``key`` is the key that it is about.
            StateStoreError: Conditions were given to a store that cannot check them.

        """
        writes, needed = validate_batch(puts, conditions)
        self._require_conditions(needed)
        return [
            await self.put(put.key, put.value, if_match=put.if_match, if_absent=put.if_absent)
            for put in writes
        ]

    @abstractmethod
    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Remove, where the key still has this etag if so asked; whether there was one."""

    @abstractmethod
    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """The keys that start with the prefix and come after another, in order, at most so many.

        It is no snapshot: a key that is written or removed meanwhile may or may not be seen, one
        that is there all the time is seen once.
        """

    async def check(self) -> Problems:
        """Check the backend's own structures, where it can; give one line for each problem.

        What is stored in the entries is not looked at: see ``SnapshotArchive.verify``.
        """
        return []

    async def close(self) -> None:
        """Give back what was opened. Closing twice is once; any later call is refused."""
        return

    def _require_conditions(self, conditions: Sequence[Condition]) -> None:
        """Refuse conditions where the store does not check them."""
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
