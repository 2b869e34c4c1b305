"""Read many keys of a state store in batches of a bounded size.

A wrapper that decrypts or decompresses refuses a whole ``get_many`` for one damaged value. The
batch is then read key by key, so that the damage of one entry does not hide the others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from holdfast.errors import IntegrityError
from holdfast.stores.base import StateStore
from holdfast.stores.entries import Entry

BATCH_SIZE = 256

T = TypeVar("T")


def split_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in batches of at most a size."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


async def iterate_entries(
    state_store: StateStore, keys: Iterable[str]
) -> AsyncIterator[tuple[str, Entry | IntegrityError]]:
    """Yield the entries of some keys in order, without those that do not exist.

    An entry that cannot be decrypted or decompressed is yielded as its error.
    """
    for batch in split_batches(list(keys), BATCH_SIZE):
        found = await _read_batch(state_store, batch)
        for key in batch:
            if key in found:
                yield key, found[key]


async def read_entries(
    state_store: StateStore, keys: Iterable[str]
) -> dict[str, Entry | IntegrityError]:
    """Return the entries of some keys, without those that do not exist.

    An entry that cannot be decrypted or decompressed is returned as its error.
    """
    return {key: entry async for key, entry in iterate_entries(state_store, keys)}


def require_entry(entry: Entry | IntegrityError) -> Entry:
    """Return an entry that was read.

    Raises:
        IntegrityError: The entry cannot be decrypted or decompressed.

    """
    if isinstance(entry, IntegrityError):
        raise entry
    return entry


async def _read_batch(
    state_store: StateStore, keys: Sequence[str]
) -> dict[str, Entry | IntegrityError]:
    with suppress(IntegrityError):
        return dict(await state_store.get_many(keys))
    found: dict[str, Entry | IntegrityError] = {}
    for key in keys:
        try:
            entry = await state_store.get(key)
        except IntegrityError as error:
            found[key] = error
        else:
            if entry is not None:
                found[key] = entry
    return found
