"""Dry runs report what an import does, and invalid imports fail before the first write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import (
    InvalidDocumentError,
    StateStoreError,
    Store,
)
from holdfast.log.event import draft_event
from holdfast.log.hash_chain import link_events
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from holdfast.transfer import import_document
from support.async_tests import async_test
from support.importable_documents import (
    DOCUMENTS,
    PRUNED,
    WHOLE,
    check_intact,
    create_session,
    import_into,
    leave_empty,
    leave_half_deleted,
    leave_half_imported,
)
from support.observed_store import ObservedStore, make_state
from support.sample_documents import make_document_with_events

# --------------------------------------------------------------------------------------- dry run


@DOCUMENTS
@pytest.mark.parametrize(
    "before", [leave_empty, create_session, leave_half_deleted, leave_half_imported]
)
@async_test
async def test_a_dry_run_writes_nothing_and_reports_what_the_import_does(document, before):
    store = ObservedStore()
    await before(store)
    content = store.content
    store.forget()
    for asked in (store, ReadOnlyStateStore(store)):
        plan = await import_into(asked, document, dry_run=True)
        assert (plan.dry_run, plan.undo_id) == (True, None)
        assert store.written == []
    assert store.content == content
    result = await import_into(store, document)
    assert replace(plan, dry_run=False, undo_id=result.undo_id) == result
    assert plan.created == (before is not create_session)
    session = await check_intact(store)
    assert session.snapshot().digest == document.digest


@async_test
async def test_an_import_to_a_read_only_store_fails():
    with pytest.raises(StateStoreError, match="is read-only"):
        await import_into(ReadOnlyStateStore(MemoryStateStore()), WHOLE)


# ----------------------------------------------------------------------------------- validation


def drop_event(document):
    events = list(document.events)
    return replace(document, events=(*events[:1], *events[2:]))


def forge_event(document):
    first, *others = document.events
    return replace(document, events=(replace(first, type="another"), *others))


FAR = link_events([draft_event("far")], 10**12 - 2, "ab" * 32)
LATER = link_events([draft_event("later")], 0, "ab" * 32)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (drop_event(WHOLE), "are not a hash chain"),
        (forge_event(WHOLE), "are not a hash chain"),
        (forge_event(PRUNED), "are not a hash chain"),
        (replace(WHOLE, events=WHOLE.events[1:]), "start at 2, but it has no base"),
        (replace(PRUNED, base=None), "start at 7, but it has no base"),
        (replace(WHOLE, base=make_state(1)), "start at 1, but it has a state before"),
        (replace(WHOLE, events=tuple(LATER)), "start at 1, but it has a state before"),
        (replace(PRUNED, events=tuple(FAR)), "are numbered from 999999999999 to 999999999999"),
        (
            replace(WHOLE, events=tuple(link_events([draft_event("x")], -1, ""))),
            "are numbered from 0|no base",
        ),
    ],
)
@pytest.mark.parametrize("before", [leave_empty, create_session])
@async_test
async def test_an_invalid_document_is_rejected_before_the_first_write(document, problem, before):
    store = ObservedStore()
    await before(store)
    store.forget()
    for dry_run in (True, False):
        with pytest.raises(InvalidDocumentError, match=problem):
            await import_into(store, document, dry_run=dry_run)
    assert store.written == []


@pytest.mark.parametrize(
    "options",
    [{"agent_id": ""}, {"session_id": "x" * 300}, {"agent_id": 7}, {"session_id": "\ud800"}],
)
@async_test
async def test_invalid_ids_are_rejected_before_the_first_write(options):
    store = ObservedStore()
    with pytest.raises((TypeError, ValueError), match="agent_id|session_id|scope_id"):
        await import_into(store, WHOLE, **options)
    assert store.written == []


def test_an_empty_base_is_accepted():
    events = import_document.prepare_events(replace(WHOLE, base=Store().snapshot()))
    assert events[:-1] == tuple(WHOLE.events)
    later = make_document_with_events(
        draft_event("one", set_=[("state", "k", 1)]), after=3, prev="ab" * 32
    )
    assert import_document.prepare_events(later)[:-1] == later.events
