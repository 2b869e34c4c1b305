"""Faults at every store call of a commit with blobs, and of a sweep."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
from contextlib import suppress

import pytest

from holdfast import (
    ConflictError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    StateStoreError,
)
from holdfast.blobs import holds
from holdfast.blobs.reader import BlobReader
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import ObservedStore

LARGE = "large ".ljust(70_000, "x")
HERE = SnapshotLocation("ses_1", scope_id="bot")
POLICY = RetentionPolicy(last=1)
FAULTS = [
    ("error", False, "reads"),
    ("unknown", False, "writes"),
    ("unknown", True, "writes"),
    ("cancelled", True, "writes"),
    ("crash", False, "writes"),
    ("crash", True, "writes"),
]
SWEEP_FAULTS = [fault for fault in FAULTS if fault[0] in ("error", "crash")]
"""A sweep remembers nothing, so it makes no difference how it learns of a failure."""
FAILURES = (StateStoreError, asyncio.CancelledError)


async def open_session(store):
    return await Session.open(store, agent_id="bot", session_id="ses_1")


async def prune(store):
    return await SnapshotArchive(store).prune(location=HERE, policy=POLICY)


async def save_again(session):
    """Repeat a save; its events may have been written, although the response was lost."""
    try:
        await session.save()
    except ConflictError as error:  # and pruned since
        return "pending events were written, and the response was lost" in str(error)
    return True


async def check_stored(store, *, values):
    """Check that nothing is damaged, now and after a prune, and that nothing is left over then."""
    session = await open_session(store)
    for key, value in values.items():
        assert session.get(key) == value
    archive = SnapshotArchive(store)
    assert (await archive.verify(location=HERE)).damage == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holds, "HOLD_AGE", dt.timedelta(seconds=-1))
        await prune(store)
    found = await archive.verify(location=HERE)
    assert (found.damage, found.unreferenced_blobs) == ([], [])
    assert store.keys_with("blob_holds") == []
    session = await open_session(store)
    for key, value in values.items():
        assert session.get(key) == value


@pytest.mark.parametrize("is_new", [False, True], ids=["existing", "new"])
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
@async_test
async def test_a_commit_with_blobs_survives_a_fault_at_any_call(atomic, is_new):
    faults = 0
    for kind, done, of in FAULTS:
        for at in range(1, 100):
            inner = ObservedStore()
            if not is_new:
                first = await open_session(inner)
                first.set("old", LARGE + "old")
                await first.save()
            store = FaultyStateStore(inner, atomic=atomic)
            session = await open_session(store)
            session.set("image", LARGE)
            image = await session.attach(b"attached")
            session.set("attached", image)
            store.plan(Fault(at, kind, done, of))
            try:
                await session.save()
            except Crash:
                await check_stored(inner, values={})
                continue
            except FAILURES:
                # Another process prunes in between; the writer repeats its commit.
                if inner.keys_with("/manifest"):
                    await prune(inner)
                assert await save_again(session)
            if not store.faults:
                break
            faults += 1
            await check_stored(inner, values={"image": LARGE, "attached": image})
            assert await (await open_session(inner)).read_attachment(image) == b"attached"
    assert faults > 6


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "plain"])
@async_test
async def test_a_sweep_survives_a_fault_at_any_call(atomic):
    built = MemoryStateStore()
    session = await open_session(built)
    for number in range(2):
        session.set("image", LARGE + str(number))
        await session.save()
    for kind, done, of in SWEEP_FAULTS:
        for at in range(1, 200):
            inner = ObservedStore()
            inner._entries, inner._keys = copy.copy(built._entries), copy.copy(built._keys)
            store = FaultyStateStore(inner, atomic=atomic)
            store.plan(Fault(at, kind, done, of))
            with suppress(StateStoreError, Crash):
                await prune(store)
            if not store.faults:
                assert at > 8
                break
            await check_stored(inner, values={"image": LARGE + "1"})
            left = [each async for each in BlobReader(inner, session.location.prefix).list()]
            assert len(left) == 1
