"""A repair replaces damaged entries, and never intact ones."""

from __future__ import annotations

import datetime as dt
import os

import pytest

from holdfast import RetentionPolicy
from holdfast.log.segment import decode_segment, encode_tombstone
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.encryption import EncryptedStateStore, EncryptionKeys
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.conversations import add_messages, open_session
from support.copied_sessions import (
    CREATE_FUNCTIONS,
    HERE,
    create_plain,
    create_pruned,
    prune,
    read_all,
    save_messages,
)
from support.faults import RAISED, WAYS, Fault, FaultyStateStore
from support.observed_store import ObservedStore

pytestmark = pytest.mark.usefixtures("one_incarnation")

NOTHING = b""


def flip_bit_at(at: float):
    """Flip one bit in the middle of a value."""

    def damage(value: bytes) -> bytes:
        place = round(at * (len(value) - 1))
        return value[:place] + bytes([value[place] ^ 1]) + value[place + 1 :]

    damage.__name__ = f"a bit at {at}"
    return damage


def flip_all_bits(value: bytes) -> bytes:
    return bytes(each ^ 0xFF for each in value)


def cut_short(value: bytes) -> bytes:
    return value[: len(value) // 2]


def empty_value(value: bytes) -> bytes:
    return NOTHING


def raise_format(value: bytes) -> bytes:
    return value.replace(b'"format":1', b'"format":9', 1)


DAMAGES = [flip_all_bits, cut_short, empty_value, raise_format]
DAMAGES += [flip_bit_at(number / 20) for number in range(21)]


async def make_copy(create):
    """Return a store with a session, and a copy of it."""
    source, target = ObservedStore(), ObservedStore()
    await create(source)
    await copy_sessions(source, target)
    assert target.content == source.content
    return source, target


# ---------------------------------------------------------------------------------- lost entries


@pytest.mark.parametrize("repair", [False, True], ids=["plain", "repair"])
@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@async_test
async def test_any_lost_entry_is_restored(create, repair, often):
    source, target = await make_copy(create)
    content = target.content
    for key in content:
        await target.delete(key)
        done = await copy_sessions(source, target, repair=repair)
        assert done.failed == {}, key
        assert target.content == content, key


@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@async_test
async def test_entries_that_were_lost_together_are_restored(create, often):
    source, target = await make_copy(create)
    content = target.content
    for parts in (
        ["/log/", "manifest"],
        ["/keyframes/", "manifest"],
        ["agents/", "manifest"],
        ["/log/00000000/000000000001", "/log/00000000/000000000003", "manifest"],
    ):
        for key in content:
            if any(part in key for part in parts):
                await target.delete(key)
        assert (await copy_sessions(source, target, repair=True)).failed == {}, parts
        assert target.content == content, parts


# ------------------------------------------------------------------------------- damaged entries


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@async_test
async def test_any_damaged_entry_is_repaired(create, damage, often):
    source, target = await make_copy(create)
    content = target.content
    for key, value in content.items():
        harmed = damage(value)
        if harmed == value:
            continue
        await target.put(key, harmed)
        done = await copy_sessions(source, target, repair=True)
        assert done.failed == {}, key
        assert target.content == content, key
    assert await compare_stores(source, target) == []


@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@async_test
async def test_a_completely_damaged_copy_is_repaired(create, often):
    source, target = await make_copy(create)
    content = target.content
    for key, value in content.items():
        await target.put(key, cut_short(value))
    done = await copy_sessions(source, target, repair=True)
    assert done.failed == {}
    assert target.content == content
    assert done.repaired == len([key for key in content if not key.startswith("agents/")])


@async_test
async def test_new_events_are_copied_and_intact_entries_are_not_written(often):
    source, target = await make_copy(create_pruned)
    first, *_, last = target.keys_with("/log/")
    for key in (first, last):
        await target.put(key, cut_short(target.content[key]))
    await save_messages(source, "new")
    before = target.content
    target.forget()
    done = await copy_sessions(source, target, repair=True)
    assert (done.failed, done.repaired) == ({}, 2)
    assert target.content == source.content
    changed = [key for key in source.content if before.get(key) != source.content[key]]
    assert sorted(target.written) == sorted(changed)
    assert done.entries == len(changed)
    again = await copy_sessions(source, target, repair=True)
    assert (again.entries, again.size, again.repaired) == (0, 0, 0)


@async_test
async def test_without_repair_damage_is_only_reported(often):
    source, target = await make_copy(create_plain)
    first, *_, last = target.keys_with("/log/")
    await target.put(first, NOTHING)
    target.forget()
    assert (await copy_sessions(source, target)).failed == {}
    assert first not in target.read
    await target.put(last, NOTHING)
    done = await copy_sessions(source, target)
    assert done.failed[HERE].startswith("in the target: log segment")
    assert done.failed[HERE].endswith("or copy again with repair")


@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@async_test
async def test_a_repair_that_fails_at_any_write_can_be_resumed(create, often):
    source, target = await make_copy(create)
    content = target.content

    async def harmed():
        store = MemoryStateStore()
        for key, value in content.items():
            await store.put(key, cut_short(value))
        return store

    async def attempt(disk, fault):
        store = FaultyStateStore(disk, atomic=False)
        store.plan(fault)
        try:
            await copy_sessions(source, store, repair=True)
        except RAISED:
            assert store.happened == fault
        return store.writes

    for number in range(1, await attempt(await harmed(), None) + 1):
        for kind, is_done in WAYS:
            disk = await harmed()
            await attempt(disk, Fault(number, kind, is_done))
            assert (await copy_sessions(source, disk, repair=True)).failed == {}
            assert await read_all(disk) == content, (number, kind)


# -------------------------------------------------------------------------- entries that are kept


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("repair", [False, True], ids=["plain", "repair"])
@async_test
async def test_intact_entries_are_not_replaced_by_damaged_ones(repair, damage, often):
    source, target = await make_copy(create_pruned)
    content = target.content
    for key, value in content.items():
        harmed = damage(value)
        # A tombstone has no digest, so its damage is not detected.
        if harmed == value or b"pruned_at" in value:
            continue
        await source.put(key, harmed)
        await copy_sessions(source, target, repair=repair)
        assert target.content == content, key
        await source.put(key, value)


@async_test
async def test_entries_damaged_in_both_stores_are_named_and_others_are_copied(often):
    source, target = await make_copy(create_plain)
    key = target.keys_with("/log/")[1]
    await source.put(key, cut_short(source.content[key]))
    await target.put(key, NOTHING)
    await save_messages(source, "new")
    before = target.content
    done = await copy_sessions(source, target, repair=True)
    assert f"{key} is damaged in the target and not intact in the source" in done.failed[HERE]
    assert target.content == {**source.content, key: before[key]}


@async_test
async def test_a_damaged_latest_snapshot_of_the_source_is_named(often):
    source, target = await make_copy(create_plain)
    await source.put(HERE.latest_key, NOTHING)
    await save_messages(source, "new")
    done = await copy_sessions(source, target)
    assert f"{HERE.latest_key} is damaged in the source" in done.failed[HERE]
    assert {**target.content, HERE.latest_key: NOTHING} == source.content


@pytest.mark.parametrize("texts", ["x", "xyz"])
@pytest.mark.parametrize("is_source_longer", [False, True], ids=["ahead", "apart"])
@async_test
async def test_a_diverged_copy_is_not_changed(texts, is_source_longer, often):
    source, target = await make_copy(create_plain)
    await add_messages(await open_session(target), *texts)
    if is_source_longer:
        await save_messages(source, "of the source")
    content = target.content
    first, *_, last = target.keys_with("/log/")
    for key in (first, HERE.manifest_key, last):
        harmed = {**content, key: flip_bit_at(0.9)(content[key])}
        await target.put(key, harmed[key])
        done = await copy_sessions(source, target, repair=True)
        assert "diverged in the target" in done.failed[HERE], key
        assert target.content == harmed, key
        await target.put(key, content[key])


@async_test
async def test_a_copy_pruned_beyond_the_source_is_not_changed():
    source, target = await make_copy(create_plain)
    await prune(target)
    await target.put(target.keys_with("/log/")[-1], NOTHING)
    content = target.content
    done = await copy_sessions(source, target, repair=True)
    assert "was pruned up to event 8 in the target" in done.failed[HERE]
    assert target.content == content


@async_test
async def test_a_copy_keeps_events_that_were_pruned_in_the_source(often):
    source, target = await make_copy(create_plain)
    await prune(source, RetentionPolicy(last=1))
    content = target.content
    gone = [key for key in content if source.content.get(key) != content[key]]
    assert (await copy_sessions(source, target, repair=True)).failed == {}
    kept = target.content
    assert {key: kept[key] for key in content if "/log/" in key} == {
        key: value for key, value in content.items() if "/log/" in key
    }
    # Events that only the copy has cannot be repaired: they are named, and kept.
    key = next(key for key in gone if "/log/" in key)
    await target.put(key, cut_short(content[key]))
    done = await copy_sessions(source, target, repair=True)
    assert key in done.failed[HERE]
    assert target.content[key] == cut_short(content[key])
    last = target.keys_with("/log/")[-1]
    await target.put(key, content[key])
    await target.put(last, cut_short(target.content[last]))
    await copy_sessions(source, target, repair=True)
    assert target.content == kept


@async_test
async def test_a_tombstone_is_replaced_if_the_source_has_the_events(often):
    source, target = await make_copy(create_plain)
    key = target.keys_with("/log/")[1]
    segment = decode_segment(key, target.content[key])
    await target.put(key, encode_tombstone(segment, dt.datetime.now(dt.UTC)))
    assert (await copy_sessions(source, target, repair=True)).repaired == 1
    assert target.content == source.content


@async_test
async def test_a_copy_that_is_being_deleted_is_copied_again():
    source, target = await make_copy(create_plain)
    await target.put("sessions/ses/deleted.json", b"{}")
    await target.put(HERE.manifest_key, NOTHING)
    assert (await copy_sessions(source, target, repair=True)).failed == {}
    assert target.content == source.content


# -------------------------------------------------------------------------------- encrypted copies


@async_test
async def test_entries_that_cannot_be_decrypted_are_replaced(often):
    source, disk = MemoryStateStore(), MemoryStateStore()
    await create_pruned(source)
    target = EncryptedStateStore(disk, EncryptionKeys({"one": os.urandom(32)}))
    await copy_sessions(source, target)
    content = await read_all(target)
    for key in content:
        entry = await disk.get(key)
        await disk.put(key, flip_bit_at(0.5)(entry.value))
        assert (await copy_sessions(source, target, repair=True)).failed == {}, key
        assert await read_all(target) == content, key
        await disk.put(key, entry.value)


@async_test
async def test_a_copy_opened_with_another_key_is_not_changed(often):
    source, disk = MemoryStateStore(), MemoryStateStore()
    await create_pruned(source)
    await copy_sessions(source, EncryptedStateStore(disk, EncryptionKeys({"a": os.urandom(32)})))
    content = await read_all(disk)
    wrong = EncryptedStateStore(disk, EncryptionKeys({"a": os.urandom(32)}))
    done = await copy_sessions(source, wrong, repair=True)
    assert "open the target with the key that it was written with" in done.failed[HERE]
    assert await read_all(disk) == content
