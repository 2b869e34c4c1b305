"""Missing and damaged entries of a copy are found."""

from __future__ import annotations

import json
import os

import pytest

from holdfast import NotFoundError, SnapshotArchive, SnapshotManager
from holdfast.log import timeline
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.compression import CompressedStateStore
from holdfast.stores.wrappers.encryption import EncryptedStateStore, EncryptionKeys
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.copied_sessions import HERE, create_plain, create_pruned, read_all, save_messages
from support.faults import RAISED, Fault, FaultyStateStore
from support.observed_store import ObservedStore, flip_bit, make_snapshot, make_state, save

pytestmark = pytest.mark.usefixtures("one_incarnation")


async def make_copied_store():
    source, target = MemoryStateStore(), ObservedStore()
    await create_pruned(source)
    await save_messages(source, "xy", "other")
    await copy_sessions(source, target)
    assert await compare_stores(source, target) == []
    return source, target


@async_test
async def test_each_kind_of_loss_and_damage_is_found(often):
    source, target = await make_copied_store()
    log_start = (await SnapshotArchive(source).load_manifest(location=HERE)).log_start.seq
    log_start = timeline.Timeline(source, HERE.prefix, "00000000").key(log_start)
    assert log_start in target.content
    for key, value in target.content.items():
        await target.delete(key)
        lost = await compare_stores(source, target)
        if "/keyframes/" not in key or key == log_start:
            assert any(key in problem for problem in lost), key
        # The value of an index entry is empty, and a tombstone has no digest.
        if value != b"{}" and b"pruned_at" not in value:
            await target.put(key, value[:-9] + b"damaged" + value[-2:])
            damaged = await compare_stores(source, target)
            assert any(key in problem for problem in damaged), key
        await target.put(key, value)
    assert await compare_stores(source, target) == []


@async_test
async def test_an_intact_but_different_entry_is_found():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await copy_sessions(source, target)
    await save(SnapshotArchive(source), make_snapshot(make_state(2), HERE), HERE, is_latest=True)
    await copy_sessions(source, target)
    await save(SnapshotArchive(source), make_snapshot(make_state(2), HERE), HERE, is_latest=True)
    assert await compare_stores(source, target) == [
        f"bot/ses: {HERE.latest_key} is different in the copy"
    ]
    await SnapshotArchive(target).delete_session(session_id="ses")
    await save_messages(target)
    problems = await compare_stores(source, target)
    assert (
        f"bot/ses: {HERE.prefix}log/00000000/000000000003.json is different in the copy" in problems
    )


@async_test
async def test_a_missing_session_is_found():
    source = MemoryStateStore()
    await save_messages(source, "ab")
    problems = await compare_stores(source, MemoryStateStore())
    assert len(problems) == len(await read_all(source))
    assert all(each.startswith("bot/ses: ") for each in problems)
    assert json.dumps(problems).count("is missing in the copy") == len(problems)


def encrypt_store(disk):
    return EncryptedStateStore(disk, EncryptionKeys({"one": os.urandom(32)}))


@pytest.mark.parametrize("packed", [encrypt_store, CompressedStateStore])
@async_test
async def test_unreadable_entries_of_every_session_are_listed(packed):
    source, disk = MemoryStateStore(), ObservedStore()
    await create_plain(source)
    await save_messages(source, "xy", "other")
    target = packed(disk)
    await copy_sessions(source, target)
    kept = disk.keys_with("/ses/")
    keys = {each for each in kept if each.endswith(("3.json", "latest.json", "manifest.json"))}
    keys |= {each for each in kept if "_history/" in each}
    keys |= {*disk.keys_with("/other/scopes/agent/bot/log/"), *disk.keys_with("_other/")}
    for key in keys:
        await disk.damage(key, lambda data: flip_bit(data, len(data) * 4))
    problems = await compare_stores(source, target)
    for key in keys:
        assert any(key in problem for problem in problems), key
    # The same with the damage in the source.
    problems = await compare_stores(target, source)
    for key in keys:
        assert any(key in problem for problem in problems), key


@async_test
async def test_entries_of_a_newer_format_are_listed_with_all_others():
    source, target = MemoryStateStore(), ObservedStore()
    await create_plain(source)
    await save_messages(source, "xy", "other")
    await copy_sessions(source, target)
    for one, other in ((source, target), (target, source)):
        content = await read_all(one)
        newer = [HERE.manifest_key, f"{HERE.prefix}log/00000000/000000000003.json"]
        for key in newer:
            assert b'"format":1' in content[key]
            await one.put(key, content[key].replace(b'"format":1', b'"format":2'))
        lost = next(key for key in target.keys_with("/ses/") if "_history/" in key)
        removed = next(key for key in target.keys_with("/other/") if "/log/" in key)
        kept = await read_all(other)
        for key in (lost, removed):
            await target.delete(key)
        problems = await compare_stores(source, target)
        for key in (*newer, lost, removed):
            assert any(key in each for each in problems), key
        assert sum("upgrade" in each for each in problems) == len(newer)
        for store, entries in ((one, content), (other, kept)):
            for key, value in entries.items():
                await store.put(key, value)


@async_test
async def test_a_session_with_a_deletion_mark_is_not_compared():
    disk = MemoryStateStore()
    source = encrypt_store(disk)
    await save_messages(source, "ab")
    await disk.put("sessions/ses/deleted.json", b"damaged")
    assert await compare_stores(source, MemoryStateStore()) == []


@async_test
async def test_a_creation_that_crashed_is_neither_copied_nor_missing():
    source, target = MemoryStateStore(), MemoryStateStore()
    store = FaultyStateStore(source, atomic=False)
    store.plan(Fault(1, "crash", True))
    with pytest.raises(RAISED):
        await save_messages(store, "a")
    assert (await SnapshotArchive(source).load_manifest(location=HERE)).is_claim
    assert (await copy_sessions(source, target)).entries == 0
    assert await compare_stores(source, target) == []
    with pytest.raises(NotFoundError):
        await SnapshotManager(source).locate(HERE.scope_id, HERE.session_id)
