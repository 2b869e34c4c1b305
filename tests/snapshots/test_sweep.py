"""Blobs that nothing refers to are deleted by a prune, and no others."""

from __future__ import annotations

import datetime as dt
import hashlib

import pytest

from holdfast import ConflictError, NotFoundError, RetentionPolicy, Session
from holdfast.blobs import holds
from holdfast.blobs.holds import HOLD_AGE, write_holds
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.blobs.reader import BlobReader
from holdfast.log import timeline as timeline_module
from holdfast.log.segment import join_segment
from holdfast.snapshots import SnapshotArchive
from holdfast.snapshots.delete import delete_locations
from holdfast.snapshots.sweep import sweep_blobs
from support.async_tests import async_test
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import ObservedStore

LARGE = 70_000
KEEP_ONE = RetentionPolicy(last=1)
SOON = dt.datetime.now(dt.UTC)


def large(name):
    """Return a large text."""
    return f"{name} ".ljust(LARGE, name[0])


def digest_of(content):
    """Return the digest of a text or bytes."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


async def open_session(store, session_id="ses_1", agent_id="bot"):
    return await Session.open(store, agent_id=agent_id, session_id=session_id)


async def list_blobs(store, session):
    """Return the digests of the stored blobs."""
    return {each async for each in BlobReader(store, session.location.prefix).list()}


async def prune(store, session, policy=KEEP_ONE, **options):
    options.setdefault("now", dt.datetime.now(dt.UTC))
    return await SnapshotArchive(store).prune(location=session.location, policy=policy, **options)


async def verify(store, session):
    return await SnapshotArchive(store).verify(location=session.location)


async def save_values(session, *names):
    """Save a snapshot for each of some large values, each in the place of the one before."""
    for name in names:
        session.set("image", large(name))
        await session.save(tags={"name": name})


async def check_state(store, session, name):
    """Check that the current value loads, and that nothing is damaged."""
    again = await open_session(store, session.session_id)
    assert again.get("image") == large(name)
    assert (await verify(store, session)).damage == []


@async_test
async def test_a_prune_deletes_the_blobs_of_pruned_events_only():
    store = ObservedStore()
    session = await open_session(store)
    await save_values(session, "a", "b", "c")
    session.set("image", large("d"))
    await session.commit()
    plan = await prune(store, session, dry_run=True)
    before = store.content
    assert (plan.blobs_removed, plan.bytes_removed) == (2, 2 * LARGE)
    assert store.content == before
    done = await prune(store, session)
    assert (done.blobs_removed, done.bytes_removed) == (2, 2 * LARGE)
    assert await list_blobs(store, session) == {digest_of(large("c")), digest_of(large("d"))}
    await check_state(store, session, "d")
    done = await prune(store, session)
    assert (done.blobs_removed, done.bytes_removed) == (0, 0)


@async_test
async def test_kept_snapshots_keep_their_blobs():
    store = ObservedStore()
    session = await open_session(store)
    await save_values(session, "a", "b", "c", "d")
    ids = await session.archive.list_snapshot_ids(location=session.location)
    policy = RetentionPolicy(last=1, protected={"name": "b"})
    plan = await prune(store, session, policy, dry_run=True)
    done = await prune(store, session, policy)
    assert (plan.blobs_removed, plan.bytes_removed) == (2, 2 * LARGE)
    assert (done.blobs_removed, done.bytes_removed) == (2, 2 * LARGE)
    assert done.kept == [ids[1], ids[3]]
    kept = await session.archive.load_snapshot(location=session.location, snapshot_id=ids[1])
    assert kept.state.values["image"] == large("b")
    await check_state(store, session, "d")


@async_test
async def test_keyframes_are_references(monkeypatch):
    monkeypatch.setattr(timeline_module, "MAX_SEGMENTS", 2)
    store = ObservedStore()
    session = await open_session(store)
    session.set("image", large("first"))
    for number in range(9):
        session.set("number", number)
        await session.save()
    assert (await prune(store, session)).blobs_removed == 0
    await check_state(store, session, "first")


@async_test
async def test_unreferenced_blobs_are_deleted_although_nothing_expired():
    store = ObservedStore()
    session = await open_session(store)
    await save_values(session, "a")
    image = await session.attach(b"x" * (CHUNK_SIZE + 5))
    await session.committer.blobs.write(session.committer.blobs.offered.values())
    found = await verify(store, session)
    assert found.ok
    (left,) = found.unreferenced_blobs
    assert (left.digest, left.size, left.is_complete) == (image.digest, CHUNK_SIZE + 5, True)
    assert (found.blobs, found.blob_bytes) == (2, LARGE + CHUNK_SIZE + 5)
    plan = await prune(store, session, dry_run=True)
    assert (plan.blobs_removed, plan.bytes_removed) == (1, CHUNK_SIZE + 5)
    done = await prune(store, session)
    assert (done.blobs_removed, done.bytes_removed) == (1, CHUNK_SIZE + 5)
    assert (await verify(store, session)).unreferenced_blobs == []
    # It is still offered, so it is written again when an event refers to it.
    session.add_message("user", [image])
    await session.commit()
    assert len(await session.read_attachment(image)) == image.size
    assert (await verify(store, session)).ok


@async_test
async def test_digests_in_plain_text_and_escaped_ones_count():
    store = ObservedStore()
    session = await open_session(store)
    contents = [b"one" * 5, b"two" * 5]
    for content in contents:
        await session.attach(content)
    await session.committer.blobs.write(session.committer.blobs.offered.values())
    digests = [digest_of(content) for content in contents]
    session.set("plain", {"mine": digests[0]})
    await session.commit()
    other = f"{session.location.prefix}log/0123abcd/000000000001.json"
    segment = next(key for key in store.keys_with("/log/"))
    await store.put(other, store.content[segment])
    text = f'[{{"x":"\\u00{ord(digests[1][0]):02x}{digests[1][1:]}"}}]'.encode()
    await store.put(other, join_segment(other, 1, 1, "", "h", text).encode())
    assert (await prune(store, session)).blobs_removed == 0
    assert (await verify(store, session)).unreferenced_blobs == []
    await store.delete(other)
    assert (await prune(store, session)).blobs_removed == 1
    assert await list_blobs(store, session) == {digests[0]}


@async_test
async def test_nothing_is_deleted_while_the_log_is_damaged():
    store = ObservedStore()
    session = await open_session(store)
    await save_values(session, "a", "b", "c")
    await prune(store, session)
    await save_values(session, "d", "e")
    await session.attach(b"left over")
    await session.committer.blobs.write(session.committer.blobs.offered.values())
    before = await list_blobs(store, session)
    for key in (store.keys_with("/log/")[-2], store.keys_with("/keyframes/")[0]):
        intact = store.content[key]
        for change in (lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda _: None):
            await store.damage(key, change)
            assert (await sweep_blobs(store, session.location)).digests == []
            assert await list_blobs(store, session) == before
            await store.put(key, intact)
    assert len((await sweep_blobs(store, session.location)).digests) == 1


@async_test
async def test_a_session_without_blobs_costs_one_listing():
    store = ObservedStore()
    session = await open_session(store)
    await session.save()
    store.forget()
    await sweep_blobs(store, session.location)
    assert store.calls == ["list"]


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@async_test
async def test_a_prune_interrupted_anywhere_is_resumed(is_done):
    at = 0
    while True:
        at += 1
        store = ObservedStore()
        session = await open_session(store)
        await save_values(session, "a", "b", "c")
        session.set("second", large("x") * 8)
        await session.save()
        dying = FaultyStateStore(store, [Fault(at, "crash", is_done)])
        try:
            await prune(dying, session)
        except Crash:
            await check_state(store, session, "c")
            await prune(store, session)
            assert await list_blobs(store, session) == {
                digest_of(large("c")),
                digest_of(large("x") * 8),
            }
            found = await verify(store, session)
            assert (found.damage, found.unreferenced_blobs) == ([], [])
        else:
            assert at > 8
            return


@async_test
async def test_a_deletion_deletes_blobs_and_those_of_no_other_agent():
    store = ObservedStore()
    sessions = [await open_session(store, agent_id=agent) for agent in ("ann", "bob")]
    for session in sessions:
        await save_values(session, "a")
    await delete_locations(store, "ses_1", [sessions[0].location])
    assert store.keys_with("/ann/") == []
    assert await list_blobs(store, sessions[1]) == {digest_of(large("a"))}
    await SnapshotArchive(store).delete_session(session_id="ses_1")
    assert store.keys_with("") == []


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@async_test
async def test_an_interrupted_deletion_is_resumed(is_done):
    at = 0
    while True:
        at += 1
        store = ObservedStore()
        session = await open_session(store)
        await save_values(session, "a", "b")
        dying = FaultyStateStore(store, [Fault(at, "crash", is_done)])
        try:
            await SnapshotArchive(dying).delete_session(session_id="ses_1")
        except Crash:
            await SnapshotArchive(store).delete_session(session_id="ses_1")
            assert store.keys_with("") == []
        else:
            assert at > 6
            return


@async_test
async def test_a_new_incarnation_sweeps_what_the_old_one_left():
    store = ObservedStore()
    session = await open_session(store)
    await save_values(session, "a")
    left = {key: value for key, value in store.content.items() if "/blobs/" in key}
    await SnapshotArchive(store).delete_session(session_id="ses_1")
    for key, value in left.items():
        await store.put(key, value)
    session = await open_session(store)
    await save_values(session, "b")
    assert (await prune(store, session)).blobs_removed == 1
    assert await list_blobs(store, session) == {digest_of(large("b"))}


@async_test
async def test_a_writer_stores_its_blobs_again_after_a_sweep():
    for atomic in (True, False):
        inner = ObservedStore()
        store = FaultyStateStore(inner, atomic=atomic)
        session = await open_session(store)
        await save_values(session, "a")
        session.set("image", large("b"))
        await session.committer.blobs.store(session.committer.working.pending, 0)
        assert (await prune(store, session)).blobs_removed == 1
        await session.commit()
        await check_state(store, session, "b")
        assert inner.keys_with("blob_holds") == []


@async_test
async def test_a_commit_that_refers_to_a_swept_blob_fails():
    for atomic in (True, False):
        store = FaultyStateStore(ObservedStore(), atomic=atomic)
        session = await open_session(store)
        await save_values(session, "a")
        other = await open_session(store)
        mark = other.snapshot()
        await save_values(session, "b", "c")
        await prune(store, session)
        assert digest_of(large("a")) not in await list_blobs(store, session)
        with pytest.raises((ConflictError, NotFoundError)):
            await other.restore(mark)
        other = await open_session(store)
        with pytest.raises(NotFoundError, match=digest_of(large("a"))):
            await other.restore(mark)
        await check_state(store, session, "c")


@async_test
async def test_holds_are_spared_until_they_expire(monkeypatch):
    store = ObservedStore()
    session = await open_session(store)
    await save_values(session, "a")
    await session.attach(b"left over")
    await session.committer.blobs.write(session.committer.blobs.offered.values())
    await write_holds(store, session.location.prefix, [digest_of(b"left over")])
    foreign = f"{session.location.prefix}blob_holds/notes.txt"
    await store.put(foreign, b"mine")
    assert (await prune(store, session)).blobs_removed == 0
    found = await verify(store, session)
    assert (found.damage, found.other_keys) == ([], [foreign])
    later = dt.datetime.now(dt.UTC) + HOLD_AGE + dt.timedelta(seconds=1)
    assert (await prune(store, session, now=later)).blobs_removed == 0  # whatever time is given
    monkeypatch.setattr(holds, "HOLD_AGE", dt.timedelta(seconds=-1))
    assert (await prune(store, session)).blobs_removed == 1
    assert store.keys_with("blob_holds") == [foreign]


@async_test
async def test_a_claim_that_a_crash_left_is_swept():
    store = ObservedStore()
    session = await open_session(store)
    session.set("image", large("a"))
    dying = FaultyStateStore(store, [Fault(3, "crash")])
    victim = await open_session(dying)
    victim.set("image", large("b"))
    with pytest.raises(Crash):
        await victim.commit()
    assert await list_blobs(store, session) == {digest_of(large("b"))}
    assert (await prune(store, session)).blobs_removed == 1
    await session.commit()
    await check_state(store, session, "a")


@async_test
async def test_a_repair_deletes_unreferenced_blobs_by_a_sweep():
    store = ObservedStore()
    session = await open_session(store)
    await save_values(session, "a")
    await session.attach(b"left over")
    await session.committer.blobs.write(session.committer.blobs.offered.values())
    result = await SnapshotArchive(store).repair(location=session.location)
    assert result.removed == [f"{session.location.prefix}blobs/{digest_of(b'left over')}"]
    manifest = await SnapshotArchive(store).load_manifest(location=session.location)
    assert manifest.blob_sweeps == 1
    await check_state(store, session, "a")
