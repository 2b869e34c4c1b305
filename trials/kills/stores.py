"""Stores of a trial by name, the server behind them, and stray files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
SERVERS = ("postgresql", "redis")
BACKENDS = ("sqlite", "files", *SERVERS)
SQLITE_FILES = re.compile(r"[a-z0-9-]+\.db(-wal|-shm)?")


class Stores:
    """Stores of one backend, each under its own name."""

    def __init__(self, backend: str, folder: Path, server: Any = None) -> None:
        self.backend = backend
        self.folder = folder
        self.server = server
        """The ``PostgresServer`` or ``RedisServer``, or None if the backend has no server."""

    def url(self, name: str) -> str:
        """Return the URL of a store."""
        match self.backend:
            case "sqlite":
                return f"sqlite:///{self.folder}/{name}.db"
            case "files":
                return f"file://{self.folder}/{name}"
            case "redis":
                return str(self.server.url(namespace=name, timeout=5, patience=30))
        table = f"t_{name.replace('-', '_')}"
        return str(self.server.url(table=table, timeout=5, patience=30))

    def strays(self, name: str) -> list[str]:
        """Return files in a store that belong to no entry, after a later write."""
        if self.backend == "sqlite":
            found = [path.name for path in self.folder.iterdir() if path.name.startswith(name)]
            return [f"{each} lies about" for each in found if not SQLITE_FILES.fullmatch(each)]
        return stray_files(self.folder / name) if self.backend == "files" else []


def stray_files(store: Path) -> list[str]:
    """Return temporary files of interrupted writes in a file store."""
    writing = store / "~holdfast" / "writing"
    return [f"{path} was left" for path in writing.iterdir()] if writing.exists() else []


@contextmanager
def open_stores(backend: str, folder: Path) -> Iterator[Stores]:
    """Yield the stores of a backend, and run its server."""
    folder.mkdir()
    if backend not in SERVERS:
        yield Stores(backend, folder)
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from servers.postgres import PostgresServer  # noqa: PLC0415 - optional
    from servers.redis_server import RedisServer  # noqa: PLC0415 - optional

    with (PostgresServer if backend == "postgresql" else RedisServer)(folder) as server:
        yield Stores(backend, folder, server)
