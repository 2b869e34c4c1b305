"""Sessions that are copied from store to store, and what a copy of one must be."""

from __future__ import annotations

from holdfast import (
    Catalog,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManager,
    SnapshotManifest,
)
from holdfast.stores.memory import MemoryStateStore
from support.conversations import opened, said
from support.observed_store import save, session_snapshot, state

HERE = SnapshotLocation("ses", "agent", "bot")
LAST_TWO = RetentionPolicy(last=2)


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


WORLDS = [plain, pruned, imported, imported_whole]
