"""What the shell offers after a Tab: agents, sessions, and snapshots of a session.

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

from holdfast.cli.names import LATEST, TAG, is_there, named_or_usual
from holdfast.cli.output import discard
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store
from holdfast.stores.urls import StoreURL

MOST = 100
MOST_TAGGED = 20
SECONDS = 2.0
# The characters that are not escaped in a key, in their order.
ORDER = "-." + string.digits + string.ascii_uppercase + "_" + string.ascii_lowercase + "~"

Lookup = Callable[[StateStore], Awaitable[list[str]]]


def complete_agent(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the agents whose ids start with what was typed."""
    return ask(context, lambda store: find_agents(store, incomplete))


def complete_session(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the sessions whose ids start with what was typed; those of ``--agent`` if given."""
    return ask(context, lambda store: find_ids(store, incomplete, agent_of(context)))


def complete_state(context: typer.Context, incomplete: str) -> list[str]:
    """Offer sessions, and after an ``@`` the snapshots of one."""
    return ask(context, lambda store: find_states(store, incomplete, agent_of(context)))


def complete_agent_or_state(context: typer.Context, incomplete: str) -> list[str]:
    """Offer agents, sessions, and after an ``@`` the snapshots of one."""

    async def both(store: StateStore) -> list[str]:
        agents = await find_agents(store, incomplete)
        return [*agents, *await find_states(store, incomplete, None)]

    return ask(context, both)


def complete_ref(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the snapshots of the session that was named before, or of the agent's latest."""

    async def refs(store: StateStore) -> list[str]:
        # Before the value of an option is there, arguments are not assigned to their names.
        name = context.params.get("name") or next(iter(context.args), "")
        session_id = str(context.params.get("session") or name)
        if context.params.get("session") is None:
            latest = await Catalog(store).latest_session(session_id)
            session_id = session_id if latest is None else latest.session_id
        return await find_refs(store, session_id, agent_of(context), incomplete)

    return ask(context, refs)


def agent_of(context: typer.Context) -> str | None:
    """The agent that was named before, with ``--agent``."""
    agent = context.params.get("agent")
    return agent if isinstance(agent, str) else None


def ask(context: typer.Context, lookup: Lookup) -> list[str]:
    """Look something up in the store that was named; nothing where that fails or takes long."""
    discard(sys.stderr)
    url = context.params.get("store") or context.params.get("source")
    with suppress(Exception):
        return asyncio.run(asyncio.wait_for(look_up(url, lookup), SECONDS))
    return []


async def look_up(url: str | None, lookup: Lookup) -> list[str]:
    """Look something up in the store of a URL, if it exists."""
    url = named_or_usual(url)
    if not is_there(StoreURL(url)):
        return []
    async with open_state_store(url) as store:
        return await lookup(store)


# ------------------------------------------------------------------------------------- lookups


async def find_agents(store: StateStore, prefix: str) -> list[str]:
    """The agents whose ids start with a text."""
    found = await Catalog(store).agents(limit=MOST, start_after=name_before(prefix))
    return [each for each in found if each.startswith(prefix)]


async def find_ids(store: StateStore, prefix: str, agent_id: str | None) -> list[str]:
    """The sessions whose ids start with a text, of an agent or of all."""
    catalog = Catalog(store)
    if agent_id is not None:
        page = await catalog.sessions(agent_id, limit=MOST)
        found = [entry.session_id for entry in page.sessions]
    else:
        found = await catalog.session_ids(limit=MOST, start_after=name_before(prefix))
    return [each for each in found if each.startswith(prefix)]


async def find_states(store: StateStore, text: str, agent_id: str | None) -> list[str]:
    """The sessions that a text is the beginning of; of ``SESSION@`` its snapshots."""
    found = await find_ids(store, text, agent_id)
    session_id, at, ref = text.rpartition("@")
    if found or not at:
        return found
    return [f"{session_id}@{each}" for each in await find_refs(store, session_id, agent_id, ref)]


async def find_refs(
    store: StateStore, session_id: str, agent_id: str | None, prefix: str
) -> list[str]:
    """The snapshots of a session, the newest first, and tags, as far as they start with a text."""
    places = await Catalog(store).locations(session_id)
    offered = []
    for location in places:
        if agent_id not in (None, location.scope_id):
            continue
        archive = SnapshotArchive(store)
        ids = (await archive.list_snapshot_ids(location=location))[::-1]
        offered += [each for each in ids if each.startswith(prefix)][:MOST]
        offered += [LATEST] if ids else []
        if TAG.startswith(prefix) or prefix.startswith(TAG):
            for snapshot_id in ids[:MOST_TAGGED]:
                info = await archive.load_info(location=location, snapshot_id=snapshot_id)
                tags = {} if info is None else info.tags
                offered += [f"{TAG}{name}={value}" for name, value in tags.items()]
    return [each for each in dict.fromkeys(offered) if each.startswith(prefix)]


def name_before(prefix: str) -> str:
    """A name before all those that start with a text, and after nearly all others before them.

    A listing that begins there has the wanted names first. It may begin anywhere earlier.
    """
    place = ORDER.find(prefix[-1]) if prefix else -1
    return "" if place < 1 else prefix[:-1] + ORDER[place - 1] + "~" * 8
