"""A store that rejects writes, for inspecting production."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import StateStoreError
from holdfast.stores.base import Condition, Etags, Put, StateStore
from holdfast.stores.validation import validate_batch, validate_etag, validate_key, validate_put
from holdfast.stores.wrappers.base import WrappedStateStore


class ReadOnlyStateStore(WrappedStateStore):
    """A store that reads from an inner store and raises ``StateStoreError`` on every write."""

    def __init__(self, inner: StateStore) -> None:
        super().__init__(inner)
        self.writable = False

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Reject the write.

        Raises:
            StateStoreError: Always.

        """
        validate_put(key, value, if_match, if_absent)
        raise self._read_only_error()

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Reject the writes.

        Raises:
            StateStoreError: Always.

        """
        validate_batch(puts, conditions)
        raise self._read_only_error()

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Reject the delete.

        Raises:
            StateStoreError: Always.

        """
        validate_key(key)
        validate_etag(if_match)
        raise self._read_only_error()

    def _read_only_error(self) -> StateStoreError:
        return StateStoreError(f"{self!r} is read-only; open the store without read_only to write")
