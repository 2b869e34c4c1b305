"""The greatest sequence number, and the hash at the head of a log."""

from __future__ import annotations

import hashlib
import json

import pytest

from holdfast import HoldfastError, IntegrityError, SnapshotArchive, SnapshotManager
from holdfast.log.event import draft_event
from holdfast.log.event_log import MAX_SEQ
from holdfast.log.hash_chain import hash_plain_events
from support.async_tests import async_test
from support.conversations import add_messages, list_contents, open_session, reopen_session
from support.observed_store import HERE, ObservedStore, make_snapshot, make_state, save
from support.sample_documents import make_document_with_events


async def make_session_ending_at(store, seq):
    """Create a session whose last event has a given seq, from a crafted document."""
    made = make_document_with_events(
        draft_event("far", set_=[("state", "k", 1)]), after=seq - 2, prev="ab" * 32
    )
    await SnapshotManager(store).import_session(made)
    session = await open_session(store, HERE.session_id, agent_id=HERE.scope_id)
    assert session.log.head.seq == seq
    return session


@async_test
async def test_a_commit_past_the_last_seq_is_refused():
    store = ObservedStore()
    session = await make_session_ending_at(store, MAX_SEQ)
    session.add_message("user", "lost?")
    before = store.content
    for work in (session.commit, lambda: session.commit(on_conflict="rebase"), session.save):
        with pytest.raises(HoldfastError, match="log is full: event number 1000000000000 is past"):
            await work()
    with pytest.raises(HoldfastError, match="log is full"):
        await session.once("pay", lambda: "paid")
    with pytest.raises(HoldfastError, match="log is full"):
        await save(SnapshotArchive(store), make_snapshot(make_state(3)))
    assert store.content == before
    assert list_contents(session) == ["lost?"]
    assert (await reopen_session(session)).log.head.seq == MAX_SEQ
    fork = await session.fork("other")
    assert list_contents(await reopen_session(fork)) == ["lost?"]


@async_test
async def test_a_commit_that_crosses_the_last_seq_is_refused():
    store = ObservedStore()
    session = await make_session_ending_at(store, MAX_SEQ - 2)
    for text in "abc":
        session.add_message("user", text)
    with pytest.raises(HoldfastError, match="log is full"):
        await session.commit()
    await session.reload()
    await add_messages(session, "a", "b")
    again = await reopen_session(session)
    assert again.log.head.seq == MAX_SEQ
    assert list_contents(again) == ["a", "b"]
    assert (await again.verify()).ok


def replace_hash(data):
    """Replace the hash of a segment."""
    tree = json.loads(data)
    tree["hash"] = tree["hash"][::-1]
    return json.dumps(tree, separators=(",", ":")).encode()


@async_test
async def test_open_fails_when_the_hash_of_the_last_segment_is_wrong():
    store = ObservedStore()
    session = await add_messages(await open_session(store), "a", "b", "c")
    key = store.keys_with("/log/")[-1]
    await store.damage(key, replace_hash)
    for work in (lambda: reopen_session(session), session.reload):
        with pytest.raises(IntegrityError, match="hash of its events does not match") as error:
            await work()
        assert key in str(error.value)
    with pytest.raises(IntegrityError, match="hash of its events does not match"):
        await save(
            SnapshotArchive(store), make_snapshot(make_state(1), session.location), session.location
        )


@async_test
async def test_open_hashes_only_the_last_segment(monkeypatch):
    store = ObservedStore()
    session = await add_messages(await open_session(store), *"abcdefgh")
    hashed = []
    original = hash_plain_events

    def counted(events, seq, prev):
        hashed.append(seq)
        return original(events, seq, prev)

    monkeypatch.setattr("holdfast.log.linked_events.hash_plain_events", counted)
    await reopen_session(session)
    assert len(hashed) == 1


@async_test
async def test_a_session_with_unregistered_types_can_be_opened():
    store = ObservedStore()
    session = await add_messages(await open_session(store), "a")
    session.record("tool.called", {"x": 1})
    await session.commit()
    key = store.keys_with("/log/")[-1]

    def unknown(data):
        tree = json.loads(data)
        tree["events"][0]["data"] = {"$type": ["example.unknown", 1]}
        raw = json.dumps(tree["events"], separators=(",", ":"))
        tree["digest"] = hashlib.sha256(raw.encode()).hexdigest()
        return json.dumps(tree, separators=(",", ":")).encode()

    await store.damage(key, unknown)
    assert list_contents(await reopen_session(session)) == ["a"]
