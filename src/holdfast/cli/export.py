"""``holdfast state export``: a session as one JSON file."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.console import StoreOption, command, err, fail, read_tags, say, write_bytes
from holdfast.cli.references import existing_store
from holdfast.errors import StateStoreError
from holdfast.sessions.manager import Redaction, SnapshotManager
from holdfast.snapshots import document, document_files


@command
async def export(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent whose session it is.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for here.")
    ],
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="SESSION", help="The session; the agent's latest without it."
        ),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot", metavar="SNAPSHOT", help="A snapshot of it; how it is now without it."
        ),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="K=V", help="Added to the tags.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Take secrets, emails and phone numbers out.")
    ] = False,
    redact_path: Annotated[
        list[str] | None,
        typer.Option(
            "--redact-path", metavar="PATH", help="Take this out too, as in values.customer.name."
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a session with its events as one JSON file that stands alone.

    Example: holdfast state export research-bot --tag reason=incident --output incident.json.gz
    """
    tags = read_tags(tag)
    check_output(output)
    redaction = redactor(patterns=redact, paths=redact_path or [])
    async with existing_store(store) as state_store:
        manager = SnapshotManager(state_store)
        found = await manager.export_session(
            agent, session, snapshot_id=snapshot, tags=tags, redact=redaction
        )
    if output == "-":
        write_bytes(document.chunks(found.to_dict()))
        return
    manager.to_file(found, output)
    taken = sum(each["count"] for each in found.extra["redactions"]) if redaction else 0
    say(
        f"{output}: {found.snapshot.count('messages')} messages, {found.event_log_count} events of "
        f"{found.agent_id}/{found.session_id}" + (f", {taken} redactions" if redaction else ""),
        to=err,
    )


def check_output(output: str) -> None:
    """Refuse what cannot be written before any work is done for it."""
    if output == "-":
        return
    try:
        document_files.check_writable(output)
    except StateStoreError as error:
        fail(str(error), "choose another --output, or - for the standard output")


def redactor(*, patterns: bool, paths: list[str]) -> Redaction | None:
    """What takes out of the document what must not leave, if anything must not."""
    if not patterns and not paths:
        return None
    from holdfast.sessions.redaction import Redactor  # noqa: PLC0415 - used by few

    try:
        return Redactor(patterns=patterns, paths=paths).redacted
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--redact-path") from None
