"""Sessions from one store to another as they are: everything, again and again, whatever fails."""

from __future__ import annotations

import functools
import json

import pytest

from faults import RAISED, WAYS, Fault, FaultyStateStore
from holdfast import (
    Catalog,
    ConflictError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManager,
    SnapshotManifest,
    open_state_store,
)
from holdfast.log import timeline
from holdfast.sessions import copying
from holdfast.sessions.copying import compare_stores, copy_session, copy_sessions
from holdfast.snapshots.layout import deleted_key
from holdfast.stores.memory import MemoryStateStore
from loops import in_loop
from sessions.conversations import contents, opened, said
from watched import Interrupted, Watched, save, session_snapshot, state

HERE = SnapshotLocation("ses", "agent", "bot")
LAST_TWO = RetentionPolicy(last=2)


@pytest.fixture
def often(monkeypatch):
    """A keyframe after few segments, and few entries at once."""
    monkeypatch.setattr(timeline, "MOST_SEGMENTS", 3)
    monkeypatch.setattr(copying, "AT_ONCE", 4)


async def talked(store, texts="abcdefgh", session_id="ses", agent_id="bot"):
    """A session that was saved after everything that was said."""
    session = await opened(store, session_id, agent_id=agent_id)
    for text in texts:
        session.add_message("user", text)
        await session.save(tags={"said": text})
    return session


async def prune(store, policy=LAST_TWO):
    return await SnapshotArchive(store).prune(location=HERE, policy=policy)


async def plain(store):
    """A session with keyframes, a latest snapshot, and something in the manifest."""
    await talked(store)
    archive = SnapshotArchive(store)
    await save(archive, session_snapshot(state(2), HERE), HERE, is_latest=True)
    there = await archive.load_manifest(location=HERE)
    given = SnapshotManifest(started_at=there.started_at, extra={"owner": "Ada"})
    await archive.save_manifest(location=HERE, manifest=given)


async def pruned(store):
    """A session whose first events were pruned, with a snapshot from before."""
    await plain(store)
    await prune(store, RetentionPolicy(last=2, protected={"said": "b"}))
    await said(await opened(store), "i", "j")


async def imported(store):
    """A session that began here later than its first event says."""
    elsewhere = MemoryStateStore()
    await pruned(elsewhere)
    document = await SnapshotManager(elsewhere).export_session("bot")
    await SnapshotManager(store).import_session(document)
    await talked(store, "k")


async def imported_whole(store):
    """The same, with all its events."""
    elsewhere = MemoryStateStore()
    await talked(elsewhere)
    document = await SnapshotManager(elsewhere).export_session("bot")
    await SnapshotManager(store).import_session(document)
    await talked(store, "k")


async def everything(store):
    """All that a store holds."""
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


async def check_sound(store, location=HERE):
    assert (await SnapshotArchive(store).verify(location=location)).damage == []
    session = await Session.open(
        store, agent_id=location.scope_id, session_id=location.session_id, must_exist=True
    )
    assert (await Catalog(store).latest_session(location.scope_id)).location == location
    return session


# -------------------------------------------------------------------------------------- everything


@pytest.mark.parametrize("source", ["memory:", "sqlite:///{}/a.db", "file://{}/a"])
@pytest.mark.parametrize("target", ["memory:", "sqlite:///{}/b.db", "file://{}/b"])
@in_loop
async def test_everything_is_copied_byte_for_byte(source, target, tmp_path, often):
    async with (
        open_state_store(source.format(tmp_path)) as first,
        open_state_store(target.format(tmp_path)) as second,
    ):
        await pruned(first)
        await talked(first, "xy", "other", "another agent/é")
        crew = await opened(first, "ses", agent_id="crew", scope="multi_agent")
        crew.agent("one").add_message("user", "hello")
        await crew.save()
        steps = []
        done = await copy_sessions(
            first, second, progress=lambda location, count: steps.append((location, count))
        )
        content = await everything(first)
        assert await everything(second) == content
        assert (done.sessions, done.failed) == (3, {})
        assert done.entries == len(content) == sum(count for _, count in steps)
        assert done.size == sum(map(len, content.values()))
        assert HERE in [location for location, _ in steps]
        assert await compare_stores(first, second) == []
        session = await check_sound(second)
        assert contents(session)[-1] == "j"
        await said(session, "and on")
        await check_sound(second)


@pytest.mark.parametrize("world", [plain, pruned, imported, imported_whole])
@in_loop
async def test_only_what_is_new_is_copied(world, often):
    source, target = MemoryStateStore(), Watched()
    await world(source)
    await copy_sessions(source, target)
    target.forget()
    done = await copy_sessions(source, target)
    assert (done.sessions, done.entries, done.size) == (1, 0, 0)
    assert target.written == []
    before = await everything(source)
    session = await opened(source)
    session.add_message("user", "new")
    await session.save()
    await save(SnapshotArchive(source), session_snapshot(state(3), HERE), HERE, is_latest=True)
    done = await copy_sessions(source, target)
    after = await everything(source)
    assert await everything(target) == after
    assert sorted(target.written) == sorted(key for key in after if before.get(key) != after[key])
    assert done.entries == len(target.written)


