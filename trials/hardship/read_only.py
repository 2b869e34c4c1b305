"""Places that take no writes: what reads works there, what writes is one clear error."""

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
from trials.kills.moving import grow
from trials.kills.tasks import damage

Content = dict[str, bytes]


def wrapped(folder: Path, backend: str) -> list[str]:
    """A store that was opened with ``?read_only=true``."""
    url = url_in(folder, backend)
    before = asyncio.run(written(url))
    return problems_of_reading(f"{url}?read_only=true", before, folder)


def read_only_disk(folder: Path, backend: str) -> list[str]:
    """A store on a file system that is mounted read-only."""
    with small_disk(folder, "8m") as disk:
        url = url_in(disk, backend)
        before = asyncio.run(written(url))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        return problems_of_reading(url, before, folder)


def read_only_role(folder: Path, server: Any) -> list[str]:
    """A role of PostgreSQL whose transactions are read-only."""
    # The server may be one that others use too.
    role = table = f"reader_{secrets.token_hex(6)}"
    before = asyncio.run(written(server.url(table=table)))
    server.execute(
        f"CREATE ROLE {role} LOGIN PASSWORD 'looks'",
        f"ALTER ROLE {role} SET default_transaction_read_only = on",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table}, {table}_done TO {role}",
    )
    address = f"postgresql://{role}:looks@127.0.0.1:{server.port}/postgres"
    # A standby may become the primary, so a write is tried again for as long as this.
    return problems_of_reading(f"{address}?table={table}&patience=0.2", before, folder)


async def written(url: str) -> Content:
    """Make a session with snapshots, and give all that is stored then."""
    async with open_state_store(url) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        await grow(session, "read only", saves=4)
        return await content(store)


async def content(store: StateStore) -> Content:
    """All that is stored."""
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


def problems_of_reading(url: str, before: Content, folder: Path) -> list[str]:
    """What is wrong with a store that takes no writes."""
    problems = asyncio.run(read_problems(url, folder))
    problems += asyncio.run(write_problems(url, folder))
    problems += command_problems(url, folder)
    return problems + asyncio.run(changed(url, before))


async def changed(url: str, before: Content) -> list[str]:
    """Whether anything is not as it was."""
    async with open_state_store(url) as store:
        return [] if await content(store) == before else ["something was changed"]


async def read_problems(url: str, folder: Path) -> list[str]:
    """Everything that reads."""
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
            problems.append("it does not have what was written")
    return problems


async def write_problems(url: str, folder: Path) -> list[str]:
    """Everything that writes: each is refused in words."""
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
                    problems.append(f"{name}: an error that is not clear: {error}")
        if session.messages[-1]["content"] != "too late":
            problems.append("what could not be written does not wait any more")
    return problems


def command_problems(url: str, folder: Path) -> list[str]:
    """The same by the command line."""
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
        ended, said = command(*words, "--store", url)
        lines = said.splitlines()
        clear = not code or (len(lines) == 2 and lines[0].startswith("error: "))
        if ended != code or not clear:
            problems.append(f"{' '.join(words)} ended with {ended}: {said}")
    return problems
