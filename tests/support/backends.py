"""An empty state store of every backend, for tests of what is built on stores."""

from __future__ import annotations

import uuid

from holdfast import open_state_store
from holdfast.stores.memory import MemoryStateStore

BACKENDS = ("memory", "sqlite", "files", "postgresql", "redis", "s3", "nats", "dapr")


class SharedMemory(MemoryStateStore):
    """A store in memory that shares the content of another, as two connections to a server do."""

    def __init__(self, content: MemoryStateStore) -> None:
        super().__init__()
        self._entries = content._entries
        self._keys = content._keys
        self._lock = content._lock


def make_opener(backend: str, request):
    """Return a function that opens stores with the same content, empty at first."""
    if backend == "memory":
        content = MemoryStateStore()
        return lambda: SharedMemory(content)
    url = make_url(backend, request)
    return lambda: open_state_store(url)


def make_url(backend: str, request) -> str:
    """Return the URL of an empty store; its server is started if necessary."""
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
