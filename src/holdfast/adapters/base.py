"""What the classes of all adapters share: they take a store, or open that of a URL."""

from __future__ import annotations

from typing import Any, Self

from holdfast.errors import short_repr
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store


def validate_state_store(state_store: object) -> StateStore:
    """Return a state store.

    Raises:
        TypeError: It is not a ``StateStore``.

    """
    if not isinstance(state_store, StateStore):
        raise TypeError(
            f"state_store must be a StateStore, got {short_repr(state_store)}; "
            "open one with holdfast.open_state_store(url), or use from_url(url)"
        )
    return state_store


class StoreAdapter:
    """A class of a framework over a ``StateStore``, its first argument."""

    state_store: StateStore
    """The store that holds the sessions."""

    def __init__(self, state_store: StateStore) -> None:
        self.state_store = validate_state_store(state_store)

    @classmethod
    def from_url(cls, url: str | None = None, **options: Any) -> Self:
        """Open the store of a URL, by default that of ``HOLDFAST_STORE``; `aclose` closes it.

        Raises:
            StateStoreError: The URL is not valid.
            MissingExtraError: The store needs an extra that is not installed.

        """
        return cls(open_state_store(url), **options)

    async def aclose(self) -> None:
        """Close the store."""
        await self.state_store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
