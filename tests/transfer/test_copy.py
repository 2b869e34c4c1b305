"""Sessions are copied from one store to another, incrementally."""

from __future__ import annotations

import pytest

from holdfast import (
    Catalog,
    ConflictError,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManifest,
    open_state_store,
)
from holdfast.snapshots.delete import delete_locations
from holdfast.snapshots.keys import deletion_mark_key
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_session, copy_sessions
from support.async_tests import async_test
from support.conversations import add_messages, list_contents, open_session
from support.copied_sessions import (
    CREATE_FUNCTIONS,
    HERE,
    check_intact,
    create_pruned,
    prune,
    read_all,
    save_messages,
)
from support.faults import Crash, Fault, FaultyStateStore
from support.observed_store import ObservedStore, make_snapshot, make_state, save

pytestmark = pytest.mark.usefixtures("one_incarnation")

# -------------------------------------------------------------------------------------- copies


@pytest.mark.parametrize("source", ["memory:", "sqlite:///{}/a.db", "file://{}/a"])
@pytest.mark.parametrize("target", ["memory:", "sqlite:///{}/b.db", "file://{}/b"])
@async_test
async def test_everything_is_copied_byte_for_byte(source, target, tmp_path, often):
    async with (
        open_state_store(source.format(tmp_path)) as first,
        open_state_store(target.format(tmp_path)) as second,
    ):
        await create_pruned(first)
        await save_messages(first, "xy", "other", "another agent/é")
        crew = await open_session(first, "ses", agent_id="crew", scope="multi_agent")
        crew.agent("one").add_message("user", "hello")
        await crew.save()
        steps = []
        done = await copy_sessions(
            first, second, progress=lambda location, count: steps.append((location, count))
        )
        content = await read_all(first)
        assert await read_all(second) == content
        assert (done.sessions, done.failed) == (3, {})
        assert done.entries == len(content) == sum(count for _, count in steps)
        assert done.size == sum(map(len, content.values()))
        assert HERE in [location for location, _ in steps]
        assert await compare_stores(first, second) == []
        session = await check_intact(second)
        assert list_contents(session)[-1] == "j"
        await add_messages(session, "and on")
        await check_intact(second)


@pytest.mark.parametrize("create", CREATE_FUNCTIONS)
@async_test
async def test_only_new_entries_are_copied(create, often):
    source, target = MemoryStateStore(), ObservedStore()
    await create(source)
    await copy_sessions(source, target)
    target.forget()
    done = await copy_sessions(source, target)
    assert (done.sessions, done.entries, done.size) == (1, 0, 0)
    assert target.written == []
    before = await read_all(source)
    session = await open_session(source)
    session.add_message("user", "new")
    await session.save()
    await save(SnapshotArchive(source), make_snapshot(make_state(3), HERE), HERE, is_latest=True)
    done = await copy_sessions(source, target)
    after = await read_all(source)
    assert await read_all(target) == after
    assert sorted(target.written) == sorted(key for key in after if before.get(key) != after[key])
    assert done.entries == len(target.written)


@async_test
async def test_many_sessions_are_copied_page_by_page(often):
    source, target = MemoryStateStore(), MemoryStateStore()
    for number in range(9):
        await save_messages(source, "a", f"ses {number}", "bot" if number % 2 else "other")
    assert (await copy_sessions(source, target)).sessions == 9
    assert await read_all(target) == await read_all(source)


@async_test
async def test_only_one_agent_or_one_session_is_copied():
    source = MemoryStateStore()
    for agent_id, session_id in (("bot", "a"), ("bot", "b"), ("other", "a"), ("other", "c")):
        await save_messages(source, "x", session_id, agent_id)

    async def copied(**options):
        target = MemoryStateStore()
        done = await copy_sessions(source, target, **options)
        catalog = Catalog(target)
        found = [
            (entry.agent_id, entry.session_id)
            for agent in await catalog.agents()
            for entry in (await catalog.sessions(agent)).sessions
        ]
        assert done.sessions == len(found)
        return sorted(found)

    assert await copied(agent_id="bot") == [("bot", "a"), ("bot", "b")]
    assert await copied(session_id="a") == [("bot", "a"), ("other", "a")]
    assert await copied(agent_id="other", session_id="a") == [("other", "a")]
    assert await copied(agent_id="nobody") == await copied(session_id="none") == []
    with pytest.raises(ValueError, match="session_id must have 1 to 256"):
        await copied(session_id="")


@async_test
async def test_a_session_that_was_never_created_is_not_copied():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await source.delete(HERE.manifest_key)
    await copy_sessions(source, target)
    assert await read_all(target) == {}


