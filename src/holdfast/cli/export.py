"""``holdfast state export``: a session as one JSON file."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.cli.console import StoreOption, command, err, read_tags
from holdfast.sessions.manager import SnapshotManager
from holdfast.snapshots import document, document_files
from holdfast.stores.opening import open_state_store


@command
async def export(
    agent: Annotated[str, typer.Argument(help="The agent whose session it is.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for here.")
    ],
    session: Annotated[
        str | None, typer.Option("--session", help="The session; the agent's latest without it.")
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", help="A snapshot of it; how it is now without it.")
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
    if output != "-":
        document_files.check_writable(output)
    redaction = None
    if redact or redact_path:
        from holdfast.sessions.redaction import Redactor  # noqa: PLC0415 - needs an extra

        redaction = Redactor(patterns=redact, paths=redact_path or ()).redacted
    async with open_state_store(store) as state_store:
        manager = SnapshotManager(state_store)
        found = await manager.export_session(
            agent, session, snapshot_id=snapshot, tags=tags, redact=redaction
        )
    if output == "-":
        for chunk in document.chunks(found.to_dict()):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        return
    manager.to_file(found, output)
    err.print(
        f"{output}: {found.snapshot.count('messages')} messages, {found.event_log_count} events of "
        f"{found.agent_id}/{found.session_id}"
    )