@in_loop
async def test_many_sessions_are_copied_page_by_page(often):
    source, target = MemoryStateStore(), MemoryStateStore()
    for number in range(9):
        await talked(source, "a", f"ses {number}", "bot" if number % 2 else "other")
    assert (await copy_sessions(source, target)).sessions == 9
    assert await everything(target) == await everything(source)


@in_loop
async def test_only_one_agent_or_one_session_is_copied():
    source = MemoryStateStore()
    for agent_id, session_id in (("bot", "a"), ("bot", "b"), ("other", "a"), ("other", "c")):
        await talked(source, "x", session_id, agent_id)

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
    with pytest.raises(ValueError, match="session_id has 1 to 256"):
        await copied(session_id="")


@in_loop
async def test_a_session_that_a_crash_left_half_founded_is_whole_in_the_copy():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await source.delete(HERE.manifest)
    await copy_sessions(source, target)
    await check_sound(target)
    assert await compare_stores(source, target) == []


@in_loop
async def test_a_session_that_is_being_deleted_is_not_copied():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await source.put(deleted_key("ses"), b"{}")
    assert (await copy_sessions(source, target)).entries == 0
    assert await everything(target) == {}
    assert await compare_stores(source, target) == []


@in_loop
async def test_a_manifest_without_a_session_is_copied():
    source, target = MemoryStateStore(), MemoryStateStore()
    given = SnapshotManifest(extra={"owner": "Ada"})
    await SnapshotArchive(source).save_manifest(location=HERE, manifest=given)
    await copy_sessions(source, target)
    assert await everything(target) == await everything(source)


# ------------------------------------------------------------------------------------ other ways


@in_loop
async def test_a_target_that_went_another_way_is_refused_and_does_not_keep_the_others():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await copy_sessions(source, target)
    await talked(source, "x", "zes")
    await said(await opened(target), "of the target")
    before = await everything(target)
    done = await copy_sessions(source, target)
    assert done.sessions == 1
    assert list(done.failed) == ["bot/ses"]
    assert "went another way in the target" in done.failed["bot/ses"]
    after = await everything(target)
    assert {key: after[key] for key in before} == before
    await said(await opened(source), "of the source")
    assert list((await copy_sessions(source, target)).failed) == ["bot/ses"]
    assert [each for each in await compare_stores(source, target) if "is another one" in each]


@in_loop
async def test_another_session_of_the_same_name_is_refused():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await talked(target)
    with pytest.raises(ConflictError, match="went another way"):
        await copy_session(source, target, HERE)


@in_loop
async def test_a_source_that_was_pruned_leaves_the_copy_as_it_was_and_it_goes_on(often):
    source, target = MemoryStateStore(), MemoryStateStore()
    session = await talked(source)
    await copy_sessions(source, target)
    await prune(source)
    assert (await copy_sessions(source, target)).failed == {}
    await session.reload()
    session.add_message("user", "more")
    await session.save()
    assert (await copy_sessions(source, target)).failed == {}
    there = await check_sound(target)
    assert [event.seq async for event in there.events] == list(range(1, 11))
    assert len(await there.archive.list_snapshot_ids(location=HERE)) == 9
    assert await compare_stores(source, target) == []


@in_loop
async def test_a_source_that_was_pruned_beyond_the_copy_is_refused():
    source, target = MemoryStateStore(), MemoryStateStore()
    session = await talked(source, "abc")
    await copy_sessions(source, target)
    for text in "defgh":
        session.add_message("user", text)
        await session.save()
    await prune(source)
    before = await everything(target)
    done = await copy_sessions(source, target)
    assert "pruned beyond it in the source: delete it there" in done.failed["bot/ses"]
    assert await everything(target) == before
    await check_sound(target)


@in_loop
async def test_a_target_that_was_pruned_beyond_the_source_is_refused_until_that_is_as_well():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await copy_sessions(source, target)
    await prune(target)
    before = await everything(target)
    done = await copy_sessions(source, target)
    assert "was pruned in the target up to event 8" in done.failed["bot/ses"]
    assert await everything(target) == before
    assert [each for each in await compare_stores(source, target) if "is not in the copy" in each]
    await prune(source)
    assert (await copy_sessions(source, target)).failed == {}
    assert await compare_stores(source, target) == []


@in_loop
async def test_a_damaged_session_does_not_keep_the_others():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await talked(source, "x", "zes")
    await source.put(HERE.manifest, b"no longer JSON")
    done = await copy_sessions(source, target)
    assert (done.sessions, list(done.failed)) == (1, ["bot/ses"])
    assert HERE.manifest in done.failed["bot/ses"]
    assert [each for each in await compare_stores(source, target) if "cannot be compared" in each]


@in_loop
async def test_what_is_damaged_in_the_log_is_copied_as_it_is():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await source.put(f"{HERE.place}log/000000000004.json", b"no longer JSON")
    assert (await copy_sessions(source, target)).failed == {}
    assert await everything(target) == await everything(source)


