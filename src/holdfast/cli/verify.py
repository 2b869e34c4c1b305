"""``holdfast state verify``: check everything stored against the log."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.progress import Progress

from holdfast.cli.completion import complete_session
from holdfast.cli.console import (
    FAILED,
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    err,
    print_json,
    print_line,
)
from holdfast.cli.references import find_sessions, open_existing_store
from holdfast.cli.tables import Column, format_size, print_table
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.keys import location_fields
from holdfast.snapshots.repair import RepairResult

COLUMNS = (
    Column("result"),
    Column("agent_id", least=8),
    Column("session_id", least=12),
    Column("scope", rank=1),
    Column("events", right=True),
    Column("snapshots", right=True),
    Column("blobs", right=True),
)


@command
async def verify(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION",
            help="The session. Default: all sessions.",
            autocompletion=complete_session,
        ),
    ] = None,
    agent: AgentOption = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Rebuild lost manifests and index entries; remove leftovers of crashes.",
        ),
    ] = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Check hash chains, keyframes, snapshots and blobs; exit with 1 if anything is damaged.

    All blobs are read. One that was omitted from an imported document is reported as missing.

    Example: holdfast state verify ses_abc123
    """
    reports = []
    async with open_existing_store(store) as state_store:
        archive = SnapshotArchive(state_store)
        problems = await state_store.check()
        for problem in problems:
            print_line(("damaged:", "red"), f" {problem}", to=err)
        with Progress(console=err, transient=True, disable=not err.is_terminal) as progress:
            for place in progress.track(await find_sessions(state_store, session, agent)):
                fixed = await archive.repair(location=place) if repair else RepairResult()
                found = await archive.verify(location=place)
                reports.append(
                    {
                        **location_fields(place),
                        "ok": found.ok,
                        "events": found.events,
                        "snapshots": found.snapshots,
                        "blobs": found.blobs,
                        "blob_bytes": found.blob_bytes,
                        "damage": [
                            {"key": each.key, "problem": each.problem} for each in found.damage
                        ],
                        "leftovers": found.leftovers,
                        "unreferenced_blobs": [asdict(each) for each in found.unreferenced_blobs],
                        "other_keys": found.other_keys,
                        "repaired": fixed.written,
                        "removed": fixed.removed,
                    }
                )
    if format is Format.json:
        print_json(reports)
    else:
        print_reports(reports)
    if problems or not all(report["ok"] for report in reports):
        raise typer.Exit(FAILED)


def print_reports(reports: list[dict[str, Any]]) -> None:
    """Print a row per session, then all damage."""
    rows = [
        ["ok" if report["ok"] else "damaged", *(report[column.name] for column in COLUMNS[1:])]
        for report in reports
    ]
    print_table(COLUMNS, rows, "no sessions")
    for report in reports:
        for each in report["damage"]:
            print_line(("damaged:", "red"), f" {each['key']}: {each['problem']}")
        for key in report["repaired"]:
            print_line(("repaired:", "green"), f" {key}")
        for key in report["removed"]:
            print_line(f"removed: {key}: left over by a crash or a deleted session")
        for key in report["leftovers"]:
            print_line(f"left over: {key}: harmless; remove it with --repair")
        for blob in report["unreferenced_blobs"]:
            size = format_size(blob["size"])
            what = size if blob["is_complete"] else f"{size}, incomplete"
            print_line(
                f"left over: blob {blob['digest']} ({what}): harmless; the next prune removes it"
            )
        for key in report["other_keys"]:
            print_line(f"ignored: {key}: not written by Holdfast")
