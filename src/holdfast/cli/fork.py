"""``holdfast state fork``: a what-if from any moment, without touching the original."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.console import AgentOption, StoreOption, command, out
from holdfast.cli.references import find_session
from holdfast.sessions.session import Session
from holdfast.stores.opening import open_state_store


@command
async def fork(
    session: Annotated[str, typer.Argument(help="The session to fork.")],
    new: Annotated[str, typer.Argument(help="The id of the new session.")],
    at: Annotated[
        str | None, typer.Option("--at", metavar="SNAPSHOT", help="A snapshot; now without it.")
    ] = None,
    agent: AgentOption = None,
    store: StoreOption = None,
) -> None:
    """Make a new session with the state of another, now or at a snapshot.

    Example: holdfast state fork ses_abc123 ses_what_if
    """
    async with open_state_store(store) as state_store:
        location = await find_session(state_store, session, agent)
        live = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        other = await live.fork(new, at=at)
        out.print(f"{other.session_id}: {other.message_count} messages, {other.status}")
