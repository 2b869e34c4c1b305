"""Read-only stores: reads work, and every write fails with one clear error."""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from holdfast import (
    RetentionPolicy,
    Session,
    SnapshotManager,
    StateStore,
    StateStoreError,
    open_state_store,
)
from holdfast.documents.json_diff import diff_states
from trials.commands import command
from trials.hardship.disks import AGENT, LOCATION, SESSION, small_disk, url_in
from trials.kills.tasks import damage
from trials.kills.transfers import grow

Content = dict[str, bytes]


def read_only_option(folder: Path, backend: str) -> list[str]:
    """Open a store with ``?read_only=true``."""
    url = url_in(folder, backend)
    before = asyncio.run(write_session(url))
    return check_read_only(f"{url}?read_only=true", before, folder)


def read_only_disk(folder: Path, backend: str) -> list[str]:
    """Use a store on a file system that is mounted read-only."""
    with small_disk(folder, "8m") as disk:
        url = url_in(disk, backend)
        before = asyncio.run(write_session(url))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        return check_read_only(url, before, folder)


def read_only_role(folder: Path, server: Any) -> list[str]:
    """Use a PostgreSQL role whose transactions are read-only."""
    # Other tests may use this server, too.
    role = table = f"reader_{secrets.token_hex(6)}"
    before = asyncio.run(write_session(server.url(table=table)))
    server.execute(
        f"CREATE ROLE {role} LOGIN PASSWORD 'looks'",
        f"ALTER ROLE {role} SET default_transaction_read_only = on",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table}, {table}_done TO {role}",
    )
    address = f"postgresql://{role}:looks@127.0.0.1:{server.port}/postgres"
    # Writes are retried for this long, as a standby may become the primary.
    return check_read_only(f"{address}?table={table}&patience=0.2", before, folder)


async def write_session(url: str) -> Content:
    """Write a session with snapshots, and return everything stored."""
    async with open_state_store(url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        await grow(session, "read only", saves=4)
        return await read_content(store)


async def read_content(store: StateStore) -> Content:
    """Return everything stored."""
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


def check_read_only(url: str, before: Content, folder: Path) -> list[str]:
    """Return what is wrong with a read-only store."""
    problems = asyncio.run(read_problems(url, folder))
    problems += asyncio.run(write_problems(url, folder))
    problems += command_problems(url, folder)
    return problems + asyncio.run(find_changes(url, before))


async def find_changes(url: str, before: Content) -> list[str]:
    """Return whether anything has changed."""
    async with open_state_store(url) as store:
        return [] if await read_content(store) == before else ["something has changed"]


async def read_problems(url: str, folder: Path) -> list[str]:
    """Run everything that reads."""
    async with open_state_store(url) as store:
        problems = await damage(store)
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION, must_exist=True)
        page = await session.archive.list_snapshots(location=LOCATION)
        first, *_, last = [
            await session.archive.load_snapshot(location=LOCATION, snapshot_id=info.snapshot_id)
            for info in page.snapshots
        ]
        manager = SnapshotManager(store)
        manager.to_file(await manager.export_session(AGENT, SESSION), folder / "document.json")
        if first is None or last is None or len(diff_states(last.snapshot, first.snapshot)) < 3:
            problems.append("its snapshots cannot be compared")
        if session.message_count != 4 or len([event async for event in session.events]) < 12:
            problems.append("it lacks something that was written")
    return problems


async def write_problems(url: str, folder: Path) -> list[str]:
    """Run everything that writes; each must fail with a clear error."""
    problems = []
    async with open_state_store(url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        manager = SnapshotManager(store)
        document = manager.from_file(folder / "document.json")
        session.add_message("user", "too late")
        archive = session.archive
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "commit": session.commit,
            "save": session.save,
            "fork": lambda: session.fork("other"),
            "restore": lambda: session.restore(session.snapshot()),
            "import": lambda: manager.import_session(document, session_id="another"),
            "import over": lambda: manager.import_session(document),
            "prune": lambda: archive.prune(location=LOCATION, policy=RetentionPolicy(last=1)),
            "delete": lambda: archive.delete_session(session_id=SESSION),
        }
        for name, call in calls.items():
            try:
                await call()
                problems.append(f"{name} was done")
            except StateStoreError as error:
                text = str(error)
                if "\n" in text or not re.search("read-?only|no writes|cannot be written", text):
                    problems.append(f"{name}: unclear error: {error}")
        if session.messages[-1]["content"] != "too late":
            problems.append("events that could not be written are not pending any more")
    return problems


def command_problems(url: str, folder: Path) -> list[str]:
    """Run the same with the CLI."""
    problems = []
    for code, words in (
        (0, ("state", "list")),
        (0, ("state", "verify")),
        (0, ("state", "show", SESSION)),
        (0, ("state", "diff", str(folder / "document.json"), SESSION)),
        (0, ("state", "export", AGENT, "--output", str(folder / "exported.json"))),
        (0, ("backup", str(folder / "backup"))),
        (1, ("state", "prune", SESSION, "--last", "1")),
        (1, ("state", "fork", SESSION, "other")),
        (1, ("state", "import", str(folder / "document.json"))),
    ):
        ended, output = command(*words, "--store", url)
        lines = output.splitlines()
        clear = not code or (len(lines) == 2 and lines[0].startswith("error: "))
        if ended != code or not clear:
            problems.append(f"{' '.join(words)} ended with {ended}: {output}")
    return problems
