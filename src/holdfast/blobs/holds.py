"""Holds: the blobs that a running commit refers to, for sweeps to spare.

    <prefix>blob_holds/<uuid7>.json        {"digests": ["…", …]}

Where a commit cannot be conditional on the count of sweeps, it stores its blobs, writes a hold,
reads the count, writes its segment and deletes the hold, in this order. A sweep increments the
count, reads the holds, then the log. So if the commit read the old count, the sweep sees the hold,
or the segment if the hold is deleted already; if it read a new one, it stores its blobs again.

The hold of a killed process expires. The time of a hold is in its id.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import time
from collections.abc import Iterable

from holdfast.errors import StateStoreError
from holdfast.ids import new_id
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import iterate_entries, require_entry, split_batches
from holdfast.stores.entries import Put
from holdfast.values.references import find_tokens

logger = logging.getLogger(__name__)

HOLD_AGE = dt.timedelta(minutes=10)
"""How long a sweep spares what a hold names: far longer than a commit takes."""
HOLD_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\.json")
DIGESTS_PER_HOLD = 4096
"""Below the size limit of every backend."""


def holds_prefix(location_prefix: str) -> str:
    """Return the prefix of the keys of all holds of a session."""
    return f"{location_prefix}blob_holds/"


async def write_holds(
    state_store: StateStore, location_prefix: str, digests: Iterable[str]
) -> list[str]:
    """Hold blobs, and return the keys of the holds.

    Raises:
        StateStoreError: The store failed.

    """
    puts = [
        Put(
            f"{holds_prefix(location_prefix)}{new_id()}.json",
            json.dumps({"digests": list(batch)}).encode(),
        )
        for batch in split_batches(sorted(digests), DIGESTS_PER_HOLD)
    ]
    if puts:
        await state_store.put_many(puts)
    return [put.key for put in puts]


async def delete_holds(state_store: StateStore, keys: Iterable[str]) -> None:
    """Delete holds; what fails is left to expire."""
    for key in keys:
        try:
            await state_store.delete(key)
        except StateStoreError as error:
            logger.info("hold %s was not deleted: %s", key, error)


async def read_holds(state_store: StateStore, location_prefix: str) -> set[str]:
    """Return the digests that commits hold, and delete the holds that expired.

    Raises:
        IntegrityError: A hold cannot be read.
        StateStoreError: The store failed.

    """
    held: set[str] = set()
    keys = await list_holds(state_store, location_prefix)
    async for _, entry in iterate_entries(state_store, keys):
        held |= find_tokens(require_entry(entry).value)
    return held


async def list_holds(state_store: StateStore, location_prefix: str) -> list[str]:
    """Return the keys of all holds, and delete those that expired.

    Raises:
        StateStoreError: The store failed.

    """
    prefix = holds_prefix(location_prefix)
    keys: list[str] = []
    expired: list[str] = []
    async for key in state_store.list(prefix):
        if HOLD_NAME.fullmatch(key, len(prefix)):
            (expired if is_expired(key[len(prefix) :]) else keys).append(key)
    await delete_holds(state_store, expired)
    return keys


def is_expired(name: str) -> bool:
    """Return whether the hold with a name is too old to be of a running commit."""
    created = int(name[:8] + name[9:13], 16) / 1000
    return time.time() - created > HOLD_AGE.total_seconds()
