"""Sessions to copy, and checks of the copies."""

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
from support.conversations import add_messages, open_session
from support.observed_store import make_snapshot, make_state, save

HERE = SnapshotLocation("ses", "agent", "bot")
LAST_TWO = RetentionPolicy(last=2)


async def save_messages(store, texts="abcdefgh", session_id="ses", agent_id="bot"):
    """Return a session that was saved after each message."""
    session = await open_session(store, session_id, agent_id=agent_id)
    for text in texts:
        session.add_message("user", text)
        await session.save(tags={"said": text})
    return session


async def prune(store, policy=LAST_TWO):
    return await SnapshotArchive(store).prune(location=HERE, policy=policy)


async def create_plain(store):
    """Create a session with keyframes, a latest snapshot and a custom manifest field."""
    await save_messages(store)
    archive = SnapshotArchive(store)
    await save(archive, make_snapshot(make_state(2), HERE), HERE, is_latest=True)
    there = await archive.load_manifest(location=HERE)
    given = SnapshotManifest(started_at=there.started_at, extra={"owner": "Ada"})
    await archive.save_manifest(location=HERE, manifest=given)


async def create_pruned(store):
    """Create a session whose first events were pruned, with an older snapshot."""
    await create_plain(store)
    await prune(store, RetentionPolicy(last=2, protected={"said": "b"}))
    await add_messages(await open_session(store), "i", "j")


async def create_imported(store, create=create_pruned):
    """Create a session that was imported, so it started later than its first event."""
    elsewhere = MemoryStateStore()
    await create(elsewhere)
    document = await SnapshotManager(elsewhere).export_session("bot")
    await SnapshotManager(store).import_session(document)
    await save_messages(store, "k")


async def create_imported_whole(store):
    """Create an imported session with all its events."""
    await create_imported(store, save_messages)


async def read_all(store):
    """Return all entries of a store."""
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


async def check_intact(store, location=HERE):
    assert (await SnapshotArchive(store).verify(location=location)).damage == []
    session = await Session.open(
        store, agent_id=location.scope_id, session_id=location.session_id, must_exist=True
    )
    assert (await Catalog(store).latest_session(location.scope_id)).location == location
    return session


CREATE_FUNCTIONS = [create_plain, create_pruned, create_imported, create_imported_whole]
