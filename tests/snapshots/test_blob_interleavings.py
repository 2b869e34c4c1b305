"""Writers, prunes, deletions and creations in any order: no reference is left without its blob."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import (
    ConflictError,
    IntegrityError,
    NotFoundError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
)
from holdfast.blobs import holds
from holdfast.snapshots import SessionSnapshot, SnapshotLocation, incarnation
from holdfast.stores import local
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.portal import run_inline
from support.interleaving import Actor, ScheduledStore, run_schedule

HERE = SnapshotLocation("ses_1", scope_id="bot")
LARGE = "large ".ljust(70_000, "x")
OLD = b"only the first snapshot refers to this"
KINDS = {
    "conditional": {},
    "atomic": {"conditional": False},
    "plain": {"atomic": False, "conditional": False},
}
POLICY = RetentionPolicy(last=1)


async def open_session(store, session_id="ses_1"):
    return await Session.open(store, agent_id="bot", session_id=session_id)


async def build():
    """Return a store with a session whose first snapshot refers to blobs that the head does not."""
    store = MemoryStateStore()
    session = await open_session(store)
    session.set("old", await session.attach(OLD))
    session.set("text", LARGE)
    first = await session.save()
    session.set("old", None)
    session.set("text", None)
    await session.save()
    session.set("head", await session.attach(b"the head refers to this"))
    await session.save()
    return store, first.snapshot_id


BUILT, FIRST = asyncio.run(build())


def copy_store(built=BUILT):
    """Return a copy of a store."""
    store = MemoryStateStore()
    store._entries, store._keys = copy.copy(built._entries), copy.copy(built._keys)
    return store


# ------------------------------------------------------------------------------------ actors
# Each returns the values that it was told are durable, by session and key.


async def restore_first(store):
    session = await open_session(store)
    await session.restore(FIRST)
    return {"ses_1": {"old": OLD, "text": LARGE}}


async def set_old_again(store):
    """Store a content that exists, and that a prune is about to delete."""
    session = await open_session(store)
    session.set("mine", await session.attach(OLD))
    await session.commit(on_conflict="rebase")
    return {"ses_1": {"mine": OLD}}


async def set_twice(store):
    """Refer to the same blob in two commits."""
    session = await open_session(store)
    image = await session.attach(b"new")
    session.set("new", image)
    await session.commit(on_conflict="rebase")
    session.set("new", None)
    await session.save(on_conflict="rebase")
    session.set("new", image)
    await session.save(on_conflict="rebase")
    return {"ses_1": {"new": b"new"}}


async def do_once(store):
    session = await open_session(store)
    await session.once("effect", lambda: LARGE)
    return {}


async def update(store):
    session = await open_session(store)
    image = await session.attach(OLD)
    await session.update(lambda each: each.set("updated", image))
    return {"ses_1": {"updated": OLD}}


async def save_state(store):
    """Save a whole state, by code without a log."""
    archive = SnapshotArchive(store)
    latest = await archive.load_snapshot(location=HERE)
    state = latest.to_store()
    state.set("state", "saved", LARGE)
    made = SessionSnapshot.from_snapshot(state.snapshot(), agent_id="bot", session_id="ses_1")
    await archive.save_snapshot(
        location=HERE, snapshot_id=made.snapshot_id, is_latest=False, snapshot=made
    )
    return {}


async def fork(store):
    session = await open_session(store)
    await session.fork("ses_2", at=FIRST)
    return {"ses_2": {"old": OLD, "text": LARGE}}


async def create_fork_target(store):
    """Create the session that a fork creates."""
    session = await open_session(store, "ses_2")
    session.set("old", await session.attach(OLD))
    await session.commit()
    return {}


async def prune(store):
    await SnapshotArchive(store).prune(location=HERE, policy=POLICY)
    return {}


async def delete(store):
    await SnapshotArchive(store).delete_session(session_id="ses_1")
    return {}


async def save_number(store):
    session = await open_session(store)
    session.set("number", 1)
    await session.save()
    return {"ses_1": {"number": 1}}


async def create(store):
    """Create the session with the same content, if it is deleted."""
    session = await open_session(store)
    session.set("mine", await session.attach(OLD))
    await session.commit(on_conflict="rebase")
    return {"ses_1": {"mine": OLD}}


async def recreate(store):
    """Delete the session, and create it with the same content."""
    await delete(store)
    return await create(store)


SCENARIOS = [
    (restore_first, prune),
    (set_old_again, prune),
    (set_twice, prune),
    (do_once, prune),
    (update, prune),
    (save_state, prune),
    (fork, prune),
    (prune, prune),
    (fork, create_fork_target),
    (recreate, prune),
    (recreate, delete),
    (recreate, recreate),
    (save_number, prune),
    (set_old_again, recreate),
    (restore_first, recreate),
    (restore_first, prune, set_old_again),
    (set_old_again, prune, prune),
    (set_twice, prune, prune),
    (recreate, prune, delete),
    (save_state, prune, prune),
]
DELETING = {delete, recreate}


# ------------------------------------------------------------------------------------- checks


def len_calls(kind, work, inner=BUILT):
    """Return how many store calls an actor makes alone."""
    return Actor(work(ScheduledStore(copy_store(inner), **KINDS[kind]))).run()


def check_schedule(kind, scenario, schedule, killed=(), inner=BUILT):
    """Run a scenario, and check what is stored and what was acknowledged."""
    inner = copy_store(inner)
    actors = [Actor(each(ScheduledStore(inner, **KINDS[kind]))) for each in scenario]
    run_schedule(actors, schedule, killed)
    is_deleting = bool(DELETING & {*scenario})
    # A load in the middle of a deletion can find that a part is gone.
    expected = (ConflictError, NotFoundError, type(None), *[IntegrityError] * is_deleting)
    for actor in actors:
        if not isinstance(actor.error, expected):
            raise actor.error
    acknowledged = [actor.result for actor in actors if actor.result]
    # A restore removes what another writer set before.
    may_be_removed = is_deleting or (restore_first in scenario and len(acknowledged) > 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holds, "HOLD_AGE", dt.timedelta(seconds=-1))
        run_inline(check_stored(inner, acknowledged, may_be_removed=may_be_removed))


async def check_stored(inner, acknowledged, *, may_be_removed):
    """Check the sessions now and after a prune without holds, which leaves no blob over."""
    archive = SnapshotArchive(inner)
    for session_id in ("ses_1", "ses_2"):
        location = SnapshotLocation(session_id, scope_id="bot")
        await archive.recover(location)  # finish a deletion whose process was killed
        session = await open_session(inner, session_id)
        if session.committer.incarnation.is_created:
            assert (await archive.verify(location=location)).damage == []
            await archive.prune(location=location, policy=POLICY)
            found = await archive.verify(location=location)
            assert (found.damage, found.unreferenced_blobs) == ([], [])
            session = await open_session(inner, session_id)
        for values in acknowledged:
            for key, expected in values.get(session_id, {}).items():
                value = session.get(key)
                if value is None:
                    assert may_be_removed
                elif isinstance(expected, bytes):
                    assert await session.read_attachment(value) == expected
                else:
                    assert value == expected


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    """Do not wait between attempts."""
    monkeypatch.setattr(local.time, "sleep", lambda _: None)


SCHEDULES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40) | st.integers(0, 8)), min_size=1, max_size=5
)


@example("atomic", (restore_first, prune, set_old_again), [(2, 9)], set(), False)  # noqa: FBT003
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(SCENARIOS),
    SCHEDULES,
    st.sets(st.integers(0, 2), max_size=1),
    st.booleans(),
)
def test_no_schedule_leaves_a_reference_without_its_blob(
    kind, scenario, schedule, killed, moves_index
):
    count = len(scenario)
    with pytest.MonkeyPatch.context() as patch:
        resolution = dt.timedelta(0) if moves_index else dt.timedelta(days=1)
        patch.setattr(incarnation, "ACTIVITY_RESOLUTION", resolution)
        check_schedule(
            kind,
            scenario,
            [(at % count, calls) for at, calls in schedule],
            {at % count for at in killed},
        )


@pytest.mark.parametrize(
    ("kind", "writer"),
    [
        *((kind, set_old_again) for kind in KINDS),
        *((kind, writer) for kind in ("conditional", "plain") for writer in (restore_first, fork)),
    ],
)
def test_a_prune_between_any_two_calls_of_a_writer(kind, writer):
    """The prune runs there, and the writer is continued, or was killed."""
    opened, calls = len_calls(kind, open_session), len_calls(kind, writer)
    assert calls > opened
    for at in range(opened - 1, calls + 1):
        check_schedule(kind, (writer, prune), [(0, at), (1, 1000)])
        check_schedule(kind, (writer, prune), [(0, at), (1, 1000)], killed=[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_writer_between_any_two_calls_of_a_prune(kind):
    calls = len_calls(kind, prune)
    assert calls > 30
    for at in range(0, calls + 1, 3):
        check_schedule(kind, (prune, set_old_again), [(0, at), (1, 1000)])


@pytest.mark.parametrize("kind", KINDS)
def test_a_deletion_and_a_creation_between_any_two_calls_of_each_other(kind):
    for at in range(len_calls(kind, delete) + 1):
        check_schedule(kind, (delete, create), [(0, at), (1, 1000)])
    inner = copy_store()
    Actor(delete(ScheduledStore(inner))).run()
    for at in range(len_calls(kind, create, inner) + 1):
        check_schedule(kind, (create, delete), [(0, at), (1, 1000)], inner=inner)


@pytest.mark.parametrize("kind", ["atomic", "plain"])
def test_a_commit_that_a_killed_prune_has_seen_is_kept(kind):
    """Without conditions a commit may see only after its write that its log was pruned."""
    for at in range(len_calls(kind, open_session), len_calls(kind, save_number) + 1):
        for calls in range(14, 32, 4):
            check_schedule(kind, (save_number, prune), [(0, at), (1, calls)], killed=[1])
