"""The session of a task: its id is that of the task, with the owner after a colon if it has one.

    01f3…             a task of a caller that is not authenticated
    01f3…:alice       a task of the user alice

A percent sign or a colon in either part is percent-encoded, so that ids do not collide. The stream
of a task is opened without its owner: all owners of a task id are found by the prefix of its key.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

from holdfast.snapshots.discovery import iterate_folders
from holdfast.snapshots.keys import (
    AGENT,
    SESSIONS,
    SnapshotLocation,
    parse_location,
    quote_id,
    session_prefix,
)
from holdfast.stores.base import StateStore

SEPARATOR = ":"


class TaskName(NamedTuple):
    """The id of a task and its owner, which is empty if the caller was not authenticated."""

    task_id: str
    owner: str


def format_session_id(task_id: str, owner: str) -> str:
    """Return the id of a task's session."""
    task = escape_part(task_id)
    return f"{task}{SEPARATOR}{escape_part(owner)}" if owner else task


def parse_session_id(session_id: str) -> TaskName | None:
    """Return the task and the owner that a session id names, or None if it names no task."""
    task, separator, owner = session_id.partition(SEPARATOR)
    name = TaskName(unquote(task), unquote(owner))
    is_valid = bool(task) and bool(separator) == bool(owner)
    return name if is_valid and format_session_id(*name) == session_id else None


def escape_part(text: str) -> str:
    """Return an id in which the separator is encoded."""
    return text.replace("%", "%25").replace(SEPARATOR, "%3A")


async def find_task_locations(
    state_store: StateStore, agent_id: str, task_id: str
) -> list[SnapshotLocation]:
    """Return where the tasks with an id may be stored, one for each owner."""
    task = escape_part(task_id)
    found: list[SnapshotLocation] = []
    for prefix in (session_prefix(task), f"{SESSIONS}{quote_id(task + SEPARATOR)}"):
        async for folder in iterate_folders(state_store, prefix, 5):
            location = parse_location(folder)
            if location is None or (location.scope, location.scope_id) != (AGENT, agent_id):
                continue
            name = parse_session_id(location.session_id)
            if name is not None and name.task_id == task_id:
                found.append(location)
    return found
