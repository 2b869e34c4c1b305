"""The tool ``diff``: what differs between two states."""

from __future__ import annotations

from holdfast.documents.json_diff import Difference, diff_states
from holdfast.mcp_server.access import Access
from holdfast.mcp_server.arguments import DiffArguments
from holdfast.mcp_server.cursors import decode_cursor, encode_cursor
from holdfast.mcp_server.excerpts import MAX_RESULT, clip_text, to_json_text
from holdfast.mcp_server.results import DiffEntry, DiffPage
from holdfast.mcp_server.services import Services, StateRef
from holdfast.mcp_server.writes import describe_ref
from holdfast.snapshots.event_state import load_state, load_states
from holdfast.state.snapshot import Snapshot
from holdfast.stores.local import run_in_thread


async def diff(services: Services, access: Access, arguments: DiffArguments) -> DiffPage:
    """Compare two states of a session, or of two sessions.

    Raises:
        AccessError: The caller may not use one of the agents.
        NotFoundError: There is no such session, snapshot or event.
        InvalidCursorError: The cursor is not from a page of a diff.

    """
    start = 0 if arguments.cursor is None else max(0, decode_cursor(arguments.cursor, int))
    to_agent = arguments.agent if arguments.to_agent is None else arguments.to_agent
    to_session = arguments.session if arguments.to_session is None else arguments.to_session
    first = await services.locate(access, arguments.agent, arguments.session)
    second = await services.locate(access, to_agent, to_session)
    before = await services.resolve(first, arguments.from_)
    after = await services.resolve(second, arguments.to)
    states = await load_both(services, before, after)
    return await run_in_thread(describe_diff, before, after, *states, start, arguments.limit)


async def load_both(
    services: Services, before: StateRef, after: StateRef
) -> tuple[Snapshot, Snapshot]:
    """Load two states; those of one session share what they have in common."""
    archive = services.archive
    if before.location == after.location:
        return await load_states(archive, before.location, before.at, after.at)
    return (
        await load_state(archive, before.location, before.at),
        await load_state(archive, after.location, after.at),
    )


def describe_diff(
    before: StateRef, after: StateRef, base: Snapshot, later: Snapshot, start: int, limit: int
) -> DiffPage:
    """Return one page of the entries that differ."""
    found = diff_states(later, base)
    counts = dict.fromkeys(("added", "removed", "changed"), 0)
    for each in found:
        counts[each.kind] += 1
    entries: list[DiffEntry] = []
    size = 0
    for each in found[start : start + limit]:
        entry = describe_entry(each)
        size += len(entry.key) + len(entry.before or "") + len(entry.after or "")
        if entries and size > MAX_RESULT:
            break
        entries.append(entry)
    end = start + len(entries)
    return DiffPage.model_validate(
        {
            "from": describe_ref(before),
            "to": describe_ref(after),
            **counts,
            "entries": entries,
            "next_cursor": encode_cursor(end) if entries and end < len(found) else None,
        }
    )


def describe_entry(each: Difference) -> DiffEntry:
    """Return one entry that differs."""
    return DiffEntry(
        namespace=each.namespace,
        key=clip_text(each.key),
        kind=each.kind,  # type: ignore[arg-type] # one of the three
        before=None if each.kind == "added" else clip_text(to_json_text(each.before)),
        after=None if each.kind == "removed" else clip_text(to_json_text(each.after)),
    )
