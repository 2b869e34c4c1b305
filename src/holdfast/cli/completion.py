"""Shell completion of agents, sessions, snapshots and formats.

A shell waits for the answer, and shows whatever a program prints. So nothing is printed but names,
a store that does not answer soon is given up, a store that does not exist is not created, and
whatever goes wrong means that nothing is offered.
"""

from __future__ import annotations

import asyncio
import string
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import typer

from holdfast.cli.names import LATEST, TAG, default_url, store_exists
from holdfast.cli.output import discard
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store
from holdfast.stores.urls import StoreURL

MAX_CANDIDATES = 100
MAX_TAGGED = 20
SECONDS = 2.0
# Characters that keys do not escape, in order.
ORDER = "-." + string.digits + string.ascii_uppercase + "_" + string.ascii_lowercase + "~"

Lookup = Callable[[StateStore], Awaitable[list[str]]]


def complete_agent(context: typer.Context, incomplete: str) -> list[str]:
    """Complete agent ids."""
    return query_store(context, lambda store: find_agents(store, incomplete))


def complete_session(context: typer.Context, incomplete: str) -> list[str]:
    """Complete session ids, of ``--agent`` if given."""
    return query_store(context, lambda store: find_ids(store, incomplete, typed_agent(context)))


def complete_state(context: typer.Context, incomplete: str) -> list[str]:
    """Complete sessions, and snapshots after an ``@``."""
    return query_store(context, lambda store: find_states(store, incomplete, typed_agent(context)))


def complete_agent_or_state(context: typer.Context, incomplete: str) -> list[str]:
    """Complete agents, sessions, and snapshots after an ``@``."""

    async def both(store: StateStore) -> list[str]:
        agents = await find_agents(store, incomplete)
        return [*agents, *await find_states(store, incomplete, None)]

    return query_store(context, both)


def complete_ref(context: typer.Context, incomplete: str) -> list[str]:
    """Complete snapshots of the session named before, or of the agent's latest."""

    async def refs(store: StateStore) -> list[str]:
        # click assigns arguments to names only once the option has a value.
        name = context.params.get("name") or next(iter(context.args), "")
        session_id = str(context.params.get("session") or name)
        if context.params.get("session") is None:
            latest = await Catalog(store).latest_session(session_id)
            session_id = session_id if latest is None else latest.session_id
        return await find_refs(store, session_id, typed_agent(context), incomplete)

    return query_store(context, refs)


def complete_format(incomplete: str) -> list[str]:
    """Complete formats of files and databases of other tools."""
    # Other commands, which offer nothing else of it, do not wait for it.
    from holdfast.importers.registry import BUILT_IN  # noqa: PLC0415

    return [name for name in BUILT_IN if name.startswith(incomplete)]


def typed_agent(context: typer.Context) -> str | None:
    """Return the agent given with ``--agent``."""
    agent = context.params.get("agent")
    return agent if isinstance(agent, str) else None


def query_store(context: typer.Context, lookup: Lookup) -> list[str]:
    """Query the store of the command line; return nothing on failure or timeout."""
    discard(sys.stderr)
    url = context.params.get("store") or context.params.get("source")
    with suppress(Exception):
        return asyncio.run(asyncio.wait_for(query_existing_store(url, lookup), SECONDS))
    return []


async def query_existing_store(url: str | None, lookup: Lookup) -> list[str]:
    """Query the store of a URL, if it exists."""
    url = default_url(url)
    if not store_exists(StoreURL(url)):
        return []
    async with open_state_store(url) as store:
        return await lookup(store)


# ------------------------------------------------------------------------------------- lookups


async def find_agents(store: StateStore, prefix: str) -> list[str]:
    """Return the agents that start with a prefix."""
    found = await Catalog(store).agents(limit=MAX_CANDIDATES, start_after=name_just_before(prefix))
    return [each for each in found if each.startswith(prefix)]


async def find_ids(store: StateStore, prefix: str, agent_id: str | None) -> list[str]:
    """Return the sessions that start with a prefix."""
    catalog = Catalog(store)
    if agent_id is not None:
        page = await catalog.sessions(agent_id, limit=MAX_CANDIDATES)
        found = [entry.session_id for entry in page.sessions]
    else:
        found = await catalog.session_ids(
            limit=MAX_CANDIDATES, start_after=name_just_before(prefix)
        )
    return [each for each in found if each.startswith(prefix)]


async def find_states(store: StateStore, text: str, agent_id: str | None) -> list[str]:
    """Return the sessions that start with a text; for ``SESSION@``, its snapshots."""
    found = await find_ids(store, text, agent_id)
    session_id, at, ref = text.rpartition("@")
    if found or not at:
        return found
    return [f"{session_id}@{each}" for each in await find_refs(store, session_id, agent_id, ref)]


async def find_refs(
    store: StateStore, session_id: str, agent_id: str | None, prefix: str
) -> list[str]:
    """Return the snapshots and tags of a session that start with a prefix, newest first."""
    places = await Catalog(store).locations(session_id)
    offered = []
    for location in places:
        if agent_id not in (None, location.scope_id):
            continue
        archive = SnapshotArchive(store)
        ids = (await archive.list_snapshot_ids(location=location))[::-1]
        offered += [each for each in ids if each.startswith(prefix)][:MAX_CANDIDATES]
        offered += [LATEST] if ids else []
        if TAG.startswith(prefix) or prefix.startswith(TAG):
            for snapshot_id in ids[:MAX_TAGGED]:
                info = await archive.load_info(location=location, snapshot_id=snapshot_id)
                tags = {} if info is None else info.tags
                offered += [f"{TAG}{name}={value}" for name, value in tags.items()]
    return [each for each in dict.fromkeys(offered) if each.startswith(prefix)]


def name_just_before(prefix: str) -> str:
    """Return a name that sorts just before all names with a prefix, to start a listing at."""
    place = ORDER.find(prefix[-1]) if prefix else -1
    return "" if place < 1 else prefix[:-1] + ORDER[place - 1] + "~" * 8
