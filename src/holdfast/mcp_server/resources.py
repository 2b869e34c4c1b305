"""Sessions and snapshots as resources: JSON documents of bounded size.

The messages of a long session are shown from the last one back, as many as fit; ``earlier`` is the
URI of those before.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import NotFoundError, short_repr
from holdfast.log.event import format_time
from holdfast.mcp_server.access import Access
from holdfast.mcp_server.arguments import ListArguments
from holdfast.mcp_server.cursors import InvalidCursorError
from holdfast.mcp_server.excerpts import fit_last_messages, fit_values, list_message_keys
from holdfast.mcp_server.listing import list_checkpoints
from holdfast.mcp_server.services import Services
from holdfast.mcp_server.uris import ResourceUri, parse_uri
from holdfast.snapshots.catalog.index import SessionEntry
from holdfast.snapshots.catalog.listing import list_session_page
from holdfast.snapshots.event_state import find_head, load_state
from holdfast.snapshots.keys import SnapshotLocation, location_fields
from holdfast.snapshots.session_state import SessionState, message_number
from holdfast.state.snapshot import Snapshot
from holdfast.stores.local import run_in_thread

MIME_TYPE = "application/json"
PAGE_SIZE = 50
"""Sessions in one page of a list."""
NEWEST_CHECKPOINTS = 10
MAX_VALUES = 30_000
MAX_MESSAGES = 60_000
"""Characters of the values and of the messages in one resource."""
MAX_ENTRY = 10_000
"""Characters of one value or message; a longer one is shortened."""


async def list_sessions(
    services: Services, access: Access, cursor: str | None
) -> tuple[list[SessionEntry], str | None]:
    """Return a page of the sessions that the caller may read, the last active first.

    Raises:
        InvalidCursorError: The cursor is not from a page of this list.

    """
    agents = None if access.agents is None else sorted(access.agents)
    try:
        return await list_session_page(
            services.catalog, agent_ids=agents, limit=PAGE_SIZE, next_token=cursor
        )
    except ValueError:
        raise InvalidCursorError(str(cursor)) from None


async def read_resource(services: Services, access: Access, uri: str) -> str:
    """Return the JSON text of a resource.

    Raises:
        AccessError: The caller may not use this agent.
        NotFoundError: There is no such resource.

    """
    named = parse_uri(uri)
    if named.session is None:
        tree = await read_agent(services, access, named.agent)
    else:
        location = await services.locate(access, named.agent, named.session)
        if named.snapshot is None:
            tree = await read_session(services, access, location, named)
        else:
            tree = await read_snapshot(services, location, named, named.snapshot)
    return msgspec.json.format(msgspec.json.encode(tree), indent=2).decode()


async def read_agent(services: Services, access: Access, agent_id: str) -> dict[str, Any]:
    """Return the newest sessions of an agent."""
    await services.locate(access, agent_id)
    entries, token = await list_session_page(
        services.catalog, agent_ids=[agent_id], limit=PAGE_SIZE
    )
    return {
        "agent": agent_id,
        "sessions": [
            {
                "session": entry.session_id,
                "scope": entry.scope,
                "active_at": format_time(entry.active_at),
                "uri": str(ResourceUri(agent_id, entry.session_id)),
            }
            for entry in entries
        ],
        "truncated": token is not None,
    }


async def read_session(
    services: Services, access: Access, location: SnapshotLocation, named: ResourceUri
) -> dict[str, Any]:
    """Return a session at its head."""
    timeline = await services.archive.timeline(location=location)
    state = await load_state(services.archive, location, None)
    newest = await list_checkpoints(
        services,
        access,
        ListArguments(agent=named.agent, session=named.session, limit=NEWEST_CHECKPOINTS),
    )
    checkpoints = [
        {
            "snapshot": each.snapshot,
            "seq": each.seq,
            "created_at": each.created_at,
            "tags": each.tags,
            "uri": str(ResourceUri(named.agent, named.session, each.snapshot)),
        }
        for each in newest.checkpoints
    ]
    return {
        **location_fields(location),
        "seq": await find_head(timeline),
        **await run_in_thread(describe_state, state, named),
        "newest_checkpoints": checkpoints,
    }


async def read_snapshot(
    services: Services, location: SnapshotLocation, named: ResourceUri, snapshot_id: str
) -> dict[str, Any]:
    """Return a session at a snapshot."""
    found = await services.archive.load_snapshot(location=location, snapshot_id=snapshot_id)
    if found is None:
        raise NotFoundError(
            f"session {location.session_id} of {location.scope_id} has no checkpoint "
            f"{short_repr(snapshot_id)}"
        )
    info = found.info()
    return {
        **location_fields(location),
        "snapshot_id": info.snapshot_id,
        "parent_id": info.parent_id,
        "seq": info.seq,
        "created_at": format_time(info.created_at),
        "tags": info.tags,
        **await run_in_thread(describe_state, found.snapshot, named),
    }


def describe_state(state: Snapshot, named: ResourceUri) -> dict[str, Any]:
    """Return the values of a state and its last messages, as many as fit."""
    keys = list_message_keys(state)
    shown = keys if named.before is None else [key for key in keys if is_before(key, named.before)]
    messages = fit_last_messages(state, shown, MAX_MESSAGES, MAX_ENTRY)
    values = fit_values(state, MAX_VALUES, MAX_ENTRY)
    earlier = None
    if messages.omitted:
        first = message_number(messages.kept[0][0])
        earlier = str(ResourceUri(named.agent, named.session, named.snapshot, first))
    return {
        "status": SessionState(state).status,
        "size_bytes": state.size_bytes,
        "namespaces": state.namespaces(),
        "values": dict(values.kept),
        "values_omitted": values.omitted,
        "message_count": len(keys),
        "messages": [
            {"number": message_number(key), "message": message} for key, message in messages.kept
        ],
        "earlier": earlier,
    }


def is_before(key: str, number: int) -> bool:
    """Tell whether a message comes before a number."""
    found = message_number(key)
    return found is not None and found < number
