"""``holdfast backup``: every session in a folder or another store, and the proof of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.console import FAILED, StoreOption, command, err, say
from holdfast.cli.copy import report, with_progress
from holdfast.cli.references import existing_store
from holdfast.sessions.copying import compare_stores
from holdfast.stores.opening import open_state_store


def target_url(target: str) -> str:
    """The URL of a folder, or of another store."""
    if ":" in target.split("/", maxsplit=1)[0]:
        return target
    return Path(target).absolute().as_uri()


@command
async def backup(
    target: Annotated[str, typer.Argument(metavar="FOLDER|URL", help="Where the backup is.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check a backup against the store, and write nothing.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Write every session of a store to a folder or another store. Only what is new is written.

    Restore it with holdfast copy, the other way round.
    Example: holdfast backup /var/backups/agents && holdfast backup /var/backups/agents --verify
    """
    open_target = existing_store if verify else open_state_store
    async with existing_store(store) as source, open_target(target_url(target)) as kept:
        if not verify:
            report(await with_progress(source, kept, None, None))
            return
        problems = await compare_stores(source, kept)
    for problem in problems:
        say((problem, "red"), to=err)
    if problems:
        raise typer.Exit(FAILED)
    say("the backup has every committed event and every snapshot, and all of it is whole")
