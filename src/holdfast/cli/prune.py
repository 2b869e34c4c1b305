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
    has_person,
    out,
    plural,
    print_json,
    say,
)
from holdfast.cli.output import Output
from holdfast.cli.references import existing_store, find_session, find_sessions
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.snapshots.prune import PruneResult
from holdfast.snapshots.retention import RetentionPolicy

AGE = re.compile(r"([0-9]+)([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_age(text: str | None) -> dt.timedelta | None:
    """An age such as 30d; wrong usage where it is none."""
    if text is None:
        return None
    found = AGE.fullmatch(text)
    try:
        if found is not None:
            return dt.timedelta(**{UNITS[found[2]]: int(found[1])})
    except (OverflowError, ValueError):
        found = None  # longer than there is time
    raise typer.BadParameter(f"{text!r} is no age as in 12h, 30d or 8w", param_hint="--max-age")


@command
async def prune(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="A session; all of the store with --all.",
            autocompletion=complete_session,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All sessions.")] = False,
    last: Annotated[int | None, typer.Option(min=0, help="Keep so many of the newest.")] = None,
    hourly: Annotated[int | None, typer.Option(min=0, help="Keep one an hour, so many.")] = None,
    daily: Annotated[int | None, typer.Option(min=0, help="Keep one a day, so many.")] = None,
    weekly: Annotated[int | None, typer.Option(min=0, help="Keep one a week, so many.")] = None,
    max_age: Annotated[
        str | None, typer.Option("--max-age", metavar="AGE", help="Keep all younger: 12h, 30d, 8w.")
    ] = None,
    protect: Annotated[
        list[str] | None, typer.Option("--protect", metavar="TAG", help="Keep all with this tag.")
    ] = None,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Remove the snapshots that no rule keeps. Kept ones still load; the newest is always kept.

    It shows what it would remove, and asks.

    Example: holdfast state prune --all --last 10 --daily 7 --protect baseline
    """
    age = read_age(max_age)
    if (session is None) == (not every):
        raise typer.BadParameter("name one session, or --all", param_hint="SESSION")
    rules = {"last": last, "hourly": hourly, "daily": daily, "weekly": weekly, "max_age": age}
    if all(rule is None for rule in rules.values()):
        raise typer.BadParameter(
            "say what to keep, with --last, --hourly, --daily, --weekly or --max-age",
            param_hint="--last",
        )
    for tag in protect or []:
        if "=" in tag:
            raise typer.BadParameter(
                f"{tag!r} has a value: name the tag alone, and any value of it is kept",
                param_hint="--protect",
            )
    policy = RetentionPolicy(**rules, protected=protect or ())  # type: ignore[arg-type]
    async with existing_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        if session is None:
            places = await find_sessions(state_store, None, agent)
        else:
            places = [await find_session(state_store, session, agent)]
        if not dry_run and not yes:
            await confirm_prune(archive, places, policy)
        reports = []
        for place in places:
            done = await archive.prune(location=place, policy=policy, dry_run=dry_run)
            reports.append({**location_fields(place), **asdict(done)})
            if format is Format.table:
                print_pruned(place, done, dry_run=dry_run)
    if format is Format.json:
        print_json(reports)
    elif not reports:
        say("nothing here yet")


async def confirm_prune(
    archive: SnapshotArchive, places: list[SnapshotLocation], policy: RetentionPolicy
) -> None:
    """Show what would be removed and ask; there is no question where nothing would be."""
    snapshots = sessions = 0
    for place in places:
        plan = await archive.prune(location=place, policy=policy, dry_run=True)
        if plan.removed or plan.events_removed:
            snapshots += len(plan.removed)
            sessions += 1
            if has_person():
                print_pruned(place, plan, dry_run=True, to=err)
    if sessions:
        removed, pruned = plural(snapshots, "snapshot"), plural(sessions, "session")
        confirm(f"Remove {removed} of {pruned} for good?", yes=False)


def print_pruned(
    place: SnapshotLocation, done: PruneResult, *, dry_run: bool, to: Output = out
) -> None:
    """One line on a session."""
    verb = "would be removed" if dry_run else "removed"
    say(
        f"{place.scope_id}/{place.session_id}: {plural(len(done.kept), 'snapshot')} kept, "
        f"{len(done.removed)} {verb}, with {plural(done.events_removed, 'event')}",
        to=to,
    )
