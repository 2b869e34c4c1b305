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
    plural,
    print_json,
    say,
    typed,
)
from holdfast.cli.copy import MendOption, check_different, report, with_progress
from holdfast.cli.names import named_or_usual
from holdfast.cli.references import existing_store
from holdfast.stores.registry import SCHEMES, find_entry_points, open_state_store
from holdfast.transfer.compare import SessionComparison, compare_sessions

MOST_PROBLEMS = 5


def target_url(target: str) -> str:
    """The URL of a folder, or of another store."""
    if ":" not in target.split("/", maxsplit=1)[0]:
        return Path(target).absolute().as_uri()
    scheme = target.partition(":")[0].lower()
    if scheme not in SCHEMES and "//" not in target and scheme not in find_entry_points():
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
    url = target_url(target)
    check_different(named_or_usual(store), url)
    open_target = existing_store if verify else open_state_store
    async with existing_store(store) as source, open_target(url) as kept:
        if not verify:
            report(await with_progress(source, kept, None, None, mend=mend), format)
            return
        found = []
        async for each in compare_sessions(source, kept):
            found.append(each)
            if format is Format.table:
                print_comparison(each)
    damaged = [each for each in found if each.problems]
    if format is Format.json:
        print_json({"ok": not damaged, "sessions": [comparison_json(each) for each in found]})
    elif damaged:
        say(f"{len(damaged)} of {plural(len(found), 'session')} incomplete or damaged", to=err)
        again = typed("holdfast backup --mend", target, store=store)
        say((f"hint: {again} writes what is missing or damaged", "dim"), to=err)
    else:
        say(f"{plural(len(found), 'session')} complete and undamaged")
    if damaged:
        raise typer.Exit(FAILED)


def print_comparison(found: SessionComparison) -> None:
    """A line on a session of the backup, and the first of its problems."""
    name = f"{found.location.scope_id}/{found.location.session_id}"
    events, snapshots = plural(found.events, "event"), plural(found.snapshots, "snapshot")
    if not found.problems:
        say(("ok", "green"), f" {name}: {events}, {snapshots}")
        return
    say(("damaged", "red"), f" {name}: {plural(len(found.problems), 'problem')}", to=err)
    for problem in found.problems[:MOST_PROBLEMS]:
        say(f"   {problem}", to=err)
    if len(found.problems) > MOST_PROBLEMS:
        say(f"   and {len(found.problems) - MOST_PROBLEMS} more; --format json has all", to=err)


def comparison_json(found: SessionComparison) -> dict[str, object]:
    """A session of the backup, for a program."""
    return {
        "agent_id": found.location.scope_id,
        "session_id": found.location.session_id,
        "scope": found.location.scope,
        "ok": not found.problems,
        "events": found.events,
        "snapshots": found.snapshots,
        "problems": found.problems,
    }
