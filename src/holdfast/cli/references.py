"""What a person names on the command line: a store, a file, a session, a snapshot of one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from holdfast.cli.console import fail
from holdfast.cli.names import (
    EVENT,
    LATEST,
    TAG,
    UUID,
    is_there,
    looks_like_ref,
    named_or_usual,
    path_of,
    split_reference,
)
from holdfast.documents.export import export_document
from holdfast.documents.json_file import read_json_file
from holdfast.errors import HoldfastError, NotFoundError, short_repr
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation, is_snapshot_id
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store
from holdfast.stores.urls import StoreURL, mask_secrets
from holdfast.transfer.copy import list_locations
from holdfast.transfer.manager import SnapshotManager, suggest_names

SUFFIXES = (".json", ".json.gz", ".json.zst", ".gz", ".zst")
MOST_NAMES = 1000
MOST_CANDIDATES = 5


@dataclass(frozen=True, slots=True)
class Reference:
    """A session as it is committed, or as it was at a snapshot or after an event."""

    location: SnapshotLocation
    at: str | int | None = None
    """The id of a snapshot, the number of an event, or None for what is committed."""

    @property
    def snapshot_id(self) -> str | None:
        """The id of the snapshot, where it is one."""
        return self.at if isinstance(self.at, str) else None

    @property
    def seq(self) -> int | None:
        """The number of the event, where it is one."""
        return self.at if isinstance(self.at, int) else None


# -------------------------------------------------------------------------------------- stores


def existing_store(url: str | None) -> StateStore:
    """The store of a URL, to read what is in it. On this machine it must be there already.

    A wrong path would look like an empty store otherwise, and be made by the first write.
    """
    store = open_store(url)
    parsed = StoreURL(named_or_usual(url))
    if not is_there(parsed):
        path = Path(str(path_of(parsed))).absolute()
        fail(
            f"there is no store {parsed}: {path} does not exist",
            "name the store with --store or $HOLDFAST_STORE; holdfast demo makes one to play with",
        )
    return store


def open_store(url: str | None) -> StateStore:
    """The store of a URL, which is made by the first write where it does not exist."""
    url = named_or_usual(url)
    store = open_state_store(url)
    parsed = StoreURL(url)
    path = path_of(parsed)
    if parsed.scheme == "sqlite" and Path(str(path)).is_dir():
        fail(
            f"{parsed} is no database: {Path(str(path)).absolute()} is a folder",
            f"name the file in it, or the folder as file:{path} if it is a store of files",
        )
    return store


# ------------------------------------------------------------------------------------ sessions


async def find_session(
    store: StateStore, session_id: str, agent_id: str | None = None
) -> SnapshotLocation:
    """The one place of a session; an agent is needed where several have it."""
    found = await find_sessions(store, session_id, agent_id)
    if len(found) > 1:
        agents = ", ".join(location.scope_id for location in found)
        raise NotFoundError(
            f"the session {session_id} has several agents ({agents}): say which with --agent"
        )
    return found[0]


async def find_sessions(
    store: StateStore, session_id: str | None, agent_id: str | None
) -> list[SnapshotLocation]:
    """All places of sessions, those of one session, or of one agent. What is named must be there.

    Without a name it may be none.
    """
    found = [each async for each in list_locations(store, agent_id, session_id)]
    if found or (session_id is None and agent_id is None):
        return found
    catalog = SnapshotManager(store).catalog
    if agent_id is not None and await catalog.latest_session(agent_id) is None:
        known = await catalog.agents(limit=MOST_NAMES)
        raise NotFoundError(f"there is no agent {agent_id!r}{nearest(agent_id, known)}")
    owner = "" if agent_id is None else f" of the agent {agent_id}"
    name = str(session_id)
    known = await catalog.session_ids(limit=MOST_NAMES)
    raise NotFoundError(f"there is no session {name!r}{owner}{nearest(name, known)}")


def nearest(name: str, known: list[str]) -> str:
    """The names that are nearest to one that is not there, for an error."""
    return suggest_names(name, known) if known else ": the store has none"


async def find_at(
    store: StateStore, name: str, ref: str | None, agent_id: str | None = None
) -> Reference:
    """Find ``SESSION`` with a REF of its own, or ``SESSION@REF`` without one."""
    if ref is None:
        return await find(store, name, agent_id)
    location = await find_session(store, name, agent_id)
    return Reference(location, await resolve(SnapshotArchive(store), location, ref))


async def find(store: StateStore, name: str, agent_id: str | None = None) -> Reference:
    """Find a session by its id, ``SESSION@REF``, or a snapshot by its own id.

    An id may have any characters: a session that has just this one is meant before all others.
    """
    manager = SnapshotManager(store)
    if await is_session(manager, name):
        return Reference(await find_session(store, name, agent_id))
    for session_id, ref in split_reference(name):
        if await is_session(manager, session_id):
            location = await find_session(store, session_id, agent_id)
            return Reference(location, await resolve(manager.archive, location, ref))
    if UUID.fullmatch(name):
        for location in await find_sessions(store, None, agent_id):
            if await manager.archive.load_info(location=location, snapshot_id=name):
                return Reference(location, name)
        raise NotFoundError(f"there is no session and no snapshot {name}")
    for session_id, ref in split_reference(name):
        if looks_like_ref(ref):
            return Reference(await find_session(store, session_id, agent_id))
    return Reference(await find_session(store, name, agent_id))


async def is_session(manager: SnapshotManager, session_id: str) -> bool:
    """Whether there is a session of this id; a text that cannot be an id is not one."""
    try:
        return bool(await manager.catalog.locations(session_id))
    except ValueError:
        return False


async def resolve(archive: SnapshotArchive, location: SnapshotLocation, ref: str) -> str | int:
    """Find the snapshot of a session that a REF means, or the number of an event.

    Whether the session has such an event is seen when its state is loaded.
    """
    if ref == LATEST:
        latest = await archive.load_info(location=location)
        if latest is None:
            raise no_snapshot(location, "")
        return latest.snapshot_id
    if ref.startswith(TAG):
        return await find_tagged(archive, location, ref)
    if not is_snapshot_id(ref):
        raise no_snapshot(location, f" {ref!r}")
    if await archive.load_info(location=location, snapshot_id=ref) is not None:
        return ref
    if EVENT.fullmatch(ref):
        return int(ref)
    return await find_prefix(archive, location, ref)


async def resolve_snapshot(archive: SnapshotArchive, location: SnapshotLocation, ref: str) -> str:
    """Find the snapshot that a REF means, where the number of an event does not do."""
    found = await resolve(archive, location, ref)
    if isinstance(found, int):
        raise no_snapshot(location, f" {ref!r}")
    return found


async def find_tagged(archive: SnapshotArchive, location: SnapshotLocation, ref: str) -> str:
    """Find the newest snapshot that has a tag."""
    name, equals, value = ref.removeprefix(TAG).partition("=")
    if not equals or not name:
        fail(f"invalid tag {ref!r}: must be of the form tag:k=v", "write it as tag:env=production")

    def has_tag(info: SnapshotInfo | None) -> bool:
        return info is not None and info.tags.get(name) == value

    info = await archive.load_info(location=location)
    if not has_tag(info):
        info = await archive.find_newest_info(location=location, wanted=has_tag)
    if info is None:
        raise no_snapshot(location, f" with the tag {name}={value}")
    return info.snapshot_id


async def find_prefix(archive: SnapshotArchive, location: SnapshotLocation, prefix: str) -> str:
    """Find the one snapshot whose id starts with a text."""
    ids = await archive.list_snapshot_ids(location=location)
    latest = await archive.load_info(location=location)
    if latest is not None:
        ids = list(dict.fromkeys([*ids, latest.snapshot_id]))
    found = [each for each in ids if each.startswith(prefix)]
    if not found:
        raise no_snapshot(location, f" {prefix!r}")
    if len(found) > 1:
        more = len(found) - MOST_CANDIDATES
        fail(
            f"{prefix!r} is ambiguous in session {location.session_id}: {len(found)} snapshots "
            f"start with it: {', '.join(found[:MOST_CANDIDATES])}"
            + (f" and {more} more" if more > 0 else ""),
            "type more characters of the id",
        )
    return found[0]


def no_snapshot(location: SnapshotLocation, which: str) -> NotFoundError:
    """Make the error for a snapshot that a session does not have."""
    return NotFoundError(
        f"session {location.session_id} of {location.scope_id} has no snapshot{which}; "
        f"holdfast state list --session {quote(location.session_id)} lists its snapshots"
    )


# ----------------------------------------------------------------------------------- documents


def is_file(name: str) -> bool:
    """Whether a name means a file rather than something in the store."""
    path = Path(name)
    try:
        return path.is_file() or (name.endswith(SUFFIXES) and path.exists())
    except OSError:
        return False  # too long for a path, and so no file


async def check_name(url: str | None, name: str) -> None:
    """Refuse a name that is like a file's where there is no such file, and no such session.

    Most who type one mean a file; but an id may end in any way.
    """
    if not name.endswith(SUFFIXES) or is_file(name):
        return
    try:
        if is_there(StoreURL(named_or_usual(url))):
            async with existing_store(url) as store:
                if await SnapshotManager(store).catalog.locations(name):
                    return
    except HoldfastError as error:
        fail(
            f"there is no file {name}, and the store cannot be asked for a session of that name: "
            f"{error}",
            "see the path, and the store",
        )
    except ValueError:
        pass  # it cannot be an id
    check_file(name)


async def load(url: str | None, *names: str, agent_id: str | None = None) -> list[SessionSnapshot]:
    """The documents that names mean: of files, or made of what is in the store of a URL.

    The store is opened where a name means something in it, and not for files alone.
    """
    for name in names:
        await check_name(url, name)
    if all(map(is_file, names)):
        return [from_file(name) for name in names]
    async with existing_store(url) as store:
        return [
            from_file(name) if is_file(name) else await from_store(store, name, agent_id)
            for name in names
        ]


def check_file(name: str) -> None:
    """Refuse what is no file, before it is taken for a document that is damaged."""
    path = Path(name)
    try:
        is_there = path.exists()
    except OSError as error:
        fail(f"{short_repr(mask_secrets(name))} cannot be a file: {error.strerror}", "see the path")
    masked = mask_secrets(name)
    if not is_there and masked != name:
        fail(f"there is no file {masked}", "the URL of a database is SCHEME://HOST/NAME")
    if not is_there:
        fail(f"there is no file {name}", "see the path; what is in a store is named by its id")
    if path.is_dir():
        fail(f"{name} is a folder, not a document", "name a file in it")


def from_file(name: str) -> SessionSnapshot:
    """The document of a file, checked."""
    check_file(name)
    return SessionSnapshot.from_dict(read_json_file(name))


async def from_store(store: StateStore, name: str, agent_id: str | None) -> SessionSnapshot:
    """A document made of what is in the store."""
    found = await find(store, name, agent_id)
    archive = SnapshotArchive(store)
    return await export_document(
        archive, found.location, snapshot_id=found.snapshot_id, seq=found.seq
    )
