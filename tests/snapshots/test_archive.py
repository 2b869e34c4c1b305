"""The archive: whole states without a log, and snapshots that a session saved."""

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
    Watched,
    check_loads,
    ids_of,
    load,
    save,
    saved,
    session_snapshot,
    state,
)
from support.sample_values import text, values

HOUR = dt.timedelta(hours=1)


def test_an_archive_is_a_snapshot_storage():
    assert isinstance(SnapshotArchive(Watched()), SnapshotStorage)


@pytest.mark.parametrize("bad", [None, "memory:", Store()])
def test_an_archive_is_made_over_a_state_store(bad):
    with pytest.raises(TypeError, match="made over a StateStore"):
        SnapshotArchive(bad)


# ---------------------------------------------------------------------- whole states, without a log


@async_test
async def test_what_was_saved_is_loaded():
    store = Watched()
    made = session_snapshot(
        state(3, plan=(1, b"x")), tags={"env": "test"}, parent_id="before", unfinished=True
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
async def test_only_the_difference_is_written():
    store = Watched()
    keeper = SnapshotArchive(store)
    live = Store()
    for number in range(200):
        live.set("messages", f"{number:012}", {"content": f"{number}" * 300})
    await save(keeper, session_snapshot(live.snapshot()))
    whole = store.bytes
    sizes = []
    for number in range(20):
        before = store.bytes
        live.set("messages", f"{200 + number:012}", {"content": "short"})
        live.delete("messages", f"{number:012}")
        await save(keeper, session_snapshot(live.snapshot()))
        sizes.append(store.bytes - before)
    assert max(sizes) < 1500
    assert max(sizes) < 1.1 * min(sizes)
    assert whole > 100_000
    (last,) = (await ids_of(store))[-1:]
    assert (await load(store, last)).digest == live.snapshot().digest


@async_test
async def test_a_state_that_did_not_change_costs_a_record_alone():
    store = Watched()
    keeper = SnapshotArchive(store)
    await save(keeper, session_snapshot(state(50)))
    log, before = store.keys_with("/log/"), store.bytes
    for number in range(1, 11):
        await save(keeper, session_snapshot(state(50), tags={"n": str(number)}))
        assert store.keys_with("/log/") == log
        assert store.bytes - before < number * 500
    assert len(await ids_of(store)) == 11


@async_test
async def test_an_empty_state_is_a_state():
    store = Watched()
    for made in (session_snapshot(), session_snapshot(state(1)), session_snapshot()):
        await save(SnapshotArchive(store), made)
        assert (await load(store, made.snapshot_id)).digest == made.digest
        assert (await load(store, made.snapshot_id)).position.seq > 0


@async_test
async def test_a_log_without_a_session_says_what_it_is():
    store = Watched()
    first, second = session_snapshot(state(1)), session_snapshot(state(2))
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
def test_any_states_come_back_exactly(states):
    async def work():
        store = Watched()
        keeper = SnapshotArchive(store)
        kept = {}
        for entries in states:
            live = Store()
            live.set_many((*pair, value) for pair, value in entries.items())
            made = session_snapshot(live.snapshot())
            kept[await save(keeper, made)] = made
        await check_loads(store, kept)

    asyncio.run(work())


# --------------------------------------------------------------------------- history and latest


@async_test
async def test_the_latest_is_replaced_and_not_listed():
    store = Watched()
    keeper = SnapshotArchive(store)
    for number in range(5):
        latest = session_snapshot(state(number), tags={"n": str(number)})
        await save(keeper, latest, is_latest=True)
        found = await load(store)
        assert (found.digest, found.tags) == (latest.digest, latest.tags)
        assert found.snapshot_id == latest.snapshot_id
    assert await ids_of(store) == []
    assert len(store.keys_with("/snapshots/snapshot_")) == 1
    assert (await load(store, latest.snapshot_id)).digest == latest.digest
    assert await load(store, "another") is None


@async_test
async def test_the_newest_of_both_kinds_is_loaded_without_an_id():
    store = Watched()
    keeper = SnapshotArchive(store)
    for number, is_latest in enumerate((False, True, False, False, True, True, False)):
        made = session_snapshot(state(number), created_at=NOW + number * HOUR)
        await save(keeper, made, is_latest=is_latest)
        assert (await load(store)).snapshot_id == made.snapshot_id
        info = await keeper.load_info(location=HERE)
        assert info.snapshot_id == made.snapshot_id


@async_test
async def test_the_latest_may_be_added_to_the_history_too():
    store = Watched()
    keeper = SnapshotArchive(store)
    made = session_snapshot(state(3))
    await save(keeper, made, is_latest=True)
    await save(keeper, made)
    assert await ids_of(store) == [made.snapshot_id]
    # The latest moves on, and the history still has it.
    await save(keeper, session_snapshot(state(4)), is_latest=True)
    assert (await load(store, made.snapshot_id)).digest == made.digest


@async_test
async def test_a_latest_does_not_bar_its_id_from_the_history():
    store = Watched()
    keeper = SnapshotArchive(store)
    await save(keeper, session_snapshot(state(1)), snapshot_id="current", is_latest=True)
    other = session_snapshot(state(2))
    await save(keeper, other, snapshot_id="current")
    assert await ids_of(store) == ["current"]
    assert (await load(store, "current")).digest == other.digest


@async_test
async def test_the_history_is_never_rewritten():
    store = Watched()
    keeper = SnapshotArchive(store)
    made = session_snapshot(state(3), tags={"a": "b"})
    await save(keeper, made)
    before = store.content
    for other in (
        replace(made, snapshot=state(4)),
        replace(made, tags={}),
        replace(made, parent_id="another"),
    ):
        for asked in (keeper, SnapshotArchive(store)):
            with pytest.raises(ConflictError, match="never rewritten: give the new one an id"):
                await save(asked, other)
    assert store.content == before


@async_test
async def test_saving_the_same_again_is_saving_it_once():
    store = Watched()
    keeper = SnapshotArchive(store)
    made = session_snapshot(state(3), tags={"a": "b"})
    await save(keeper, made)
    await save(keeper, session_snapshot(state(4)))
    before = store.content
    for asked in (keeper, SnapshotArchive(store)):
        await save(asked, made)
    assert store.content == before


@async_test
async def test_a_snapshot_is_kept_under_the_id_and_in_the_place_that_is_asked_for():
    store = Watched()
    there = SnapshotLocation("copy", "multi_agent", "team")
    made = session_snapshot(state(2))
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
        ({"snapshot": state(1)}, TypeError, "snapshot must be a SessionSnapshot"),
        ({"snapshot": None}, TypeError, "snapshot must be a SessionSnapshot"),
    ],
)
def test_what_cannot_be_saved_is_refused(fields, error, what):
    @async_test
    async def work():
        store = Watched()
        for is_latest in (False, True):
            given = {"snapshot_id": "x", "snapshot": session_snapshot(), **fields}
            with pytest.raises(error, match=what):
                await SnapshotArchive(store).save_snapshot(
                    location=HERE, is_latest=is_latest, **given
                )
        assert store.content == {}

    work()


