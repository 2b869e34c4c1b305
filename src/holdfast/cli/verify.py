"""``holdfast state verify``: everything that is stored, held against the log."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.completion import complete_session
from holdfast.cli.console import (
    FAILED,
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    print_json,
    say,
)
from holdfast.cli.references import existing_store, find_sessions
from holdfast.snapshots.archive import SnapshotArchive


@command
async def verify(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="A session; all of the store without it.",
            autocompletion=complete_session,
        ),
    ] = None,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Fold every log anew and check chain, digests, keyframes and snapshots. 1 where it is damaged.

    Example: holdfast state verify ses_abc123
    """
    reports = []
    async with existing_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        for place in await find_sessions(state_store, session, agent):
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
                mark = ("ok", "green") if found.ok else ("damaged", "red")
                say(mark, f" {name}: {found.events} events, {found.snapshots} snapshots")
                for each in found.damage:
                    say(f"   {each.key}: {each.problem}")
    if format is Format.json:
        print_json(reports)
    elif not reports:
        say("nothing here yet")
    if not all(report["ok"] for report in reports):
        raise typer.Exit(FAILED)
