"""What a verification reports about blobs."""

from __future__ import annotations

import hashlib

import pytest

from holdfast import Session
from holdfast.blobs.keys import CHUNK_SIZE, chunk_key
from holdfast.snapshots import SnapshotArchive
from holdfast.snapshots.verify_blobs import StoredContent, describe_problem
from support.async_tests import async_test
from support.observed_store import ObservedStore

CONTENT = bytes(range(256)) * 5000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


async def write_session(store):
    """Write a session with one attachment of three chunks, and return it."""
    session = await Session.open(store, agent_id="bot", session_id="ses_1")
    image = await session.attach(CONTENT, media_type="image/png")
    session.add_message("user", ["look", {"image": image}])
    await session.save()
    session.record("tool.called", {"args": (image,)})
    await session.commit()
    return session


async def find_damage(store, session):
    found = await SnapshotArchive(store).verify(location=session.location)
    assert not found.ok
    assert found.unreferenced_blobs == []
    (damage,) = found.damage
    return damage


def delete(_):
    return None


@pytest.mark.parametrize(
    ("numbers", "change", "problem"),
    [
        ([0, 1, 2], delete, "which is missing"),
        ([0], delete, "which is incomplete: 2 of 3 chunks are stored"),
        ([2], delete, "which is incomplete: 2 of 3 chunks are stored"),
        ([1], lambda data: b"x" + data[1:], "which is damaged: its content does not match"),
        ([2], lambda data: data[:-1], "which is damaged: its content does not match"),
    ],
    ids=["missing", "without the first chunk", "without the last chunk", "changed", "shorter"],
)
@async_test
async def test_a_reference_without_its_blob_is_damage(numbers, change, problem):
    store = ObservedStore()
    session = await write_session(store)
    for number in numbers:
        await store.damage(chunk_key(session.location.prefix, DIGEST, number), change)
    damage = await find_damage(store, session)
    assert damage.key == store.keys_with("/log/")[0]
    assert damage.problem.startswith(
        f"event 2 (and 1 more) refers to blob {DIGEST} of {len(CONTENT)} bytes, {problem}"
    )


@async_test
async def test_references_of_keyframes_and_files_are_verified():
    store = ObservedStore()
    session = await write_session(store)
    file = {"digest": DIGEST, "size": len(CONTENT), "mode": 0o644}
    event = session.committer.working.record_owned(
        "files.captured", None, {"set": [("files", "a.png", file)], "delete": []}
    )
    assert event.referred_digests() == {DIGEST}
    await session.commit()
    timeline = session.committer.timeline
    await timeline.write_keyframe(session.committer.working.base)
    assert (await SnapshotArchive(store).verify(location=session.location)).ok
    for key in store.keys_with("/blobs/"):
        await store.delete(key)
    damage = await find_damage(store, session)
    assert " (and 4 more) refers to" in damage.problem


@async_test
async def test_references_in_keys_of_dicts_are_verified():
    store = ObservedStore()
    session = await Session.open(store, agent_id="bot", session_id="ses_1")
    chart = await session.attach(b"chart")
    session.set("titles", {(chart, 1): "first"})
    await session.commit()
    await store.delete(chunk_key(session.location.prefix, chart.digest, 0))
    assert chart.digest in (await find_damage(store, session)).problem


@async_test
async def test_incomplete_blobs_without_a_reference_are_leftovers():
    store = ObservedStore()
    session = await write_session(store)
    other = hashlib.sha256(b"other").hexdigest()
    await store.put(chunk_key(session.location.prefix, other, 1), b"rest")
    found = await SnapshotArchive(store).verify(location=session.location)
    assert found.ok
    (blob,) = found.unreferenced_blobs
    assert (blob.digest, blob.size, blob.is_complete) == (other, 4, False)
    assert (found.blobs, found.blob_bytes) == (2, len(CONTENT) + 4)


@async_test
async def test_blobs_are_read_a_few_chunks_at_a_time():
    store = ObservedStore()
    session = await Session.open(store, agent_id="bot", session_id="ses_1")
    session.add_message("user", [await session.attach(b"x" * (20 * CHUNK_SIZE))])
    await session.commit()
    sizes = []
    read = store.get_many

    async def get_many(keys):
        found = await read(keys)
        sizes.append(sum(len(entry.value) for entry in found.values()))
        return found

    store.get_many = get_many
    assert (await SnapshotArchive(store).verify(location=session.location)).ok
    await SnapshotArchive(store).delete_session(session_id="ses_1")
    assert store.keys_with("") == []
    assert max(sizes) <= 8 * CHUNK_SIZE


def test_a_reference_with_the_wrong_size_is_damage():
    assert describe_problem(5, StoredContent(4, 1, is_intact=True)) == "has 4 bytes"
    assert describe_problem(4, StoredContent(4, 1, is_intact=True)) == ""
