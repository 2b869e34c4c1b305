"""``holdfast copy``: copy sessions between stores."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.cli.completion import complete_agent, complete_session
from holdfast.cli.console import (
    FAILED,
    Format,
    FormatOption,
    command,
    err,
    escape_control_codes,
    fail,
    format_count,
    print_json,
    print_line,
    validate_url,
)
from holdfast.cli.names import is_same_store
from holdfast.cli.references import find_sessions, open_existing_store
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store
from holdfast.stores.urls import StoreURL
from holdfast.stores.wrappers.base import is_encrypted
from holdfast.transfer.copy import CopyResult, copy_sessions

RepairOption = Annotated[
    bool, typer.Option("--repair", help="Find damaged entries in the target and rewrite them.")
]


@command
async def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC_URL", help="The store to read.", callback=validate_url)
    ],
    target: Annotated[
        str, typer.Argument(metavar="DST_URL", help="The store to write.", callback=validate_url)
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            help="Copy only this agent's sessions.",
            autocompletion=complete_agent,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            help="Copy only this session.",
            autocompletion=complete_session,
        ),
    ] = None,
    repair: RepairOption = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Copy sessions between stores, incrementally. Rerun it if it was interrupted.

    Example: holdfast copy sqlite:///dev.db postgresql://staging/agents --agent research-bot
    """
    require_different_stores(source, target)
    async with open_existing_store(source) as first, open_state_store(target) as second:
        done = await copy_with_progress(first, second, agent, session, repair=repair)
    print_copy_result(done, format)


def require_different_stores(source: str, target: str) -> None:
    """Fail if two URLs refer to the same store."""
    if is_same_store(source, target):
        fail(
            f"source and target are the same store: {StoreURL(target)}",
            "choose another target; ?prefix=NAME/ copies within a database",
        )


async def copy_with_progress(
    source: StateStore, target: StateStore, agent: str | None, session: str | None, *, repair: bool
) -> CopyResult:
    """Copy sessions, with a progress bar on a terminal."""
    if is_encrypted(source) and not is_encrypted(target):
        print_line(
            ("warning:", "yellow"),
            " the source is encrypted and the target is not; add ?encrypt=NAME to the target's URL",
            to=err,
        )
    total = len(await find_sessions(source, session, agent))
    if not err.is_terminal:
        return await copy_sessions(
            source, target, agent_id=agent, session_id=session, repair=repair
        )
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("sessions", total=total)

        copied = 0

        def step(location: SnapshotLocation, written: int) -> None:
            nonlocal copied
            copied += written
            name = escape_control_codes(location.session_id[:40])
            entries = format_count(copied, "new entry")
            bar.update(task, advance=1, description=f"{name}, {entries}")

        return await copy_sessions(
            source, target, agent_id=agent, session_id=session, repair=repair, progress=step
        )


def print_copy_result(done: CopyResult, format_: Format) -> None:
    """Print what was copied and what failed."""
    if format_ is Format.json:
        failed = [
            {**location_fields(location), "problem": problem}
            for location, problem in done.failed.items()
        ]
        print_json({**asdict(replace(done, failed={})), "failed": failed})
    else:
        repaired = (
            f", {format_count(done.repaired, 'damaged entry')} repaired" if done.repaired else ""
        )
        print_line(
            f"{format_count(done.sessions, 'session')}, {format_count(done.entries, 'new entry')}, "
            f"{format_count(done.size, 'byte')}{repaired}"
        )
        for location, problem in done.failed.items():
            name = f"session {location.session_id} of {location.scope_id}"
            print_line(("not copied:", "red"), f" {name}: {problem}", to=err)
    if done.failed:
        raise typer.Exit(FAILED)
