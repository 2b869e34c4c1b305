"""What a person names on the command line: a file, a session, a snapshot of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import NotFoundError
from holdfast.sessions.exporting import exported
from holdfast.sessions.manager import SnapshotManager, near
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.stores.contract import StateStore

SUFFIXES = (".json", ".json.gz", ".json.zst", ".gz", ".zst")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Moment:
    """A session, now or at a snapshot."""

    location: SnapshotLocation
    snapshot_id: str | None = None


def is_file(name: str) -> bool:
    """Whether a name means a file rather than something in the store."""
    return name.endswith(SUFFIXES) or Path(name).is_file()


async def find_session(
    store: StateStore, session_id: str, agent_id: str | None = None
) -> SnapshotLocation:
    """The one place of a session; an agent is needed where several have it."""
    manager = SnapshotManager(store)
    found = [
        location
        for location in await manager.catalog.locations(session_id)
        if agent_id in (None, location.scope_id)
    ]
    if not found:
        known = await manager.catalog.session_ids(limit=1000)
        raise NotFoundError(f"there is no session {session_id!r}{near(session_id, known)}")
    if len(found) > 1:
        agents = ", ".join(location.scope_id for location in found)
        raise NotFoundError(
            f"the session {session_id} has several agents ({agents}): say which with --agent"
        )
    return found[0]


async def find(store: StateStore, name: str, agent_id: str | None = None) -> Moment:
    """A session by its id, ``SESSION@SNAPSHOT``, or a snapshot by its own id."""
    session_id, at, snapshot_id = name.rpartition("@")
    if at and session_id and UUID.fullmatch(snapshot_id):
        return Moment(await find_session(store, session_id, agent_id), snapshot_id)
    manager = SnapshotManager(store)
    if UUID.fullmatch(name) and not await manager.catalog.locations(name):
        for each in await manager.catalog.session_ids():
            for location in await manager.catalog.locations(each):
                if await manager.archive.load_info(location=location, snapshot_id=name):
                    return Moment(location, name)
    return Moment(await find_session(store, name, agent_id))


async def load(store: StateStore, name: str, agent_id: str | None = None) -> SessionSnapshot:
    """The document that a name means: of a file, or made of what is in the store."""
    manager = SnapshotManager(store)
    if is_file(name):
        return manager.from_file(name)
    moment = await find(store, name, agent_id)
    return await exported(manager.archive, moment.location, snapshot_id=moment.snapshot_id)
