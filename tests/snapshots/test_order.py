"""Snapshots are listed in the order of saving, for any ids."""

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
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import (
    HERE,
    NOW,
    ObservedStore,
    check_whole,
    collect,
    list_damage,
    list_ids,
    load,
    make_snapshot,
    make_state,
    prune,
    save,
    save_many,
    verify,
)

OLD = "019a8b5e-6f00-7000-8000-000000000000"


async def save_under(store, ids):
    """Save a growing state under each of these ids."""
    archive = SnapshotArchive(store)
    found = {}
    for number, snapshot_id in enumerate(ids, 1):
        made = make_snapshot(make_state(number))
        await save(archive, made, snapshot_id=snapshot_id)
        found[snapshot_id] = replace(made, snapshot_id=snapshot_id)
    return found


def make_mixed_ids(count, seed=0):
    """Return ids of every kind, in no sorted order."""
    draw = random.Random(seed)
    kinds = [
        lambda at: str(uuid.UUID(int=draw.getrandbits(128), version=4)),
        lambda at: f"turn-{count - at}",
        lambda at: new_id(),
        lambda at: f"{OLD[:-3]}{at:03}",
    ]
    return [draw.choice(kinds)(at) for at in range(count)]


@async_test
async def test_latest_listing_newest_and_prune_agree_on_the_order():
    for seed in range(10):
        store = ObservedStore()
        ids = make_mixed_ids(12, seed)
        snapshots = await save_under(store, ids)
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
            id_entry_key(HERE, each) for each in ids[-2:] if not has_plain_key(store, each)
        )
        await prune(store, RetentionPolicy(last=1))
        assert await list_ids(store) == ids[-1:]


def has_plain_key(store, snapshot_id):
    return HERE.snapshot_key(snapshot_id) in store.content


@async_test
async def test_session_save_writes_one_record_after_all_others():
    store = ObservedStore()
    await save_under(store, ["z", str(uuid.uuid4()), "a"])
    ids = await list_ids(store)
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    store.forget()
    first = await session.save()
    assert [key for key in store.written if "/snapshots/" in key] == [
        HERE.snapshot_key(first.snapshot_id)
    ]
    assert first.parent_id == "a"
    await save_under(store, ["b"])
    second = await (
        await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    ).save()
    assert second.parent_id == "b"
    assert await list_ids(store) == [*ids, first.snapshot_id, "b", second.snapshot_id]
    assert (await load(store)).snapshot_id == second.snapshot_id


@async_test
async def test_ids_in_the_order_of_saving_need_no_id_entry():
    store = ObservedStore()
    snapshots = await save_many(store, 5)
    assert store.keys_with("immutable_history") == [HERE.snapshot_key(each) for each in snapshots]
    assert store.keys_with("/snapshots/ids/") == []


@async_test
async def test_the_latest_snapshot_has_the_same_order():
    store = ObservedStore()
    archive = SnapshotArchive(store)
    early = [make_snapshot(make_state(number)) for number in range(4)]
    for number, (is_latest, id_) in enumerate(
        [(False, "m"), (True, "z"), (False, None), (True, None), (True, "a"), (False, OLD)] * 2
    ):
        made = make_snapshot(make_state(10 + number))
        if id_ == OLD:
            made, id_ = early.pop(), None
        if not is_latest and id_ is not None:
            id_ += str(number)
        await save(archive, made, snapshot_id=id_, is_latest=is_latest)
        found = await load(store)
        assert found.digest == made.digest
        assert found.snapshot_id == (id_ or made.snapshot_id)


@async_test
async def test_pages_continue_after_a_deleted_snapshot():
    store = ObservedStore()
    ids = make_mixed_ids(9, seed=3)
    await save_under(store, ids)
    archive = SnapshotArchive(store)
    page = await archive.list_snapshots(location=HERE, limit=3)
    assert page.snapshot_ids == ids[:3]
    for gone in (ids[2], ids[3]):
        assert await archive.delete_snapshot(location=HERE, snapshot_id=gone)
    page = await archive.list_snapshots(location=HERE, limit=3, next_token=page.next_token)
    assert page.snapshot_ids == ids[4:7]


@async_test
async def test_a_listing_can_start_after_a_snapshot():
    store = ObservedStore()
    ids = make_mixed_ids(9, seed=4)
    await save_under(store, ids)
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
async def test_invalid_token_is_rejected(bad):
    with pytest.raises(ValueError, match="invalid next_token"):
        await SnapshotArchive(ObservedStore()).list_snapshots(location=HERE, next_token=bad)


# ----------------------------------------------------------------------------------------- cost


async def count_costs(count):
    """Count listings, listed keys and read entries of each query over random ids."""
    store = ObservedStore()
    await save_under(store, [str(uuid.uuid4()) for _ in range(count)])
    ids = await list_ids(store)
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


def test_cost_of_a_page_does_not_depend_on_the_size_of_the_history():
    few, many = asyncio.run(count_costs(100)), asyncio.run(count_costs(500))
    for (few_calls, few_keys, few_read), (many_calls, many_keys, many_read) in zip(
        few, many, strict=True
    ):
        assert max(few_calls, many_calls) <= 40
        assert max(few_keys, many_keys) <= 400
        assert few_read == many_read <= 8


