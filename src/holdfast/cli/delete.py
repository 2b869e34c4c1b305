"""``holdfast state delete``: a session, or one of its snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.completion import complete_ref
from holdfast.cli.console import (
    AgentOption,
    DryRunOption,
    Format,
    FormatOption,
    SessionArgument,
    StoreOption,
    YesOption,
    command,
    confirm,
    format_count,
    print_json,
    print_line,
)
from holdfast.cli.references import (
    find_session,
    find_sessions,
    open_existing_store,
    resolve_snapshot_ref,
)
from holdfast.snapshots.archive import SnapshotArchive


@command
async def delete(
    session: SessionArgument,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="REF",
            help="Only this snapshot of it: an id or prefix, latest or tag:k=v.",
            autocompletion=complete_ref,
        ),
    ] = None,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Delete a session with all its snapshots and every agent's part, or one snapshot. It asks.

    Example: holdfast state delete ses_what_if --yes
    """
    if agent is not None and snapshot is None:
        raise typer.BadParameter(
            "a session is deleted with every agent's part; an agent is named with --snapshot",
            param_hint="--agent",
        )
    async with open_existing_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        snapshot_id = None
        if snapshot is None:
            places = await find_sessions(state_store, session, None)
            ids = [await archive.list_snapshot_ids(location=place) for place in places]
            agents = ", ".join(place.scope_id for place in places)
            what = (
                f"session {session} of {agents} with {format_count(sum(map(len, ids)), 'snapshot')}"
            )
        else:
            places = [await find_session(state_store, session, agent)]
            snapshot_id = await resolve_snapshot_ref(archive, places[0], snapshot)
            what = f"snapshot {snapshot_id} of {session}"
        if not dry_run:
            confirm(f"Delete {what} for good?", yes=yes)
            if snapshot_id is None:
                await archive.delete_session(session_id=session)
            else:
                await archive.delete_snapshot(location=places[0], snapshot_id=snapshot_id)
    if format is Format.json:
        print_json(
            {
                "session_id": session,
                "agents": [place.scope_id for place in places],
                "snapshot_id": snapshot_id,
                "deleted": not dry_run,
                "dry_run": dry_run,
            }
        )
    else:
        print_line(f"would delete {what}" if dry_run else f"deleted {what}")
