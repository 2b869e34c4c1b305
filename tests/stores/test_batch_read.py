"""Reading many keys in batches, with damaged entries among them."""

from __future__ import annotations

import os

import pytest

from holdfast import IntegrityError
from holdfast.stores import batch_read
from holdfast.stores.batch_read import iterate_entries, read_entries, require_entry
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.encryption import EncryptedStateStore, EncryptionKeys
from support.async_tests import async_test

KEYS = [f"key/{number}" for number in range(10)]


class CountingStore(MemoryStateStore):
    def __init__(self):
        super().__init__()
        self.batches = []

    async def get_many(self, keys):
        self.batches.append(list(keys))
        return await super().get_many(keys)


@async_test
async def test_entries_are_read_in_batches_and_in_order(monkeypatch):
    monkeypatch.setattr(batch_read, "BATCH_SIZE", 4)
    store = CountingStore()
    for key in KEYS:
        await store.put(key, key.encode())
    wanted = [*reversed(KEYS), "missing"]
    found = [(key, entry.value) async for key, entry in iterate_entries(store, wanted)]
    assert found == [(key, key.encode()) for key in reversed(KEYS)]
    assert [len(batch) for batch in store.batches] == [4, 4, 3]


@async_test
async def test_damaged_entries_do_not_hide_the_others():
    disk = MemoryStateStore()
    store = EncryptedStateStore(disk, EncryptionKeys({"one": os.urandom(32)}))
    for key in KEYS:
        await store.put(key, key.encode())
    await disk.put(KEYS[3], b"not encrypted")
    found = await read_entries(store, [*KEYS, "missing"])
    assert list(found) == KEYS
    for key, entry in found.items():
        if key == KEYS[3]:
            with pytest.raises(IntegrityError, match=key):
                require_entry(entry)
        else:
            assert require_entry(entry).value == key.encode()
