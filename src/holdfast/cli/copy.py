"""``holdfast copy``: sessions from one store to another, as they are."""

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
    fail,
    named_url,
    plural,
    print_json,
    say,
    visible,
)
from holdfast.cli.names import is_same_store
from holdfast.cli.references import existing_store, find_sessions
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store
from holdfast.stores.urls import StoreURL
from holdfast.stores.wrappers.base import is_encrypted
from holdfast.transfer.copy import CopyResult, copy_sessions

MendOption = Annotated[
    bool, typer.Option("--mend", help="Look for damage in the target, and write that anew.")
]


@command
async def copy(
    source: Annotated[
        str, typer.Argument(metavar="SRC_URL", help="The store to read.", callback=named_url)
    ],
    target: Annotated[
        str, typer.Argument(metavar="DST_URL", help="The store to write.", callback=named_url)
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            metavar="AGENT",
            help="Only this agent's sessions.",
            autocompletion=complete_agent,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            help="Only this session.",
            autocompletion=complete_session,
        ),
    ] = None,
    mend: MendOption = False,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Copy sessions between stores. Only what is missing is written; cut short, begin it again.

    Example: holdfast copy sqlite:///dev.db postgresql://staging/agents --agent research-bot
    """
    check_different(source, target)
    async with existing_store(source) as first, open_state_store(target) as second:
        done = await with_progress(first, second, agent, session, mend=mend)
    report(done, format)


def check_different(source: str, target: str) -> None:
    """Refuse to copy a store onto itself, however its two URLs are spelled."""
    if is_same_store(source, target):
        fail(
            f"source and target are the same store: {StoreURL(target)}",
            "name another target; ?prefix=NAME/ keeps a copy in the same database",
        )


async def with_progress(
    source: StateStore, target: StateStore, agent: str | None, session: str | None, *, mend: bool
) -> CopyResult:
    """Copy, with a bar for whoever waits."""
    if is_encrypted(source) and not is_encrypted(target):
        say(
            ("warning:", "yellow"),
            " the source is encrypted and the target is not: what is written there can be read by "
            "whoever reads the target. Add ?encrypt=NAME to its URL",
            to=err,
        )
    total = len(await find_sessions(source, session, agent))
    if not err.is_terminal:
        return await copy_sessions(source, target, agent_id=agent, session_id=session, repair=mend)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err) as bar:
        task = bar.add_task("sessions", total=total)

        def step(location: SnapshotLocation, _written: int) -> None:
            bar.update(task, advance=1, description=visible(location.session_id[:40]))

        return await copy_sessions(
            source, target, agent_id=agent, session_id=session, repair=mend, progress=step
        )


def report(done: CopyResult, format_: Format) -> None:
    """What was copied, and what was not."""
    if format_ is Format.json:
        failed = [
            {**location_fields(place), "problem": problem} for place, problem in done.failed.items()
        ]
        print_json({**asdict(replace(done, failed={})), "failed": failed})
    else:
        mended = f", {plural(done.repaired, 'damaged entry')} repaired" if done.repaired else ""
        say(
            f"{plural(done.sessions, 'session')}, {plural(done.entries, 'new entry')}, "
            f"{plural(done.size, 'byte')}{mended}"
        )
        for place, problem in done.failed.items():
            name = f"session {place.session_id} of {place.scope_id}"
            say(("not copied:", "red"), f" {name}: {problem}", to=err)
    if done.failed:
        raise typer.Exit(FAILED)
