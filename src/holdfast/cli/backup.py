"""``holdfast backup``: back up all sessions, and verify a backup."""

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
    format_command,
    format_count,
    print_json,
    print_line,
    validate_url,
)
from holdfast.cli.copy import (
    RepairOption,
    copy_with_progress,
    print_copy_result,
    require_different_stores,
)
from holdfast.cli.names import default_url
from holdfast.cli.references import open_existing_store
from holdfast.stores.registry import SCHEMES, find_entry_points, open_state_store
from holdfast.transfer.compare import SessionComparison, compare_sessions

MAX_PROBLEMS = 5


def target_url(target: str) -> str:
    """Return the URL of a backup target, a folder or a store."""
    if ":" not in target.split("/", maxsplit=1)[0]:
        return Path(target).absolute().as_uri()
    scheme = target.partition(":")[0].lower()
    if scheme not in SCHEMES and "//" not in target and scheme not in find_entry_points():
        # Do not repeat what may contain a password.
        folder = quote(f"./{target}") if "@" not in target else "./FOLDER"
        fail(
            "invalid target: unknown URL scheme",
            f"for a folder with a colon in its name, write {folder}",
        )
    return target


@command
async def backup(
    target: Annotated[
        str,
        typer.Argument(metavar="FOLDER|URL", help="The backup.", callback=validate_url),
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the backup with the store; write nothing.")
    ] = False,
    repair: RepairOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Back up all sessions to a folder or another store, incrementally.

    Restore with holdfast copy in the other direction.
    Example: holdfast backup /var/backups/agents && holdfast backup /var/backups/agents --verify
    """
    if verify and repair:
        raise typer.BadParameter("cannot be combined with --verify", param_hint="--repair")
    url = target_url(target)
    require_different_stores(default_url(store), url)
    open_target = open_existing_store if verify else open_state_store
    async with open_existing_store(store) as source, open_target(url) as target_store:
        if not verify:
            print_copy_result(
                await copy_with_progress(source, target_store, None, None, repair=repair), format
            )
            return
        found = []
        async for each in compare_sessions(source, target_store):
            found.append(each)
            if format is Format.table:
                print_comparison(each)
    damaged = [each for each in found if each.problems]
    if format is Format.json:
        print_json({"ok": not damaged, "sessions": [comparison_to_json(each) for each in found]})
    elif damaged:
        print_line(
            f"{len(damaged)} of {format_count(len(found), 'session')} incomplete or damaged", to=err
        )
        again = format_command("holdfast backup --repair", target, store=store)
        print_line((f"hint: {again} writes missing and damaged entries", "dim"), to=err)
    else:
        print_line(f"{format_count(len(found), 'session')} complete and undamaged")
    if damaged:
        raise typer.Exit(FAILED)


def print_comparison(found: SessionComparison) -> None:
    """Print the result for one session and its first problems."""
    name = f"{found.location.scope_id}/{found.location.session_id}"
    events, snapshots = (
        format_count(found.events, "event"),
        format_count(found.snapshots, "snapshot"),
    )
    if not found.problems:
        print_line(("ok", "green"), f" {name}: {events}, {snapshots}")
        return
    print_line(
        ("damaged", "red"), f" {name}: {format_count(len(found.problems), 'problem')}", to=err
    )
    for problem in found.problems[:MAX_PROBLEMS]:
        print_line(f"   {problem}", to=err)
    if len(found.problems) > MAX_PROBLEMS:
        print_line(f"   and {len(found.problems) - MAX_PROBLEMS} more; see --format json", to=err)


def comparison_to_json(found: SessionComparison) -> dict[str, object]:
    """Return the result for one session as JSON data."""
    return {
        "agent_id": found.location.scope_id,
        "session_id": found.location.session_id,
        "scope": found.location.scope,
        "ok": not found.problems,
        "events": found.events,
        "snapshots": found.snapshots,
        "problems": found.problems,
    }
