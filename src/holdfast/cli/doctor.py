"""``holdfast doctor``: check the store and the installation."""

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
    format_count,
    print_json,
    print_line,
)
from holdfast.errors import ConflictError, HoldfastError
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.stores.base import StateStore
from holdfast.stores.registry import open_state_store

# The distribution that each extra installs.
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
    "claude-agent": "claude-agent-sdk",
    "pydantic-ai": "pydantic-ai-slim",
    "adk": "google-adk",
    "a2a": "a2a-sdk",
    "crewai": "crewai",
    "agent-framework": "agent-framework-core",
    "mcp": "mcp",
}


@command
async def doctor(
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Check the store and the installation.

    Writes, reads and deletes one entry.

    Example: holdfast doctor --store postgresql://localhost/agents
    """
    installed = [extra for extra, package in EXTRAS.items() if is_installed(package)]
    is_table = format is Format.table
    if is_table:
        print_line(
            f"holdfast {holdfast.__version__}, "
            f"{'compiled' if holdfast.compiled else 'interpreted (a C compiler makes it faster)'}, "
            f"Python {platform.python_version()}"
        )
        print_line(f"extras: {', '.join(installed) or 'none'}")
    checks = []
    async with open_state_store(store) as state_store:
        name = repr(state_store)
        if is_table:
            print_line(f"store: {name}")
        for check in CHECKS:
            checks.append(await run_check(state_store, check))
            if is_table:
                print_check(checks[-1])
    ok = all(check.ok for check in checks)
    if not is_table:
        print_json(
            {
                "ok": ok,
                "version": holdfast.__version__,
                "compiled": holdfast.compiled,
                "python": platform.python_version(),
                "extras": installed,
                "store": name,
                "checks": [asdict(check) for check in checks],
            }
        )
    if not ok:
        raise typer.Exit(FAILED)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    message: str
    milliseconds: float


async def run_check(store: StateStore, name: str) -> Check:
    """Run one check; a failure is a result, not an error."""
    started = time.perf_counter()
    try:
        ok, message = True, await CHECKS[name](store)
    except HoldfastError as error:
        ok, message = False, str(error)
    return Check(name, ok, message, round((time.perf_counter() - started) * 1000, 1))


def print_check(check: Check) -> None:
    """Print the result of a check on one line."""
    if check.ok:
        print_line(("✓", "green"), f" {check.name}: {check.message} ({check.milliseconds} ms)")
    else:
        print_line(("✗", "red"), f" {check.name}: {check.message}")


def is_installed(package: str) -> bool:
    """Return whether a distribution is installed."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


async def check_readable(store: StateStore) -> str:
    """Read the index of agents."""
    agents = await Catalog(store).agents(limit=100)
    return format_count(len(agents), "agent") + (" or more" if len(agents) == 100 else "")


async def check_writable(store: StateStore) -> str:
    """Write, read and delete an entry, and check that conditions hold."""
    if not store.writable:
        return "read-only, as configured"
    key = f"doctor/{secrets.token_hex(8)}"
    await store.put(key, b"{}", if_absent=True)
    try:
        entry = await store.get(key)
        if entry is None or entry.value != b"{}":
            raise HoldfastError("the entry that was written cannot be read back")
        try:
            await store.put(key, b"{}", if_absent=True)
        except ConflictError:
            return "conditions hold"
        raise HoldfastError("put(if_absent=True) overwrote an existing entry")
    finally:
        await store.delete(key)


async def describe_capabilities(store: StateStore) -> str:
    """Return the capabilities that the store declares."""
    names = (
        "durable",
        "shared",
        "atomic_put_many",
        "conditional_put_many",
        "atomic_get_many",
        "writable",
    )
    return ", ".join(name for name in names if getattr(store, name))


CHECKS: dict[str, Callable[[StateStore], Awaitable[str]]] = {
    "reading": check_readable,
    "writing": check_writable,
    "capabilities": describe_capabilities,
}
