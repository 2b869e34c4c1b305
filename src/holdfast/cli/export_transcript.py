"""``holdfast state export --as claude-code``: write a session as a transcript of Claude Code.

The transcripts of its sub-agents are written as Claude Code stores them, in a folder beside it:

    <name>.jsonl
    <name>/subagents/agent-<id>.jsonl, agent-<id>.meta.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from holdfast.adapters.claude_location import subagent_prefix_of
from holdfast.adapters.claude_transcript import (
    split_metadata,
    to_transcript,
    write_lines,
)
from holdfast.cli.console import err, format_count, print_line
from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.transfer.manager import Redaction, SnapshotManager

CLAUDE_CODE = "claude-code"


def require_transcript_format(name: str, file: str | None, *, is_signed: bool) -> None:
    """Fail unless a format is that of Claude Code, which has no signatures, and so is its file."""
    if name != CLAUDE_CODE:
        raise typer.BadParameter(f"{name!r} must be {CLAUDE_CODE}", param_hint="--as")
    if file is not None and Path(file).suffix != ".jsonl":
        raise typer.BadParameter(
            f"{file!r} must end with .jsonl, as Claude Code names transcripts",
            param_hint="--output",
        )
    if is_signed:
        raise typer.BadParameter("a transcript cannot be signed; omit --sign", param_hint="--sign")


async def export_subagents(
    manager: SnapshotManager, location: SnapshotLocation, *, redact: Redaction | None
) -> list[tuple[str, Document]]:
    """Return the documents of a session's sub-agents, with their paths in its folder."""
    prefix = subagent_prefix_of(location.scope_id)
    found = []
    for each in await manager.catalog.locations(location.session_id):
        if each.scope == AGENT and each.scope_id.startswith(prefix):
            document = await manager.export_session(
                each.scope_id,
                each.session_id,
                scope=each.scope,
                redact=redact,
                attachments="folder",
            )
            found.append((each.scope_id[len(prefix) :], document))
    return found


def write_transcripts(
    document: Document, subagents: Sequence[tuple[str, Document]], output: str
) -> None:
    """Write the transcript of a session, and those of its sub-agents beside it."""
    entries = to_transcript(document)
    target = Path(output)
    places = [target.with_suffix("") / validate_subpath(subpath) for subpath, _ in subagents]
    write_lines(entries, target)
    for place, (_, each) in zip(places, subagents, strict=True):
        metadata, lines = split_metadata(to_transcript(each))
        place.parent.mkdir(parents=True, exist_ok=True)
        write_lines(lines, place.with_name(f"{place.name}.jsonl"))
        if metadata is not None:
            fields = {name: metadata[name] for name in metadata if name != "type"}
            write_lines([fields], place.with_name(f"{place.name}.meta.json"))
    print_line(
        f"{output}: {format_count(len(entries), 'entry')} of "
        f"{document.agent_id}/{document.session_id}"
        + (f", {format_count(len(subagents), 'sub-agent')}" if subagents else ""),
        to=err,
    )


def validate_subpath(subpath: str) -> str:
    """Return the path of a sub-agent's transcript in the folder of its session.

    Raises:
        InvalidDocumentError: It is not a plain path, and may lead out of the folder.

    """
    parts = subpath.split("/")
    if any(each in ("", ".", "..") for each in parts) or set(subpath) & set("\\:\0"):
        raise InvalidDocumentError(
            f"sub-agent path {subpath!r} leads out of the session's folder, or is not a plain "
            "path; export without sub-agents to stdout: --output -"
        )
    return subpath
