"""Request and response schemas, as OpenAPI describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.server.context import SNAPSHOT_ID
from holdfast.snapshots.keys import MAX_ID_LENGTH

EXAMPLE_TIME = "2026-11-15T09:30:00.000000Z"
EXAMPLE_HASH = "9b2d6c0e5f7a4c1d8e3b2a1f0c9d8e7b6a5f4c3d2e1b0a9f8c7d6e5b4a3f2c1d"
EXAMPLE_SNAPSHOT_ID = "019a8b5e-6f00-7000-8000-000000000000"
POSITION_PATTERN = r"^(now|[0-9]{1,12}|[A-Za-z0-9_-]{1,128})$"
POSITION_DESCRIPTION = "An event number, a snapshot id, or now."

Scope = Literal["agent", "multi_agent"]
Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]
Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
"""A namespace and a key."""
Triple = Annotated[list[Any], Field(min_length=3, max_length=3)]
"""A namespace, a key and a value."""


class StrictModel(BaseModel):
    """A model that forbids unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


# ------------------------------------------------------------------------------------------ sent


class SaveRequest(StrictModel):
    """The request to save a snapshot."""

    tags: dict[str, str] = Field(default={}, examples=[{"reason": "before the upgrade"}])


class RestoreRequest(StrictModel):
    """The request to restore a session."""

    at: str = Field(
        pattern=POSITION_PATTERN,
        description=POSITION_DESCRIPTION,
        examples=["17", EXAMPLE_SNAPSHOT_ID],
    )


class ForkRequest(StrictModel):
    """The request to fork a session."""

    at: str = Field(
        default="now", pattern=POSITION_PATTERN, description=POSITION_DESCRIPTION, examples=["17"]
    )
    session_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="The id of the new session. Default: generated.",
        examples=["ses_what_if"],
    )
    agent_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="Its agent. Default: the same agent.",
        examples=["research-bot"],
    )


# -------------------------------------------------------------------------------------- answered


class Agent(StrictModel):
    """An agent that has sessions."""

    agent_id: str = Field(examples=["research-bot"])


class AgentPage(StrictModel):
    """A page of agents."""

    agents: list[Agent]
    next_cursor: str | None


class SessionItem(StrictModel):
    """A session in a list."""

    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    started_at: str = Field(examples=[EXAMPLE_TIME])
    active_at: str = Field(
        description="Time of the last event; accurate to a few seconds without details.",
        examples=[EXAMPLE_TIME],
    )
    status: str | None = Field(
        default=None,
        examples=["failed"],
        description="Present with details or a filter, like the fields below. Null if unreadable.",
    )
    message_count: int | None = Field(default=None, examples=[14])
    size_bytes: int | None = Field(default=None, examples=[2048])
    last_event: int | None = Field(default=None, examples=[17])
    unfinished_calls: int | None = Field(
        default=None, description="Unfinished tool calls.", examples=[0]
    )
    tags: dict[str, str] | None = Field(
        default=None, description="Tags of its latest snapshot.", examples=[{"env": "production"}]
    )
    problem: str | None = Field(
        default=None, description="Why the session is unreadable, if it is."
    )


class SessionPage(StrictModel):
    """A page of sessions, most recently active first."""

    sessions: list[SessionItem]
    next_cursor: str | None


class SnapshotInfo(StrictModel):
    """The metadata of a snapshot."""

    snapshot_id: str = Field(pattern=SNAPSHOT_ID, examples=[EXAMPLE_SNAPSHOT_ID])
    parent_id: str | None
    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    created_at: str = Field(examples=[EXAMPLE_TIME])
    tags: dict[str, str] = Field(examples=[{"reason": "before the upgrade"}])
    status: str = Field(examples=["completed"])
    message_count: int = Field(examples=[14])
    size_bytes: int = Field(examples=[2048])
    seq: int = Field(description="The event number of the snapshot.", examples=[17])
    hash: str = Field(examples=[EXAMPLE_HASH])
    unfinished: bool = Field(description="Whether a tool call was unfinished.")
    source_environment: str | None


class SnapshotPage(StrictModel):
    """A page of snapshots, oldest first."""

    snapshots: list[SnapshotInfo]
    next_cursor: str | None


class UnfinishedCall(StrictModel):
    """A tool call without a result."""

    id: str
    name: str
    message: str = Field(description="The key of the message that makes the call.")


