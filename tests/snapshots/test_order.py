"""Snapshots are in the order of saving, whatever their ids, and everything agrees on it."""

from __future__ import annotations

import asyncio
import itertools
import random
import uuid
from dataclasses import replace

import pytest

from holdfast import IntegrityError, NotFoundError, Session
from holdfast.ids import new_id
from holdfast.snapshots import RetentionPolicy, SnapshotArchive
from holdfast.snapshots.order import (
    HistoryKey,
    id_entries_prefix,
    id_entry_key,
    is_uuid7,
    order_of_time,
    parse_history_key,
)
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.copy import compare_stores, copy_sessions
from support.async_tests import async_test
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import (
    HERE,
    NOW,
    Watched,
    check_whole,
    damage_of,
    gathered,
    ids_of,
    load,
    prune,
    save,
    saved,
    session_snapshot,
    state,
    verify,
)

OLD = "019a8b5e-6f00-7000-8000-000000000000"


async def kept_as(store, ids):
    """A snapshot under each of these ids, of a conversation that grows."""
    archive = SnapshotArchive(store)
    found = {}
    for number, snapshot_id in enumerate(ids, 1):
        made = session_snapshot(state(number))
        await save(archive, made, snapshot_id=snapshot_id)
        found[snapshot_id] = replace(made, snapshot_id=snapshot_id)
    return found


def mixed(count, seed=0):
    """Ids of every kind, in no order of their own."""
    draw = random.Random(seed)
    kinds = [
        lambda at: str(uuid.UUID(int=draw.getrandbits(128), version=4)),
        lambda at: f"turn-{count - at}",
        lambda at: new_id(),
        lambda at: f"{OLD[:-3]}{at:03}",
    ]
    return [draw.choice(kinds)(at) for at in range(count)]


@async_test
async def test_latest_listing_newest_and_pruning_agree():
    for seed in range(10):
        store = Watched()
        ids = mixed(12, seed)
        snapshots = await kept_as(store, ids)
        await check_whole(store, snapshots)
        archive = SnapshotArchive(store)
        assert (await load(store)).snapshot_id == ids[-1]
        found = await archive.find_newest_info(location=HERE, wanted=lambda _: True)
        assert found.snapshot_id == ids[-1]
        third = await archive.find_newest_info(
            location=HERE, wanted=lambda info: info.message_count < 4
        )
        assert third.snapshot_id == ids[2]
        done = await prune(store, RetentionPolicy(last=2))
        assert done.kept == ids[-2:]
        assert set(done.removed) == set(ids[:-2])
        await check_whole(store, {each: snapshots[each] for each in ids[-2:]})
        left = store.keys_with("/snapshots/ids/")
        assert left == sorted(
            id_entry_key(HERE, each) for each in ids[-2:] if not is_own(store, each)
        )
        await prune(store, RetentionPolicy(last=1))
        assert await ids_of(store) == ids[-1:]


def is_own(store, snapshot_id):
    return HERE.snapshot_key(snapshot_id) in store.content


@async_test
async def test_what_a_session_saves_is_one_record_as_before_and_comes_after_all_others():
    store = Watched()
    await kept_as(store, ["z", str(uuid.uuid4()), "a"])
    ids = await ids_of(store)
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    store.forget()
    first = await session.save()
    assert [key for key in store.written if "/snapshots/" in key] == [
        HERE.snapshot_key(first.snapshot_id)
    ]
    assert first.parent_id == "a"
    await kept_as(store, ["b"])
    second = await (
        await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    ).save()
    assert second.parent_id == "b"
    assert await ids_of(store) == [*ids, first.snapshot_id, "b", second.snapshot_id]
    assert (await load(store)).snapshot_id == second.snapshot_id


@async_test
async def test_ids_in_the_order_of_saving_need_no_second_entry():
    store = Watched()
    snapshots = await saved(store, 5)
    assert store.keys_with("immutable_history") == [HERE.snapshot_key(each) for each in snapshots]
    assert store.keys_with("/snapshots/ids/") == []


@async_test
async def test_the_one_that_is_not_listed_is_in_the_same_order():
    store = Watched()
    archive = SnapshotArchive(store)
    early = [session_snapshot(state(number)) for number in range(4)]
    for number, (is_latest, id_) in enumerate(
        [(False, "m"), (True, "z"), (False, None), (True, None), (True, "a"), (False, OLD)] * 2
    ):
        made = session_snapshot(state(10 + number))
        if id_ == OLD:
            made, id_ = early.pop(), None
        if not is_latest and id_ is not None:
            id_ += str(number)
        await save(archive, made, snapshot_id=id_, is_latest=is_latest)
        found = await load(store)
        assert found.digest == made.digest
        assert found.snapshot_id == (id_ or made.snapshot_id)


