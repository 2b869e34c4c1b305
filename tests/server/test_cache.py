"""The cache of states at a position."""

from __future__ import annotations

import pytest

from holdfast import IntegrityError, RetentionPolicy, Session, SnapshotArchive
from holdfast.server import cache
from holdfast.server.cache import StateCache
from holdfast.server.problems import Problem
from support.async_tests import async_test
from support.observed_store import HERE, ObservedStore

pytestmark = pytest.mark.usefixtures("one_incarnation")


async def record(store, count=5):
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    for number in range(count):
        session.set("n", number)
        await session.save()
    return session


@async_test
async def test_cached_state_is_validated_with_two_reads():
    store = ObservedStore()
    await record(store)
    states = StateCache(SnapshotArchive(store))
    first = await states.at(HERE, "3")
    store.forget()
    assert await states.at(HERE, "3") is first
    assert store.read == [HERE.manifest_key, f"{HERE.prefix}log/00000000/000000000003.json"]
    assert store.listings == 0
    assert first.state.get("state", "n") == 1
    assert (await states.at(HERE, "now")).position.seq == 6


@async_test
async def test_recreated_session_is_not_served_from_the_cache():
    store = ObservedStore()
    await record(store)
    archive = SnapshotArchive(store)
    states = StateCache(archive)
    await states.at(HERE, "3")
    await archive.delete_session(session_id=HERE.session_id)
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    session.set("n", "another")
    session.set("m", 1)
    await session.commit()
    assert (await states.at(HERE, "3")).state.get("state", "n") == "another"


@pytest.mark.parametrize("with_keyframe", [False, True])
@async_test
async def test_session_restored_from_a_backup_is_not_served_from_the_cache(with_keyframe):
    """It has the same start time and as many events."""
    store = ObservedStore()
    session = await record(store, 1)
    backup = store.content
    archive = SnapshotArchive(store)
    states = StateCache(archive)
    for value in ("first", "second"):
        session.set("n", value)
        await session.commit()
        if with_keyframe:
            await session._committer.timeline.write_keyframe(session.snapshot())
        session.set("m", value)
        await session.commit()
        assert (await states.at(HERE, "3")).state.get("state", "n") == value
        store.forget()
        assert (await states.at(HERE, "3")).state.get("state", "n") == value
        assert store.listings == 0
        await archive.delete_session(session_id=HERE.session_id)
        for key, data in backup.items():
            await store.put(key, data)
        session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)


@async_test
async def test_cached_state_is_not_served_if_its_event_is_missing_or_damaged():
    store = ObservedStore()
    session = await record(store)
    states = StateCache(SnapshotArchive(store))
    await states.at(HERE, "6")
    key = session.log.key(6)
    await store.damage(key, lambda data: data.replace(b"4", b"5"))
    with pytest.raises(IntegrityError, match=key):
        await states.at(HERE, "6")
    await store.delete(key)
    with pytest.raises(Problem, match="has no event 6; its log has events 1 to 5"):
        await states.at(HERE, "6")


@async_test
async def test_pruned_state_is_not_served_from_the_cache():
    store = ObservedStore()
    await record(store)
    archive = SnapshotArchive(store)
    states = StateCache(archive)
    await states.at(HERE, "3")
    await archive.prune(location=HERE, policy=RetentionPolicy(last=1))
    with pytest.raises(Problem, match="was pruned; "):
        await states.at(HERE, "3")
    with pytest.raises(Problem, match="was pruned; "):
        await states.at(HERE, "0")


@async_test
async def test_cache_is_bounded_by_number_and_size(monkeypatch):
    store = ObservedStore()
    await record(store, 20)
    states = StateCache(SnapshotArchive(store))
    monkeypatch.setattr(cache, "MAX_STATES", 4)
    for seq in range(1, 21):
        await states.at(HERE, str(seq))
    assert [seq for _, seq in states._known] == [17, 18, 19, 20]
    monkeypatch.setattr(cache, "MAX_BYTES", 1)
    await states.at(HERE, "5")
    assert states._known == {}
    assert states._bytes == 0
