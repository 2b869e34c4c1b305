"""Empty stores of every backend, on real servers that are started for a trial."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

BACKENDS = ("sqlite", "files", "postgresql", "redis", "s3", "nats", "dapr")


@contextmanager
def start_backend(backend: str, folder: Path) -> Iterator[str]:
    """Start a server and yield the URL of an empty store."""
    name = f"t{uuid.uuid4().hex}"
    match backend:
        case "sqlite":
            yield f"sqlite:///{folder}/state.db"
        case "files":
            yield f"file://{folder}/state"
        case "postgresql":
            from servers.postgres import PostgresServer  # noqa: PLC0415 - optional

            with PostgresServer(folder / backend) as server:
                yield server.url(table=name)
        case "redis":
            from servers.redis_server import RedisServer  # noqa: PLC0415 - optional

            with RedisServer(folder / backend) as server:
                yield server.url(namespace=name)
        case "s3":
            from servers.seaweed import SeaweedServer  # noqa: PLC0415 - optional

            with SeaweedServer(folder / backend) as server:
                yield server.url(name)
        case "nats":
            from servers.nats_server import NatsServer  # noqa: PLC0415 - optional

            with NatsServer(folder / backend) as server:
                yield server.url(name)
        case "dapr":
            from servers.dapr_stand_in import DaprStandIn  # noqa: PLC0415 - optional

            with DaprStandIn() as server:
                os.environ.update(server.environment)
                yield f"dapr://statestore?namespace={name}"
        case _:
            raise ValueError(f"{backend} is none of {', '.join(BACKENDS)}")
