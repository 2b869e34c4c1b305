"""``holdfast state verify``: everything that is stored, held against the log."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from holdfast.cli.console import (
    FAILED,
    AgentOption,
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
from holdfast.stores.opening import open_state_store


@command
async def verify(
    session: Annotated[
        str | None, typer.Argument(help="A session; all of the store without it.")
    ] = None,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Fold every log anew and check chain, digests, keyframes and snapshots. 1 where it is damaged.

    Example: holdfast state verify ses_abc123
    """
    reports = []
    async with open_state_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        if session is not None:
            places = [await find_session(state_store, session, agent)]
        else:
            places = [each async for each in locations(state_store, agent, None)]
        for place in places:
            found = await archive.verify(location=place)
            name = f"{place.scope_id}/{place.session_id}"
            reports.append(
                {
                    "session": name,
                    "ok": found.ok,
                    "events": found.events,
                    "snapshots": found.snapshots,
                    "damage": [{"key": each.key, "problem": each.problem} for each in found.damage],
                }
            )
            if format is Format.table:
                mark = "[green]ok[/]" if found.ok else "[red]damaged[/]"
                out.print(
                    f"{mark} {escape(name)}: {found.events} events, {found.snapshots} snapshots"
                )
                for each in found.damage:
                    out.print(f"   {escape(each.key)}: {escape(each.problem)}")
    if format is Format.json:
        print_json(reports)
    elif not reports:
        out.print("nothing here yet")
    if not all(report["ok"] for report in reports):
        raise typer.Exit(FAILED)