@async_test
async def test_a_session_that_is_being_deleted_is_not_copied():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await source.put(deletion_mark_key("ses"), b"{}")
    assert (await copy_sessions(source, target)).entries == 0
    assert await read_all(target) == {}
    assert await compare_stores(source, target) == []


@async_test
async def test_a_deletion_of_one_agent_does_not_keep_others_from_being_copied():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    other = SnapshotLocation(HERE.session_id, scope_id="other")
    await save(SnapshotArchive(source), make_snapshot(make_state(2), other), other)
    dying = FaultyStateStore(source)
    dying.plan(Fault(1, "crash", True))
    with pytest.raises(Crash):
        await delete_locations(dying, HERE.session_id, [other])
    assert (await copy_sessions(source, target)).entries > 0
    assert await Catalog(target).locations(HERE.session_id) == [HERE]
    assert await compare_stores(source, MemoryStateStore()) != []
    assert await compare_stores(source, target) == []
    await source.delete(HERE.manifest_key)
    await SnapshotArchive(source).repair(location=HERE)
    assert await source.get(HERE.manifest_key) is not None


@async_test
async def test_a_manifest_without_a_session_is_copied():
    source, target = MemoryStateStore(), MemoryStateStore()
    given = SnapshotManifest(extra={"owner": "Ada"})
    await SnapshotArchive(source).save_manifest(location=HERE, manifest=given)
    await copy_sessions(source, target)
    assert await read_all(target) == await read_all(source)


# ------------------------------------------------------------------------------------ divergence


@async_test
async def test_a_diverged_session_fails_and_the_others_are_copied():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await copy_sessions(source, target)
    await save_messages(source, "x", "zes")
    await add_messages(await open_session(target), "of the target")
    before = await read_all(target)
    done = await copy_sessions(source, target)
    assert done.sessions == 1
    assert list(done.failed) == [HERE]
    assert "diverged in the target" in done.failed[HERE]
    after = await read_all(target)
    assert {key: after[key] for key in before} == before
    await add_messages(await open_session(source), "of the source")
    assert list((await copy_sessions(source, target)).failed) == [HERE]
    assert [each for each in await compare_stores(source, target) if "is different" in each]


@async_test
async def test_another_session_of_the_same_name_is_not_overwritten():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await save_messages(target)
    with pytest.raises(ConflictError, match="diverged"):
        await copy_session(source, target, HERE)


@async_test
async def test_a_copy_keeps_events_that_were_pruned_in_the_source(often):
    source, target = MemoryStateStore(), MemoryStateStore()
    session = await save_messages(source)
    await copy_sessions(source, target)
    await prune(source)
    assert (await copy_sessions(source, target)).failed == {}
    await session.reload()
    session.add_message("user", "more")
    await session.save()
    assert (await copy_sessions(source, target)).failed == {}
    there = await check_intact(target)
    assert [event.seq async for event in there.events] == list(range(1, 11))
    assert len(await there.archive.list_snapshot_ids(location=HERE)) == 9
    assert await compare_stores(source, target) == []


@async_test
async def test_a_source_pruned_beyond_the_copy_fails():
    source, target = MemoryStateStore(), MemoryStateStore()
    session = await save_messages(source, "abc")
    await copy_sessions(source, target)
    for text in "defgh":
        session.add_message("user", text)
        await session.save()
    await prune(source)
    before = await read_all(target)
    done = await copy_sessions(source, target)
    assert "pruned beyond it in the source; delete it there" in done.failed[HERE]
    assert await read_all(target) == before
    await check_intact(target)


@async_test
async def test_a_target_pruned_beyond_the_source_fails_until_the_source_is_pruned():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await copy_sessions(source, target)
    await prune(target)
    before = await read_all(target)
    done = await copy_sessions(source, target)
    assert "was pruned up to event 8 in the target" in done.failed[HERE]
    assert await read_all(target) == before
    assert [
        each for each in await compare_stores(source, target) if "is missing in the copy" in each
    ]
    await prune(source)
    assert (await copy_sessions(source, target)).failed == {}
    assert await compare_stores(source, target) == []


@async_test
async def test_a_damaged_session_does_not_stop_the_others():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await save_messages(source, "x", "zes")
    await source.put(HERE.manifest_key, b"no longer JSON")
    done = await copy_sessions(source, target)
    assert (done.sessions, list(done.failed)) == (1, [HERE])
    assert HERE.manifest_key in done.failed[HERE]
    assert [each for each in await compare_stores(source, target) if "cannot be compared" in each]


@async_test
async def test_damaged_segments_are_copied_as_they_are():
    source, target = MemoryStateStore(), MemoryStateStore()
    await save_messages(source)
    await source.put(f"{HERE.prefix}log/00000000/000000000004.json", b"no longer JSON")
    assert (await copy_sessions(source, target)).failed == {}
    assert await read_all(target) == await read_all(source)
