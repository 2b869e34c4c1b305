"""States that were looked at a moment ago."""

from __future__ import annotations

import pytest

from holdfast import IntegrityError, RetentionPolicy, Session, SnapshotArchive
from holdfast.server import cache
from holdfast.server.cache import StateCache
from holdfast.server.problems import Problem
from support.async_tests import async_test
from support.observed_store import HERE, Watched

pytestmark = pytest.mark.usefixtures("one_incarnation")


async def recorded(store, count=5):
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    for number in range(count):
        session.set("n", number)
        await session.save()
    return session


@async_test
async def test_a_state_is_loaded_once_and_its_session_is_looked_at_again():
    store = Watched()
    await recorded(store)
    moments = StateCache(SnapshotArchive(store))
    first = await moments.at(HERE, "3")
    store.forget()
    assert await moments.at(HERE, "3") is first
    assert store.read == [HERE.manifest_key, f"{HERE.prefix}log/00000000/000000000003.json"]
    assert store.listings == 0
    assert first.state.get("state", "n") == 1
    assert (await moments.at(HERE, "now")).position.seq == 6


@async_test
async def test_a_session_that_was_begun_again_is_another_one():
    store = Watched()
    await recorded(store)
    archive = SnapshotArchive(store)
    moments = StateCache(archive)
    await moments.at(HERE, "3")
    await archive.delete_session(session_id=HERE.session_id)
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    session.set("n", "another")
    session.set("m", 1)
    await session.commit()
    assert (await moments.at(HERE, "3")).state.get("state", "n") == "another"


@pytest.mark.parametrize("with_keyframe", [False, True])
@async_test
async def test_a_session_that_went_on_from_a_backup_is_another_one(with_keyframe):
    """It began when the other did, and has as many events."""
    store = Watched()
    session = await recorded(store, 1)
    backup = store.content
    archive = SnapshotArchive(store)
    moments = StateCache(archive)
    for value in ("first", "second"):
        session.set("n", value)
        await session.commit()
        if with_keyframe:
            await session._committer.timeline.write_keyframe(session.snapshot())
        session.set("m", value)
        await session.commit()
        assert (await moments.at(HERE, "3")).state.get("state", "n") == value
        store.forget()
        assert (await moments.at(HERE, "3")).state.get("state", "n") == value
        assert store.listings == 0, "it is remembered"
        await archive.delete_session(session_id=HERE.session_id)
        for key, data in backup.items():
            await store.put(key, data)
        session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)


@async_test
async def test_what_is_remembered_is_loaded_anew_where_its_event_is_gone_or_damaged():
    store = Watched()
    session = await recorded(store)
    moments = StateCache(SnapshotArchive(store))
    await moments.at(HERE, "6")
    key = session.log.key(6)
    await store.damage(key, lambda data: data.replace(b"4", b"5"))
    with pytest.raises(IntegrityError, match=key):
        await moments.at(HERE, "6")
    await store.delete(key)
    with pytest.raises(Problem, match="has no event 6; its log has the events 1 to 5"):
        await moments.at(HERE, "6")


@async_test
async def test_what_was_pruned_is_not_remembered():
    store = Watched()
    await recorded(store)
    archive = SnapshotArchive(store)
    moments = StateCache(archive)
    await moments.at(HERE, "3")
    await archive.prune(location=HERE, policy=RetentionPolicy(last=1))
    with pytest.raises(Problem, match="was pruned; "):
        await moments.at(HERE, "3")
    with pytest.raises(Problem, match="was pruned; "):
        await moments.at(HERE, "0")


@async_test
async def test_what_is_remembered_is_bounded_by_number_and_size(monkeypatch):
    store = Watched()
    await recorded(store, 20)
    moments = StateCache(SnapshotArchive(store))
    monkeypatch.setattr(cache, "MOST", 4)
    for seq in range(1, 21):
        await moments.at(HERE, str(seq))
    assert [seq for _, seq in moments._known] == [17, 18, 19, 20]
    monkeypatch.setattr(cache, "MOST_BYTES", 1)
    await moments.at(HERE, "5")
    assert moments._known == {}
    assert moments._bytes == 0
