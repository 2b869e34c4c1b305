"""``holdfast state show``: what a document or a session is, at a glance."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    print_json,
    print_rows,
    tags_text,
)
from holdfast.cli.references import load
from holdfast.log.events import time_text
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import MESSAGES


@command
async def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FILE|ID", help="A file, a session, SESSION@SNAPSHOT or a snapshot."
        ),
    ],
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Show a document, or a session in the store, after checking all of it.

    Example: holdfast state show incident.json
    """
    (found,) = await load(store, name, agent_id=agent)
    if format is Format.json:
        print_json(found.to_dict())
    else:
        print_rows(rows(found))


def rows(found: SessionSnapshot) -> dict[str, object]:
    """What the table says of a document."""
    return {
        "schema_version": found.schema_version,
        "agent_id": found.agent_id,
        "session_id": found.session_id,
        "status": found.state.status,
        "messages": found.snapshot.count(MESSAGES),
        "event_log_count": found.event_log_count,
        "source_environment": found.source_environment or "-",
        "exported_at": time_text(found.exported_at) if found.exported_at else "-",
        "tags": tags_text(found.tags),
    }
