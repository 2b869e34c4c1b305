"""``holdfast state fork``: a what-if from any moment, without touching the original."""

from __future__ import annotations

from shlex import quote
from typing import Annotated

import typer

from holdfast.cli.console import AgentOption, SessionArgument, StoreOption, command, fail, say
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
            fail(
                str(error), f"holdfast state list {quote(location.scope_id)} shows which there are"
            )
        say(f"{other.session_id}: {other.message_count} messages, {other.status}")
