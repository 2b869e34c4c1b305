"""Archive, prune, verify, delete and catalog on every backend."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import RetentionPolicy, SnapshotArchive
from holdfast.testing.state_store_suite import read_all
from support.async_tests import async_test

AGENT, SESSION = "research-bot", "ses_abc123"
LOCATION = holdfast.SnapshotLocation(SESSION, scope="agent", scope_id=AGENT)


def opened(state_store, session_id=SESSION, **options):
    return holdfast.Session.open(state_store, agent_id=AGENT, session_id=session_id, **options)


@async_test
async def test_snapshots_can_be_saved_loaded_listed_and_deleted(new_state_store):
    async with new_state_store() as state_store:
        archive = SnapshotArchive(state_store)
        assert isinstance(archive, holdfast.SnapshotStorage)
        location = holdfast.SnapshotLocation(SESSION, scope="agent", scope_id=AGENT)
        assert location == holdfast.SnapshotLocation(session_id=SESSION, scope_id=AGENT)
        store = holdfast.Store()
        ids = []
        for step in range(5):
            store.set("state", "step", step)
            store.set("workflow", "onboarding", {"step": step})
            snapshot = holdfast.SessionSnapshot.from_snapshot(
                store.snapshot(), agent_id=AGENT, session_id=SESSION
            )
            ids.append(snapshot.snapshot_id)
            await archive.save_snapshot(
                location=location, snapshot_id=ids[-1], is_latest=False, snapshot=snapshot
            )
        latest = holdfast.SessionSnapshot.from_snapshot(
            store.snapshot(), agent_id=AGENT, session_id=SESSION, tags={"kind": "latest"}
        )
        await archive.save_snapshot(
            location=location, snapshot_id=latest.snapshot_id, is_latest=True, snapshot=latest
        )
        assert (await archive.load_snapshot(location=location)).tags == {"kind": "latest"}
        found = await archive.load_snapshot(location=location, snapshot_id=ids[2])
        assert found.snapshot.get("workflow", "onboarding") == {"step": 2}
        live = found.to_store()
        live.set("workflow", "onboarding", None)
        assert found.snapshot.get("workflow", "onboarding") == {"step": 2}
        assert await archive.list_snapshot_ids(location=location) == ids
        assert (
            await archive.list_snapshot_ids(location=location, limit=2, start_after=ids[1])
        ) == ids[2:4]
        page = await archive.list_snapshots(location=location, limit=3)
        rest = await archive.list_snapshots(location=location, limit=3, next_token=page.next_token)
        assert [info.snapshot_id for info in page.snapshots + rest.snapshots] == ids
        assert rest.next_token is None
        manifest = await archive.load_manifest(location=location)
        assert isinstance(manifest, holdfast.SnapshotManifest)
        await archive.save_manifest(location=location, manifest=manifest)
        assert await archive.delete_snapshot(location=location, snapshot_id=ids[2])
        assert await archive.list_snapshot_ids(location=location) == ids[:2] + ids[3:]
        await archive.delete_session(session_id=SESSION)
        assert await archive.load_snapshot(location=location) is None
        assert [key async for key in state_store.list()] == []


@async_test
async def test_prune_deletes_expired_snapshots_and_kept_ones_load(new_state_store):
    async with new_state_store() as state_store:
        session = await opened(state_store)
        archive = SnapshotArchive(state_store)
        saved = []
        for step in range(12):
            session.set("step", step)
            session.add_message("user", f"{step} " * 500)
            saved.append(await session.save(tags={"keep": "yes"} if step == 4 else None))
        policy = RetentionPolicy(last=3, protected=["keep"])
        before = await read_all(state_store)
        would = await archive.prune(location=LOCATION, policy=policy, dry_run=True)
        assert await read_all(state_store) == before
        done = await archive.prune(location=LOCATION, policy=policy)
        kept = [saved[step].snapshot_id for step in (4, 9, 10, 11)]
        assert done.kept == would.kept == kept
        assert done.removed == would.removed
        assert len(done.removed) == 8
        assert await archive.list_snapshot_ids(location=LOCATION) == kept
    async with new_state_store() as state_store:
        archive = SnapshotArchive(state_store)
        for step in (4, 9, 10, 11):
            snapshot_id = saved[step].snapshot_id
            found = await archive.load_snapshot(location=LOCATION, snapshot_id=snapshot_id)
            assert found.digest == saved[step].digest
            assert found.state.values == {"step": step}
        gone = saved[0].snapshot_id
        assert await archive.load_snapshot(location=LOCATION, snapshot_id=gone) is None
        assert (await archive.verify(location=LOCATION)).ok
        session = await opened(state_store)
        assert (session.get("step"), len(session.messages)) == (11, 12)
        session.set("step", 12)
        await session.restore(kept[0])
        assert session.get("step") == 4
        await session.save()
        assert (await session.verify()).ok


@async_test
async def test_a_load_detects_damage(new_state_store):
    async with new_state_store() as state_store:
        session = await opened(state_store)
        for step in range(3):
            session.set("step", f"step {step}")
            await session.save()
        whole = await session.verify()
        assert whole.ok
        assert (whole.events, whole.segments, whole.snapshots) == (4, 3, 3)
        key = session.log.key(3)
        entry = await state_store.get(key)
        await state_store.put(key, entry.value.replace(b"step 1", b"step 9"))
        damage = (await session.verify()).damage
        assert key in [each.key for each in damage]
        with pytest.raises(holdfast.IntegrityError, match="damaged"):
            await opened(state_store)


@async_test
async def test_delete_session_leaves_other_sessions(new_state_store):
    async with new_state_store() as state_store:
        other = await opened(state_store, "ses_other")
        other.set("step", 1)
        await other.save()
        before = await read_all(state_store)
        for agent_id, scope in ((AGENT, "agent"), ("writer", "agent"), ("team", "multi_agent")):
            session = await holdfast.Session.open(
                state_store, agent_id=agent_id, session_id=SESSION, scope=scope
            )
            session.set("step", 1)
            await session.save()
        assert len(await holdfast.Catalog(state_store).locations(SESSION)) == 3
        await SnapshotArchive(state_store).delete_session(session_id=SESSION)
        assert await read_all(state_store) == before
        session = await opened(state_store)
        assert [event.type for event in session.events] == ["session.started"]
        session.set("step", 2)
        await session.commit()
        assert (await opened(state_store)).state == {"step": 2}


@async_test
async def test_latest_session_has_the_newest_commit(new_state_store):
    async with new_state_store() as state_store:
        catalog = holdfast.Catalog(state_store)
        assert await catalog.latest_session(AGENT) is None
        async with holdfast.Session.open(state_store, agent_id="other-bot"):
            pass
        names = ["ses_b", "ses_d", "ses_a", "ses_c"]
        for name in names:
            async with opened(state_store, name):
                pass
            assert (await catalog.latest_session(AGENT)).session_id == name
        async with opened(state_store, "ses_b") as session:
            session.set("step", 1)
        assert (await catalog.latest_session(AGENT)).session_id == "ses_b"
        # A fork does not count, until the first commit.
        fork = await session.fork("ses_e")
        assert (await catalog.latest_session(AGENT)).session_id == "ses_b"
        fork.set("step", 2)
        await fork.commit()
        assert (await catalog.latest_session(AGENT)).session_id == "ses_e"
        # An import does not count either.
        manager = holdfast.SnapshotManager(state_store)
        document = await manager.export_session(AGENT)
        assert document.session_id == "ses_e"
        await manager.import_session(document, session_id="ses_f")
        assert (await catalog.latest_session(AGENT)).session_id == "ses_e"
        names += ["ses_f", "ses_e"]
        page = await catalog.sessions(AGENT, limit=3)
        rest = await catalog.sessions(AGENT, limit=3, next_token=page.next_token)
        assert {each.session_id for each in page.sessions + rest.sessions} == set(names)
        assert rest.next_token is None
        assert await catalog.agents() == ["other-bot", AGENT]
        await SnapshotArchive(state_store).delete_session(session_id="ses_e")
        latest = await catalog.latest_session(AGENT)
        assert latest.session_id == "ses_f"
        session = await opened(state_store, latest.session_id, must_exist=True)
        assert session.status == "pending"
