"""The tools that write: save_checkpoint, restore and fork.

Each is one commit, and durable when it returns. If another writer commits first, the call starts
again from the new head; with ``expected_seq`` it fails instead.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.adapters.shared_session import session_exists
from holdfast.errors import ConflictError, NotFoundError
from holdfast.ids import new_id
from holdfast.mcp_server.access import Access
from holdfast.mcp_server.arguments import ForkArguments, RestoreArguments, SaveArguments
from holdfast.mcp_server.excerpts import (
    MAX_RESULT,
    MAX_TEXT,
    fit_last_messages,
    fit_values,
    list_message_keys,
)
from holdfast.mcp_server.results import (
    ForkedSession,
    RestoredState,
    SavedCheckpoint,
    StatePosition,
)
from holdfast.mcp_server.services import HEAD, Services, StateRef
from holdfast.mcp_server.uris import ResourceUri
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import SessionState
from holdfast.state.snapshot import Snapshot

LAST_MESSAGES = 5
"""Messages in the result of a restore."""


# ------------------------------------------------------------------------------------------ save


async def save_checkpoint(
    services: Services, access: Access, arguments: SaveArguments
) -> SavedCheckpoint:
    """Append messages, set values, and save a snapshot, in one commit.

    Raises:
        AccessError: The caller may not use this agent.
        ConflictError: The session is not at ``expected_seq``; nothing was written.
        UnsupportedValueError: A value cannot be stored; nothing was written.

    """
    access.check_agent(arguments.agent)
    location = await find_save_location(services, arguments)

    async def record(session: Session) -> tuple[bool, SessionSnapshot]:
        existed = session_exists(session)
        check_expected_seq(session, arguments.expected_seq)
        record_changes(session, arguments)
        return existed, await session.save(tags=arguments.tags)

    existed, saved = await services.pool.update(location, record)
    info = saved.info()
    return SavedCheckpoint(
        agent=info.agent_id,
        session=info.session_id,
        snapshot=info.snapshot_id,
        seq=info.seq,
        created_session=not existed,
        status=info.status,
        message_count=info.message_count,
        tags=info.tags,
        uri=str(ResourceUri(info.agent_id, info.session_id, info.snapshot_id)),
    )


async def find_save_location(services: Services, arguments: SaveArguments) -> SnapshotLocation:
    """Return where a session is or will be; one of several agents is found by its group's id."""
    session_id = f"ses_{new_id()}" if arguments.session is None else arguments.session
    location = SnapshotLocation(session_id, AGENT, arguments.agent)
    if arguments.session is not None:
        known = await services.catalog.locations(session_id)
        if location not in known:
            return next((each for each in known if each.scope_id == arguments.agent), location)
    return location


def record_changes(session: Session, arguments: SaveArguments) -> None:
    """Record what a call of ``save_checkpoint`` changes."""
    for message in arguments.messages:
        session.append_message(message)
    for name in arguments.delete_values:
        session.delete(name)
    for name, value in arguments.values.items():
        session.set(name, value)
    if arguments.status is not None:
        session.status = arguments.status


def check_expected_seq(session: Session, expected: int | None) -> None:
    """Reject a session that is not at the event that the caller knows.

    Raises:
        ConflictError: It is at another one.

    """
    head = session.log.head.seq
    if expected is None or expected == head:
        return
    name = f"session {session.session_id} of {session.agent_id}"
    if head == 0:
        problem = f"{name} does not exist, and expected_seq is {expected}"
        remedy = "check the ids, or pass expected_seq 0 to create it"
    else:
        problem = f"{name} changed: it is at seq {head}, and expected_seq is {expected}"
        remedy = (
            f"nothing was written; call diff from {expected or 1} to see what changed, then "
            f"retry with expected_seq {head}"
        )
    raise ConflictError(f"{problem}; {remedy}")


# --------------------------------------------------------------------------------------- restore


