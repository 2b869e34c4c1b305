"""``holdfast doctor``: whether the store can be read and written, and what is installed."""

from __future__ import annotations

import platform
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from importlib import metadata

import typer

import holdfast
from holdfast.cli.console import (
    FAILED,
    Format,
    FormatOption,
    StoreOption,
    command,
    plural,
    print_json,
    say,
)
from holdfast.errors import ConflictError, HoldfastError
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store

# What each extra brings, by the name under which it is installed.
EXTRAS = {
    "postgresql": "psycopg",
    "redis": "redis",
    "objectstore": "obstore",
    "nats": "nats-py",
    "dapr": "dapr",
    "encryption": "cryptography",
    "signing": "cryptography",
    "compression": "zstandard",
    "redaction": "detect-secrets",
    "testing": "hypothesis",
    "cli": "typer",
    "server": "fastapi",
    "langgraph": "langgraph-checkpoint",
    "strands": "strands-agents",
    "openai-agents": "openai-agents",
}


@command
async def doctor(
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Look at the store and the installation, and say what is wrong with them.

    One entry is written, read and removed.

    Example: holdfast doctor --store postgresql://localhost/agents
    """
    there = [extra for extra, package in EXTRAS.items() if is_installed(package)]
    is_table = format is Format.table
    if is_table:
        say(
            f"holdfast {holdfast.__version__}, "
            f"{'compiled' if holdfast.compiled else 'interpreted (a C compiler makes it faster)'}, "
            f"Python {platform.python_version()}"
        )
        say(f"extras: {', '.join(there) or 'none'}")
    looks = []
    async with open_state_store(store) as state_store:
        shown = repr(state_store)
        if is_table:
            say(f"store: {shown}")
        for name in LOOKS:
            looks.append(await looked(state_store, name))
            if is_table:
                print_look(looks[-1])
    ok = all(look.ok for look in looks)
    if not is_table:
        print_json(
            {
                "ok": ok,
                "version": holdfast.__version__,
                "compiled": holdfast.compiled,
                "python": platform.python_version(),
                "extras": there,
                "store": shown,
                "looks": [asdict(look) for look in looks],
            }
        )
    if not ok:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at the store found."""

    name: str
    ok: bool
    said: str
    milliseconds: float


async def looked(store: StateStore, name: str) -> Look:
    """Look at the store; that it fails is what is looked for."""
    started = time.perf_counter()
    try:
        ok, said = True, await LOOKS[name](store)
    except HoldfastError as error:
        ok, said = False, str(error)
    return Look(name, ok, said, round((time.perf_counter() - started) * 1000, 1))


def print_look(look: Look) -> None:
    """One line of it."""
    if look.ok:
        say(("✓", "green"), f" {look.name}: {look.said} ({look.milliseconds} ms)")
    else:
        say(("✗", "red"), f" {look.name}: {look.said}")


def is_installed(package: str) -> bool:
    """Whether a package is installed."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


async def look_around(store: StateStore) -> str:
    """Whether it can be read."""
    agents = await Catalog(store).agents(limit=100)
    return plural(len(agents), "agent") + (" or more" if len(agents) == 100 else "")


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
    names = (
        "durable",
        "shared",
        "atomic_put_many",
        "conditional_put_many",
        "atomic_get_many",
        "writable",
    )
    return ", ".join(name for name in names if getattr(store, name))


LOOKS: dict[str, Callable[[StateStore], Awaitable[str]]] = {
    "reading": look_around,
    "writing": write_once,
    "abilities": tell_abilities,
}
