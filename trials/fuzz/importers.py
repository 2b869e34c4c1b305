"""Files that other tools wrote: chats, snapshots, transcripts, LangGraph databases and values.

What is read can be imported. Nothing that the data names is imported, called or opened.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import ormsgpack
from hypothesis import strategies as st

import holdfast.importers
from holdfast import NotFoundError, SnapshotManager, StateStoreError
from holdfast.importers.langgraph_serde import Serde
from holdfast.stores.memory import MemoryStateStore
from trials.fuzz.strategies import (
    WORDS,
    dump_json,
    msgpacks,
    mutated_bytes,
    mutated_json,
    mutated_texts,
    mutated_trees,
    trees,
)
from trials.fuzz.target import Target

SAMPLES = Path(__file__).parents[2] / "tests" / "importers" / "samples"
CHATS: tuple[Any, ...] = (
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "text"}]}],
    {"messages": [{"role": "user", "content": "Hello"}], "model": "m", "n": 1.5},
    [{"type": "message", "role": "user", "content": "x"}, {"type": "function_call", "name": "f"}],
)
FIELDS = ("role", "content", "type", "id", "messages", "data", "created_at", "app_data")
TRANSCRIPTS = [
    [json.loads(line) for line in path.read_bytes().splitlines()]
    for path in sorted(SAMPLES.rglob("*.jsonl"))
]
SCHEMA = """
CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,
    parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB);
CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,
    task_id TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB);