# ---------------------------------------------------------------- crashes, damage, unknown keys


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@async_test
async def test_an_interrupted_save_can_be_repeated(atomic, is_done):
    for at in itertools.count(1):
        inner = MemoryStateStore()
        before = await save_under(inner, ["y", "x"])
        dying = FaultyStateStore(inner, atomic=atomic)
        dying.plan(Fault(at, "crash", is_done))
        made = make_snapshot(make_state(7))
        try:
            await save(SnapshotArchive(dying), made, snapshot_id="mine")
            break
        except Crash:
            assert at < 20
        found = await list_ids(inner)
        assert found in (["y", "x"], ["y", "x", "mine"])
        assert (await verify(inner)).damage == []
        later = make_snapshot(make_state(8))
        await save(SnapshotArchive(inner), later, snapshot_id="later")
        await save(SnapshotArchive(inner), made, snapshot_id="mine")
        expected = ["y", "x", "mine", "later"] if "mine" in found else ["y", "x", "later", "mine"]
        assert await list_ids(inner) == expected
        await check_whole(
            inner, {each: {**before, "mine": made, "later": later}[each] for each in expected}
        )
    assert at > (1 if atomic else 3)


@pytest.mark.parametrize("atomic", [True, False])
@async_test
async def test_a_delayed_writer_does_not_save_an_id_twice(atomic):
    store = MemoryStateStore()
    await save_under(store, ["a"])
    made, other = make_snapshot(make_state(1)), make_snapshot(make_state(1))

    class Standing(FaultyStateStore):
        """Pauses before the record is written; after its id entry, if batches are not atomic."""

        has_stood = False

        async def put_many(self, puts, **conditions):
            if not self.has_stood and any("immutable_history" in put.key for put in puts):
                self.has_stood = True
                first = [] if atomic else [put for put in puts if "/ids/" in put.key]
                if first:
                    await store.put_many(first)
                puts = [put for put in puts if put not in first]
                await save(SnapshotArchive(store), make_snapshot(make_state(6)), snapshot_id="b")
                await save(SnapshotArchive(store), other, snapshot_id="mine")
                await save(SnapshotArchive(store), make_snapshot(make_state(5)), snapshot_id="c")
            return await super().put_many(puts, **conditions)

    await save(SnapshotArchive(Standing(store, atomic=atomic)), made, snapshot_id="mine")
    assert await list_ids(store) == ["a", "b", "mine", "c"]
    assert (await verify(store)).ok


@async_test
async def test_a_lost_or_damaged_id_entry_is_reported_and_can_be_deleted():
    for change in (lambda _: None, lambda data: data[:-3], lambda data: data.replace(b"01", b"02")):
        store = ObservedStore()
        ids = ["z", "y", "x"]
        await save_under(store, ids)
        key = id_entry_key(HERE, "y")
        await store.damage(key, change)
        assert await list_damage(store) == {key}
        assert await list_ids(store) == ids
        if key in store.content:
            with pytest.raises(IntegrityError, match=key):
                await load(store, "y")
            assert await SnapshotArchive(store).delete_snapshot(location=HERE, snapshot_id="y")
            assert await list_ids(store) == ["z", "x"]
            assert await list_damage(store) == set()


@async_test
async def test_unknown_keys_are_skipped():
    store = ObservedStore()
    ids = ["z", new_id(), "x"]
    strays = [
        f"{HERE.history_prefix}{ids[1]}.json~",
        f"{HERE.history_prefix}a.b.json",
        f"{HERE.history_prefix}~.json",
        f"{HERE.history_prefix}{new_id()}_a.json.bak",
        f"{HERE.history_prefix}\u00e9",
    ]
    for at, each in enumerate(ids):
        await save_under(store, [each])
        await store.put(strays[at], b"?")
    for key in strays:
        await store.put(key, b"?")
    archive = SnapshotArchive(store)
    assert await list_ids(store) == ids
    assert await archive.list_snapshot_ids(location=HERE, limit=2) == ids[:2]
    assert (await archive.list_snapshots(location=HERE, limit=3)).snapshot_ids == ids
    assert (await load(store)).snapshot_id == "x"
    assert (await archive.find_newest_info(location=HERE, wanted=lambda _: True)).snapshot_id == "x"


# ------------------------------------------------------------------------------------- copies


@async_test
async def test_a_copy_has_the_same_ids_in_the_same_order():
    source, target = ObservedStore(), ObservedStore()
    ids = make_mixed_ids(8, seed=5)
    snapshots = await save_under(source, ids)
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
async def test_delete_session_deletes_id_entries():
    store = ObservedStore()
    await save_under(store, make_mixed_ids(6))
    assert await collect(store.list(id_entries_prefix(HERE)))
    await SnapshotArchive(store).delete_session(session_id=HERE.session_id)
    assert store.keys_with(HERE.prefix) == []


# ------------------------------------------------------------------------------------- keys


def test_a_history_key_is_parsed_back():
    stamp = new_id()
    for history_key in (
        HistoryKey(HERE, stamp),
        HistoryKey(HERE, "a", stamp),
        HistoryKey(HERE, f"{OLD}_a", stamp),
        HistoryKey(HERE, "_" * 128, stamp),
        HistoryKey(HERE, "turn-1"),
    ):
        assert parse_history_key(HERE, history_key.key) == history_key
    assert is_uuid7(stamp)
    assert not is_uuid7(stamp.upper())
    assert not is_uuid7(str(uuid.uuid4()))


def test_order_of_time_sorts_like_ids_of_that_time():
    at = order_of_time(NOW)
    millisecond = int(NOW.timestamp() * 1000)
    text = f"{millisecond:012x}"
    assert at < f"{text[:8]}-{text[8:]}-7000-8000-000000000000"
    text = f"{millisecond - 1:012x}"
    assert at > f"{text[:8]}-{text[8:]}-7fff-bfff-ffffffffffff"
