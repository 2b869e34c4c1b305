"""``holdfast state list``: agents, an agent's sessions, a session's snapshots."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    out,
    print_json,
    print_table,
    tags_text,
)
from holdfast.cli.references import find_session
from holdfast.errors import NotFoundError
from holdfast.log.events import time_text
from holdfast.sessions.manager import SnapshotManager, near
from holdfast.stores.opening import open_state_store

LIMIT = 50


@command
async def list_(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[AGENT]", help="An agent: its sessions. Without one: all agents."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", help="The snapshots of this session.")
    ] = None,
    agent: AgentOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = LIMIT,
    after: Annotated[
        str | None, typer.Option("--after", help="Go on after this token of the page before.")
    ] = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """List agents, an agent's sessions, or a session's snapshots.

    Example: holdfast state list research-bot
    """
    async with open_state_store(store) as state_store:
        manager = SnapshotManager(state_store)
        if session is not None:
            location = await find_session(state_store, session, agent or name)
            page = await manager.archive.list_snapshots(
                location=location, limit=limit, next_token=after
            )
            rows = [
                {
                    "snapshot_id": info.snapshot_id,
                    "created_at": time_text(info.created_at),
                    "status": info.status,
                    "messages": info.message_count,
                    "events": info.event_log_count,
                    "tags": info.tags,
                }
                for info in page.snapshots
            ]
            token = page.next_token
        elif name is not None:
            sessions = await manager.catalog.sessions(name, limit=limit, next_token=after)
            if not sessions.sessions and after is None:
                agents = await manager.catalog.agents(limit=1000)
                raise NotFoundError(f"there is no agent {name!r} in this store{near(name, agents)}")
            rows = [
                {
                    "session_id": entry.session_id,
                    "scope": entry.scope,
                    "started_at": time_text(entry.started_at),
                }
                for entry in sessions.sessions
            ]
            token = sessions.next_token
        else:
            names = await manager.catalog.agents(limit=limit + 1, start_after=after or "")
            token = names[limit - 1] if len(names) > limit else None
            rows = [await agent_row(manager, each) for each in names[:limit]]
    show(rows, token, format)


async def agent_row(manager: SnapshotManager, agent_id: str) -> dict[str, Any]:
    """What the list says of an agent."""
    latest = await manager.catalog.latest_session(agent_id)
    return {
        "agent_id": agent_id,
        "latest_session": latest.session_id if latest else "-",
        "started_at": time_text(latest.started_at) if latest else "-",
    }


def show(rows: list[dict[str, Any]], token: str | None, format_: Format) -> None:
    """The rows, and how to go on."""
    if format_ is Format.json:
        print_json({"items": rows, "next_token": token})
        return
    shown = [
        [tags_text(cell) if isinstance(cell, dict) else cell for cell in row.values()]
        for row in rows
    ]
    print_table(list(rows[0]) if rows else [], shown, "nothing here yet")
    if token is not None:
        out.print(f"more: --after {token}")
