"""``holdfast state delete``: delete a session or a snapshot."""

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
            help="Delete only this snapshot: an id or prefix, latest or tag:k=v.",
            autocompletion=complete_ref,
        ),
    ] = None,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Delete a session with the snapshots of all its agents, or one snapshot.

    Asks for confirmation.

    Example: holdfast state delete ses_what_if --yes
    """
    if agent is not None and snapshot is None:
        raise typer.BadParameter(
            "a session is deleted for all its agents; pass --agent only with --snapshot",
            param_hint="--agent",
        )
    async with open_existing_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        snapshot_id = None
        if snapshot is None:
            locations = await find_sessions(state_store, session, None)
            ids = [await archive.list_snapshot_ids(location=location) for location in locations]
            agents = ", ".join(location.scope_id for location in locations)
            what = (
                f"session {session} of {agents} with {format_count(sum(map(len, ids)), 'snapshot')}"
            )
        else:
            locations = [await find_session(state_store, session, agent)]
            snapshot_id = await resolve_snapshot_ref(archive, locations[0], snapshot)
            what = f"snapshot {snapshot_id} of {session}"
        if not dry_run:
            confirm(f"Delete {what} permanently?", yes=yes)
            if snapshot_id is None:
                await archive.delete_session(session_id=session)
            else:
                await archive.delete_snapshot(location=locations[0], snapshot_id=snapshot_id)
    if format is Format.json:
        print_json(
            {
                "session_id": session,
                "agents": [location.scope_id for location in locations],
                "snapshot_id": snapshot_id,
                "deleted": not dry_run,
                "dry_run": dry_run,
            }
        )
    else:
        print_line(f"would delete {what}" if dry_run else f"deleted {what}")
