"""``holdfast workspace``: capture, restore, compare and export the files of a session."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from holdfast.cli.completion import complete_ref
from holdfast.cli.console import (
    AgentOption,
    DryRunOption,
    Format,
    FormatOption,
    SessionArgument,
    StoreOption,
    TagOption,
    YesOption,
    command,
    confirm,
    format_command,
    format_count,
    parse_tags,
    print_json,
    print_line,
)
from holdfast.cli.diff import COLOURS, SIGNS
from holdfast.cli.paging import NoPagerOption, use_pager
from holdfast.cli.references import find_session, open_existing_store, resolve_ref
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import location_fields
from holdfast.workspaces.compare import FileChange, WorkspaceDiff
from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.reports import CaptureReport, RestoreReport
from holdfast.workspaces.scan import MAX_FILE_SIZE, MAX_TOTAL_SIZE, SkippedFile

MAX_LINES = 40

FolderOption = Annotated[
    Path,
    typer.Option("--folder", metavar="FOLDER", help="The folder. Default: the current one."),
]
AtOption = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="REF",
        help="A snapshot id or prefix, an event number, latest or tag:k=v.",
        autocompletion=complete_ref,
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="PATTERN",
        help="Ignore files that match, as in .gitignore. Repeatable.",
    ),
]
NoGitignoreOption = Annotated[
    bool, typer.Option("--no-gitignore", help="Do not apply .gitignore, only .holdfastignore.")
]


@asynccontextmanager
async def open_session(
    store: str | None, session: str, agent: str | None
) -> AsyncIterator[Session]:
    """Open a session that exists."""
    async with open_existing_store(store) as state_store:
        location = await find_session(state_store, session, agent)
        yield await Session.open(
            state_store,
            agent_id=location.scope_id,
            session_id=location.session_id,
            scope=location.scope,
            must_exist=True,
        )


async def find_ref(session: Session, ref: str) -> str | int:
    """Return the snapshot id or event number that a REF stands for."""
    return await resolve_ref(session.archive, session.location, ref)


# ------------------------------------------------------------------------------------- commands


@command
async def capture(
    session: SessionArgument,
    folder: FolderOption = Path(),
    tag: TagOption = None,
    ignore: IgnoreOption = None,
    no_gitignore: NoGitignoreOption = False,
    max_file_size: Annotated[
        int, typer.Option("--max-file-size", metavar="BYTES", min=0, help="Skip larger files.")
    ] = MAX_FILE_SIZE,
    max_total_size: Annotated[
        int,
        typer.Option(
            "--max-total-size", metavar="BYTES", min=0, help="Skip the files beyond this total."
        ),
    ] = MAX_TOTAL_SIZE,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Record the files of a folder in a session.

    With --tag, a snapshot of the session is saved in the same commit.

    Example: holdfast workspace capture ses_abc123 --folder repo
    """
    tags = parse_tags(tag)
    snapshot_id = None
    async with open_session(store, session, agent) as live:
        files = live.workspace(
            folder,
            max_file_size=max_file_size,
            max_total_size=max_total_size,
            ignore=ignore or [],
            respect_gitignore=not no_gitignore,
        )
        if tags:
            report, saved = await files.capture_with(lambda: live.save(tags=tags))
            snapshot_id = saved.snapshot_id
        else:
            report = await files.capture()
    if format is Format.json:
        fields = {**location_fields(live.location), "folder": files.folder}
        print_json({**fields, "snapshot_id": snapshot_id, **report.to_json()})
        return
    print_captured(report)
    if snapshot_id is not None:
        print_line(f"snapshot {snapshot_id}")


