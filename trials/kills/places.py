"""Where stores of a trial are: empty ones by name, the server behind them, and what lies about."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
BACKENDS = ("sqlite", "files", "postgresql")
SQLITE_FILES = re.compile(r"[a-z0-9-]+\.db(-wal|-shm)?")


class Places:
    """Stores of one backend below a folder, each by a name of its own."""

    def __init__(self, backend: str, folder: Path, server: Any = None) -> None:
        self.backend = backend
        self.folder = folder
        self.server = server
        """The server of the backend, a ``PostgresServer``; None where there is none."""

    def url(self, name: str) -> str:
        """The URL of a store."""
        match self.backend:
            case "sqlite":
                return f"sqlite:///{self.folder}/{name}.db"
            case "files":
                return f"file://{self.folder}/{name}"
        table = f"t_{name.replace('-', '_')}"
        return str(self.server.url(table=table, timeout=5, patience=30))

    def strays(self, name: str) -> list[str]:
        """What lies in a store that belongs to nobody, once somebody has written there again."""
        if self.backend == "sqlite":
            found = [path.name for path in self.folder.iterdir() if path.name.startswith(name)]
            return [f"{each} lies about" for each in found if not SQLITE_FILES.fullmatch(each)]
        return stray_files(self.folder / name) if self.backend == "files" else []


def stray_files(store: Path) -> list[str]:
    """Values on their way that never arrived, in a store of files."""
    writing = store / "~holdfast" / "writing"
    return [f"{path} was left" for path in writing.iterdir()] if writing.exists() else []


@contextmanager
def places(backend: str, folder: Path) -> Iterator[Places]:
    """The places of a backend, with its server, which ends with the block."""
    folder.mkdir()
    if backend != "postgresql":
        yield Places(backend, folder)
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from servers.postgres import PostgresServer  # noqa: PLC0415 - only where it is tried

    with PostgresServer(folder) as server:
        yield Places(backend, folder, server)
