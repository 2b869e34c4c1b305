"""Documents become sessions: new ones, and the state of those that are there; whatever fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from faults import RAISED, WAYS, Fault, FaultyStateStore
from holdfast import (
    Catalog,
    ConflictError,
    InvalidDocumentError,
    RetentionPolicy,
    Session,
    SessionSnapshot,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManager,
    SnapshotManifest,
    StateStoreError,
    Store,
    replay,
)
from holdfast.log.chain import linked
from holdfast.log.events import draft
from holdfast.sessions import importing
from holdfast.snapshots.layout import deleted_key
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from loops import done, in_loop
from sessions.conversations import contents, opened, said, types
from watched import Interrupted, Watched, changed, session_snapshot, state, with_events

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


WHOLE = done(whole_document())
PRUNED = done(pruned_document())
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


# ------------------------------------------------------------------------------- a new session


@DOCUMENTS
@STORES
@in_loop
async def test_the_events_of_a_document_become_the_log_of_a_new_session(document, atomic):
    store = FaultyStateStore(MemoryStateStore(), atomic=atomic)
    result = await imported(store, document)
    assert (result.agent_id, result.session_id) == ("bot", "ses")
    assert (result.created, result.dry_run, result.undo_id) == (True, False, None)
    assert result.messages_restored == len(document.state.messages)
    assert result.events_restored == len(document.events)
    assert result.diff == document.snapshot.diff(Store().snapshot())
    session = await check_sound(store, document=document)
    steps = [step async for step in replay(session)]
    assert steps[-1].after.digest == document.digest
    assert [step.event for step in steps[:-1]] == list(document.events)

    session.add_message("user", "and on")
    await session.save()
    again = await check_sound(store)
    assert contents(again)[-1] == "and on"
    assert again.log.end.seq == document.events[-1].seq + 2
    exported = await again.export()
    assert exported.events[:-2] == document.events


@DOCUMENTS
@in_loop
async def test_a_document_becomes_a_session_under_other_ids(document):
    store = MemoryStateStore()
    await imported(store, document)
    result = await imported(store, document, agent_id="other", session_id="copy")
    assert (result.agent_id, result.session_id, result.created) == ("other", "copy", True)
    place = SnapshotLocation("copy", "agent", "other")
    await check_sound(store, place, document)
    await check_sound(store, HERE, document)


@in_loop
async def test_a_session_of_several_agents_is_imported_as_one():
    crew = await opened(MemoryStateStore(), scope="multi_agent", agent_id="crew")
    crew.agent("writer").add_message("assistant", "draft")
    crew.agent("writer").set("step", 1)
    await crew.commit()
    store = MemoryStateStore()
    await imported(store, await crew.export())
    there = await opened(store, scope="multi_agent", agent_id="crew", must_exist=True)
    assert there.agents == ["writer"]
    assert there.agent("writer").get("step") == 1


@STORES
@in_loop
async def test_a_document_without_events_becomes_one_event(atomic):
    store = FaultyStateStore(MemoryStateStore(), atomic=atomic)
    document = session_snapshot(state(3, plan=1), HERE, base=state(1))
    result = await imported(store, document)
    assert (result.messages_restored, result.events_restored) == (3, 0)
    session = await check_sound(store)
    (event,) = [event async for event in session.events]
    assert event.type == "session.imported"
    assert event.data["snapshot_id"] == document.snapshot_id
    assert session.snapshot().digest == document.digest


@in_loop
async def test_a_large_document_is_many_segments_and_loads_from_a_keyframe(monkeypatch):
    monkeypatch.setattr(importing, "EVENTS_A_SEGMENT", 4)
    source = await opened(MemoryStateStore())
    for number in range(30):
        source.add_message("user", "long " * 500 + str(number))
    await source.commit()
    document = await source.export()
    store = Watched()
    await imported(store, document)
    assert len(store.keys_with("/log/")) == 8
    assert len(store.keys_with("/keyframes/")) == 1
    await check_sound(store, document=document)


@in_loop
async def test_what_was_put_into_the_manifest_before_stays():
    store = MemoryStateStore()
    archive = SnapshotArchive(store)
    await archive.save_manifest(location=HERE, manifest=SnapshotManifest(extra={"owner": "Ada"}))
    await imported(store, WHOLE)
    assert (await archive.load_manifest(location=HERE)).extra == {"owner": "Ada"}
    await check_sound(store, document=WHOLE)


@in_loop
async def test_what_was_edited_on_purpose_is_in_the_last_event():
    tree = changed(WHOLE.to_dict(), "state", "values", "plan", to="another")
    manager = SnapshotManager(MemoryStateStore())
    with pytest.raises(InvalidDocumentError, match="allow_modified"):
        manager.from_dict(tree)
    document = manager.from_dict(tree, allow_modified=True)
    result = await manager.import_session(document)
    assert result.events_restored == len(WHOLE.events)
    session = await check_sound(manager.state_store)
    assert session.get("plan") == "another"
    *before, last = [event async for event in session.events]
    assert before == list(WHOLE.events)
    assert last.type == "session.imported"
    assert last.changes == {"set": [("state", "plan", "another")], "delete": []}


@in_loop
async def test_events_that_were_edited_on_purpose_are_a_chain_of_their_own():
    tree = changed(WHOLE.to_dict(), "events", 1, "data", to={"redacted": True})
    document = SessionSnapshot.from_dict(tree, allow_modified=True)
    store = MemoryStateStore()
    await imported(store, document)
    session = await check_sound(store, document=document)
    assert session.log.end.hash != WHOLE.position.hash


# --------------------------------------------------------------------- over one that is there


@DOCUMENTS
@STORES
@in_loop
async def test_over_a_session_its_log_goes_on_and_the_import_can_be_undone(document, atomic):
    store = FaultyStateStore(MemoryStateStore(), atomic=atomic)
    session = await said(await opened(store), "mine", "also mine")
    session.set("own", 1)
    await session.commit()
    before, seq = session.snapshot(), session.log.end.seq
    result = await imported(store, document)
    assert (result.created, result.events_restored) == (False, 0)
    assert result.diff == document.snapshot.diff(before)
    there = await check_sound(store)
    assert there.snapshot().digest == document.digest
    last = [event async for event in there.events][-1]
    assert (last.seq, last.type) == (seq + 1, "session.imported")
    assert last.data == {
        "agent_id": "bot",
        "session_id": "ses",
        "snapshot_id": document.snapshot_id,
        "undo": result.undo_id,
    }
    undo = await there.archive.load_snapshot(location=HERE, snapshot_id=result.undo_id)
    assert undo.digest == before.digest
    assert undo.tags == {"reason": "before import", "import": document.snapshot_id}

    await there.restore(result.undo_id)
    again = await check_sound(store)
    assert contents(again) == ["mine", "also mine"]
    assert again.state == {"own": 1}


@in_loop
async def test_the_same_document_again_changes_nothing_and_says_so():
    store = MemoryStateStore()
    await imported(store, WHOLE)
    result = await imported(store, WHOLE)
    assert result.diff == NOTHING
    session = await check_sound(store)
    assert session.snapshot().digest == WHOLE.digest
    assert types([event async for event in session.events])[-1] == "session.imported"


@in_loop
async def test_an_agent_that_writes_meanwhile_is_imported_over_and_kept_for_the_undo():
    disk = MemoryStateStore()
    await said(await opened(disk), "before")
    counting = Interrupted(disk, 0, None)
    await imported(counting, WHOLE)
    for at in range(1, counting.calls + 1):
        disk = MemoryStateStore()
        agent = await said(await opened(disk), "before")
        result = await imported(
            Interrupted(disk, at, lambda agent=agent: said(agent, "new")), WHOLE
        )
        session = await check_sound(disk)
        if types([event async for event in session.events])[-1] != "session.imported":
            assert contents(session)[-1] == "new"  # the agent was last
            continue
        assert session.snapshot().digest == WHOLE.digest
        ids = await session.archive.list_snapshot_ids(location=HERE)
        assert ids == [result.undo_id]
        undo = await session.archive.load_snapshot(location=HERE, snapshot_id=result.undo_id)
        assert [message["content"] for message in undo.state.messages] == ["before", "new"]
        assert result.diff == WHOLE.snapshot.diff(undo.snapshot)


@in_loop
async def test_an_agent_that_never_rests_cannot_be_imported_over():
    class Busy(MemoryStateStore):
        agent = None

        async def put_many(self, puts):
            puts = list(puts)
            agent = self.agent
            if agent is not None and "/log/" in puts[0].key:
                self.agent = None
                await said(agent, "more")
                self.agent = agent
            return await super().put_many(puts)

    store = Busy()
    agent = await said(await opened(store), "before")
    store.agent = agent
    with pytest.raises(ConflictError, match="first 8 times: import when its agent rests"):
        await imported(store, WHOLE)
    session = await check_sound(store)
    assert contents(session) == ["before", *["more"] * 8]
    assert await session.archive.list_snapshot_ids(location=HERE) == []


# --------------------------------------------------------------------------------------- dry run


async def empty(store):
    """Nothing there."""


async def session_there(store):
    session = await said(await opened(store), "mine")
    session.set("plan", "mine")
    await session.save()


async def half_deleted(store):
    await session_there(store)
    await store.put(deleted_key("ses"), b"{}")


async def half_imported(store):
    crashing = FaultyStateStore(store, atomic=False)
    crashing.plan(Fault(2, "crash"))
    with pytest.raises(RAISED):
        await imported(crashing, PRUNED)


async def half_founded(store):
    await session_there(store)
    await store.delete(HERE.manifest)


@DOCUMENTS
@pytest.mark.parametrize(
    "before", [empty, session_there, half_deleted, half_imported, half_founded]
)
@in_loop
async def test_a_dry_run_writes_nothing_and_says_what_the_import_then_does(document, before):
    store = Watched()
    await before(store)
    content = store.content
    store.forget()
    for asked in (store, ReadOnlyStateStore(store)):
        plan = await imported(asked, document, dry_run=True)
        assert (plan.dry_run, plan.undo_id) == (True, None)
        assert store.written == []
    assert store.content == content
    result = await imported(store, document)
    assert replace(plan, dry_run=False, undo_id=result.undo_id) == result
    assert plan.created == (before not in (session_there, half_founded))
    session = await check_sound(store)
    assert session.snapshot().digest == document.digest


@in_loop
async def test_a_store_that_takes_no_writes_is_not_imported_into():
    with pytest.raises(StateStoreError, match="takes no writes"):
        await imported(ReadOnlyStateStore(MemoryStateStore()), WHOLE)


# ------------------------------------------------------------------------------- what is refused


def without_chain(document):
    events = list(document.events)
    return replace(document, events=(*events[:1], *events[2:]))


def forged(document):
    first, *others = document.events
    return replace(document, events=(replace(first, type="another"), *others))


FAR = linked([draft("far")], 10**12 - 2, "ab" * 32)
LATER = linked([draft("later")], 0, "ab" * 32)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (without_chain(WHOLE), "are no chain"),
        (forged(WHOLE), "are no chain"),
        (forged(PRUNED), "are no chain"),
        (replace(WHOLE, events=WHOLE.events[1:]), "begin at 2, and it has no state from before"),
        (replace(PRUNED, base=None), "begin at 7, and it has no state from before"),
        (replace(WHOLE, base=state(1)), "begin at 1, and yet it says that something was before"),
        (replace(WHOLE, events=tuple(LATER)), "begin at 1, and yet it says that something"),
        (replace(PRUNED, events=tuple(FAR)), "have numbers from 1 to 999999999998, not to 9999"),
        (
            replace(WHOLE, events=tuple(linked([draft("x")], -1, ""))),
            "have numbers from 1|no state",
        ),
    ],
)
@pytest.mark.parametrize("before", [empty, session_there])
@in_loop
async def test_what_is_no_whole_document_is_refused_before_the_first_write(
    document, problem, before
):
    store = Watched()
    await before(store)
    store.forget()
    for dry_run in (True, False):
        with pytest.raises(InvalidDocumentError, match=problem):
            await imported(store, document, dry_run=dry_run)
    assert store.written == []


@pytest.mark.parametrize(
    "options",
    [{"agent_id": ""}, {"session_id": "x" * 300}, {"agent_id": 7}, {"session_id": "\ud800"}],
)
@in_loop
async def test_ids_that_are_none_are_refused_before_the_first_write(options):
    store = Watched()
    with pytest.raises((TypeError, ValueError), match="agent_id|session_id|scope_id"):
        await imported(store, WHOLE, **options)
    assert store.written == []


def test_an_empty_state_from_before_the_first_event_is_no_harm():
    events = importing.checked_events(replace(WHOLE, base=Store().snapshot()))
    assert events[:-1] == list(WHOLE.events)
    later = with_events(draft("one", set_=[("state", "k", 1)]), after=3, prev="ab" * 32)
    assert importing.checked_events(later)[:-1] == list(later.events)


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


LARGE = session_snapshot(state(2, large="x" * 40_000), HERE)


@pytest.mark.parametrize("before", [empty, session_there, half_deleted, half_imported])
@pytest.mark.parametrize("document", [WHOLE, PRUNED, LARGE], ids=["whole", "pruned", "large"])
@STORES
@in_loop
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


OTHER = done(pruned_document(last="other"))
LONGER = with_events(
    draft("one", set_=[("messages", "000000000000", {"role": "user", "content": "x"})]),
    after=12,
    prev="cd" * 32,
)


@pytest.mark.parametrize("other", [WHOLE, PRUNED, OTHER, LONGER, None])
@DOCUMENTS
@STORES
@in_loop
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
            assert "was begun by somebody else" in problem
        session = await check_sound(disk)
        if problem is None and other is None:
            assert contents(session)[:1] in (["an agent's own"], contents_of(document)[:1]), at
        elif other is not None:
            assert session.snapshot().digest in (document.digest, other.digest), at
        await imported(FaultyStateStore(disk, atomic=atomic), document)
        assert (await check_sound(disk)).snapshot().digest == document.digest


@in_loop
async def test_who_takes_a_half_written_import_for_what_a_crash_left_does_no_harm():
    _, calls = await meanwhile(MemoryStateStore(), False, PRUNED, None, 0)
    for at in range(1, calls + 1):
        disk = MemoryStateStore()
        await meanwhile(disk, False, PRUNED, lambda disk=disk: opened(disk), at)
        await check_sound(disk, document=PRUNED)


@in_loop
async def test_many_who_import_one_document_at_once_leave_one_session():
    store = MemoryStateStore()
    results = await asyncio.gather(
        *(imported(store, PRUNED) for _ in range(6)), return_exceptions=True
    )
    assert all(isinstance(each, ConflictError) or each.messages_restored == 6 for each in results)
    assert sum(getattr(each, "created", False) for each in results) == 1
    session = await check_sound(store)
    assert session.snapshot().digest == PRUNED.digest
