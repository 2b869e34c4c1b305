"""``holdfast state prune``: snapshots that are not wanted any more give their space back."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from holdfast.cli.console import (
    AgentOption,
    DryRunOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    out,
    print_json,
)
from holdfast.cli.references import find_session
from holdfast.sessions.copying import locations
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.retention import RetentionPolicy
from holdfast.stores.opening import open_state_store

AGE = re.compile(r"([0-9]+)([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
Count = Annotated[int | None, typer.Option(min=0, show_default=False)]


def read_age(text: str | None) -> dt.timedelta | None:
    """An age such as 30d; wrong usage where it is none."""
    if text is None:
        return None
    found = AGE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age as in 12h, 30d or 8w", param_hint="--max-age")
    return dt.timedelta(**{UNITS[found[2]]: int(found[1])})


@command
async def prune(
    session: Annotated[
        str | None, typer.Argument(help="A session; all of the store with --all.")
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
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Remove the snapshots that no rule keeps. Kept ones still load; the newest is always kept.

    Example: holdfast state prune --all --last 10 --daily 7 --protect baseline
    """
    age = read_age(max_age)
    if (session is None) == (not every):
        raise typer.BadParameter("name one session, or --all", param_hint="SESSION")
    policy = RetentionPolicy(
        last=last,
        hourly=hourly,
        daily=daily,
        weekly=weekly,
        max_age=age,
        protected=protect or (),
    )
    reports = []
    async with open_state_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        if session is not None:
            places = [await find_session(state_store, session, agent)]
        else:
            places = [each async for each in locations(state_store, agent, None)]
        for place in places:
            done = await archive.prune(location=place, policy=policy, dry_run=dry_run)
            name = f"{place.scope_id}/{place.session_id}"
            reports.append({"session": name, **asdict(done)})
            if format is Format.table:
                verb = "would go" if dry_run else "gone"
                out.print(
                    f"{escape(name)}: {len(done.kept)} snapshots kept, {len(done.removed)} {verb}, "
                    f"with {done.events_removed} events"
                )
    if format is Format.json:
        print_json(reports)
