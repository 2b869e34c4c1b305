"""``holdfast state delete``: a session, or one of its snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.console import (
    AgentOption,
    StoreOption,
    YesOption,
    command,
    confirmed,
    out,
)
from holdfast.cli.references import find_session
from holdfast.errors import NotFoundError
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog
from holdfast.stores.opening import open_state_store


@command
async def delete(
    session: Annotated[str, typer.Argument(help="The session.")],
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", help="Only this snapshot of it.")
    ] = None,
    agent: AgentOption = None,
    yes: YesOption = False,
    store: StoreOption = None,
) -> None:
    """Delete a session with all its snapshots and every agent's part, or one snapshot.

    Example: holdfast state delete ses_what_if --yes
    """
    async with open_state_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        if snapshot is not None:
            location = await find_session(state_store, session, agent)
            if not confirmed(f"Delete the snapshot {snapshot} of {session}?", yes=yes):
                return
            if not await archive.delete_snapshot(location=location, snapshot_id=snapshot):
                raise NotFoundError(f"the session {session} has no snapshot {snapshot}")
            out.print(f"deleted the snapshot {snapshot}")
            return
        places = await Catalog(state_store).locations(session)
        if not places:
            raise NotFoundError(f"there is no session {session!r}")
        agents = ", ".join(place.scope_id for place in places)
        if confirmed(f"Delete the session {session} of {agents} for ever?", yes=yes):
            await archive.delete_session(session_id=session)
            out.print(f"deleted {session}")
