"""Documents to import, and checks of the imported session."""

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
from support.conversations import add_messages, open_session
from support.faults import RAISED, Fault, FaultyStateStore

HERE = SnapshotLocation("ses", "agent", "bot")
NOTHING = {"added": [], "removed": [], "changed": []}


async def make_whole_document():
    """Return the document of a session with all kinds of events."""
    session = await add_messages(await open_session(MemoryStateStore()), "a", "b", "c")
    session.set("plan", {1: (2, 3)})
    session.status = "running"
    await session.once("mail", lambda: "sent")
    await session.save(tags={"env": "dev"})
    return await session.export()


async def make_pruned_document(last="f"):
    """Return a document whose first events were pruned."""
    session = await open_session(MemoryStateStore())
    for text in ("a", "b", "c", "d", "e", last):
        session.add_message("user", text)
        await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    document = await session.export()
    assert document.base is not None
    assert document.events[0].seq == 7
    return document


WHOLE = run_async(make_whole_document())
PRUNED = run_async(make_pruned_document())
DOCUMENTS = pytest.mark.parametrize("document", [WHOLE, PRUNED], ids=["whole", "pruned"])
STORES = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one by one"])


def import_into(store, document, **options):
    return SnapshotManager(store).import_session(document, **options)


async def check_intact(store, location=HERE, document=None):
    """Check that the session is intact, listed and has the document's events."""
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


# ------------------------------------------------------------------- content before the import


async def leave_empty(store):
    """Leave the store empty."""


async def create_session(store):
    session = await add_messages(await open_session(store), "mine")
    session.set("plan", "mine")
    await session.save()


async def leave_half_deleted(store):
    await create_session(store)
    assert await Deletion.start(store, "ses")


async def leave_half_imported(store):
    crashing = FaultyStateStore(store, atomic=False)
    crashing.plan(Fault(2, "crash"))
    with pytest.raises(RAISED):
        await import_into(crashing, PRUNED)
