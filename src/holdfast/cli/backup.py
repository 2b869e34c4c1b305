"""``holdfast backup``: every session in a folder or another store, and the proof of it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from holdfast.cli.console import (
    FAILED,
    Format,
    FormatOption,
    StoreOption,
    command,
    err,
    fail,
    named_url,
    print_json,
    say,
    typed,
)
from holdfast.cli.copy import MendOption, report, with_progress
from holdfast.cli.references import existing_store
from holdfast.sessions.copying import compare_stores
from holdfast.stores.opening import SCHEMES, open_state_store, registered


def target_url(target: str) -> str:
    """The URL of a folder, or of another store."""
    if ":" not in target.split("/", maxsplit=1)[0]:
        return Path(target).absolute().as_uri()
    scheme = target.partition(":")[0].lower()
    if scheme not in SCHEMES and "//" not in target and scheme not in registered():
        # What may have a password in it is not repeated.
        folder = quote(f"./{target}") if "@" not in target else "./FOLDER"
        fail(
            "the target is taken for the URL of a store, as it has a colon before any /, and no "
            f"store is known for what stands before that: name a folder as {folder}",
            "holdfast backup --help shows what it takes",
        )
    return target


@command
async def backup(
    target: Annotated[
        str, typer.Argument(metavar="FOLDER|URL", help="Where the backup is.", callback=named_url)
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Check a backup against the store, and write nothing.")
    ] = False,
    mend: MendOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Write every session of a store to a folder or another store. Only what is new is written.

    Restore it with holdfast copy, the other way round.
    Example: holdfast backup /var/backups/agents && holdfast backup /var/backups/agents --verify
    """
    if verify and mend:
        raise typer.BadParameter("--verify writes nothing: say one of the two", param_hint="--mend")
    open_target = existing_store if verify else open_state_store
    async with existing_store(store) as source, open_target(target_url(target)) as kept:
        if not verify:
            report(await with_progress(source, kept, None, None, mend=mend), format)
            return
        problems = await compare_stores(source, kept)
    if format is Format.json:
        print_json({"ok": not problems, "problems": problems})
    elif not problems:
        say("the backup has every committed event and every snapshot, and all of it is whole")
    else:
        for problem in problems:
            say((problem, "red"), to=err)
        again = typed("holdfast backup --mend", target, store=store)
        say((f"hint: {again} writes this anew", "dim"), to=err)
    if problems:
        raise typer.Exit(FAILED)
