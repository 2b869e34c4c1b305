"""Saving whole states and session snapshots in an archive, and loading them."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import (
    ConflictError,
    Session,
    SnapshotStorage,
    Store,
)
from holdfast.log.event_log import Position
from holdfast.snapshots import (
    SnapshotArchive,
    SnapshotLocation,
)
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    NOW,
    ObservedStore,
    check_loads,
    list_ids,
    load,
    make_snapshot,
    make_state,
    save,
    save_many,
)
from support.sample_values import text, values

HOUR = dt.timedelta(hours=1)


def test_archive_implements_snapshot_storage():
    assert isinstance(SnapshotArchive(ObservedStore()), SnapshotStorage)


@pytest.mark.parametrize("bad", [None, "memory:", Store()])
def test_archive_requires_a_state_store(bad):
    with pytest.raises(TypeError, match="state_store must be a StateStore"):
        SnapshotArchive(bad)


# ------------------------------------------------------------------------------- whole states


@async_test
async def test_saved_snapshots_load():
    store = ObservedStore()
    made = make_snapshot(
        make_state(3, plan=(1, b"x")), tags={"env": "test"}, parent_id="before", unfinished=True
    )
    await save(SnapshotArchive(store), made)
    found = await load(store, made.snapshot_id)
    assert found.digest == made.digest
    assert found.info() == replace(
        made.info(), seq=found.position.seq, hash=found.position.hash, keyframe=found.keyframe
    )
    assert found.event_log_count == found.position.seq == 2
    assert found.location == HERE
    assert await load(store, "another") is None
    assert await load(store, location=SnapshotLocation("other", scope_id="research-bot")) is None


@async_test
async def test_save_writes_only_the_difference():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    live = Store()
    for number in range(200):
        live.set("messages", f"{number:012}", {"content": f"{number}" * 300})
    await save(archive, make_snapshot(live.snapshot()))
    whole = store.bytes
    sizes = []
    for number in range(20):
        before = store.bytes
        live.set("messages", f"{200 + number:012}", {"content": "short"})
        live.delete("messages", f"{number:012}")
        await save(archive, make_snapshot(live.snapshot()))
        sizes.append(store.bytes - before)
    assert max(sizes) < 1500
    assert max(sizes) < 1.1 * min(sizes)
    assert whole > 100_000
    (last,) = (await list_ids(store))[-1:]
    assert (await load(store, last)).digest == live.snapshot().digest


@async_test
async def test_saving_an_unchanged_state_writes_only_a_record():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    await save(archive, make_snapshot(make_state(50)))
    log, before = store.keys_with("/log/"), store.bytes
    for number in range(1, 11):
        await save(archive, make_snapshot(make_state(50), tags={"n": str(number)}))
        assert store.keys_with("/log/") == log
        assert store.bytes - before < number * 500
    assert len(await list_ids(store)) == 11


@async_test
async def test_an_empty_state_can_be_saved():
    store = ObservedStore()
    for made in (make_snapshot(), make_snapshot(make_state(1)), make_snapshot()):
        await save(SnapshotArchive(store), made)
        assert (await load(store, made.snapshot_id)).digest == made.digest
        assert (await load(store, made.snapshot_id)).position.seq > 0


@async_test
async def test_the_log_of_a_saved_state_starts_with_session_started():
    store = ObservedStore()
    first, second = make_snapshot(make_state(1)), make_snapshot(make_state(2))
    for made in (first, second):
        await save(SnapshotArchive(store), made)
    session = await Session.open(store, agent_id="research-bot", session_id="ses_abc123")
    events = [event async for event in session.events]
    assert [event.type for event in events] == [
        "session.started",
        "state.restored",
        "state.restored",
    ]
    assert events[2].data == {"snapshot_id": second.snapshot_id}
    assert session.snapshot().digest == second.digest


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.tuples(text, text), values, max_size=4), min_size=1, max_size=5))
def test_any_states_load_as_they_were_saved(states):
    async def work():
        store = ObservedStore()
        archive = SnapshotArchive(store)
        kept = {}
        for entries in states:
            live = Store()
            live.set_many((*pair, value) for pair, value in entries.items())
            made = make_snapshot(live.snapshot())
            kept[await save(archive, made)] = made
        await check_loads(store, kept)

    asyncio.run(work())


# --------------------------------------------------------------------------- history and latest


@async_test
async def test_load_without_id_returns_the_newest_of_latest_and_history():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    for number, is_latest in enumerate((False, True, False, False, True, True, False)):
        made = make_snapshot(make_state(number), created_at=NOW + number * HOUR)
        await save(archive, made, is_latest=is_latest)
        assert (await load(store)).snapshot_id == made.snapshot_id
        info = await archive.load_info(location=HERE)
        assert info.snapshot_id == made.snapshot_id


@async_test
async def test_the_latest_snapshot_can_also_be_added_to_the_history():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    made = make_snapshot(make_state(3))
    await save(archive, made, is_latest=True)
    await save(archive, made)
    assert await list_ids(store) == [made.snapshot_id]
    # A new latest snapshot does not remove it from the history.
    await save(archive, make_snapshot(make_state(4)), is_latest=True)
    assert (await load(store, made.snapshot_id)).digest == made.digest


@async_test
async def test_the_id_of_the_latest_snapshot_can_be_saved_to_the_history():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    await save(archive, make_snapshot(make_state(1)), snapshot_id="current", is_latest=True)
    other = make_snapshot(make_state(2))
    await save(archive, other, snapshot_id="current")
    assert await list_ids(store) == ["current"]
    assert (await load(store, "current")).digest == other.digest


@async_test
async def test_saving_another_snapshot_under_the_same_id_is_a_conflict():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    made = make_snapshot(make_state(3), tags={"a": "b"})
    await save(archive, made)
    before = store.content
    for other in (
        replace(made, snapshot=make_state(4)),
        replace(made, tags={}),
        replace(made, parent_id="another"),
    ):
        for asked in (archive, SnapshotArchive(store)):
            with pytest.raises(ConflictError, match="never rewritten; save under a new id"):
                await save(asked, other)
    assert store.content == before


@async_test
async def test_saving_the_same_snapshot_twice_adds_it_once():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    made = make_snapshot(make_state(3), tags={"a": "b"})
    await save(archive, made)
    await save(archive, make_snapshot(make_state(4)))
    before = store.content
    for asked in (archive, SnapshotArchive(store)):
        await save(asked, made)
    assert store.content == before


@async_test
async def test_a_snapshot_is_saved_under_the_given_id_and_location():
    store = ObservedStore()
    there = SnapshotLocation("copy", "multi_agent", "team")
    made = make_snapshot(make_state(2))
    await save(SnapshotArchive(store), made, there, snapshot_id="before-Upgrade_7")
    found = await load(store, "before-Upgrade_7", there)
    assert found.snapshot_id == "before-Upgrade_7"
    assert (found.agent_id, found.session_id) == ("research-bot", "ses_abc123")
    assert found.scope == "multi_agent"
    assert await load(store, "before-Upgrade_7") is None


@pytest.mark.parametrize(
    ("fields", "error", "what"),
    [
        ({"snapshot_id": "../x"}, ValueError, "snapshot_id"),
        ({"snapshot_id": None}, TypeError, "snapshot_id"),
        ({"snapshot": make_state(1)}, TypeError, "snapshot must be a SessionSnapshot"),
        ({"snapshot": None}, TypeError, "snapshot must be a SessionSnapshot"),
    ],
)
def test_save_rejects_invalid_arguments(fields, error, what):
    @async_test
    async def work():
        store = ObservedStore()
        for is_latest in (False, True):
            given = {"snapshot_id": "x", "snapshot": make_snapshot(), **fields}
            with pytest.raises(error, match=what):
                await SnapshotArchive(store).save_snapshot(
                    location=HERE, is_latest=is_latest, **given
                )
        assert store.content == {}

    work()


# -------------------------------------------------------------------------- session snapshots


async def opened(store):
    return await Session.open(store, agent_id="research-bot", session_id="ses_abc123")


@async_test
async def test_saving_a_session_snapshot_again_reuses_its_position():
    store = ObservedStore()
    session = await opened(store)
    session.add_message("user", "hello")
    first = await session.save()
    session.set("plan", [1])
    second = await session.save()
    events = len(store.keys_with("/log/"))
    archive = SnapshotArchive(store)
    for snapshot in (first, second):
        found = await load(store, snapshot.snapshot_id)
        assert found.position == snapshot.position
        assert found.digest == snapshot.digest
        # Saving it under another id writes only a record.
        await save(archive, snapshot, snapshot_id=f"again-{snapshot.position.seq}")
        await save(archive, snapshot, is_latest=True, snapshot_id="latest")
        again = await load(store, f"again-{snapshot.position.seq}")
        assert (again.position, again.digest) == (snapshot.position, snapshot.digest)
    assert len(store.keys_with("/log/")) == events
    assert (await archive.verify(location=HERE)).ok


@async_test
async def test_a_position_of_another_log_is_not_reused():
    store = ObservedStore()
    await save_many(store, 5)
    archive = SnapshotArchive(store)
    for position in (
        Position(3, "0" * 64),
        Position(6, "0" * 64),
        Position(99, "0" * 64),
        Position(0, ""),
    ):
        made = make_snapshot(make_state(2, odd=position.seq), position=position)
        await save(archive, made)
        assert (await load(store, made.snapshot_id)).digest == made.digest
    assert (await archive.verify(location=HERE)).ok


@async_test
async def test_a_position_at_an_unreadable_event_is_not_reused():
    store = ObservedStore()
    snapshots = await save_many(store, 5)
    early = await load(store, list(snapshots)[1])
    archive = SnapshotArchive(store)
    await save(archive, make_snapshot(make_state(9)))
    await store.damage(store.keys_with("/log/")[1], lambda data: data[:-4])
    again = replace(early, snapshot_id="again")
    await save(archive, again)
    assert (await archive.load_info(location=HERE, snapshot_id="again")).seq == 8


@async_test
async def test_a_position_is_not_reused_for_a_modified_state():
    store = ObservedStore()
    snapshots = await save_many(store, 5)
    archive = SnapshotArchive(store)
    for number, snapshot_id in enumerate((list(snapshots)[4], list(snapshots)[2])):
        found = await load(store, snapshot_id)
        changed = found.to_store()
        changed.set("state", "plan", "another")
        made = replace(found, snapshot=changed.snapshot(), snapshot_id=f"changed-{number}")
        await save(archive, made)
        assert (await load(store, made.snapshot_id)).state.values["plan"] == "another"


@async_test
async def test_archive_and_session_append_to_the_same_log():
    store = ObservedStore()
    session = await opened(store)
    session.add_message("user", "hello")
    saved_by_session = await session.save()
    whole = make_snapshot(make_state(5, plan="mine"))
    await save(SnapshotArchive(store), whole)
    assert (await load(store)).snapshot_id == whole.snapshot_id
    session.set("late", 1)
    with pytest.raises(ConflictError):
        await session.commit()
    await session.reload()
    assert session.get("plan") == "mine"
    session.set("late", 1)
    last = await session.save()
    assert (await load(store)).snapshot_id == last.snapshot_id
    assert last.parent_id == whole.snapshot_id
    await check_loads(store, {each.snapshot_id: each for each in (saved_by_session, whole, last)})


@async_test
async def test_find_newest_info_returns_the_newest_match():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    made = [make_snapshot(make_state(n), unfinished=n % 3 != 0) for n in range(8)]
    for each in made:
        await save(archive, each)
    found = await archive.find_newest_info(location=HERE, wanted=lambda info: not info.unfinished)
    assert found.snapshot_id == made[6].snapshot_id
    assert await archive.find_newest_info(location=HERE, wanted=lambda info: False) is None
