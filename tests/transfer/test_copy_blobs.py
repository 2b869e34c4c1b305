"""Copies carry blobs: before the log, each once, and repaired if they are damaged."""

from __future__ import annotations

import pytest

from holdfast import (
    HoldfastError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotManager,
)
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import CopyResult, copy_sessions
from support.async_tests import async_test
from support.blob_documents import DATA, NOTE, TEXT, VALUE, digest_of, make_blob_session
from support.faults import RAISED, Fault, FaultyStateStore
from support.observed_store import InterruptedStore

PREFIX = "sessions/ses/scopes/agent/bot/"
LARGE = bytes(CHUNK_SIZE) + b"end"


async def make_source():
    store = MemoryStateStore()
    session = await make_blob_session(store)
    session.set("large", LARGE)
    await session.commit()
    return store, session


async def read_all(store):
    entries = {}
    async for key in store.list(""):
        entries[key] = (await store.get(key)).value
    return entries


async def check_copy(store):
    session = await Session.open(store, agent_id="bot", session_id="ses")
    assert session.get("value") == VALUE
    assert session.get("large") == LARGE
    assert await session.read_attachment(session.get("note")) == NOTE
    assert (await session.verify()).damage == []


@pytest.mark.parametrize("new_state_store", ["sqlite", "files"], indirect=True)
@async_test
async def test_a_copy_has_the_blobs(new_state_store):
    source, _ = await make_source()
    async with new_state_store() as target:
        done = await copy_sessions(source, target)
        assert (done.sessions, done.failed) == (1, {})
        assert done.size > len(TEXT.encode()) + len(DATA) + len(LARGE)
        await check_copy(target)
        assert await compare_stores(source, target) == []


@async_test
async def test_blobs_are_copied_once():
    source, session = await make_source()
    target = MemoryStateStore()
    await copy_sessions(source, target)
    assert await read_all(target) == await read_all(source)
    assert await copy_sessions(source, target) == CopyResult(sessions=1)
    session.add_message("user", TEXT)
    session.set("new", b"x" * 70_000)
    await session.commit()
    done = await copy_sessions(source, target)
    assert 70_000 < done.size < 72_000
    assert await read_all(target) == await read_all(source)


@async_test
async def test_an_interrupted_copy_is_resumed():
    source, _ = await make_source()
    for at in range(1, 30):
        disk = MemoryStateStore()
        target = FaultyStateStore(disk)
        target.plan(Fault(at, "crash"))
        try:
            await copy_sessions(source, target)
        except RAISED:
            found = await Session.open(disk, agent_id="bot", session_id="ses")
            if not found.is_dirty:  # it exists: then it has all that it refers to
                await check_copy(disk)
        else:
            break
        await copy_sessions(source, disk)
        await check_copy(disk)
    assert at > 8


@async_test
async def test_a_missing_or_damaged_blob_is_found_and_repaired():
    source, _ = await make_source()
    target = MemoryStateStore()
    await copy_sessions(source, target)
    first = f"{PREFIX}blobs/{digest_of(LARGE)}/000000"
    await target.put(first, bytes(CHUNK_SIZE - 1) + b"x")
    await target.delete(f"{PREFIX}blobs/{digest_of(NOTE)}/000000")
    await target.put(f"{PREFIX}blobs/{digest_of(DATA)}/000001", b"too much")
    problems = await compare_stores(source, target)
    assert [digest_of(each) for each in (LARGE, NOTE) if digest_of(each) in str(problems)] == [
        digest_of(LARGE),
        digest_of(NOTE),
    ]
    done = await copy_sessions(source, target, repair=True)
    assert done.failed == {}
    assert done.repaired >= 3
    assert await compare_stores(source, target) == []
    await check_copy(target)
    assert await read_all(target) == await read_all(source)


@async_test
async def test_a_blob_that_is_damaged_in_the_source_is_reported():
    source, _ = await make_source()
    target = MemoryStateStore()
    await copy_sessions(source, target)
    for store in (source, target):
        await store.put(f"{PREFIX}blobs/{digest_of(NOTE)}/000000", b"damaged")
    (problem,) = (await copy_sessions(source, target, repair=True)).failed.values()
    assert f"blob {digest_of(NOTE)}" in problem
    assert "damaged in the target and not intact in the source" in problem
    fresh = MemoryStateStore()
    (problem,) = (await copy_sessions(source, fresh)).failed.values()
    assert "everything else was copied" in problem
    assert "is damaged in the source and was not copied" in problem
    session = await Session.open(fresh, agent_id="bot", session_id="ses")
    assert session.get("value") == VALUE


@async_test
async def test_a_blob_that_is_being_written_does_not_disturb_a_copy():
    source, _ = await make_source()
    await source.put(f"{PREFIX}blobs/{digest_of(b'pending')}/000000", b"pend")
    target = MemoryStateStore()
    assert (await copy_sessions(source, target)).failed == {}
    await check_copy(target)
    assert (await copy_sessions(source, target, repair=True)).failed == {}


@async_test
async def test_a_prune_of_the_target_does_not_lose_blobs():
    source, session = await make_source()
    first = MemoryStateStore()
    await copy_sessions(source, first)
    session.set("new", b"x" * 70_000)
    await session.save()
    calls = at = 0
    while at <= calls:
        at += 1
        disk = MemoryStateStore()
        for key, value in (await read_all(first)).items():
            await disk.put(key, value)

        async def prune(disk=disk):
            archive = SnapshotArchive(disk)
            await archive.prune(location=session.location, policy=RetentionPolicy(last=9))

        target = InterruptedStore(disk, at, prune)
        done = await copy_sessions(source, target)
        calls = target.calls
        await check_copy(disk)
        if done.failed:
            assert (await copy_sessions(source, disk)).failed == {}
            await check_copy(disk)
        found = await Session.open(disk, agent_id="bot", session_id="ses")
        assert found.get("new") == b"x" * 70_000
        assert [key async for key in disk.list(f"{PREFIX}blob_holds/")] == []


@async_test
async def test_the_count_of_sweeps_does_not_decrease():
    source, session = await make_source()
    target = MemoryStateStore()
    await copy_sessions(source, target)
    archive = SnapshotArchive(target)
    session.set("value", None)
    await session.save()
    await target.put(f"{PREFIX}blobs/{digest_of(b'unused')}/000000", b"unused")
    await archive.prune(location=session.location, policy=RetentionPolicy(last=9))
    before = (await archive.load_manifest(location=session.location)).blob_sweeps
    assert before > 0
    assert (await copy_sessions(source, target)).failed == {}
    assert (await archive.load_manifest(location=session.location)).blob_sweeps == before


@async_test
async def test_an_omitted_blob_is_copied_as_missing():
    _, session = await make_source()
    source, target = MemoryStateStore(), MemoryStateStore()
    await SnapshotManager(source).import_session(await session.export(attachments="omit"))
    assert (await copy_sessions(source, target)).failed == {}
    found = await Session.open(target, agent_id="bot", session_id="ses")
    assert found.message_count == 1
    with pytest.raises(HoldfastError, match="is not stored"):
        found.get("value")
