"""``holdfast state list``: sessions, a session's snapshots, agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Annotated, Any

import typer

from holdfast.cli.completion import complete_agent, complete_session
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    err,
    print_json,
    say,
)
from holdfast.cli.filters import (
    SinceOption,
    StatusOption,
    TagFilterOption,
    UnfinishedOption,
    read_filter,
)
from holdfast.cli.references import existing_store, find_session, find_sessions
from holdfast.cli.tables import (
    Cell,
    Column,
    minute_text,
    print_table,
    short_ids,
    size_text,
    tags_text,
)
from holdfast.log.event import format_time
from holdfast.snapshots.catalog.summary import SessionSummary, summarize_sessions
from holdfast.snapshots.filters import ListingFilter
from holdfast.snapshots.keys import AGENT, SnapshotLocation, location_fields
from holdfast.snapshots.records import SnapshotInfo
from holdfast.transfer.manager import SnapshotManager

LIMIT = 50
MOST_COMPARED = 1000
"""Where a session has more snapshots, their ids are not shortened: that would need them all."""
SESSION_COLUMNS = (
    Column("agent_id", least=8),
    Column("session_id", least=12),
    Column("scope", optional=True),
    Column("status"),
    Column("last activity", rank=1),
    Column("messages", rank=2, right=True),
    Column("size", rank=2, right=True),
    Column("unfinished", rank=3, right=True, optional=True),
    Column("tags", rank=4, least=20, optional=True),
)
SNAPSHOT_COLUMNS = (
    Column("snapshot_id", least=13),
    Column("created_at", rank=1),
    Column("status"),
    Column("messages", rank=2, right=True),
    Column("events", rank=3, right=True),
    Column("tags", rank=1, least=12, optional=True),
)
AGENT_COLUMNS = (
    Column("agent_id", least=8),
    Column("latest_session", least=12),
    Column("last activity", rank=1),
)


@command
async def list_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="An agent: its sessions. Without one: of all agents.",
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
    agents: Annotated[
        bool, typer.Option("--agents", help="The agents, each with its latest session.")
    ] = False,
    status: StatusOption = None,
    tag: TagFilterOption = None,
    since: SinceOption = None,
    unfinished: UnfinishedOption = False,
    agent: AgentOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = LIMIT,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TOKEN", help="Go on where the page before ended."),
    ] = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """List sessions, newest first, or the snapshots of one session, oldest first.

    Example: holdfast state list research-bot --status failed --since 2d
    """
    if None not in (name, agent) and name != agent:
        raise typer.BadParameter(f"{name!r} was named already", param_hint="--agent")
    owner = agent if name is None else name
    wanted = read_filter(status, tag, since, unfinished=unfinished)
    if agents and (wanted or owner is not None or session is not None):
        raise typer.BadParameter("it lists all agents, and takes no filter", param_hint="--agents")
    async with existing_store(store) as state_store:
        manager = SnapshotManager(state_store)
        if agents:
            listing = await list_agents(manager, limit, after)
        elif session is not None:
            location = await find_session(state_store, session, owner)
            listing = await list_snapshots(manager, location, wanted, limit, after)
        else:
            if owner is not None and await manager.catalog.latest_session(owner) is None:
                await find_sessions(state_store, None, owner)
            listing = await list_sessions(manager, owner, wanted, limit, after)
    if format is Format.json:
        print_json({"items": listing.items, "next_token": listing.next_token})
        return
    print_table(listing.columns, listing.rows, "nothing matches" if wanted else "nothing here yet")
    for problem in listing.problems:
        say(("unreadable:", "red"), f" {problem}", to=err)
    if listing.next_token is not None:
        say(f"more: --after {quote(listing.next_token)}")


@dataclass(frozen=True, slots=True)
class Listing:
    """A page: as JSON and as a table."""

    items: list[dict[str, Any]]
    columns: Sequence[Column]
    rows: list[list[Cell]]
    next_token: str | None
    problems: list[str] = field(default_factory=list)


async def list_sessions(
    manager: SnapshotManager,
    agent_id: str | None,
    wanted: ListingFilter,
    limit: int,
    after: str | None,
) -> Listing:
    """List the sessions of an agent, or of all agents."""
    page = await summarize_sessions(
        manager.catalog,
        agent_ids=None if agent_id is None else [agent_id],
        wanted=wanted,
        limit=limit,
        next_token=after,
    )
    first = 0 if agent_id is None else 1  # the agent is known where it was named
    return Listing(
        [summary_json(each) for each in page.sessions],
        SESSION_COLUMNS[first:],
        [summary_row(each)[first:] for each in page.sessions],
        page.next_token,
        [each.problem for each in page.sessions if each.problem is not None],
    )


def summary_json(each: SessionSummary) -> dict[str, Any]:
    """Return what a program is told of a session."""
    found: dict[str, Any] = {
        **location_fields(each.location),
        "status": each.status,
        "started_at": format_time(each.started_at),
        "active_at": format_time(each.active_at),
        "messages": each.message_count,
        "events": each.event_count,
        "size_bytes": each.size_bytes,
        "unfinished_calls": len(each.unfinished),
        "tags": each.tags,
    }
    return found if each.problem is None else {**found, "problem": each.problem}


def summary_row(each: SessionSummary) -> list[Cell]:
    """Return what a person is told of a session."""
    is_read = each.problem is None
    return [
        each.agent_id,
        each.session_id,
        "" if each.scope == AGENT else each.scope,
        each.status if is_read else "unreadable",
        minute_text(each.active_at),
        each.message_count if is_read else "-",
        size_text(each.size_bytes) if is_read else "-",
        len(each.unfinished) or "-",
        tags_text(each.tags),
    ]


async def list_snapshots(
    manager: SnapshotManager,
    location: SnapshotLocation,
    wanted: ListingFilter,
    limit: int,
    after: str | None,
) -> Listing:
    """List the snapshots of a session."""
    page = await manager.archive.list_snapshots(
        location=location,
        limit=limit,
        next_token=after,
        status=wanted.statuses,
        tags=wanted.tags,
        since=wanted.since,
        unfinished=wanted.unfinished,
    )
    known = await manager.archive.list_snapshot_ids(location=location, limit=MOST_COMPARED + 1)
    ids = page.snapshot_ids
    names = short_ids(ids, known) if len(known) <= MOST_COMPARED else ids
    return Listing(
        [snapshot_json(info, location) for info in page.snapshots],
        SNAPSHOT_COLUMNS,
        [
            [
                (info.snapshot_id, short),
                minute_text(info.created_at),
                info.status,
                info.message_count,
                info.event_log_count,
                tags_text(info.tags),
            ]
            for info, short in zip(page.snapshots, names, strict=True)
        ],
        page.next_token,
    )


def snapshot_json(info: SnapshotInfo, location: SnapshotLocation) -> dict[str, Any]:
    """Return what a program is told of a snapshot."""
    return {
        **location_fields(location),
        "snapshot_id": info.snapshot_id,
        "created_at": format_time(info.created_at),
        "status": info.status,
        "messages": info.message_count,
        "events": info.event_log_count,
        "size_bytes": info.size_bytes,
        "unfinished": info.unfinished,
        "tags": info.tags,
    }


async def list_agents(manager: SnapshotManager, limit: int, after: str | None) -> Listing:
    """List all agents, each with the session that it was active in last."""
    names = await manager.catalog.agents(limit=limit + 1, start_after=after or "")
    items: list[dict[str, Any]] = []
    rows: list[list[Cell]] = []
    for name in names[:limit]:
        latest = await manager.catalog.latest_session(name)
        if latest is not None:  # it was deleted otherwise
            at = latest.active_at
            items.append(
                {
                    "agent_id": name,
                    "latest_session": latest.session_id,
                    "scope": latest.scope,
                    "active_at": format_time(at),
                }
            )
            rows.append([name, latest.session_id, minute_text(at)])
    return Listing(items, AGENT_COLUMNS, rows, names[limit - 1] if len(names) > limit else None)
