"""``holdfast state list``: agents, an agent's sessions, a session's snapshots."""

from __future__ import annotations

from shlex import quote
from typing import Annotated, Any, TypeAlias

import typer

from holdfast.cli.completion import complete_agent, complete_session
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    print_json,
    print_table,
    say,
    tags_text,
)
from holdfast.cli.references import existing_store, find_session, find_sessions
from holdfast.log.events import time_text
from holdfast.sessions.manager import SnapshotManager
from holdfast.snapshots.layout import SnapshotLocation

LIMIT = 50

Rows: TypeAlias = list[dict[str, Any]]
Page: TypeAlias = tuple[Rows, str | None]


@command
async def list_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="An agent: its sessions. Without one: all agents.",
            autocompletion=complete_agent,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            help="The snapshots of this session.",
            autocompletion=complete_session,
        ),
    ] = None,
    agent: AgentOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = LIMIT,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TOKEN", help="Go on where the page before ended."),
    ] = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """List agents, an agent's sessions, or a session's snapshots.

    Example: holdfast state list research-bot
    """
    if None not in (name, agent) and name != agent:
        raise typer.BadParameter(f"{name!r} was named already", param_hint="--agent")
    wanted = agent if name is None else name
    async with existing_store(store) as state_store:
        manager = SnapshotManager(state_store)
        if session is not None:
            location = await find_session(state_store, session, wanted)
            rows, token = await snapshots(manager, location, limit, after)
        elif wanted is not None:
            rows, token = await sessions(manager, wanted, limit, after)
        else:
            rows, token = await agents(manager, limit, after)
    show(rows, token, format)


async def snapshots(
    manager: SnapshotManager, location: SnapshotLocation, limit: int, after: str | None
) -> Page:
    """The snapshots of a session, and where to go on."""
    page = await manager.archive.list_snapshots(location=location, limit=limit, next_token=after)
    rows: Rows = [
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
    return rows, page.next_token


async def sessions(manager: SnapshotManager, agent_id: str, limit: int, after: str | None) -> Page:
    """The sessions of an agent, and where to go on."""
    page = await manager.catalog.sessions(agent_id, limit=limit, next_token=after)
    if not page.sessions and after is None:
        await find_sessions(manager.state_store, None, agent_id)
    rows: Rows = [
        {
            "session_id": entry.session_id,
            "scope": entry.scope,
            "started_at": time_text(entry.started_at),
        }
        for entry in page.sessions
    ]
    return rows, page.next_token


async def agents(manager: SnapshotManager, limit: int, after: str | None) -> Page:
    """All agents, and where to go on."""
    names = await manager.catalog.agents(limit=limit + 1, start_after=after or "")
    rows = [await agent_row(manager, each) for each in names[:limit]]
    return rows, names[limit - 1] if len(names) > limit else None


async def agent_row(manager: SnapshotManager, agent_id: str) -> dict[str, Any]:
    """What the list says of an agent."""
    latest = await manager.catalog.latest_session(agent_id)
    return {
        "agent_id": agent_id,
        "latest_session": latest.session_id if latest else "-",
        "started_at": time_text(latest.started_at) if latest else "-",
    }


def show(rows: Rows, token: str | None, format_: Format) -> None:
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
        say(f"more: --after {quote(token)}")
