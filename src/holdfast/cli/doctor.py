"""``holdfast doctor``: whether the store can be read and written, and what is installed."""

from __future__ import annotations

import importlib.util
import platform
import secrets
import time
from collections.abc import Awaitable, Callable

import typer
from rich.markup import escape

import holdfast
from holdfast.cli.console import FAILED, StoreOption, command, out
from holdfast.errors import ConflictError, HoldfastError
from holdfast.snapshots.catalog import Catalog
from holdfast.stores.contract import StateStore
from holdfast.stores.opening import open_state_store

EXTRAS = {
    "postgresql": "psycopg",
    "redis": "redis",
    "objectstore": "obstore",
    "nats": "nats",
    "dapr": "dapr",
    "encryption": "cryptography",
    "compression": "zstandard",
    "redaction": "detect_secrets",
    "server": "fastapi",
    "langgraph": "langgraph",
    "strands": "strands",
    "openai-agents": "agents",
}


@command
async def doctor(store: StoreOption = None) -> None:
    """Look at the store and the installation, and say what is wrong with them.

    Example: holdfast doctor --store postgresql://localhost/agents
    """
    out.print(
        f"holdfast {holdfast.__version__}, "
        f"{'compiled' if holdfast.compiled else 'interpreted (a C compiler makes it faster)'}, "
        f"Python {platform.python_version()}"
    )
    there = [name for name, module in EXTRAS.items() if importlib.util.find_spec(module)]
    out.print(f"extras: {', '.join(there) or 'none'}")
    ok = True
    async with open_state_store(store) as state_store:
        out.print(f"store: {escape(repr(state_store))}")
        for name, look in LOOKS.items():
            started = time.perf_counter()
            try:
                said = await look(state_store)
            except HoldfastError as error:
                ok = False
                out.print(f"[red]✗[/] {name}: {escape(str(error))}")
                continue
            took = (time.perf_counter() - started) * 1000
            out.print(f"[green]✓[/] {name}: {said} ({took:.1f} ms)")
    if not ok:
        raise typer.Exit(FAILED)


async def look_around(store: StateStore) -> str:
    """Whether it can be read."""
    agents = await Catalog(store).agents(limit=100)
    return f"{len(agents)} agents" + (" or more" if len(agents) == 100 else "")


async def write_once(store: StateStore) -> str:
    """Whether it can be written, and what is written can be read and removed."""
    if not store.writable:
        return "read-only, as asked for"
    key = f"doctor/{secrets.token_hex(8)}"
    await store.put(key, b"{}", if_absent=True)
    try:
        entry = await store.get(key)
        if entry is None or entry.value != b"{}":
            raise HoldfastError("what was written did not come back")
        try:
            await store.put(key, b"{}", if_absent=True)
        except ConflictError:
            return "conditions hold"
        raise HoldfastError("it wrote over an entry that was there, although told not to")
    finally:
        await store.delete(key)


async def tell_abilities(store: StateStore) -> str:
    """What it promises."""
    names = ("durable", "shared", "atomic_put_many", "atomic_get_many", "writable")
    return ", ".join(name for name in names if getattr(store, name))


LOOKS: dict[str, Callable[[StateStore], Awaitable[str]]] = {
    "reading": look_around,
    "writing": write_once,
    "abilities": tell_abilities,
}
