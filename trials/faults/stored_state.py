"""Read everything that is stored without writing, and check that it is consistent."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

from holdfast import (
    Catalog,
    Session,
    SessionSnapshot,
    SnapshotArchive,
    SnapshotLocation,
    StateStore,
    Store,
)
from holdfast.log.changes import fold_changes
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore


class Unsound(Exception):
    """Stored data is damaged, duplicated or inconsistent."""


SessionContent: TypeAlias = dict[str, Any]
"""Everything stored of one session, without ids and times.

``state`` has its entries, or None if there is no session; ``steps`` what the trial recorded, in
order; ``texts`` how often each message occurs; then ``snapshots``, ``latest`` and ``listed``.
"""
World: TypeAlias = dict[SnapshotLocation, SessionContent]


def without_snapshots(world: World) -> World:
    """Return states and logs only."""
    return {place: {**each, "snapshots": [], "latest": None} for place, each in world.items()}


def is_prefix(part: SessionContent, whole: SessionContent) -> bool:
    """Return whether a session is a prefix of another."""
    return (
        part["steps"] == whole["steps"][: len(part["steps"])]
        and part["snapshots"] == whole["snapshots"][: len(part["snapshots"])]
        and not part["texts"] - whole["texts"]
    )


async def read_world(disk: StateStore, places: tuple[SnapshotLocation, ...]) -> World:
    """Return what is stored at these locations. Raises `Unsound` if it is inconsistent."""
    store = ReadOnlyStateStore(disk)
    catalog = Catalog(store)
    listed = Counter(
        [
            entry.location
            for agent in await catalog.agents()
            for entry in (await catalog.sessions(agent)).sessions
        ]
    )
    return {place: await read_session(store, place, listed[place]) for place in places}


async def read_session(
    store: StateStore, location: SnapshotLocation, listed: int
) -> SessionContent:
    """Return what is stored of one session."""
    session = await open_session(store, location)
    verification = await session.verify()
    if verification.damage:
        raise Unsound(f"{location.session_id}: {verification.damage}")
    archive = SnapshotArchive(store)
    snapshots = []
    for each in await archive.list_snapshot_ids(location=location):
        snapshots.append(
            summarize(await archive.load_snapshot(location=location, snapshot_id=each))
        )
    latest = None
    if await store.get(location.latest_key) is not None:
        latest = summarize(await archive.load_snapshot(location=location))
    steps, texts = await read_events(session)
    state = None if session.is_dirty else list(session.snapshot().items())
    if listed > 1 or (state is not None and not listed):
        raise Unsound(f"{location.session_id} is listed {listed} times")
    return {
        "state": state,
        "steps": steps,
        "texts": texts,
        "snapshots": snapshots,
        "latest": latest,
        "listed": listed,
    }


async def open_session(store: StateStore, location: SnapshotLocation) -> Session:
    """Open the session at a location."""
    return await Session.open(
        store,
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
    )


async def read_events(session: Session) -> tuple[list[object], Counter[str]]:
    """Return the recorded steps and messages, after checking that the events fold to the state."""
    if session.is_dirty:
        return [], Counter()
    name = session.session_id
    log_start = (await session.archive.load_manifest(location=session.location)).log_start
    events = [event async for event in session.events]
    numbers = [event.seq for event in events]
    if numbers != list(range(log_start.seq + 1, log_start.seq + 1 + len(events))):
        raise Unsound(f"{name}: the events are {numbers} after {log_start.seq}")
    if len({event.id for event in events}) != len(events):
        raise Unsound(f"{name}: an event is there twice")
    if not log_start.seq:
        store = Store()
        fold_changes(store, (event.changes for event in events))
        if store.snapshot().digest != session.snapshot().digest:
            raise Unsound(f"{name}: the events do not add up to the state")
    contents = Counter(
        str(value["content"])
        for event in events
        if event.type == "message.appended"
        for _, _, value in event.changes["set"]
    )
    texts = contents | Counter({str(each["content"]): 1 for each in session.messages})
    steps: list[object] = [(e.type, e.data) for e in events if e.type.startswith("step.")]
    return steps, texts


def summarize(snapshot: SessionSnapshot | None) -> Any:
    """Return the parts of a snapshot to compare."""
    if snapshot is None:
        raise Unsound("a snapshot that is listed is not there")
    return snapshot.tags, snapshot.state.status, list(snapshot.snapshot.items())
