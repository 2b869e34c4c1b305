"""The arguments of the tools. Their JSON Schemas are what a model sees."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.snapshots.keys import MAX_ID_LENGTH

MAX_MESSAGES = 1000
MAX_VALUES = 1000
MAX_TAGS = 50
MAX_NAME = 1000
MAX_CURSOR = 30_000
"""Characters of a cursor, which may hold three ids and the name of a value."""
MAX_SEQ = 10**12

Agent = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_ID_LENGTH,
        description="The agent whose state it is, for example your own name. Use the same one in "
        "every call.",
    ),
]
Id = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)]
Name = Annotated[str, Field(max_length=MAX_NAME)]
Ref = Annotated[str | int, Field(union_mode="left_to_right")]
REF = (
    "a snapshot id, an event number (a seq), 'latest' (the checkpoint saved last), "
    "'tag:NAME=VALUE' (the newest checkpoint with this tag), or 'head' (the current state)"
)
ExpectedSeq = Annotated[
    int | None,
    Field(
        ge=0,
        lt=MAX_SEQ,
        description="The seq that your last call returned, or 0 for a session that must not exist "
        "yet. If the session changed since, the call fails and writes nothing.",
    ),
]
Cursor = Annotated[
    str | None, Field(max_length=MAX_CURSOR, description="next_cursor of the previous page.")
]
Status = Literal["pending", "running", "waiting", "completed", "failed", "cancelled"]


class Arguments(BaseModel):
    """Base class: unknown arguments are rejected, so that a misspelled one is noticed."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class SaveArguments(Arguments):
    """Arguments of ``save_checkpoint``."""

    agent: Agent
    session: Annotated[
        Id | None,
        Field(description="The session to continue. Without it a new session is created."),
    ] = None
    messages: Annotated[
        list[dict[str, Any]],
        Field(
            max_length=MAX_MESSAGES,
            description="Messages to append to the conversation, only those that are new since "
            'your last call: objects such as {"role": "user", "content": "…"}.',
        ),
    ] = []
    values: Annotated[
        dict[Name, Any],
        Field(
            max_length=MAX_VALUES,
            description="Values to set, by name: plans, notes, results. Any JSON. Values that are "
            "not named stay.",
        ),
    ] = {}
    delete_values: Annotated[
        list[str], Field(max_length=MAX_VALUES, description="Names of values to delete.")
    ] = []
    status: Annotated[Status | None, Field(description="What the agent is doing now.")] = None
    tags: Annotated[
        dict[Name, Name],
        Field(
            max_length=MAX_TAGS,
            description='Tags to find the checkpoint by, such as {"reason": "before migration"}.',
        ),
    ] = {}
    expected_seq: ExpectedSeq = None


class ListArguments(Arguments):
    """Arguments of ``list_checkpoints``."""

    agent: Agent
    session: Annotated[
        Id | None,
        Field(description="Only checkpoints of this session. Without it, of all sessions."),
    ] = None
    tags: Annotated[
        dict[Name, Name],
        Field(max_length=MAX_TAGS, description="Only checkpoints with all of these tags."),
    ] = {}
    limit: Annotated[int, Field(ge=1, le=100, description="The most to return.")] = 20
    cursor: Cursor = None


class DiffArguments(Arguments):
    """Arguments of ``diff``."""

    agent: Agent
    session: Id
    from_: Annotated[Ref, Field(alias="from", description=f"The earlier state: {REF}.")]
    to: Annotated[Ref, Field(description=f"The later state: {REF}.")] = "head"
    to_agent: Annotated[
        Id | None, Field(description="The agent of the later state, if it is another.")
    ] = None
    to_session: Annotated[
        Id | None, Field(description="The session of the later state, if it is another.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=200, description="The most entries to return.")] = 50
    cursor: Cursor = None


class RestoreArguments(Arguments):
    """Arguments of ``restore``."""

    agent: Agent
    session: Id
    to: Annotated[Ref, Field(description=f"The state to go back to: {REF}.")]
    expected_seq: ExpectedSeq = None


class ForkArguments(Arguments):
    """Arguments of ``fork``."""

    agent: Agent
    session: Id
    at: Annotated[Ref, Field(description=f"The state to start from: {REF}.")] = "head"
    new_session: Annotated[
        Id | None, Field(description="The id of the new session. Without it one is generated.")
    ] = None
    new_agent: Annotated[
        Id | None, Field(description="The agent of the new session, if it is another.")
    ] = None


class SearchArguments(Arguments):
    """Arguments of ``search``."""

    agent: Agent
    query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200,
            description="A text to look for in messages and values, in any case.",
        ),
    ]
    session: Annotated[
        Id | None, Field(description="Only this session. Without it, the newest sessions first.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=100, description="The most matches to return.")] = 20
    cursor: Cursor = None