class Restore(NamedTuple):
    """What a restore did."""

    before: Snapshot
    before_seq: int
    after: Snapshot
    after_seq: int


async def restore(services: Services, access: Access, arguments: RestoreArguments) -> RestoredState:
    """Restore the state of a session. The log keeps what was undone, so it can itself be undone.

    Raises:
        AccessError: The caller may not use this agent.
        NotFoundError: There is no such session, snapshot or event.
        ConflictError: The session is not at ``expected_seq``; nothing was written.

    """
    location = await services.locate(access, arguments.agent, arguments.session)
    found = await services.resolve(location, arguments.to)
    if found.at is None:
        raise ValueError(
            f"{HEAD!r} is the current state already; restore to a snapshot id, an event number, "
            "'latest' or 'tag:NAME=VALUE'"
        )
    target = found.at

    async def apply(session: Session) -> Restore:
        require_session(session)
        check_expected_seq(session, arguments.expected_seq)
        before, before_seq = session.snapshot(), session.log.head.seq
        await session.restore(target)
        return Restore(before, before_seq, session.snapshot(), session.log.head.seq)

    done = await services.pool.update(location, apply)
    return describe_restore(done, found)


def describe_restore(done: Restore, found: StateRef) -> RestoredState:
    """Return what a restore did, with a summary of the restored state."""
    location, state = found.location, done.after
    changes = state.diff(done.before)
    values = fit_values(state, MAX_RESULT, MAX_TEXT)
    keys = list_message_keys(state)
    last = fit_last_messages(state, keys[-LAST_MESSAGES:], MAX_RESULT, MAX_TEXT)
    return RestoredState(
        agent=location.scope_id,
        session=location.session_id,
        seq=done.after_seq,
        restored=describe_ref(found),
        undo_seq=done.before_seq,
        status=SessionState(state).status,
        message_count=len(keys),
        added=len(changes["added"]),
        removed=len(changes["removed"]),
        changed=len(changes["changed"]),
        values=dict(values.kept),
        values_omitted=values.omitted,
        last_messages=[message for _, message in last.kept],
        uri=str(ResourceUri(location.scope_id, location.session_id)),
    )


def describe_ref(found: StateRef, seq: int | None = None) -> StatePosition:
    """Return a state as a result names it."""
    return StatePosition(
        agent=found.location.scope_id,
        session=found.location.session_id,
        seq=found.seq if seq is None else seq,
        snapshot=found.snapshot_id,
    )


def require_session(session: Session) -> None:
    """Reject a session that was deleted since it was found.

    Raises:
        NotFoundError: It does not exist.

    """
    if not session_exists(session):
        raise NotFoundError(f"session {session.session_id} of {session.agent_id} was deleted")


# ------------------------------------------------------------------------------------------ fork


async def fork(services: Services, access: Access, arguments: ForkArguments) -> ForkedSession:
    """Create a session with the state of another one, now or earlier.

    Raises:
        AccessError: The caller may not use one of the agents.
        NotFoundError: There is no such session, snapshot or event.
        ConflictError: A session with the new id exists; nothing was written.

    """
    new_agent = arguments.agent if arguments.new_agent is None else arguments.new_agent
    access.check_agent(new_agent)
    location = await services.locate(access, arguments.agent, arguments.session)
    found = await services.resolve(location, arguments.at)

    async def create(session: Session) -> tuple[int, Session]:
        require_session(session)
        head = session.log.head.seq
        other = await session.fork(arguments.new_session, at=found.at, agent_id=new_agent)
        return head, other

    head, other = await services.pool.update(location, create)
    return ForkedSession(
        agent=other.agent_id,
        session=other.session_id,
        seq=other.log.head.seq,
        status=other.status,
        message_count=other.message_count,
        origin=describe_ref(found, head if found.at is None else None),
        uri=str(ResourceUri(other.agent_id, other.session_id)),
    )
