"""``holdfast copy``: sessions from one store to another, as they are."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.cli.console import FAILED, command, err, out
from holdfast.sessions.copying import Copied, copy_sessions, locations
from holdfast.snapshots.layout import SnapshotLocation
from holdfast.stores.contract import StateStore
from holdfast.stores.opening import open_state_store


@command
async def copy(
    source: Annotated[str, typer.Argument(metavar="SRC_URL", help="The store to read.")],
    target: Annotated[str, typer.Argument(metavar="DST_URL", help="The store to write.")],
    agent: Annotated[
        str | None, typer.Option("--agent", help="Only this agent's sessions.")
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only this session.")] = None,
) -> None:
    """Copy sessions between stores. Only what is missing is written; cut short, begin it again.

    Example: holdfast copy sqlite:///dev.db postgresql://staging/agents --agent research-bot
    """
    async with open_state_store(source) as first, open_state_store(target) as second:
        done = await with_progress(first, second, agent, session)
    report(done)


async def with_progress(
    source: StateStore, target: StateStore, agent: str | None, session: str | None
) -> Copied:
    """Copy, with a bar for whoever waits."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        total = 0
        async for _ in locations(source, agent, session):
            total += 1
        task = bar.add_task("sessions", total=total)

        def step(location: SnapshotLocation, _written: int) -> None:
            bar.update(task, advance=1, description=escape(location.session_id[:40]))

        return await copy_sessions(
            source, target, agent_id=agent, session_id=session, progress=step
        )


def report(done: Copied) -> None:
    """What was copied, and what was not."""
    out.print(f"{done.sessions} sessions, {done.entries} new entries, {done.size:,} bytes")
    for name, problem in done.failed.items():
        err.print(f"[red]not copied:[/] {escape(name)}: {escape(problem)}")
    if done.failed:
        raise typer.Exit(FAILED)
