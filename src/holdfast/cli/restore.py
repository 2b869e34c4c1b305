"""``holdfast state restore``: a session goes back to one of its snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

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
    print_json,
    say,
    typed,
)
from holdfast.cli.diff import print_difference
from holdfast.cli.references import existing_store, find_session
from holdfast.errors import NotFoundError
from holdfast.sessions.session import Session
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.comparing import differences
from holdfast.snapshots.layout import location_fields
from holdfast.snapshots.session_state import ONCE


@command
async def restore(
    session: SessionArgument,
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The id of its snapshot.")],
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Make a session's state what it was at a snapshot. The log is not shortened.

    Example: holdfast state restore ses_abc123 01a1de4e-112f-736d-8a70-8771d4e5738f
    """
    async with existing_store(store) as state_store:
        location = await find_session(state_store, session, agent)
        found = await SnapshotArchive(state_store).load_snapshot(
            location=location, snapshot_id=snapshot
        )
        if found is None:
            listing = typed("holdfast state list", session=session, store=store)
            raise NotFoundError(f"the session {session} has no snapshot {snapshot}: see {listing}")
        live = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        # What was done once stays done, and so is no difference.
        changed = [
            each
            for each in differences(found.snapshot, live.snapshot())
            if each.namespace != ONCE or each.kind == "added"
        ]
        is_done = bool(changed) and not dry_run
        if format is Format.table:
            for each in changed:
                print_difference(each)
        if is_done:
            confirm(f"Change these {len(changed)} entries of {session}?", yes=yes)
            await live.restore(found)
    if format is Format.json:
        entries = [
            {"namespace": each.namespace, "key": each.key, "kind": each.kind} for each in changed
        ]
        print_json({**location_fields(location), "restored": is_done, "changed": entries})
    elif is_done:
        say(f"{session} is as it was at {snapshot}")
    else:
        say(f"{len(changed)} entries would change" if changed else "nothing to change")
