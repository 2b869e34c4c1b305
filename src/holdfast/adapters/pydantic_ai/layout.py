"""Where a conversation is stored in the state of its session.

messages               the current history, one entry per message, as Pydantic AI's JSON
state                  conversation: the record, with usage, scope, revision and waiting tool calls
pydantic_ai/entries    by entry id: the parent, and the message's key in ``messages``. The entries
                       of branches that the conversation has left have their message here.
pydantic_ai            indexed: the last group of ids in the index; deleted: a deletion is in
                       progress

Every session is complete: a fork has copies of the entries that it shares, so that deleting the
other conversation leaves it as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.errors import IntegrityError, short_repr
from holdfast.snapshots.session_state import MESSAGES, STATE
from holdfast.state.snapshot import Snapshot

RECORD = "conversation"
ENTRIES = "pydantic_ai/entries"
BOOKKEEPING = "pydantic_ai"
INDEXED = "indexed"
DELETED = "deleted"

SAVED_EVENT = "pydantic_ai.saved"
BRANCHED_EVENT = "pydantic_ai.branched"
FORKED_EVENT = "session.forked"
DELETED_EVENT = "pydantic_ai.deleted"

PLAIN_ID = re.compile(r"[A-Za-z0-9_-]+")


class StoredEntry(NamedTuple):
    """An entry of a conversation, with its message as JSON data."""

    id: str
    parent_id: str | None
    kind: str
    message: Any


class EntryPlace(NamedTuple):
    """What the state says about an entry, validated."""

    parent_id: str | None
    kind: str
    message_key: str | None
    """Its key in ``messages``, or None if it belongs to a branch that was left."""
    ends_group: bool
    """Whether it is the last of a group of ids in the index."""


def get_record(state: Snapshot) -> Any:
    """Return the record as JSON data, or None if there is none."""
    return state.get(STATE, RECORD, None)


def is_deleted(state: Snapshot) -> bool:
    """Tell whether the conversation was deleted, and only its session is still there."""
    return state.contains(BOOKKEEPING, DELETED)


def get_indexed_id(state: Snapshot) -> str | None:
    """Return the id that names the last group of entries in the index, or None."""
    found = state.get(BOOKKEEPING, INDEXED, None)
    return found if isinstance(found, str) else None


def find_place(state: Snapshot, entry_id: str) -> EntryPlace | None:
    """Return what the state says about an entry, or None.

    Raises:
        IntegrityError: It is damaged.

    """
    value = state.get(ENTRIES, entry_id, None)
    return None if value is None else parse_place(entry_id, value)


def parse_place(entry_id: str, value: Any) -> EntryPlace:
    """Return the value of an entry, validated."""
    if isinstance(value, dict):
        parent_id, kind, key = value.get("parent_id"), value.get("kind"), value.get("at")
        if (
            isinstance(parent_id, str | None)
            and isinstance(kind, str)
            and (isinstance(key, str) or (key is None and "message" in value))
        ):
            return EntryPlace(parent_id, kind, key, value.get("ends_group") is True)
    raise IntegrityError(
        f"entry {entry_id!r} in namespace {ENTRIES!r} is not an entry of a conversation: "
        f"{short_repr(value)}; restore the session to an earlier snapshot, or from a backup"
    )


def find_entry(state: Snapshot, entry_id: str) -> StoredEntry | None:
    """Return an entry, or None if the conversation does not have it.

    Raises:
        IntegrityError: It is damaged.

    """
    value = state.get(ENTRIES, entry_id, None)
    if value is None:
        return None
    place = parse_place(entry_id, value)
    if place.message_key is None:
        return StoredEntry(entry_id, place.parent_id, place.kind, value["message"])
    message = state.get(MESSAGES, place.message_key, None)
    if message is None:
        raise IntegrityError(
            f"message {place.message_key} of entry {entry_id!r} is missing; restore the session "
            "to an earlier snapshot, or from a backup"
        )
    return StoredEntry(entry_id, place.parent_id, place.kind, message)


def iterate_history(state: Snapshot, head_id: str | None) -> Iterator[StoredEntry]:
    """Yield an entry and those before it, newest first, up to one that is not there.

    Raises:
        IntegrityError: An entry is damaged, or the entries form a circle.

    """
    seen: set[str] = set()
    while head_id is not None:
        if head_id in seen:
            raise IntegrityError(
                f"entry {head_id!r} comes before itself in the conversation; restore the session "
                "to an earlier snapshot, or from a backup"
            )
        seen.add(head_id)
        entry = find_entry(state, head_id)
        if entry is None:
            return
        yield entry
        head_id = entry.parent_id


def read_history(state: Snapshot, head_id: str, limit: int | None) -> list[StoredEntry] | None:
    """Return the last ``limit`` entries up to one, in order; None if that one is not there.

    Raises:
        KeyError: An entry before it is not there.
        IntegrityError: An entry is damaged.

    """
    found: list[StoredEntry] = []
    for entry in iterate_history(state, head_id):
        found.append(entry)
        if limit is not None and len(found) >= limit:
            break
    else:
        if found and found[-1].parent_id is not None:
            raise KeyError(found[-1].parent_id)
    found.reverse()
    return found or None


def list_groups(state: Snapshot) -> list[list[str]]:
    """Return the ids of all entries in the groups that the index has them in, or larger ones.

    The last id of each group is the same as in the index.

    Raises:
        IntegrityError: An entry is damaged.

    """
    groups: list[list[str]] = []
    group: list[str] = []
    for _, entry_id, value in state.items(ENTRIES):  # in the order of the ids
        ends_group = parse_place(entry_id, value).ends_group
        if not is_plain_id(entry_id):
            groups.append([entry_id])
            continue
        group.append(entry_id)
        if ends_group:
            groups.append(group)
            group = []
    return groups


def is_plain_id(entry_id: str) -> bool:
    """Tell whether an id sorts in a key as it does by itself, because it is not quoted there."""
    return PLAIN_ID.fullmatch(entry_id) is not None
