"""``holdfast state import``: a document becomes a session here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.cli.console import (
    DryRunOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    print_json,
    say,
    typed,
)
from holdfast.cli.references import check_file
from holdfast.sessions.importing import ImportResult
from holdfast.sessions.manager import SnapshotManager
from holdfast.stores.opening import open_state_store


@command
async def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The document.")],
    dry_run: DryRunOption = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Under this agent instead.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="SESSION", help="Under this session id instead."),
    ] = None,
    allow_modified: Annotated[
        bool,
        typer.Option("--allow-modified", help="Take a document that was edited on purpose."),
    ] = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Make a document a session in this store. What was there before can be gone back to.

    Example: holdfast state import incident.json --dry-run
    """
    check_file(file)
    async with open_state_store(store) as state_store:
        manager = SnapshotManager(state_store)
        # The store is touched only after this has found the whole document in order.
        found = manager.from_file(file, allow_modified=allow_modified)
        result = await manager.import_session(
            found, dry_run=dry_run, agent_id=agent, session_id=session
        )
    if format is Format.json:
        print_json(asdict(result))
    else:
        report(result, store)


def report(result: ImportResult, store: str | None) -> None:
    """The result in a sentence or two."""
    verb = "would become" if result.dry_run else "became"
    place = f"{result.agent_id}/{result.session_id}"
    kind = "a new session" if result.created else "the state of a session that is there"
    say(
        f"{result.messages_restored} messages and {result.events_restored} events {verb} {kind}: "
        f"{place}"
    )
    diff = result.diff
    say(
        f"entries: {len(diff['added'])} added, {len(diff['removed'])} removed, "
        f"{len(diff['changed'])} changed"
    )
    if result.undo_id is not None:
        names = (result.session_id, result.undo_id)
        undo = typed("holdfast state restore", *names, agent=result.agent_id, store=store)
        say(f"to undo it: {undo}")
