"""What a copy lacks, and what is damaged in it, is found."""

from __future__ import annotations

import json

from holdfast import SnapshotArchive
from holdfast.log import timeline
from holdfast.sessions.copying import compare_stores, copy_sessions
from holdfast.stores.memory import MemoryStateStore
from loops import in_loop
from sessions.copies import HERE, everything, pruned, talked
from watched import Watched, save, session_snapshot, state


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
