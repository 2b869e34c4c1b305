"""Resolve names on the command line to stores, files, sessions and snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from holdfast.adapters.claude_location import find_main_agent
from holdfast.cli.console import fail
from holdfast.cli.names import (
    EVENT,
    LATEST,
    TAG,
    UUID,
    default_url,
    local_path,
    looks_like_ref,
    split_reference,
    store_exists,
)
from holdfast.documents.document import Document
from holdfast.documents.export import export_document
from holdfast.documents.files import read_document
from holdfast.errors import HoldfastError, NotFoundError, short_repr
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import load_state, load_states
from holdfast.snapshots.keys import SnapshotLocation, is_snapshot_id
from holdfast.snapshots.lookup import find_snapshot_location
from holdfast.snapshots.records import SnapshotInfo
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store
from holdfast.stores.urls import StoreURL, mask_secrets
from holdfast.transfer.copy import list_locations
from holdfast.transfer.manager import SnapshotManager, suggest_names

SUFFIXES = (".json", ".json.gz", ".json.zst", ".gz", ".zst")
MAX_NAMES = 1000
MAX_CANDIDATES = 5


@dataclass(frozen=True, slots=True)
class Reference:
    """A session at its head, at a snapshot or after an event."""

    location: SnapshotLocation
    at: str | int | None = None
    """A snapshot id, an event number, or None for the head."""

    @property
    def snapshot_id(self) -> str | None:
        """The snapshot id, if the reference is a snapshot."""
        return self.at if isinstance(self.at, str) else None

    @property
    def seq(self) -> int | None:
        """The event number, if the reference is an event."""
        return self.at if isinstance(self.at, int) else None


# -------------------------------------------------------------------------------------- stores


def open_existing_store(url: str | None) -> StateStore:
    """Open a store to read from it. A local store must exist.

    Otherwise a mistyped path would look like an empty store.
    """
    store = open_store(url)
    parsed = StoreURL(default_url(url))
    if not store_exists(parsed):
        path = Path(str(local_path(parsed))).absolute()
        fail(
            f"no store at {parsed}: {path} does not exist",
            "set --store or $HOLDFAST_STORE; holdfast demo creates a sample store",
        )
    return store


def open_store(url: str | None) -> StateStore:
    """Open a store; the first write creates it."""
    url = default_url(url)
    store = open_state_store(url)
    parsed = StoreURL(url)
    path = local_path(parsed)
    if parsed.scheme == "sqlite" and Path(str(path)).is_dir():
        fail(
            f"{parsed} is not a database: {Path(str(path)).absolute()} is a folder",
            f"use the database file in it, or file:{path} for a store of files",
        )
    return store


# ------------------------------------------------------------------------------------ sessions


async def find_session(
    store: StateStore, session_id: str, agent_id: str | None = None
) -> SnapshotLocation:
    """Return the location of a session; several agents need an agent id, but not sub-agents."""
    found = await find_sessions(store, session_id, agent_id)
    main = find_main_agent(found)
    if main is not None:
        return main
    if len(found) > 1:
        agents = ", ".join(location.scope_id for location in found)
        raise NotFoundError(
            f"session {session_id} has several agents ({agents}); choose one with --agent"
        )
    return found[0]


async def find_sessions(
    store: StateStore, session_id: str | None, agent_id: str | None
) -> list[SnapshotLocation]:
    """Return the locations of all sessions, of one session, or of one agent's sessions.

    Raises:
        NotFoundError: The session or agent does not exist.

    """
    found = [each async for each in list_locations(store, agent_id, session_id)]
    if found or (session_id is None and agent_id is None):
        return found
    catalog = SnapshotManager(store).catalog
    if agent_id is not None and await catalog.latest_session(agent_id) is None:
        known = await catalog.agents(limit=MAX_NAMES)
        raise NotFoundError(f"no agent {agent_id!r}{suggest_nearest(agent_id, known)}")
    owner = "" if agent_id is None else f" of agent {agent_id}"
    name = str(session_id)
    known = [each for each in await catalog.session_ids(limit=MAX_NAMES) if each != name]
    raise NotFoundError(f"no session {name!r}{owner}{suggest_nearest(name, known)}")


def suggest_nearest(name: str, known: list[str]) -> str:
    """Return the nearest known names, for an error message."""
    return suggest_names(name, known) if known else ": the store has none"


async def find_with_ref(
    store: StateStore, name: str, ref: str | None, agent_id: str | None = None
) -> Reference:
    """Find ``SESSION`` at a separate REF, or ``SESSION@REF``."""
    if ref is None:
        return await find_reference(store, name, agent_id)
    location = await find_session(store, name, agent_id)
    return Reference(location, await resolve_ref(SnapshotArchive(store), location, ref))


async def find_reference(store: StateStore, name: str, agent_id: str | None = None) -> Reference:
    """Find a session by its id, ``SESSION@REF``, or a snapshot by its own id.

    Ids may contain any characters, so a session with exactly this id wins.
    """
    manager = SnapshotManager(store)
    if await is_session(manager, name):
        return Reference(await find_session(store, name, agent_id))
    for session_id, ref in split_reference(name):
        if await is_session(manager, session_id):
            location = await find_session(store, session_id, agent_id)
            return Reference(location, await resolve_ref(manager.archive, location, ref))
    if UUID.fullmatch(name):
        locations = list_locations(store, agent_id, None)
        owner = await find_snapshot_location(store, name, locations)
        if owner is None:
            if agent_id is not None:
                await find_sessions(store, None, agent_id)  # fails if there is no such agent
            raise NotFoundError(f"no session or snapshot {name}")
        return Reference(owner, name)
    for session_id, ref in split_reference(name):
        if looks_like_ref(ref):
            return Reference(await find_session(store, session_id, agent_id))
    return Reference(await find_session(store, name, agent_id))


async def is_session(manager: SnapshotManager, session_id: str) -> bool:
    """Return whether a session has this id; an invalid id is not an error."""
    try:
        return bool(await manager.catalog.locations(session_id))
    except ValueError:
        return False


async def resolve_ref(archive: SnapshotArchive, location: SnapshotLocation, ref: str) -> str | int:
    """Return the snapshot id or event number that a REF stands for.

    Whether the event exists is checked when its state is loaded.
    """
    if ref == LATEST:
        latest = await archive.load_info(location=location)
        if latest is None:
            raise snapshot_not_found(location, "")
        return latest.snapshot_id
    if ref.startswith(TAG):
        return await find_tagged(archive, location, ref)
    if not is_snapshot_id(ref):
        raise snapshot_not_found(location, f" {ref!r}")
    if await archive.load_info(location=location, snapshot_id=ref) is not None:
        return ref
    if EVENT.fullmatch(ref):
        return int(ref)
    return await find_prefix(archive, location, ref)


async def resolve_snapshot_ref(
    archive: SnapshotArchive, location: SnapshotLocation, ref: str
) -> str:
    """Return the snapshot id that a REF stands for; event numbers are not allowed."""
    found = await resolve_ref(archive, location, ref)
    if isinstance(found, int):
        raise snapshot_not_found(location, f" {ref!r}")
    return found


async def find_tagged(archive: SnapshotArchive, location: SnapshotLocation, ref: str) -> str:
    """Return the id of the newest snapshot with a tag."""
    name, equals, value = ref.removeprefix(TAG).partition("=")
    if not equals or not name:
        fail(f"invalid tag {ref!r}: must be tag:k=v", "write for example tag:env=production")

    def has_tag(info: SnapshotInfo | None) -> bool:
        return info is not None and info.tags.get(name) == value

    info = await archive.load_info(location=location)
    if not has_tag(info):
        info = await archive.find_newest_info(location=location, wanted=has_tag)
    if info is None:
        raise snapshot_not_found(location, f" with tag {name}={value}")
    return info.snapshot_id


async def find_prefix(archive: SnapshotArchive, location: SnapshotLocation, prefix: str) -> str:
    """Return the id of the only snapshot that starts with a prefix."""
    ids = await archive.list_snapshot_ids(location=location)
    latest = await archive.load_info(location=location)
    if latest is not None:
        ids = list(dict.fromkeys([*ids, latest.snapshot_id]))
    found = [each for each in ids if each.startswith(prefix)]
    if not found:
        raise snapshot_not_found(location, f" {prefix!r}")
    if len(found) > 1:
        more = len(found) - MAX_CANDIDATES
        fail(
            f"{prefix!r} is ambiguous in session {location.session_id}: {len(found)} snapshots "
            f"start with it: {', '.join(found[:MAX_CANDIDATES])}"
            + (f" and {more} more" if more > 0 else ""),
            "use a longer prefix",
        )
    return found[0]


def snapshot_not_found(location: SnapshotLocation, which: str) -> NotFoundError:
    """Return the error for a snapshot that does not exist."""
    return NotFoundError(
        f"session {location.session_id} of {location.scope_id} has no snapshot{which}; "
        f"holdfast state list --session {quote(location.session_id)} lists its snapshots"
    )


# ----------------------------------------------------------------------------------- documents


def is_file(name: str) -> bool:
    """Return whether a name is a file rather than a session."""
    path = Path(name)
    try:
        return path.is_file() or (name.endswith(SUFFIXES) and path.exists())
    except OSError:
        return False  # not a valid path


async def reject_missing_file(url: str | None, name: str) -> None:
    """Fail if a name looks like a file but neither the file nor such a session exists."""
    if not name.endswith(SUFFIXES) or is_file(name):
        return
    try:
        if store_exists(StoreURL(default_url(url))):
            async with open_existing_store(url) as store:
                if await SnapshotManager(store).catalog.locations(name):
                    return
    except HoldfastError as error:
        fail(
            f"no file {name}, and no store to look for a session of that name: {error}",
            "check the path and --store",
        )
    except ValueError:
        pass  # not a valid id
    require_file(name)


async def load_document(url: str | None, name: str, agent_id: str | None = None) -> Document:
    """Return the document that a name stands for, from a file or from the store."""
    await reject_missing_file(url, name)
    if is_file(name):
        return load_from_file(name)
    async with open_existing_store(url) as store:
        found = await find_reference(store, name, agent_id)
        return await export_document(
            SnapshotArchive(store),
            found.location,
            snapshot_id=found.snapshot_id,
            seq=found.seq,
            attachments="omit",  # references are shown, not contents
        )


async def load_two_states(
    url: str | None, first: str, second: str, agent_id: str | None = None
) -> tuple[Snapshot, Snapshot]:
    """Return the states that two names stand for, in files or in the store.

    The store is opened only if a name is not a file.
    """
    for name in (first, second):
        await reject_missing_file(url, name)
    if is_file(first) and is_file(second):
        return load_from_file(first).snapshot, load_from_file(second).snapshot
    async with open_existing_store(url) as store:
        archive = SnapshotArchive(store)
        one = None if is_file(first) else await find_reference(store, first, agent_id)
        two = None if is_file(second) else await find_reference(store, second, agent_id)
        if one is not None and two is not None and one.location == two.location:
            return await load_states(archive, one.location, one.at, two.at)
        states = [
            load_from_file(name).snapshot
            if found is None
            else await load_state(archive, found.location, found.at)
            for name, found in ((first, one), (second, two))
        ]
        return states[0], states[1]


def require_file(name: str) -> None:
    """Fail with a clear error if a name is not a file."""
    path = Path(name)
    try:
        is_there = path.exists()
    except OSError as error:
        fail(f"invalid path {short_repr(mask_secrets(name))}: {error.strerror}", "check the path")
    masked = mask_secrets(name)
    if not is_there and masked != name:
        fail(f"no file {masked}", "a database URL is SCHEME://HOST/NAME")
    if not is_there:
        fail(f"no file {name}", "check the path")
    if path.is_dir():
        fail(f"{name} is a folder, not a document", "choose a file in it")


def load_from_file(name: str) -> Document:
    """Load and validate a document file."""
    require_file(name)
    return read_document(name)