@async_test
async def test_pages_go_on_after_a_snapshot_that_was_deleted():
    store = Watched()
    ids = mixed(9, seed=3)
    await kept_as(store, ids)
    archive = SnapshotArchive(store)
    page = await archive.list_snapshots(location=HERE, limit=3)
    assert page.snapshot_ids == ids[:3]
    for gone in (ids[2], ids[3]):
        assert await archive.delete_snapshot(location=HERE, snapshot_id=gone)
    page = await archive.list_snapshots(location=HERE, limit=3, next_token=page.next_token)
    assert page.snapshot_ids == ids[4:7]


@async_test
async def test_a_listing_starts_after_a_snapshot():
    store = Watched()
    ids = mixed(9, seed=4)
    await kept_as(store, ids)
    archive = SnapshotArchive(store)
    for at, each in enumerate(ids):
        page = await archive.list_snapshots(location=HERE, limit=3, start_after=each)
        assert page.snapshot_ids == ids[at + 1 : at + 4]
        if page.next_token is not None:
            page = await archive.list_snapshots(
                location=HERE, start_after=each, next_token=page.next_token
            )
            assert page.snapshot_ids == ids[at + 4 :]
    with pytest.raises(NotFoundError, match="no snapshot 'gone' in"):
        await archive.list_snapshots(location=HERE, start_after="gone")
    with pytest.raises(NotFoundError, match="no snapshot 'gone' in"):
        await archive.list_snapshot_ids(location=HERE, start_after="gone")
    assert await archive.list_snapshot_ids(location=HERE, start_after=OLD) == ids


@pytest.mark.parametrize("bad", ["", "a/b", "../x", 7, "x" * 200])
@async_test
async def test_a_token_that_no_page_gave_is_refused(bad):
    with pytest.raises(ValueError, match="invalid next_token"):
        await SnapshotArchive(Watched()).list_snapshots(location=HERE, next_token=bad)


# ----------------------------------------------------------------------------------------- cost