# ------------------------------------------------------------------ what a session has saved


async def opened(store):
    return await Session.open(store, agent_id="research-bot", session_id="ses_abc123")


@async_test
async def test_a_snapshot_that_a_session_saved_is_a_position_in_its_log():
    store = Watched()
    session = await opened(store)
    session.add_message("user", "hello")
    first = await session.save()
    session.set("plan", [1])
    second = await session.save()
    events = len(store.keys_with("/log/"))
    keeper = SnapshotArchive(store)
    for snapshot in (first, second):
        found = await load(store, snapshot.snapshot_id)
        assert found.position == snapshot.position
        assert found.digest == snapshot.digest
        # To keep it under another name too costs a record alone.
        await save(keeper, snapshot, snapshot_id=f"again-{snapshot.position.seq}")
        await save(keeper, snapshot, is_latest=True, snapshot_id="latest")
        again = await load(store, f"again-{snapshot.position.seq}")
        assert (again.position, again.digest) == (snapshot.position, snapshot.digest)
    assert len(store.keys_with("/log/")) == events
    assert (await keeper.verify(location=HERE)).ok


@async_test
async def test_a_position_that_is_not_this_logs_is_not_believed():
    store = Watched()
    await saved(store, 5)
    keeper = SnapshotArchive(store)
    for position in (
        Position(3, "0" * 64),
        Position(6, "0" * 64),
        Position(99, "0" * 64),
        Position(0, ""),
    ):
        made = session_snapshot(state(2, odd=position.seq), position=position)
        await save(keeper, made)
        assert (await load(store, made.snapshot_id)).digest == made.digest
    assert (await keeper.verify(location=HERE)).ok


@async_test
async def test_a_position_of_events_that_cannot_be_read_is_not_believed():
    store = Watched()
    snapshots = await saved(store, 5)
    early = await load(store, list(snapshots)[1])
    keeper = SnapshotArchive(store)
    await save(keeper, session_snapshot(state(9)))
    await store.damage(store.keys_with("/log/")[1], lambda data: data[:-4])
    again = replace(early, snapshot_id="again")
    await save(keeper, again)
    assert (await keeper.load_info(location=HERE, snapshot_id="again")).seq == 8


@async_test
async def test_a_snapshot_whose_state_was_replaced_is_saved_with_the_state_it_has():
    store = Watched()
    snapshots = await saved(store, 5)
    keeper = SnapshotArchive(store)
    for number, snapshot_id in enumerate((list(snapshots)[4], list(snapshots)[2])):
        found = await load(store, snapshot_id)
        changed = found.to_store()
        changed.set("state", "plan", "another")
        made = replace(found, snapshot=changed.snapshot(), snapshot_id=f"changed-{number}")
        await save(keeper, made)
        assert (await load(store, made.snapshot_id)).state.values["plan"] == "another"


@async_test
async def test_whole_states_and_a_session_share_one_log():
    store = Watched()
    session = await opened(store)
    session.add_message("user", "hello")
    saved_by_session = await session.save()
    whole = session_snapshot(state(5, plan="mine"))
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
async def test_the_newest_that_is_wanted_is_found():
    store = Watched()
    keeper = SnapshotArchive(store)
    made = [session_snapshot(state(n), unfinished=n % 3 != 0) for n in range(8)]
    for each in made:
        await save(keeper, each)
    found = await keeper.find_newest_info(location=HERE, wanted=lambda info: not info.unfinished)
    assert found.snapshot_id == made[6].snapshot_id
    assert await keeper.find_newest_info(location=HERE, wanted=lambda info: False) is None
