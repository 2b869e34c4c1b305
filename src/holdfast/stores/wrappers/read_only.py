"""A store that takes no writes: for looking at production."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import StateStoreError
from holdfast.stores.base import Condition, Etags, Put, StateStore
from holdfast.stores.validation import validate_batch, validate_etag, validate_key, validate_put
from holdfast.stores.wrappers.base import WrappedStateStore


class ReadOnlyStateStore(WrappedStateStore):
    """Reads as the store inside does, and refuses every write."""

    def __init__(self, inner: StateStore) -> None:
        super().__init__(inner)
        self.writable = False

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Refused."""
        validate_put(key, value, if_match, if_absent)
        raise self._refusal()

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Refused."""
        validate_batch(puts, conditions)
        raise self._refusal()

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Refused."""
        validate_key(key)
        validate_etag(if_match)
        raise self._refusal()

    def _refusal(self) -> StateStoreError:
        return StateStoreError(
            f"{self!r} takes no writes: open the store without read_only to change it"
        )
