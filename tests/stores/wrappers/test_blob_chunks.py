"""Wrappers cover blobs like any other entry."""

from __future__ import annotations

import pytest

from holdfast import IntegrityError, Session
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.compression import CompressedStateStore
from holdfast.stores.wrappers.encryption import EncryptedStateStore, EncryptionKeys
from support.async_tests import async_test
from support.blob_documents import NOTE, TEXT, VALUE, digest_of, make_blob_session


async def read_chunks(store):
    return [(await store.get(key)).value async for key in store.list("") if "/blobs/" in key]


@async_test
async def test_stored_chunks_are_encrypted():
    disk = MemoryStateStore()
    keys = EncryptionKeys({"one": bytes(32)})
    store = EncryptedStateStore(disk, keys)
    session = await make_blob_session(store)
    chunks = await read_chunks(disk)
    assert len(chunks) == 3
    for text in (TEXT[:30].encode(), NOTE):
        assert not any(text in chunk for chunk in chunks)
    session = await Session.open(store, agent_id="bot", session_id="ses")
    assert session.get("value") == VALUE
    # Each chunk is bound to its key, so one cannot take the place of another.
    prefix = f"{session.location.prefix}blobs/"
    other = await disk.get(f"{prefix}{digest_of(TEXT)}/000000")
    await disk.put(f"{prefix}{digest_of(NOTE)}/000000", other.value)
    with pytest.raises(IntegrityError):
        await session.read_attachment(session.get("note"))


@async_test
async def test_stored_chunks_are_compressed():
    disk = MemoryStateStore()
    store = CompressedStateStore(disk)
    await make_blob_session(store)
    assert sum(map(len, await read_chunks(disk))) < 10_000
    session = await Session.open(store, agent_id="bot", session_id="ses")
    assert session.get("value") == VALUE