class Session(StrictModel):
    """A session at its head."""

    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    started_at: str | None = Field(examples=[EXAMPLE_TIME])
    updated_at: str | None = Field(description="Time of the last event.", examples=[EXAMPLE_TIME])
    status: str = Field(examples=["running"])
    message_count: int = Field(examples=[14])
    size_bytes: int = Field(examples=[2048])
    first_event: int = Field(description="The first event that was not pruned.", examples=[1])
    last_event: int = Field(examples=[17])
    head: str = Field(
        description="The hash of the last event, for If-Match.", examples=[EXAMPLE_HASH]
    )
    namespaces: list[str] = Field(examples=[["messages", "session", "state"]])
    unfinished: list[UnfinishedCall]
    latest_snapshot: SnapshotInfo | None
    snapshot_count: int | None = Field(description="Null if more than 1,000.")


class Changes(StrictModel):
    """What an event set and deleted."""

    set: list[Triple] = Field(examples=[[["state", "step", 3]]])
    delete: list[Pair]


class Event(BaseModel):
    """An event. Fields of later versions are kept."""

    seq: int = Field(examples=[17])
    id: str = Field(examples=[EXAMPLE_SNAPSHOT_ID])
    type: str = Field(examples=["message.appended"])
    at: str = Field(examples=[EXAMPLE_TIME])
    data: Any = None
    changes: Changes
    prev: str = Field(examples=[EXAMPLE_HASH])
    hash: str = Field(examples=[EXAMPLE_HASH])


class BriefEvent(StrictModel):
    """An event without its values."""

    seq: int = Field(examples=[17])
    id: str = Field(examples=[EXAMPLE_SNAPSHOT_ID])
    type: str = Field(examples=["message.appended"])
    at: str = Field(examples=[EXAMPLE_TIME])
    set: list[Pair] = Field(examples=[[["messages", "000000000003"]]])
    added: list[Pair] = Field(
        description="Entries of set that did not exist before.",
        examples=[[["messages", "000000000003"]]],
    )
    delete: list[Pair]


class Events(StrictModel):
    """A page of events, and the number of the next one."""

    events: list[Event] | list[BriefEvent]
    next: int | None


class DocumentState(BaseModel):
    """A state, as in a document."""

    status: str = Field(examples=["running"])
    messages: list[Any] = Field(examples=[[{"role": "user", "content": "Hello"}]])
    values: dict[str, Any] = Field(examples=[{"step": 3}])
    message_keys: list[str] | None = None
    session: dict[str, Any] | None = None
    namespaces: dict[str, dict[str, Any]] | None = None


class StateAt(StrictModel):
    """The state at a position."""

    seq: int = Field(examples=[17])
    hash: str = Field(examples=[EXAMPLE_HASH])
    at: str | None = Field(description="Time of that event.", examples=[EXAMPLE_TIME])
    snapshot_id: str | None
    status: str = Field(examples=["running"])
    message_count: int = Field(examples=[14])
    message_offset: int = Field(description="The index of the first message.")
    size_bytes: int = Field(examples=[2048])
    state: DocumentState


class Position(StrictModel):
    """A position of a session."""

    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    seq: int = Field(examples=[17])
    snapshot_id: str | None


class Entry(BaseModel):
    """An entry that differs; ``before`` or ``after`` is omitted if it does not exist."""

    namespace: str = Field(examples=["state"])
    key: str = Field(examples=["step"])
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None
    fields: list[dict[str, Any]] = Field(
        description="Changes inside the entry, as JSON Patch.",
        examples=[[{"op": "replace", "path": "", "value": 3}]],
    )


class Diff(BaseModel):
    """The differences between two positions."""

    model_config = ConfigDict(populate_by_name=True)

    from_: Position = Field(alias="from")
    to: Position
    added: int
    removed: int
    changed: int
    entries: list[Entry]
    truncated: bool = Field(description="Whether there are more entries than the limit.")
    patch: list[dict[str, Any]] | None = Field(
        default=None, description="JSON Patch (RFC 6902) from one document's state to the other's."
    )


class GrowthPoint(StrictModel):
    """The size of a session after an event."""

    seq: int
    at: str = Field(examples=[EXAMPLE_TIME])
    messages: int
    size_bytes: int


