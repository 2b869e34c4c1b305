"""``holdfast state export --as claude-code``: write a session as a transcript of Claude Code.

The transcripts of its sub-agents are written as Claude Code stores them, in a folder beside it:

    <name>.jsonl
    <name>/subagents/agent-<id>.jsonl, agent-<id>.meta.json
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import typer

from holdfast.adapters.claude_location import subagent_prefix_of
from holdfast.adapters.claude_transcript import (
    encode_transcript,
    split_metadata,
    to_transcript,
    write_lines,
)
from holdfast.cli.console import err, format_count, print_line, write_bytes
from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.transfer.manager import Redaction, SnapshotManager

CLAUDE_CODE = "claude-code"


def require_transcript_format(name: str, *, is_signed: bool) -> None:
    """Fail unless a format is that of Claude Code, which has no signatures."""
    if name != CLAUDE_CODE:
        raise typer.BadParameter(f"{name!r} must be {CLAUDE_CODE}", param_hint="--as")
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
                each.scope_id, each.session_id, scope=each.scope, redact=redact
            )
            found.append((each.scope_id[len(prefix) :], document))
    return found


def write_transcripts(
    document: Document, subagents: Sequence[tuple[str, Document]], output: str
) -> None:
    """Write the transcript of a session, and those of its sub-agents beside it."""
    entries = to_transcript(document)
    if output == "-":
        write_bytes([encode_transcript(entries)])
        return
    target = Path(output)
    write_lines(entries, target)
    for subpath, each in subagents:
        metadata, lines = split_metadata(to_transcript(each))
        place = target.with_suffix("").joinpath(*validate_subpath(subpath).parts)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_lines(lines, place.with_name(f"{place.name}.jsonl"))
        if metadata is not None:
            text = json.dumps({name: metadata[name] for name in metadata if name != "type"})
            place.with_name(f"{place.name}.meta.json").write_text(text, encoding="utf-8")
    print_line(
        f"{output}: {format_count(len(entries), 'entry')} of "
        f"{document.agent_id}/{document.session_id}"
        + (f", {format_count(len(subagents), 'sub-agent')}" if subagents else ""),
        to=err,
    )


def validate_subpath(subpath: str) -> PurePosixPath:
    """Return the path of a sub-agent's transcript in the folder of its session.

    Raises:
        InvalidDocumentError: It would lead out of the folder.

    """
    path = PurePosixPath(subpath)
    if path.is_absolute() or "\\" in subpath or ":" in subpath or ".." in path.parts:
        raise InvalidDocumentError(f"sub-agent path {subpath!r} leads out of the session's folder")
    return path
