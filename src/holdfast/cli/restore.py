"""``holdfast state restore``: restore a session to a snapshot or an event."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.completion import complete_ref, complete_state
from holdfast.cli.console import (
    AgentOption,
    DryRunOption,
    Format,
    FormatOption,
    StoreOption,
    YesOption,
    command,
    confirm,
    format_command,
    format_count,
    print_json,
    print_line,
)
from holdfast.cli.diff import print_difference
from holdfast.cli.references import Reference, find_with_ref, open_existing_store
from holdfast.documents.json_diff import Difference, diff_states
from holdfast.errors import ConflictError, NotFoundError
from holdfast.sessions.session import Session
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import load_state_at_event
from holdfast.snapshots.keys import location_fields
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import ONCE
from holdfast.stores.base import StateStore


@command
async def restore(
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION[@REF]",
            help="The session, or SESSION@REF.",
            autocompletion=complete_state,
        ),
    ],
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            help="A snapshot id or prefix, an event number, latest or tag:k=v.",
            autocompletion=complete_ref,
        ),
    ] = None,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Restore a session's state to a snapshot or an event.

    The log is not truncated. A snapshot of the current state is saved first; the output says how
    to restore it.

    Example: holdfast state restore ses_abc123 01a1de4e-112f-736d-8a70-8771d4e5738f
    """
    undo_id = None
    async with open_existing_store(store) as state_store:
        wanted = await find_with_ref(state_store, session, ref, agent)
        if wanted.at is None:
            raise typer.BadParameter(
                f"missing; pass the state that {session!r} is restored to", param_hint="REF"
            )
        location = wanted.location
        target = await load_target(state_store, wanted)
        live = await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
        )
        changed = diff_restore(target, live)
        if format is Format.table:
            for each in changed:
                print_difference(each)
        is_done = bool(changed) and not dry_run
        if is_done:
            question = f"Change {format_count(len(changed), 'entry')} of {location.session_id}?"
            confirm(question, yes=yes)
            undo_id = await restore_with_undo(live, wanted, target)
    if format is Format.json:
        entries = [
            {"namespace": each.namespace, "key": each.key, "kind": each.kind} for each in changed
        ]
        print_json(
            {
                **location_fields(location),
                "snapshot_id": wanted.snapshot_id,
                "seq": wanted.seq,
                "restored": is_done,
                "undo_id": undo_id,
                "changed": entries,
            }
        )
    elif undo_id is not None:
        ref_name = wanted.snapshot_id or f"event {wanted.seq}"
        names = (location.session_id, undo_id)
        undo = format_command(
            "holdfast state restore", *names, agent=location.scope_id, store=store
        )
        print_line(f"restored {location.session_id} to {ref_name}")
        print_line(f"undo with: {undo}")
    else:
        print_line(
            f"{format_count(len(changed), 'entry')} would change"
            if changed
            else "nothing to change"
        )


async def load_target(state_store: StateStore, wanted: Reference) -> SessionSnapshot:
    """Load the state to restore."""
    archive = SnapshotArchive(state_store)
    if wanted.seq is not None:
        return await load_state_at_event(archive, wanted.location, wanted.seq)
    found = await archive.load_snapshot(location=wanted.location, snapshot_id=wanted.snapshot_id)
    if found is None:
        raise NotFoundError(f"snapshot {wanted.snapshot_id} was deleted concurrently")
    return found


def diff_restore(target: SessionSnapshot, live: Session) -> list[Difference]:
    """Return the entries that a restore changes; results of once() are kept."""
    return [
        each
        for each in diff_states(target.snapshot, live.snapshot())
        if each.namespace != ONCE or each.kind == "added"
    ]


async def restore_with_undo(live: Session, wanted: Reference, target: SessionSnapshot) -> str:
    """Save a snapshot of the current state, restore, and return the snapshot's id."""
    tags = {"reason": "before restore", "restore": str(wanted.at)}
    undo = await live.save(tags=tags)
    try:
        await live.restore(target if wanted.seq is None else wanted.seq)
    except ConflictError:
        # Nothing was restored, so there is nothing to undo.
        await live.archive.delete_snapshot(location=live.location, snapshot_id=undo.snapshot_id)
        raise
    return undo.snapshot_id
