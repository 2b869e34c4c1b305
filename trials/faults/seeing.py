"""What is stored, as one who only reads finds it, after checking that all of it is sound."""

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
    """What is stored is damaged, doubled or does not add up."""


Seen: TypeAlias = dict[str, Any]
"""All that is stored of one session, without the ids and times that differ from run to run.

``state`` is its entries, None where there is no session; ``steps`` what the trial recorded, in
order; ``texts`` how often each message was said; then ``snapshots``, ``latest`` and ``listed``.
"""
World: TypeAlias = dict[SnapshotLocation, Seen]


def without_snapshots(world: World) -> World:
    """The same, as far as states and logs go."""
    return {place: {**each, "snapshots": [], "latest": None} for place, each in world.items()}


def begins(part: Seen, whole: Seen) -> bool:
    """Whether it is a beginning of another: it has nothing that the other has not."""
    return (
        part["steps"] == whole["steps"][: len(part["steps"])]
        and part["snapshots"] == whole["snapshots"][: len(part["snapshots"])]
        and not part["texts"] - whole["texts"]
    )


async def seen(disk: StateStore, places: tuple[SnapshotLocation, ...]) -> World:
    """What is stored at these places; `Unsound` where that cannot be."""
    store = ReadOnlyStateStore(disk)
    catalog = Catalog(store)
    listed = Counter(
        [
            entry.location
            for agent in await catalog.agents()
            for entry in (await catalog.sessions(agent)).sessions
        ]
    )
    return {place: await seen_at(store, place, listed[place]) for place in places}


async def seen_at(store: StateStore, location: SnapshotLocation, listed: int) -> Seen:
    """What is stored of one session."""
    session = await opened(store, location)
    verification = await session.verify()
    if verification.damage:
        raise Unsound(f"{location.session_id}: {verification.damage}")
    archive = SnapshotArchive(store)
    snapshots = []
    for each in await archive.list_snapshot_ids(location=location):
        snapshots.append(shown(await archive.load_snapshot(location=location, snapshot_id=each)))
    latest = None
    if await store.get(location.latest_key) is not None:
        latest = shown(await archive.load_snapshot(location=location))
    steps, texts = await sound_events(session)
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


async def opened(store: StateStore, location: SnapshotLocation) -> Session:
    """The session of a place."""
    return await Session.open(
        store,
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
    )


async def sound_events(session: Session) -> tuple[list[object], Counter[str]]:
    """What was recorded and said, after checking that the events add up to the state."""
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
    said = Counter(
        str(value["content"])
        for event in events
        if event.type == "message.appended"
        for _, _, value in event.changes["set"]
    )
    texts = said | Counter({str(each["content"]): 1 for each in session.messages})
    steps: list[object] = [(e.type, e.data) for e in events if e.type.startswith("step.")]
    return steps, texts


def shown(snapshot: SessionSnapshot | None) -> Any:
    """What is compared of a snapshot."""
    if snapshot is None:
        raise Unsound("a snapshot that is listed is not there")
    return snapshot.tags, snapshot.state.status, list(snapshot.snapshot.items())