async def costs(count):
    """The listings, keys listed and entries read of each thing to ask of random ids."""
    store = Watched()
    await kept_as(store, [str(uuid.uuid4()) for _ in range(count)])
    ids = await ids_of(store)
    archive = SnapshotArchive(store)
    token = HistoryKey(
        HERE, "x", parse_history_key(HERE, store.keys_with("/snapshot_")[-8]).stamp
    ).name

    async def cost(work):
        store.forget()
        await work
        return store.listings, store.listed, len(store.read)

    return [
        await cost(archive.list_snapshot_ids(location=HERE, limit=5)),
        await cost(archive.list_snapshot_ids(location=HERE, limit=5, start_after=ids[count // 2])),
        await cost(archive.list_snapshots(location=HERE, limit=5)),
        await cost(archive.list_snapshots(location=HERE, limit=5, next_token=token)),
        await cost(archive.list_snapshots(location=HERE, limit=5, start_after=ids[count // 2])),
        await cost(archive.load_info(location=HERE)),
        await cost(archive.load_info(location=HERE, snapshot_id=ids[count // 2])),
        await cost(archive.find_newest_info(location=HERE, wanted=lambda _: True)),
    ]


def test_a_page_of_random_ids_costs_the_same_for_few_and_for_many():
    few, many = asyncio.run(costs(100)), asyncio.run(costs(500))
    for (few_calls, few_keys, few_read), (many_calls, many_keys, many_read) in zip(
        few, many, strict=True
    ):
        assert max(few_calls, many_calls) <= 40
        assert max(few_keys, many_keys) <= 400
        assert few_read == many_read <= 8


# --------------------------------------------------------------------- crashes, damage, strays


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_save_that_was_broken_off_anywhere_can_be_done_again(atomic, is_done):
    async def work():
        for at in itertools.count(1):
            inner = MemoryStateStore()
            before = await kept_as(inner, ["y", "x"])
            dying = FaultyStateStore(inner, atomic=atomic)
            dying.plan(Fault(at, "crash", is_done))
            made = session_snapshot(state(7))
            try:
                await save(SnapshotArchive(dying), made, snapshot_id="mine")
                break
            except Crash:
                assert at < 20
            found = await ids_of(inner)
            assert found in (["y", "x"], ["y", "x", "mine"])
            assert (await verify(inner)).damage == []
            later = session_snapshot(state(8))
            await save(SnapshotArchive(inner), later, snapshot_id="later")
            await save(SnapshotArchive(inner), made, snapshot_id="mine")
            expected = (
                ["y", "x", "mine", "later"] if "mine" in found else ["y", "x", "later", "mine"]
            )
            assert await ids_of(inner) == expected
            await check_whole(
                inner, {each: {**before, "mine": made, "later": later}[each] for each in expected}
            )
        assert at > (1 if atomic else 3)

    asyncio.run(work())


@pytest.mark.parametrize("atomic", [True, False])
@async_test
async def test_a_writer_that_stood_still_does_not_save_an_id_twice(atomic):
    store = MemoryStateStore()
    await kept_as(store, ["a"])
    made, other = session_snapshot(state(1)), session_snapshot(state(1))

    class Standing(FaultyStateStore):
        """Stands still before the record is written; after its id entry, if it can be torn."""

        has_stood = False

        async def put_many(self, puts, **conditions):
            if not self.has_stood and any("immutable_history" in put.key for put in puts):
                self.has_stood = True
                first = [] if atomic else [put for put in puts if "/ids/" in put.key]
                if first:
                    await store.put_many(first)
                puts = [put for put in puts if put not in first]
                await save(SnapshotArchive(store), session_snapshot(state(6)), snapshot_id="b")
                await save(SnapshotArchive(store), other, snapshot_id="mine")
                await save(SnapshotArchive(store), session_snapshot(state(5)), snapshot_id="c")
            return await super().put_many(puts, **conditions)

    await save(SnapshotArchive(Standing(store, atomic=atomic)), made, snapshot_id="mine")
    assert await ids_of(store) == ["a", "b", "mine", "c"]
    assert (await verify(store)).ok


@async_test
async def test_an_id_entry_that_is_lost_or_damaged_is_named_and_can_be_removed():
    for change in (lambda _: None, lambda data: data[:-3], lambda data: data.replace(b"01", b"02")):
        store = Watched()
        ids = ["z", "y", "x"]
        await kept_as(store, ids)
        key = id_entry_key(HERE, "y")
        await store.damage(key, change)
        assert await damage_of(store) == {key}
        assert await ids_of(store) == ids
        if key in store.content:
            with pytest.raises(IntegrityError, match=key):
                await load(store, "y")
            assert await SnapshotArchive(store).delete_snapshot(location=HERE, snapshot_id="y")
            assert await ids_of(store) == ["z", "x"]
            assert await damage_of(store) == set()


@async_test
async def test_keys_that_are_not_ours_are_skipped():
    store = Watched()
    ids = ["z", new_id(), "x"]
    strays = [
        f"{HERE.history_prefix}{ids[1]}.json~",
        f"{HERE.history_prefix}a.b.json",
        f"{HERE.history_prefix}~.json",
        f"{HERE.history_prefix}{new_id()}_a.json.bak",
        f"{HERE.history_prefix}\u00e9",
    ]
    for at, each in enumerate(ids):
        await kept_as(store, [each])
        await store.put(strays[at], b"?")
    for key in strays:
        await store.put(key, b"?")
    archive = SnapshotArchive(store)
    assert await ids_of(store) == ids
    assert await archive.list_snapshot_ids(location=HERE, limit=2) == ids[:2]
    assert (await archive.list_snapshots(location=HERE, limit=3)).snapshot_ids == ids
    assert (await load(store)).snapshot_id == "x"
    assert (await archive.find_newest_info(location=HERE, wanted=lambda _: True)).snapshot_id == "x"


# ------------------------------------------------------------------------------------- copies


@async_test
async def test_a_copy_finds_them_by_their_ids_in_the_same_order():
    source, target = Watched(), Watched()
    ids = mixed(8, seed=5)
    snapshots = await kept_as(source, ids)
    await copy_sessions(source, target)
    await check_whole(target, snapshots)
    assert await compare_stores(source, target) == []
    lost = target.keys_with("/snapshots/ids/")[0]
    await target.damage(lost, lambda data: data[:-3])
    await copy_sessions(source, target, repair=True)
    await check_whole(target, snapshots)
    await target.delete(lost)
    assert any(lost in each for each in await compare_stores(source, target))
    await copy_sessions(source, target)
    await check_whole(target, snapshots)


@async_test
async def test_deleting_a_session_leaves_nothing():
    store = Watched()
    await kept_as(store, mixed(6))
    assert await gathered(store.list(id_entries_prefix(HERE)))
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.keys_with(HERE.prefix) == []


# ------------------------------------------------------------------------------------- keys


def test_a_key_is_taken_apart_as_it_was_made():
    stamp = new_id()
    for place in (
        HistoryKey(HERE, stamp),
        HistoryKey(HERE, "a", stamp),
        HistoryKey(HERE, f"{OLD}_a", stamp),
        HistoryKey(HERE, "_" * 128, stamp),
        HistoryKey(HERE, "turn-1"),
    ):
        assert parse_history_key(HERE, place.key) == place
    assert is_uuid7(stamp)
    assert not is_uuid7(stamp.upper())
    assert not is_uuid7(str(uuid.uuid4()))


def test_a_time_is_ordered_as_ids_of_that_time_are():
    at = order_of_time(NOW)
    millisecond = int(NOW.timestamp() * 1000)
    text = f"{millisecond:012x}"
    assert at < f"{text[:8]}-{text[8:]}-7000-8000-000000000000"
    text = f"{millisecond - 1:012x}"
    assert at > f"{text[:8]}-{text[8:]}-7fff-bfff-ffffffffffff"
