"""``holdfast state fork``: a what-if from any moment, without touching the original."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    SessionArgument,
    StoreOption,
    command,
    fail,
    print_json,
    say,
    typed,
)
from holdfast.cli.references import existing_store, find_session
from holdfast.errors import ConflictError
from holdfast.sessions.session import Session


@command
async def fork(
    session: SessionArgument,
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the new session.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="SNAPSHOT", help="A snapshot; now without it.")
    ] = None,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Make a new session with the state of another, now or at a snapshot.

    Example: holdfast state fork ses_abc123 ses_what_if
    """
    async with existing_store(store) as state_store:
        location = await find_session(state_store, session, agent)
        live = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        try:
            other = await live.fork(new, at=at)
        except ConflictError as error:
            listing = typed("holdfast state list", location.scope_id, store=store)
            fail(str(error), f"{listing} shows which there are")
        said = {
            "agent_id": location.scope_id,
            "session_id": other.session_id,
            "scope": location.scope,
            "messages": other.message_count,
            "status": other.status,
        }
    if format is Format.json:
        print_json(said)
    else:
        say(f"{said['session_id']}: {said['messages']} messages, {said['status']}")
