"""An interrupted or concurrent import is complete or absent."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import (
    Catalog,
    ConflictError,
)
from holdfast.log.event import draft_event
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.conversations import add_messages, list_contents, open_session
from support.faults import RAISED, WAYS, Fault, FaultyStateStore
from support.importable_documents import (
    DOCUMENTS,
    HERE,
    PRUNED,
    STORES,
    WHOLE,
    check_intact,
    create_session,
    import_into,
    leave_empty,
    leave_half_deleted,
    leave_half_imported,
    make_pruned_document,
)
from support.observed_store import InterruptedStore, make_state
from support.sample_documents import make_document, make_document_with_events

# --------------------------------------------------------------------------------------- faults


async def find_digest(disk):
    """Return the digest of the state another process finds, or None."""
    session = await open_session(disk)
    assert (await session.verify()).damage == []
    listed = await Catalog(disk).latest_session("bot")
    assert (listed is None) == session.is_dirty
    return None if session.is_dirty else session.snapshot().digest


async def attempt(document, before, atomic, fault):
    """Import with a fault; return the store's content and the number of writes."""
    disk = MemoryStateStore()
    await before(disk)
    store = FaultyStateStore(disk, atomic=atomic)
    store.plan(fault)
    try:
        await import_into(store, document)
        acknowledged = True
    except RAISED:
        acknowledged = False
    return disk, store.writes, acknowledged


LARGE = make_document(make_state(2, large="x" * 40_000), HERE)


@pytest.mark.parametrize(
    "before", [leave_empty, create_session, leave_half_deleted, leave_half_imported]
)
@pytest.mark.parametrize("document", [WHOLE, PRUNED, LARGE], ids=["whole", "pruned", "large"])
@STORES
@async_test
async def test_an_import_that_fails_at_any_write_is_complete_or_absent(document, before, atomic):
    disk, writes, _ = await attempt(document, before, atomic, None)
    after = await find_digest(disk)
    assert after == document.digest
    disk = MemoryStateStore()
    await before(disk)
    allowed = {await find_digest(disk), after}
    for number in range(1, writes + 1):
        for kind, is_done in WAYS if document is not LARGE else [("crash", False), ("crash", True)]:
            fault = Fault(number, kind, is_done)
            disk, _, acknowledged = await attempt(document, before, atomic, fault)
            assert await find_digest(disk) in ({after} if acknowledged else allowed), str(fault)
            disk, _, _ = await attempt(document, before, atomic, fault)
            await import_into(FaultyStateStore(disk, atomic=atomic), document)
            assert await find_digest(disk) == after, str(fault)


# --------------------------------------------------------------------------- concurrent writers


async def import_during(disk, atomic, document, others, at):
    """Import a document while another writer acts before the call of this number."""
    store = InterruptedStore(FaultyStateStore(disk, atomic=atomic), at, others)
    try:
        await import_into(store, document)
    except ConflictError as error:
        return str(error), store.calls
    return None, store.calls


OTHER = run_async(make_pruned_document(last="other"))
LONGER = make_document_with_events(
    draft_event("one", set_=[("messages", "000000000000", {"role": "user", "content": "x"})]),
    after=12,
    prev="cd" * 32,
)


@pytest.mark.parametrize("other", [WHOLE, PRUNED, OTHER, LONGER, None])
@DOCUMENTS
@STORES
@async_test
async def test_of_two_concurrent_creators_of_a_session_one_wins(document, other, atomic):
    async def begin(disk):
        there = FaultyStateStore(disk, atomic=atomic)
        if other is None:
            await add_messages(await open_session(there), "an agent's own")
        else:
            await import_into(there, other, agent_id="bot", session_id="ses")

    _, calls = await import_during(MemoryStateStore(), atomic, document, None, 0)
    for at in range(1, calls + 1):
        disk = MemoryStateStore()
        problem, _ = await import_during(disk, atomic, document, lambda disk=disk: begin(disk), at)
        if problem is not None:
            assert "was created concurrently" in problem
        session = await check_intact(disk)
        if problem is None and other is None:
            assert list_contents(session)[:1] in (
                ["an agent's own"],
                list_contents(document.state)[:1],
            ), at
        elif other is not None:
            assert session.snapshot().digest in (document.digest, other.digest), at
        await import_into(FaultyStateStore(disk, atomic=atomic), document)
        assert (await check_intact(disk)).snapshot().digest == document.digest


@async_test
async def test_a_session_created_over_a_partial_import_is_intact():
    _, calls = await import_during(MemoryStateStore(), False, PRUNED, None, 0)
    for at in range(1, calls + 1):
        disk = MemoryStateStore()
        await import_during(disk, False, PRUNED, lambda disk=disk: open_session(disk), at)
        await check_intact(disk, document=PRUNED)


@async_test
async def test_concurrent_imports_of_a_document_create_one_session():
    store = MemoryStateStore()
    results = await asyncio.gather(
        *(import_into(store, PRUNED) for _ in range(6)), return_exceptions=True
    )
    assert all(isinstance(each, ConflictError) or each.messages_restored == 6 for each in results)
    assert sum(getattr(each, "created", False) for each in results) == 1
    session = await check_intact(store)
    assert session.snapshot().digest == PRUNED.digest
