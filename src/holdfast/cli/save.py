"""``holdfast state save``: save a durable snapshot."""

from __future__ import annotations

from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    SessionArgument,
    StoreOption,
    TagOption,
    command,
    parse_tags,
    print_json,
    print_line,
)
from holdfast.cli.references import find_session, open_existing_store
from holdfast.sessions.session import Session


@command
async def save(
    session: SessionArgument,
    tag: TagOption = None,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Save a durable snapshot of a session's committed state, and print its id.

    Example: holdfast state save ses_abc123 --tag reason=before-upgrade
    """
    tags = parse_tags(tag)
    async with open_existing_store(store) as state_store:
        location = await find_session(state_store, session, agent)
        live = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
            must_exist=True,
        )
        saved = await live.save(tags=tags)
        events = live.log.head.seq
    if format is Format.json:
        print_json(
            {
                "agent_id": location.scope_id,
                "session_id": location.session_id,
                "snapshot_id": saved.snapshot_id,
                "seq": events,
                "tags": saved.tags,
            }
        )
    else:
        print_line(saved.snapshot_id)