"""
COLUMNS = [
    *(("checkpoints", name) for name in ("thread_id", "checkpoint_ns", "checkpoint_id")),
    *(("checkpoints", name) for name in ("parent_checkpoint_id", "type", "metadata")),
    *[("checkpoints", "checkpoint")] * 4,
    *(("writes", name) for name in ("checkpoint_id", "task_id", "idx", "channel", "type", "value")),
]


def dump_lines(lines: Any) -> bytes:
    """Return JSON Lines, or JSON if this is not a list."""
    return b"\n".join(map(dump_json, lines)) if isinstance(lines, list) else dump_json(lines)


async def import_all(documents: Sequence[Any]) -> None:
    """Import documents into an empty store."""
    manager = SnapshotManager(state_store=MemoryStateStore())
    for document in documents[:20]:
        result = await manager.import_session(document)
        assert result.messages_restored == len(document.state.messages), "lost messages"


class ImportedFiles(Target):
    """JSON and JSON Lines files."""

    files = sorted(path for path in SAMPLES.rglob("*") if path.suffix in (".json", ".af"))
    samples = (*CHATS, *(json.loads(path.read_bytes()) for path in files))
    lines = (CHATS[0], [CHATS[1], CHATS[1]], *TRANSCRIPTS)
    valid = (*map(dump_json, samples), *map(dump_lines, lines))
    message = st.fixed_dictionaries(
        {"role": WORDS}, optional={"content": trees(*FIELDS), "id": trees()}
    )
    strands = st.fixed_dictionaries(
        {
            "schema_version": st.just("1.0"),
            "created_at": st.just("2026-01-01T00:00:00Z") | WORDS,
            "data": trees(*FIELDS) | st.dictionaries(st.sampled_from(FIELDS), trees()),
        }
    )
    inputs = (
        mutated_json(samples)
        | mutated_trees(lines).map(dump_lines)
        | mutated_bytes(valid, valid)
        | (st.lists(message, max_size=3) | strands | trees(*FIELDS)).map(dump_json)
    )

    def check(self, data: bytes) -> None:
        """Read the file, and import what was read."""
        path = self.folder / "imported.json"
        path.write_bytes(data)
        asyncio.run(import_all(holdfast.importers.read(str(path))))


def pack_named(code: int, module: str, name: str, argument: Any) -> bytes:
    """Return a LangGraph value that names a type, as its serializer writes it."""
    inner = ormsgpack.packb([module, name, argument, "m"])
    return ormsgpack.packb(ormsgpack.Ext(code, inner))


VALUES = (
    pack_named(0, "datetime", "datetime", "2026-11-15T09:00:00+00:00"),
    pack_named(1, "datetime", "date", [2026, 1, 2]),
    pack_named(0, "uuid", "UUID", "00000000-0000-0000-0000-000000000007"),
    pack_named(5, "langchain_core.messages.human", "HumanMessage", {"content": "Hi", "id": "1"}),
    pack_named(0, "builtins", "set", [1, 2]),
    msgspec.msgpack.encode({"a": [1, 2.5, None, "x"]}),
    msgspec.msgpack.encode([b"x", True]),
    msgspec.msgpack.encode({"messages": [{"role": "user"}]}),
)


class ImportedValues(Target):
    """Single values of LangGraph, whose MessagePack names types."""

    modules = st.sampled_from(
        ("os", "builtins", "datetime", "decimal", "uuid", "pathlib", "langchain_core.messages")
    )
    names = st.sampled_from(
        ("system", "set", "date", "time", "timedelta", "Decimal", "UUID", "AIMessage", "eval")
    )
    packable = st.recursive(
        st.none() | st.integers(-(2**63), 2**64 - 1) | st.floats() | WORDS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
        max_leaves=8,
    )
    arguments = packable | st.lists(st.tuples(modules, names, packable).map(list), max_size=2)
    valid = VALUES
    inputs = mutated_bytes(valid, valid) | st.builds(
        pack_named, st.integers(0, 8), modules, names, arguments
    )

    def check(self, data: bytes) -> None:
        """Read the value, and encode it as Holdfast stores it."""
        Serde().decode("msgpack", data, "the value")


class ImportedDatabases(Target):
    """SQLite databases of LangGraph's saver: damaged files, and rows with other values."""

    refusals = (*Target.refusals, NotFoundError, StateStoreError)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "checkpoints.sqlite"
        self._path.unlink(missing_ok=True)
        write_database(self._path)
        self.valid = [self._path.read_bytes()]
        words = mutated_texts(["t1", "0", "msgpack", "step", "json", "pickle", "x+aes"])
        values = (
            mutated_bytes(VALUES, VALUES)
            | msgpacks()
            | words.map(lambda text: text.encode(errors="replace").decode())
            | st.none()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats()
        )
        rows = st.tuples(st.sampled_from(COLUMNS), st.integers(1, 3), values)
        self.inputs = mutated_bytes(self.valid) | rows.map(self._change_row)

    def _change_row(self, change: tuple[tuple[str, str], int, Any]) -> bytes:
        (table, column), row, value = change
        self._path.write_bytes(self.valid[0])
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        return self._path.read_bytes()

    def check(self, data: bytes) -> None:
        """Read the database, and import what was read."""
        path = self.folder / "read.sqlite"
        path.write_bytes(data)
        documents = holdfast.importers.read(str(path))
        assert path.read_bytes() == data, "the database was written to"
        asyncio.run(import_all(documents))


def write_database(path: Path) -> None:
    """Write a database with the saver's tables and three checkpoints."""
    message = {"role": "user", "content": "Hi", "id": "1"}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 1024")
        connection.executescript(SCHEMA)
        for n in range(3):
            checkpoint = {
                "v": 4,
                "ts": f"2026-01-0{n + 1}T00:00:00+00:00",
                "id": str(n),
                "channel_values": {"messages": [message] * n, "step": n, "deep": [[{}]]},
                "channel_versions": {"step": "1"},
                "versions_seen": {},
            }
            data = msgspec.msgpack.encode(checkpoint)
            row = ("t1", "", str(n), str(n - 1) if n else None, "msgpack", data, b'{"step": 1}')
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            value = msgspec.msgpack.encode([n])
            write = ("t1", "", str(n), "task", 0, "step", "msgpack", value)
            connection.execute("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", write)
