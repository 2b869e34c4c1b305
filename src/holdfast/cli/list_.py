"""``holdfast state list``: list sessions, snapshots or agents."""

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
    err,
    print_json,
    print_line,
    viewing_command,
)
from holdfast.cli.filters import (
    SinceOption,
    StatusOption,
    TagFilterOption,
    UnfinishedOption,
    parse_filter,
)
from holdfast.cli.references import find_session, find_sessions, open_existing_store
from holdfast.cli.tables import (
    Cell,
    Column,
    format_minute,
    format_size,
    format_tags,
    print_table,
    shorten_ids,
)
from holdfast.log.event import format_time
from holdfast.snapshots.catalog.summary import SessionSummary, summarize_sessions
from holdfast.snapshots.filters import ListingFilter
from holdfast.snapshots.keys import AGENT, SnapshotLocation, location_fields
from holdfast.snapshots.records import SnapshotInfo
from holdfast.transfer.manager import SnapshotManager

LIMIT = 50
MAX_COMPARED = 1000
"""Snapshots of a session up to which ids are shortened, since that needs all of them."""
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


@viewing_command
async def list_(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="AGENT",
            help="List only this agent's sessions.",
            autocompletion=complete_agent,
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            help="List the snapshots of this session.",
            autocompletion=complete_session,
        ),
    ] = None,
    agents: Annotated[
        bool, typer.Option("--agents", help="List agents with their latest session.")
    ] = False,
    status: StatusOption = None,
    tag: TagFilterOption = None,
    since: SinceOption = None,
    unfinished: UnfinishedOption = False,
    agent: AgentOption = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="List at most N.")
    ] = LIMIT,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TOKEN", help="Continue after a previous page."),
    ] = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """List sessions, newest first, or the snapshots of one session, oldest first.

    Example: holdfast state list research-bot --status failed --since 2d
    """
    if None not in (name, agent) and name != agent:
        raise typer.BadParameter(f"conflicts with {name!r}", param_hint="--agent")
    owner = agent if name is None else name
    wanted = parse_filter(status, tag, since, unfinished=unfinished)
    if agents and (wanted or owner is not None or session is not None):
        raise typer.BadParameter(
            "cannot be combined with an agent, a session or filters", param_hint="--agents"
        )
    async with open_existing_store(store) as state_store:
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
    nothing = "no sessions" if session is None else "no snapshots"
    print_table(listing.columns, listing.rows, "no matches" if wanted else nothing)
    for problem in listing.problems:
        print_line(("unreadable:", "red"), f" {problem}", to=err)
    if listing.next_token is not None:
        print_line(f"more: --after {quote(listing.next_token)}")


@dataclass(frozen=True, slots=True)
class Listing:
    """A page, as JSON and as a table."""

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
    first = 0 if agent_id is None else 1  # no column for an agent that was given
    return Listing(
        [session_to_json(each) for each in page.sessions],
        SESSION_COLUMNS[first:],
        [session_to_row(each)[first:] for each in page.sessions],
        page.next_token,
        [each.problem for each in page.sessions if each.problem is not None],
    )


def session_to_json(each: SessionSummary) -> dict[str, Any]:
    """Return a session as JSON data."""
    found = {**each.to_json(), "messages": each.message_count, "events": each.event_count}
    return found if each.problem is None else {**found, "problem": each.problem}


def session_to_row(each: SessionSummary) -> list[Cell]:
    """Return a session as a table row."""
    is_read = each.problem is None
    return [
        each.agent_id,
        each.session_id,
        "" if each.scope == AGENT else each.scope,
        each.status if is_read else "unreadable",
        format_minute(each.active_at),
        each.message_count if is_read else "-",
        format_size(each.size_bytes) if is_read else "-",
        len(each.unfinished) or "-",
        format_tags(each.tags),
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
    known = await manager.archive.list_snapshot_ids(location=location, limit=MAX_COMPARED + 1)
    ids = page.snapshot_ids
    names = shorten_ids(ids, known) if len(known) <= MAX_COMPARED else ids
    return Listing(
        [snapshot_to_json(info, location) for info in page.snapshots],
        SNAPSHOT_COLUMNS,
        [
            [
                (info.snapshot_id, short),
                format_minute(info.created_at),
                info.status,
                info.message_count,
                info.event_log_count,
                format_tags(info.tags),
            ]
            for info, short in zip(page.snapshots, names, strict=True)
        ],
        page.next_token,
    )


def snapshot_to_json(info: SnapshotInfo, location: SnapshotLocation) -> dict[str, Any]:
    """Return a snapshot as JSON data."""
    return {
        **info.to_json(),
        **location_fields(location),
        "messages": info.message_count,
        "events": info.event_log_count,
    }


async def list_agents(manager: SnapshotManager, limit: int, after: str | None) -> Listing:
    """List agents with their latest session."""
    names = await manager.catalog.agents(limit=limit + 1, start_after=after or "")
    items: list[dict[str, Any]] = []
    rows: list[list[Cell]] = []
    for name in names[:limit]:
        latest = await manager.catalog.latest_session(name)
        if latest is not None:  # else it was deleted concurrently
            at = latest.active_at
            items.append(
                {
                    "agent_id": name,
                    "latest_session": latest.session_id,
                    "scope": latest.scope,
                    "active_at": format_time(at),
                }
            )
            rows.append([name, latest.session_id, format_minute(at)])
    return Listing(items, AGENT_COLUMNS, rows, names[limit - 1] if len(names) > limit else None)