# ---------------------------------------------------------------------------------- whatever fails


async def attempt(world, target, fault, *, atomic):
    """Copy with a fault; how many writes it took."""
    store = FaultyStateStore(target, atomic=atomic)
    store.plan(fault)
    try:
        await copy_sessions(world, store)
    except RAISED:
        assert store.happened == fault
    return store.writes


@pytest.mark.parametrize("world", [plain, pruned, imported, imported_whole])
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one by one"])
@pytest.mark.parametrize("is_begun", [False, True], ids=["new", "begun"])
@in_loop
async def test_a_copy_that_fails_at_any_write_can_be_begun_again(world, atomic, is_begun, often):
    source = MemoryStateStore()
    await world(source)
    beginning = {}
    if is_begun:
        early = MemoryStateStore()
        await copy_sessions(source, early)
        beginning = await everything(early)
        await talked(source, "klmn")
    content = await everything(source)

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
            # Whoever looks meanwhile finds a beginning of it, or nothing.
            session = await opened(target)
            assert (await session.verify()).damage == [], str(fault)
            if not session.is_dirty:
                there = await timeline.Timeline(source, HERE.place).load(session.log.end.seq)
                assert there.store.snapshot().digest == session.snapshot().digest, str(fault)
            assert (await copy_sessions(source, target)).failed == {}
            assert await everything(target) == content, str(fault)


@pytest.mark.parametrize("world", [plain, pruned, imported, imported_whole])
@in_loop
async def test_who_writes_or_prunes_meanwhile_does_no_harm_to_the_copy(world, often):
    async def write(source):
        await talked(source, "new")

    async def prune_all(source):
        await prune(source, RetentionPolicy(last=1))

    counted = MemoryStateStore()
    await world(counted)
    counting = Interrupted(counted, 0, None)
    await copy_sessions(counting, MemoryStateStore())
    for change in (write, prune_all):
        for at in range(1, counting.calls + 1):
            source, target = MemoryStateStore(), MemoryStateStore()
            await world(source)
            meanwhile = functools.partial(change, source)
            await copy_sessions(Interrupted(source, at, meanwhile), target)
            damage = (await SnapshotArchive(target).verify(location=HERE)).damage
            assert damage == [], (change.__name__, at)
            done = await copy_sessions(source, target)
            if done.failed:
                # What was copied before is pruned now: it begins anew.
                assert change is prune_all
                await SnapshotArchive(target).delete_session(session_id="ses")
                assert (await copy_sessions(source, target)).failed == {}
            assert await compare_stores(source, target) == []
            await check_sound(target)


# ---------------------------------------------------------------------------------------- the proof


async def copied_world():
    source, target = MemoryStateStore(), Watched()
    await pruned(source)
    await talked(source, "xy", "other")
    await copy_sessions(source, target)
    assert await compare_stores(source, target) == []
    return source, target


@in_loop
async def test_each_kind_of_loss_and_damage_is_found(often):
    source, target = await copied_world()
    floor = (await SnapshotArchive(source).load_manifest(location=HERE)).floor.seq
    floor = timeline.Timeline(source, HERE.place).key(floor)
    assert floor in target.content
    for key, value in target.content.items():
        await target.delete(key)
        lost = await compare_stores(source, target)
        if "/keyframes/" not in key or key == floor:
            assert any(key in problem for problem in lost), key
        # An entry of an index says all by its key, and a stub nothing that is not said elsewhere.
        if value != b"{}" and b"pruned_at" not in value:
            await target.put(key, value[:-9] + b"damaged" + value[-2:])
            damaged = await compare_stores(source, target)
            assert any(key in problem for problem in damaged), key
        await target.put(key, value)
    assert await compare_stores(source, target) == []


@in_loop
async def test_what_is_sound_and_another_one_is_found():
    source, target = MemoryStateStore(), MemoryStateStore()
    await talked(source)
    await copy_sessions(source, target)
    await save(SnapshotArchive(source), session_snapshot(state(2), HERE), HERE, is_latest=True)
    await copy_sessions(source, target)
    await save(SnapshotArchive(source), session_snapshot(state(2), HERE), HERE, is_latest=True)
    assert await compare_stores(source, target) == [
        f"bot/ses: {HERE.latest} is another one in the copy"
    ]
    await SnapshotArchive(target).delete_session(session_id="ses")
    await talked(target)
    problems = await compare_stores(source, target)
    assert f"bot/ses: {HERE.place}log/000000000003.json is another one in the copy" in problems


@in_loop
async def test_a_session_that_is_not_in_the_copy_at_all_is_found():
    source = MemoryStateStore()
    await talked(source, "ab")
    problems = await compare_stores(source, MemoryStateStore())
    assert len(problems) == len(await everything(source))
    assert all(each.startswith("bot/ses: ") for each in problems)
    assert json.dumps(problems).count("is not in the copy") == len(problems)