class Growth(StrictModel):
    """The size of a session over its events."""

    points: list[GrowthPoint]
    last_event: int


class Restored(StrictModel):
    """The result of a restore, or of its dry run."""

    dry_run: bool
    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    at: Position
    changes: Diff
    previous_event: int = Field(description="Restore this to undo.", examples=[17])
    last_event: int = Field(description="The last event.", examples=[18])


class Forked(BaseModel):
    """The new session, or what a dry run would create."""

    model_config = ConfigDict(populate_by_name=True)

    dry_run: bool
    agent_id: str = Field(examples=["research-bot"])
    session_id: str | None = Field(examples=["ses_what_if"])
    scope: Scope
    message_count: int = Field(examples=[14])
    status: str = Field(examples=["running"])
    from_: Position = Field(alias="from")


class SessionPart(StrictModel):
    """One location of a session."""

    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope


class Deleted(StrictModel):
    """What a deletion would remove."""

    dry_run: bool
    session_id: str = Field(examples=["ses_abc123"])
    agents: list[str] = Field(examples=[["research-bot"]])
    parts: list[SessionPart]
    events: int
    snapshots: int


class ChangedEntries(StrictModel):
    """Changed entries, as pairs of namespace and key."""

    added: list[Pair]
    removed: list[Pair]
    changed: list[Pair]


class Imported(StrictModel):
    """The result of an import, or of its dry run."""

    dry_run: bool
    created: bool = Field(description="Whether the session is new.")
    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    messages_restored: int = Field(examples=[14])
    events_restored: int = Field(examples=[17])
    undo_snapshot_id: str | None = Field(description="Restore this to undo.")
    signed_by: list[str] = Field(description="The trusted keys that signed the document.")
    changes: ChangedEntries


class Document(BaseModel):
    """A document; see docs/spec/document.md."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "schema_version": 1,
                "agent_id": "research-bot",
                "session_id": "ses_abc123",
                "state": {
                    "status": "completed",
                    "messages": [{"role": "user", "content": "Hello"}],
                    "values": {"step": 3},
                },
            }
        }
    )

    schema_version: Literal[1]
    agent_id: str = Field(min_length=1, max_length=MAX_ID_LENGTH)
    session_id: str = Field(min_length=1, max_length=MAX_ID_LENGTH)
    state: dict[str, Any]


class Live(StrictModel):
    """The server runs."""

    status: Literal["live"]


class Ready(StrictModel):
    """The server can read its store."""

    status: Literal["ready"]
    version: str


class Access(StrictModel):
    """What the token allows."""

    required: bool = Field(description="Whether a token is required.")
    scope: Literal["read", "write"] | None
    agents: list[str] | None = Field(description="The agents that it covers; null for all.")


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(examples=["urn:holdfast:not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["no agent 'reserch-bot'; did you mean research-bot?"])
    hint: str | None = None
    instance: str = Field(examples=["/agents/reserch-bot/sessions"])
    errors: list[dict[str, str]] | None = None
    conflicts: list[Pair] | None = None
    first_event: int | None = Field(
        default=None, description="The first event of the log, if the requested one is outside."
    )
    last_event: int | None = Field(
        default=None, description="The last event of the log, if the requested one is outside."
    )


class SaveDryRun(StrictModel):
    """What a snapshot would contain."""

    dry_run: Literal[True]
    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    status: str = Field(examples=["running"])
    message_count: int = Field(examples=[14])
    size_bytes: int = Field(examples=[2048])
    seq: int = Field(examples=[17])
    unfinished: bool


class UploadedAttachment(StrictModel):
    """An attachment that was uploaded, or its dry run."""

    dry_run: bool
    agent_id: str = Field(examples=["research-bot"])
    session_id: str = Field(examples=["ses_abc123"])
    scope: Scope
    digest: str = Field(description="The sha256 of the content.", examples=[EXAMPLE_HASH])
    size: int = Field(description="The size in bytes.", examples=[48213])
    media_type: str | None = Field(examples=["image/png"])
    name: str | None = Field(examples=["chart.png"])
    value: dict[str, Any] = Field(
        description="The attachment as it stands in messages and values.",
        examples=[{"$attachment": [EXAMPLE_HASH, 48213, "image/png", "chart.png"]}],
    )
    last_event: int = Field(description="The number of its event.", examples=[18])
