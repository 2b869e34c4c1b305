"""Documents that are imported, and what a session made of one must be."""

from __future__ import annotations

import pytest

from holdfast import (
    Catalog,
    RetentionPolicy,
    Session,
    SnapshotLocation,
    SnapshotManager,
)
from holdfast.snapshots.delete import Deletion
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.conversations import opened, said
from support.faults import RAISED, Fault, FaultyStateStore

HERE = SnapshotLocation("ses", "agent", "bot")
NOTHING = {"added": [], "removed": [], "changed": []}


async def whole_document():
    """A session with everything in its log."""
    session = await said(await opened(MemoryStateStore()), "a", "b", "c")
    session.set("plan", {1: (2, 3)})
    session.status = "running"
    await session.once("mail", lambda: "sent")
    await session.save(tags={"env": "dev"})
    return await session.export()


async def pruned_document(last="f"):
    """A document whose first events were pruned."""
    session = await opened(MemoryStateStore())
    for text in ("a", "b", "c", "d", "e", last):
        session.add_message("user", text)
        await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    document = await session.export()
    assert document.base is not None
    assert document.events[0].seq == 7
    return document


WHOLE = run_async(whole_document())
PRUNED = run_async(pruned_document())
DOCUMENTS = pytest.mark.parametrize("document", [WHOLE, PRUNED], ids=["whole", "pruned"])
STORES = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one by one"])


def imported(store, document, **options):
    return SnapshotManager(store).import_session(document, **options)


async def check_sound(store, location=HERE, document=None):
    """The session is there, sound and listed, and goes on."""
    session = await Session.open(
        store, agent_id=location.scope_id, session_id=location.session_id, must_exist=True
    )
    assert (await session.verify()).damage == []
    latest = await Catalog(store).latest_session(location.scope_id)
    assert latest.location == location
    if document is not None:
        assert session.snapshot().digest == document.digest
        events = [event async for event in session.events]
        *own, last = events
        assert [event.hash for event in own] == [event.hash for event in document.events]
        assert last.type == "session.imported"
    return session


# ---------------------------------------------------------------- what the store has before


async def empty(store):
    """Nothing there."""


async def session_there(store):
    session = await said(await opened(store), "mine")
    session.set("plan", "mine")
    await session.save()


async def half_deleted(store):
    await session_there(store)
    assert await Deletion.start(store, "ses")


async def half_imported(store):
    crashing = FaultyStateStore(store, atomic=False)
    crashing.plan(Fault(2, "crash"))
    with pytest.raises(RAISED):
        await imported(crashing, PRUNED)
