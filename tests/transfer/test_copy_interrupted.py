"""An interrupted copy, or one with concurrent writers, can be resumed."""

from __future__ import annotations

import contextlib
import functools

import pytest

from holdfast import ConflictError, RetentionPolicy, SnapshotArchive
from holdfast.log import timeline
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.conversations import open_session
from support.copied_sessions import (
    CREATE_FUNCTIONS,
    HERE,
    check_intact,
    prune,
    read_all,
    save_messages,
)
from support.faults import RAISED, WAYS, Fault, FaultyStateStore
from support.observed_store import InterruptedStore


async def attempt(source, target, fault, *, atomic):
    """Copy with a fault; return the number of writes."""
    store = FaultyStateStore(target, atomic=atomic)
    store.plan(fault)
    try:
        await copy_sessions(source, store)
    except RAISED:
        assert store.happened == fault
    return store.writes


@pytest.mark.usefixtures("one_incarnation")
@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one by one"])
@pytest.mark.parametrize("is_begun", [False, True], ids=["new", "begun"])
@async_test
async def test_a_copy_that_fails_at_any_write_can_be_resumed(create, atomic, is_begun, often):
    source = MemoryStateStore()
    await create(source)
    beginning = {}
    if is_begun:
        early = MemoryStateStore()
        await copy_sessions(source, early)
        beginning = await read_all(early)
        await save_messages(source, "klmn")
    content = await read_all(source)

    async def begun():
        target = MemoryStateStore()
        for key, value in beginning.items():
            await target.put(key, value)
        return target

    writes = await attempt(source, await begun(), None, atomic=atomic)
    assert writes >= 3
    for number in range(1, writes + 1):
        for kind, is_done in WAYS:
            target = await begun()
            fault = Fault(number, kind, is_done)
            await attempt(source, target, fault, atomic=atomic)
            # A reader finds a prefix of the session, or nothing.
            session = await open_session(target)
            assert (await session.verify()).damage == [], str(fault)
            if not session.is_dirty:
                there = await timeline.Timeline(source, HERE.prefix, "00000000").load(
                    session.log.head.seq
                )
                assert there.store.snapshot().digest == session.snapshot().digest, str(fault)
            assert (await copy_sessions(source, target)).failed == {}
            assert await read_all(target) == content, str(fault)


@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@async_test
async def test_concurrent_writes_and_prunes_do_not_harm_the_copy(create, often):
    async def write(source):
        await save_messages(source, "new")

    async def prune_all(source):
        await prune(source, RetentionPolicy(last=1))

    counted = MemoryStateStore()
    await create(counted)
    counting = InterruptedStore(counted, 0, None)
    await copy_sessions(counting, MemoryStateStore())
    for change in (write, prune_all):
        for at in range(1, counting.calls + 1):
            source, target = MemoryStateStore(), MemoryStateStore()
            await create(source)
            concurrently = functools.partial(change, source)
            await copy_sessions(InterruptedStore(source, at, concurrently), target)
            damage = (await SnapshotArchive(target).verify(location=HERE)).damage
            assert damage == [], (change.__name__, at)
            done = await copy_sessions(source, target)
            if done.failed:
                # The copied entries are pruned now, so the copy starts over.
                assert change is prune_all
                await SnapshotArchive(target).delete_session(session_id="ses")
                assert (await copy_sessions(source, target)).failed == {}
            assert await compare_stores(source, target) == []
            await check_intact(target)


@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@pytest.mark.parametrize("repair", [False, True], ids=["plain", "repair"])
@async_test
async def test_concurrent_copies_of_a_session_do_not_conflict(create, repair, often):
    source = MemoryStateStore()
    await create(source)
    counting = InterruptedStore(MemoryStateStore(), 0, None)
    await copy_sessions(source, counting)
    for at in range(1, counting.calls + 1):
        target = MemoryStateStore()
        other = functools.partial(copy_sessions, source, target, repair=repair)
        done = await copy_sessions(source, InterruptedStore(target, at, other), repair=repair)
        assert done.failed == {}, at
        assert await read_all(target) == await read_all(source), at


@pytest.mark.parametrize("has_tombstones", [True, False])
@async_test
async def test_a_session_created_in_the_target_during_the_copy_is_kept(has_tombstones):
    source = MemoryStateStore()
    await save_messages(source, "abcdef")
    await prune(source, RetentionPolicy(last=1))
    if not has_tombstones:
        for key in [key async for key in source.list(f"{HERE.prefix}log/")]:
            await source.delete(key)
    await save_messages(source, "g")
    counting = InterruptedStore(MemoryStateStore(), 0, None)
    await copy_sessions(source, counting)
    met = set()
    for at in range(1, counting.calls + 1):
        target = MemoryStateStore()
        fresh = await open_session(target)
        fresh.add_message("user", "own")

        async def begin(fresh=fresh):
            with contextlib.suppress(ConflictError):
                await fresh.commit()

        done = await copy_sessions(source, InterruptedStore(target, at, begin))
        met.add(bool(done.failed))
        assert (await SnapshotArchive(target).verify(location=HERE)).damage == [], at
        contents = [message["content"] for message in (await open_session(target)).messages]
        assert contents == (["own"] if done.failed else list("abcdefg")), at
        if not done.failed:
            assert (await copy_sessions(source, target)).entries == 0
    assert met == {True, False}
