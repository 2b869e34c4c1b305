"""A state store of every backend on a place of its own, for tests of what is built on stores."""

from __future__ import annotations

import uuid

from holdfast import open_state_store
from holdfast.stores.memory import MemoryStateStore

BACKENDS = ("memory", "sqlite", "files", "postgresql", "redis", "s3", "nats", "dapr")


class SharedMemory(MemoryStateStore):
    """A store in memory on the content of another: as a second one is elsewhere."""

    def __init__(self, content: MemoryStateStore) -> None:
        super().__init__()
        self._entries = content._entries
        self._keys = content._keys
        self._lock = content._lock


def opener(backend: str, request):
    """A function that opens stores on one empty place; servers are started when asked for."""
    if backend == "memory":
        content = MemoryStateStore()
        return lambda: SharedMemory(content)
    url = place(backend, request)
    return lambda: open_state_store(url)


def place(backend: str, request) -> str:
    """The URL of an empty place."""
    name = f"b{uuid.uuid4().hex}"
    fixture = request.getfixturevalue
    match backend:
        case "sqlite":
            return f"sqlite:///{fixture('tmp_path')}/state.db"
        case "files":
            return f"file://{fixture('tmp_path')}/state"
        case "postgresql":
            return fixture("postgres").url(table=name)
        case "redis":
            return fixture("redis_server").url(namespace=name)
        case "s3":
            return fixture("s3_server").url(name)
        case "nats":
            return fixture("nats_server").url(name)
    for variable, value in fixture("dapr_stand_in").environment.items():
        fixture("monkeypatch").setenv(variable, value)
    return f"dapr://statestore?namespace={name}"
