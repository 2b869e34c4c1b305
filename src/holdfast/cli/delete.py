"""``holdfast state delete``: a session, or one of its snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.console import (
    AgentOption,
    SessionArgument,
    StoreOption,
    YesOption,
    command,
    confirm,
    say,
)
from holdfast.cli.references import existing_store, find_session, find_sessions
from holdfast.errors import NotFoundError
from holdfast.snapshots.archive import SnapshotArchive


@command
async def delete(
    session: SessionArgument,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="SNAPSHOT", help="Only this snapshot of it.")
    ] = None,
    agent: AgentOption = None,
    yes: YesOption = False,
    store: StoreOption = None,
) -> None:
    """Delete a session with all its snapshots and every agent's part, or one snapshot.

    Example: holdfast state delete ses_what_if --yes
    """
    if agent is not None and snapshot is None:
        raise typer.BadParameter(
            "a session is deleted with every agent's part; an agent is named with --snapshot",
            param_hint="--agent",
        )
    async with existing_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        if snapshot is None:
            places = await find_sessions(state_store, session, None)
            agents = ", ".join(place.scope_id for place in places)
            confirm(f"Delete the session {session} of {agents} for ever?", yes=yes)
            await archive.delete_session(session_id=session)
            say(f"deleted {session}")
            return
        location = await find_session(state_store, session, agent)
        if await archive.load_info(location=location, snapshot_id=snapshot) is None:
            raise NotFoundError(f"the session {session} has no snapshot {snapshot}")
        confirm(f"Delete the snapshot {snapshot} of {session}?", yes=yes)
        await archive.delete_snapshot(location=location, snapshot_id=snapshot)
        say(f"deleted the snapshot {snapshot}")
