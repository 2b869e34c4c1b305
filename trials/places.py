"""Empty places of every backend for trials, on real servers that are started for them."""

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
def place(backend: str, folder: Path) -> Iterator[str]:
    """The URL of an empty place, for as long as its server runs."""
    name = f"t{uuid.uuid4().hex}"
    match backend:
        case "sqlite":
            yield f"sqlite:///{folder}/state.db"
        case "files":
            yield f"file://{folder}/state"
        case "postgresql":
            from servers.postgres import PostgresServer  # noqa: PLC0415 - only if it is wanted

            with PostgresServer(folder / backend) as server:
                yield server.url(table=name)
        case "redis":
            from servers.redis_server import RedisServer  # noqa: PLC0415 - only if it is wanted

            with RedisServer(folder / backend) as server:
                yield server.url(namespace=name)
        case "s3":
            from servers.seaweed import SeaweedServer  # noqa: PLC0415 - only if it is wanted

            with SeaweedServer(folder / backend) as server:
                yield server.url(name)
        case "nats":
            from servers.nats_server import NatsServer  # noqa: PLC0415 - only if it is wanted

            with NatsServer(folder / backend) as server:
                yield server.url(name)
        case "dapr":
            from servers.dapr_stand_in import DaprStandIn  # noqa: PLC0415 - only if it is wanted

            with DaprStandIn() as server:
                os.environ.update(server.environment)
                yield f"dapr://statestore?namespace={name}"
        case _:
            raise ValueError(f"{backend} is none of {', '.join(BACKENDS)}")
