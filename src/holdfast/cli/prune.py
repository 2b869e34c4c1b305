"""``holdfast state prune``: delete expired snapshots and reclaim their space."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.cli.completion import complete_session
from holdfast.cli.console import (
    AgentOption,
    DryRunOption,
    Format,
    FormatOption,
    StoreOption,
    YesOption,
    command,
    confirm,
    err,
    format_count,
    is_interactive,
    out,
    print_json,
    print_line,
)
from holdfast.cli.output import Output
from holdfast.cli.references import find_session, find_sessions, open_existing_store
from holdfast.cli.tables import format_size
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.snapshots.prune import PruneResult
from holdfast.snapshots.retention import RetentionPolicy

AGE = re.compile(r"([0-9]+)([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_age(text: str | None) -> dt.timedelta | None:
    """Return the age that a text such as 30d means."""
    if text is None:
        return None
    found = AGE.fullmatch(text)
    try:
        if found is not None:
            return dt.timedelta(**{UNITS[found[2]]: int(found[1])})
    except (OverflowError, ValueError):
        found = None  # beyond what a timedelta holds
    raise typer.BadParameter(
        f"invalid age {text!r}: must be like 12h, 30d or 8w", param_hint="--max-age"
    )


@command
async def prune(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="The session to prune.",
            autocompletion=complete_session,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Prune all sessions.")] = False,
    last: Annotated[int | None, typer.Option(min=0, metavar="N", help="Keep the N newest.")] = None,
    hourly: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Keep one per hour, for N hours.")
    ] = None,
    daily: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Keep one per day, for N days.")
    ] = None,
    weekly: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Keep one per week, for N weeks.")
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(
            "--max-age", metavar="AGE", help="Keep all that are younger, such as 12h, 30d or 8w."
        ),
    ] = None,
    protect: Annotated[
        list[str] | None,
        typer.Option("--protect", metavar="TAG", help="Keep all with this tag. Repeatable."),
    ] = None,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Delete the snapshots that no rule keeps, and reclaim their space.

    The newest snapshot is always kept. Large values and attachments that nothing refers to any
    more are deleted, too. Asks for confirmation.

    Example: holdfast state prune --all --last 10 --daily 7 --protect baseline
    """
    age = parse_age(max_age)
    if (session is None) == (not every):
        raise typer.BadParameter("pass either SESSION or --all", param_hint="SESSION")
    rules = {"last": last, "hourly": hourly, "daily": daily, "weekly": weekly, "max_age": age}
    if all(rule is None for rule in rules.values()):
        raise typer.BadParameter(
            "no retention rule was given; pass --last, --hourly, --daily, --weekly or --max-age",
            param_hint="--last",
        )
    for tag in protect or []:
        if "=" in tag:
            raise typer.BadParameter(
                f"invalid tag name {tag!r}: pass the name without a value",
                param_hint="--protect",
            )
    policy = RetentionPolicy(**rules, protected=protect or ())  # type: ignore[arg-type]
    async with open_existing_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        if session is None:
            locations = await find_sessions(state_store, None, agent)
        else:
            locations = [await find_session(state_store, session, agent)]
        if not dry_run and not yes:
            await confirm_prune(archive, locations, policy)
        reports = []
        for location in locations:
            done = await archive.prune(location=location, policy=policy, dry_run=dry_run)
            reports.append({**location_fields(location), **asdict(done)})
            if format is Format.table:
                print_prune_result(location, done, dry_run=dry_run)
    if format is Format.json:
        print_json(reports)
    elif not reports:
        print_line("no sessions")


async def confirm_prune(
    archive: SnapshotArchive, locations: list[SnapshotLocation], policy: RetentionPolicy
) -> None:
    """Show what would be deleted and ask; do not ask if nothing would be."""
    snapshots = sessions = blobs = 0
    for location in locations:
        plan = await archive.prune(location=location, policy=policy, dry_run=True)
        if plan.removed or plan.events_removed or plan.blobs_removed:
            snapshots += len(plan.removed)
            sessions += 1
            blobs += plan.blobs_removed
            if is_interactive():
                print_prune_result(location, plan, dry_run=True, to=err)
    if sessions:
        removed, pruned = format_count(snapshots, "snapshot"), format_count(sessions, "session")
        if blobs:
            removed += f" and {format_count(blobs, 'blob')}"
        confirm(f"Delete {removed} of {pruned} permanently?", yes=False)


def print_prune_result(
    location: SnapshotLocation, done: PruneResult, *, dry_run: bool, to: Output = out
) -> None:
    """Print the result for one session."""
    verb = "would be deleted" if dry_run else "deleted"
    kept = format_count(len(done.kept), "snapshot")
    blobs = ""
    if done.blobs_removed:
        size = format_size(done.bytes_removed)
        blobs = f" and {format_count(done.blobs_removed, 'blob')} ({size})"
    print_line(
        f"{location.scope_id}/{location.session_id}: {kept} kept, {len(done.removed)} {verb}, "
        f"with {format_count(done.events_removed, 'event')}{blobs}",
        to=to,
    )
