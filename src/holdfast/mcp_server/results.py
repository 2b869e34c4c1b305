"""The results of the tools. Their JSON Schemas are sent to the client, which checks results."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Result(BaseModel):
    """Base class of results."""

    model_config = ConfigDict(populate_by_name=True)


class SavedCheckpoint(Result):
    """What ``save_checkpoint`` returns."""

    agent: str
    session: str = Field(description="Pass it to later calls.")
    snapshot: str = Field(description="The id of the checkpoint.")
    seq: int = Field(description="The number of the last event; pass it as expected_seq.")
    created_session: bool
    status: str
    message_count: int
    tags: dict[str, str]
    uri: str = Field(description="The checkpoint as a resource.")


class Checkpoint(Result):
    """One row of ``list_checkpoints``."""

    session: str
    snapshot: str
    seq: int
    created_at: str
    status: str
    message_count: int
    size_bytes: int
    unfinished: bool = Field(description="Whether a tool call had no result yet.")
    tags: dict[str, str]


class CheckpointPage(Result):
    """What ``list_checkpoints`` returns, newest first."""

    agent: str
    checkpoints: list[Checkpoint]
    head_seq: int | None = Field(
        description="The number of the last event of the session, if one was given."
    )
    next_cursor: str | None = Field(description="Pass it as cursor for more; null at the end.")


class StatePosition(Result):
    """A state that a result is about."""

    agent: str
    session: str
    seq: int | None
    snapshot: str | None


class DiffEntry(Result):
    """One entry that differs."""

    namespace: str
    key: str
    kind: Literal["added", "removed", "changed"]
    before: str | None = Field(description="JSON text, shortened if it is long.")
    after: str | None = Field(description="JSON text, shortened if it is long.")


class DiffPage(Result):
    """What ``diff`` returns."""

    from_: StatePosition = Field(alias="from")
    to: StatePosition
    added: int
    removed: int
    changed: int
    entries: list[DiffEntry]
    next_cursor: str | None


class RestoredState(Result):
    """What ``restore`` returns."""

    agent: str
    session: str
    seq: int = Field(description="The number of the last event; pass it as expected_seq.")
    restored: StatePosition
    undo_seq: int = Field(description="Restore to this event number to undo the restore.")
    status: str
    message_count: int
    added: int
    removed: int
    changed: int
    values: dict[str, Any] = Field(description="The values; long ones are shortened.")
    values_omitted: int
    last_messages: list[Any] = Field(description="The last messages; long ones are shortened.")
    uri: str = Field(description="The session as a resource.")


class ForkedSession(Result):
    """What ``fork`` returns."""

    agent: str
    session: str
    seq: int
    status: str
    message_count: int
    origin: StatePosition
    uri: str


class Match(Result):
    """One match of ``search``."""

    session: str
    namespace: str = Field(description="messages for messages, state for values.")
    key: str
    message_number: int | None = Field(description="Counted from 0; null for a value.")
    path: str = Field(description="Where in the message or value.")
    excerpt: str


class SearchPage(Result):
    """What ``search`` returns, newest first."""

    agent: str
    matches: list[Match]
    sessions_searched: int
    complete: bool = Field(description="Whether everything was searched.")
    stopped: str | None = Field(description="Why the search stopped before the end.")
    next_cursor: str | None = Field(description="Pass it as cursor to continue the search.")
