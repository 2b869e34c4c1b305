"""The cache of states at a position."""

from __future__ import annotations

import pytest

from holdfast import IntegrityError, RetentionPolicy, Session, SnapshotArchive
from holdfast.server import cache
from holdfast.server.cache import StateCache
from holdfast.server.heads import HeadReader
from holdfast.server.problems import Problem
from support.async_tests import async_test
from support.observed_store import HERE, ObservedStore

pytestmark = pytest.mark.usefixtures("one_incarnation")


class Reader:
    """Reads a session as a request does."""

    def __init__(self, store):
        self.heads = HeadReader(store)
        self.states = StateCache(SnapshotArchive(store))

    async def at(self, text):
        return await self.states.at(await self.heads.read(HERE), text)


async def record(store, count=5):
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    for number in range(count):
        session.set("n", number)
        await session.save()
    return session


@async_test
async def test_cached_state_is_validated_with_one_batch_of_three_keys():
    store = ObservedStore()
    await record(store)
    reader = Reader(store)
    first = await reader.at("3")
    store.forget()
    assert await reader.at("3") is first
    keys = [f"{HERE.prefix}log/00000000/{seq:012}.json" for seq in (7, 6)]
    assert store.read == [HERE.manifest_key, *keys]
    assert store.listings == 0
    assert first.state.get("state", "n") == 1
    assert (await reader.at("now")).position.seq == 6


@async_test
async def test_states_of_a_log_that_grows_stay_cached():
    store = ObservedStore()
    session = await record(store)
    reader = Reader(store)
    first = await reader.at("3")
    for number in range(300):
        session.set("n", number)
        await session.commit()
        if number in (0, 299):
            assert (await reader.at("now")).state.get("state", "n") == number
            assert await reader.at("3") is first
    assert (await reader.heads.read(HERE)).position.seq == 306


@async_test
async def test_next_state_is_folded_from_the_previous_one():
    store = ObservedStore()
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    for number in range(40):
        session.set("n", number)
        session.set("m", number)
        await session.commit()
    reader = Reader(store)
    for seq in (60, 61, 62, 63):
        store.forget()
        found = await reader.at(str(seq))
        assert found.position.seq == seq
        assert found.state.get("state", "n") == (seq - 2) // 2
        assert found.state.get("state", "m", -1) == (seq - 3) // 2
    segments = [key for key in store.read if "/log/" in key]
    assert len(segments) <= 4


@async_test
async def test_recreated_session_is_not_served_from_the_cache():
    store = ObservedStore()
    await record(store)
    archive = SnapshotArchive(store)
    reader = Reader(store)
    await reader.at("3")
    await archive.delete_session(session_id=HERE.session_id)
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    session.set("n", "another")
    session.set("m", 1)
    await session.commit()
    assert (await reader.at("3")).state.get("state", "n") == "another"


@pytest.mark.parametrize("with_keyframe", [False, True])
@async_test
async def test_session_restored_from_a_backup_is_not_served_from_the_cache(with_keyframe):
    """It has the same start time and as many events."""
    store = ObservedStore()
    session = await record(store, 1)
    backup = store.content
    archive = SnapshotArchive(store)
    reader = Reader(store)
    for value in ("first", "second"):
        session.set("n", value)
        await session.commit()
        if with_keyframe:
            await session._committer.timeline.write_keyframe(session.snapshot())
        session.set("m", value)
        await session.commit()
        assert (await reader.at("3")).state.get("state", "n") == value
        store.forget()
        assert (await reader.at("3")).state.get("state", "n") == value
        assert store.listings == 0
        await archive.delete_session(session_id=HERE.session_id)
        for key, data in backup.items():
            await store.put(key, data)
        session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)


@async_test
async def test_cached_state_is_not_served_if_its_event_is_missing_or_damaged():
    store = ObservedStore()
    session = await record(store)
    reader = Reader(store)
    await reader.at("6")
    key = session.log.key(6)
    await store.damage(key, lambda data: data.replace(b"4", b"5"))
    with pytest.raises(IntegrityError, match=key):
        await reader.at("6")
    await store.delete(key)
    with pytest.raises(Problem, match="has no event 6; its log has events 1 to 5"):
        await reader.at("6")


@async_test
async def test_pruned_state_is_not_served_from_the_cache():
    store = ObservedStore()
    await record(store)
    archive = SnapshotArchive(store)
    reader = Reader(store)
    await reader.at("3")
    await archive.prune(location=HERE, policy=RetentionPolicy(last=1))
    with pytest.raises(Problem, match="was pruned; "):
        await reader.at("3")
    with pytest.raises(Problem, match="was pruned; "):
        await reader.at("0")


@async_test
async def test_cache_is_bounded_by_size():
    store = ObservedStore()
    await record(store, 20)
    reader = Reader(store)
    log = (HERE, (await reader.heads.read(HERE)).generation)
    size = 4 * cache.MIN_SIZE
    reader.states._states.max_size = size
    for seq in range(1, 21):
        await reader.at(str(seq))
    assert list(reader.states._states._values) == [(log, seq) for seq in (17, 18, 19, 20)]
    assert reader.states._bases == {log: [17, 18, 19, 20]}
    assert reader.states._states.size == size
    reader.states._states.max_size = 1
    await reader.at("5")
    assert (await reader.at("5")).position.seq == 5
