"""An import that is cut short, or meets others, is wholly there or not at all."""

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
from support.conversations import contents, opened, said
from support.faults import RAISED, WAYS, Fault, FaultyStateStore
from support.importable_documents import (
    DOCUMENTS,
    HERE,
    PRUNED,
    STORES,
    WHOLE,
    check_sound,
    empty,
    half_deleted,
    half_imported,
    imported,
    pruned_document,
    session_there,
)
from support.observed_store import Interrupted, state
from support.sample_documents import document_with_events, make_document

# ----------------------------------------------------------------------------------- whatever fails


async def found(disk):
    """What another process finds: nothing, or a sound session with its state."""
    session = await opened(disk)
    assert (await session.verify()).damage == []
    listed = await Catalog(disk).latest_session("bot")
    assert (listed is None) == session.is_dirty
    return None if session.is_dirty else session.snapshot().digest


async def attempt(document, before, atomic, fault):
    """Import with a fault; the bytes, and how many writes it took."""
    disk = MemoryStateStore()
    await before(disk)
    store = FaultyStateStore(disk, atomic=atomic)
    store.plan(fault)
    try:
        await imported(store, document)
        acknowledged = True
    except RAISED:
        acknowledged = False
    return disk, store.writes, acknowledged


LARGE = make_document(state(2, large="x" * 40_000), HERE)


@pytest.mark.parametrize("before", [empty, session_there, half_deleted, half_imported])
@pytest.mark.parametrize("document", [WHOLE, PRUNED, LARGE], ids=["whole", "pruned", "large"])
@STORES
@async_test
async def test_an_import_that_fails_at_any_write_is_wholly_there_or_not_at_all(
    document, before, atomic
):
    disk, writes, _ = await attempt(document, before, atomic, None)
    after = await found(disk)
    assert after == document.digest
    disk = MemoryStateStore()
    await before(disk)
    allowed = {await found(disk), after}
    for number in range(1, writes + 1):
        for kind, is_done in WAYS if document is not LARGE else [("crash", False), ("crash", True)]:
            fault = Fault(number, kind, is_done)
            disk, _, acknowledged = await attempt(document, before, atomic, fault)
            assert await found(disk) in ({after} if acknowledged else allowed), str(fault)
            disk, _, _ = await attempt(document, before, atomic, fault)
            await imported(FaultyStateStore(disk, atomic=atomic), document)
            assert await found(disk) == after, str(fault)


# ------------------------------------------------------------------------------- others meanwhile


async def meanwhile(disk, atomic, document, others, at):
    """Import a document while others do something before its call of this number."""
    store = Interrupted(FaultyStateStore(disk, atomic=atomic), at, others)
    try:
        await imported(store, document)
    except ConflictError as error:
        return str(error), store.calls
    return None, store.calls


def contents_of(document):
    return [message["content"] for message in document.state.messages]


OTHER = run_async(pruned_document(last="other"))
LONGER = document_with_events(
    draft_event("one", set_=[("messages", "000000000000", {"role": "user", "content": "x"})]),
    after=12,
    prev="cd" * 32,
)


@pytest.mark.parametrize("other", [WHOLE, PRUNED, OTHER, LONGER, None])
@DOCUMENTS
@STORES
@async_test
async def test_of_two_who_begin_one_session_in_one_moment_one_wins(document, other, atomic):
    async def begin(disk):
        there = FaultyStateStore(disk, atomic=atomic)
        if other is None:
            await said(await opened(there), "an agent's own")
        else:
            await imported(there, other, agent_id="bot", session_id="ses")

    _, calls = await meanwhile(MemoryStateStore(), atomic, document, None, 0)
    for at in range(1, calls + 1):
        disk = MemoryStateStore()
        problem, _ = await meanwhile(disk, atomic, document, lambda disk=disk: begin(disk), at)
        if problem is not None:
            assert "was created concurrently" in problem
        session = await check_sound(disk)
        if problem is None and other is None:
            assert contents(session)[:1] in (["an agent's own"], contents_of(document)[:1]), at
        elif other is not None:
            assert session.snapshot().digest in (document.digest, other.digest), at
        await imported(FaultyStateStore(disk, atomic=atomic), document)
        assert (await check_sound(disk)).snapshot().digest == document.digest


@async_test
async def test_who_takes_a_half_written_import_for_what_a_crash_left_does_no_harm():
    _, calls = await meanwhile(MemoryStateStore(), False, PRUNED, None, 0)
    for at in range(1, calls + 1):
        disk = MemoryStateStore()
        await meanwhile(disk, False, PRUNED, lambda disk=disk: opened(disk), at)
        await check_sound(disk, document=PRUNED)


@async_test
async def test_many_who_import_one_document_at_once_leave_one_session():
    store = MemoryStateStore()
    results = await asyncio.gather(
        *(imported(store, PRUNED) for _ in range(6)), return_exceptions=True
    )
    assert all(isinstance(each, ConflictError) or each.messages_restored == 6 for each in results)
    assert sum(getattr(each, "created", False) for each in results) == 1
    session = await check_sound(store)
    assert session.snapshot().digest == PRUNED.digest
