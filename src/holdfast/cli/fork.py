"""``holdfast state fork``: create a session from any state of another."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.completion import complete_ref, complete_state
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    fail,
    format_command,
    format_count,
    print_json,
    print_line,
)
from holdfast.cli.references import find_with_ref, open_existing_store
from holdfast.errors import ConflictError
from holdfast.sessions.session import Session


@command
async def fork(
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION[@REF]",
            help="The session, or SESSION@REF.",
            autocompletion=complete_state,
        ),
    ],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The id of the new session.")],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="REF",
            help="A snapshot id or prefix, an event number, latest or tag:k=v. Default: the head.",
            autocompletion=complete_ref,
        ),
    ] = None,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Create a session with the state of another: its head, a snapshot or an event.

    Example: holdfast state fork ses_abc123 ses_what_if
    """
    async with open_existing_store(store) as state_store:
        wanted = await find_with_ref(state_store, session, at, agent)
        location = wanted.location
        live = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        try:
            other = await live.fork(new, at=wanted.at)
        except ConflictError as error:
            listing = format_command("holdfast state list", location.scope_id, store=store)
            fail(str(error), f"{listing} lists existing sessions")
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
        print_line(
            f"{other.session_id}: {format_count(other.message_count, 'message')}, {other.status}"
        )