@command
async def restore(
    session: SessionArgument,
    at: AtOption,
    folder: FolderOption = Path(),
    conversation: Annotated[
        bool,
        typer.Option("--conversation", help="Restore the conversation and the values, too."),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Restore although the folder changed since the last capture."),
    ] = False,
    ignore: IgnoreOption = None,
    no_gitignore: NoGitignoreOption = False,
    agent: AgentOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Restore the files of a folder to a snapshot or an event of a session.

    What is there is captured first; the output says how to restore it. Ignored files are not
    touched.

    Example: holdfast workspace restore ses_abc123 --at latest --folder repo
    """
    async with open_session(store, session, agent) as live:
        target = await find_ref(live, at)
        files = live.workspace(folder, ignore=ignore or [], respect_gitignore=not no_gitignore)
        report = await files.restore(at=target, dry_run=True)
        count = len(report.written) + len(report.removed) + len(report.modes)
        if format is Format.table:
            print_plan(report, Path(files.folder))
        if not dry_run and (count or conversation):
            if not report.changed or force:
                confirm(f"Change {format_count(count, 'file')} in {files.folder}?", yes=yes)
            if conversation:
                report = await live.restore(target, workspace=files, force=force)
            else:
                report = await files.restore(at=target, force=force)
    if format is Format.json:
        fields = {**location_fields(live.location), "folder": files.folder, "at": target}
        print_json({**fields, **report.to_json(), "restored": report.undo is not None})
    elif report.undo is not None:
        print_line(f"restored {format_count(count, 'file')} in {files.folder}")
        flags = {"--conversation": conversation, "--no-gitignore": no_gitignore}
        words = ["holdfast workspace restore", *(flag for flag, is_set in flags.items() if is_set)]
        words += [f"--ignore {quote(pattern)}" for pattern in ignore or []]
        options = {"at": str(report.undo), "folder": str(folder), "agent": live.agent_id}
        undo = format_command(" ".join(words), session, store=store, **options)
        print_line(f"undo with: {undo}")
    else:
        print_line(f"{format_count(count, 'file')} would change" if count else "nothing to change")


@command
async def diff(
    session: SessionArgument,
    before: Annotated[
        str | None,
        typer.Argument(
            metavar="BEFORE",
            help="A REF. Default: the last capture.",
            autocompletion=complete_ref,
        ),
    ] = None,
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="AFTER",
            help="A REF. Default: the folder as it is.",
            autocompletion=complete_ref,
        ),
    ] = None,
    folder: FolderOption = Path(),
    stat: Annotated[
        bool, typer.Option("--stat", help="Show which files differ, without text.")
    ] = False,
    ignore: IgnoreOption = None,
    no_gitignore: NoGitignoreOption = False,
    no_pager: NoPagerOption = False,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Show which files differ between two states of a session, or from the folder.

    Example: holdfast workspace diff ses_abc123 tag:turn=1 latest
    """
    async with open_session(store, session, agent) as live:
        files = live.workspace(folder, ignore=ignore or [], respect_gitignore=not no_gitignore)
        refs = [None if ref is None else await find_ref(live, ref) for ref in (before, after)]
        found = await files.diff(refs[0], refs[1], text=not stat)
    if format is Format.json:
        print_json({**count_kinds(found), "files": [each.to_json() for each in found.files]})
        return
    with use_pager(no_pager=no_pager):
        print_diff(found)


@command
async def export(
    session: SessionArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUTPUT",
            help="A new folder, or a file that ends with .tar, .tar.gz or .zip.",
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="REF",
            help="A snapshot id or prefix, an event number, latest or tag:k=v. Default: the head.",
            autocompletion=complete_ref,
        ),
    ] = None,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Write the files of a session to a new folder or an archive.

    Example: holdfast workspace export ses_abc123 --at latest --output repo.zip
    """
    async with open_session(store, session, agent) as live:
        target = None if at is None else await find_ref(live, at)
        count = await live.workspace(output).export(output, at=target)
    if format is Format.json:
        fields = {**location_fields(live.location), "at": target}
        print_json({**fields, "output": str(output), "files": count})
    else:
        print_line(f"wrote {format_count(count, 'file')} to {output}")


# --------------------------------------------------------------------------------------- output


def print_captured(report: CaptureReport) -> None:
    """Print what a capture found."""
    total = report.added + report.changed + report.unchanged
    print_line(
        f"captured {format_count(total, 'file')}, {report.size:,} bytes, at event {report.seq}: "
        f"{report.added:,} added, {report.changed:,} changed, {report.removed:,} removed"
    )
    print_skipped(report.skipped)


def print_skipped(skipped: Sequence[SkippedFile]) -> None:
    """Print the files that were not captured, and why."""
    for each in skipped[:MAX_LINES]:
        print_line((f"skipped {each.path}: {each.reason}", "yellow"))
    if len(skipped) > MAX_LINES:
        print_line((f"skipped {len(skipped) - MAX_LINES:,} more", "yellow"))


def print_plan(report: RestoreReport, folder: Path) -> None:
    """Print what a restore changes."""
    changed = set(report.changed)
    rows = [
        *((path, "changed") for path in (*report.written, *report.modes)),
        *((path, "removed") for path in report.removed),
    ]
    for path, kind in sorted(rows)[:MAX_LINES]:
        is_new = kind == "changed" and not os.path.lexists(folder / path)
        colour, sign = COLOURS["added" if is_new else kind]
        note = "  (changed since the last capture)" if path in changed else ""
        print_line((f"{sign} {path}{note}", colour))
    if len(rows) > MAX_LINES:
        print_line(f"  and {len(rows) - MAX_LINES:,} more")
    for path in report.kept[:MAX_LINES]:
        print_line((f"  {path} stays: the restored rules ignore it", "dim"))


def count_kinds(found: WorkspaceDiff) -> dict[str, int]:
    """Return how many files were added, removed and changed."""
    return {
        "added": len(found.added),
        "removed": len(found.removed),
        "changed": len(found.changed),
    }


def print_diff(found: WorkspaceDiff) -> None:
    """Print the files that differ, with their text diffs."""
    if not found:
        print_line(("no difference", "bold"))
        return
    counts = count_kinds(found)
    print_line((", ".join(f"{count:,} {kind}" for kind, count in counts.items()), "bold"))
    for each in found.files:
        colour, sign = COLOURS[each.kind]
        print_line((f"{sign} {each.path}  {describe_change(each)}", colour))
        for line in (each.text or "").split("\n")[:-1]:
            print_line((f"    {line}".rstrip(), SIGNS.get(line[:1], "dim")))


def describe_change(change: FileChange) -> str:
    """Return what changed, on one line."""
    before, after = change.before, change.after
    if before is None or after is None:
        return describe_file(after or before or FileEntry())
    parts = []
    if not before.has_content_of(after):
        parts.append(f"{describe_file(before)} → {describe_file(after)}")
    if before.mode != after.mode:
        parts.append(f"mode {before.mode:03o} → {after.mode:03o}")
    return ", ".join(parts)


def describe_file(entry: FileEntry) -> str:
    """Return the size of a file, or the target of a link."""
    return format_count(entry.size, "byte") if entry.link is None else f"link to {entry.link}"
