"""What others wrote: chat logs, snapshots of Strands, databases and values of LangGraph.

What is read can be imported; nothing that the data names is imported, called or opened.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import ormsgpack
from hypothesis import strategies as st

import holdfast.importers
from holdfast import NotFoundError, SnapshotManager, StateStoreError
from holdfast.adapters.langgraph.codec import Codec
from holdfast.importers.langgraph_serde import ExtensionSerializer, Serde
from holdfast.stores.memory import MemoryStateStore
from holdfast.values import encode
from trials.fuzz import junk
from trials.fuzz.mutation import changed_bytes, changed_json, changed_text, scalar, written
from trials.fuzz.trying import Target, Wrong

SAMPLES = Path(__file__).parents[2] / "tests" / "importers" / "samples" / "strands"
CHATS: tuple[Any, ...] = (
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "text"}]}],
    {"messages": [{"role": "user", "content": "Hello"}], "model": "m", "n": 1.5},
    [{"type": "message", "role": "user", "content": "x"}, {"type": "function_call", "name": "f"}],
)


class ForeignFiles(Target):
    """Files of JSON and JSON Lines, as they would be imported."""

    name = "foreign-files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder / "foreign.json"
        self._texts = [json.dumps(chat).encode() for chat in CHATS]
        self._texts += [path.read_bytes() for path in sorted(SAMPLES.rglob("*.json"))]
        lines = b"\n".join(json.dumps(message).encode() for message in CHATS[0])
        self._all = [*self._texts, lines, self._texts[1] + b"\n" + self._texts[1]]
        self._runner = asyncio.Runner()

    @property
    def corpus(self) -> Sequence[bytes]:
        """Chats, and what Strands wrote."""
        return self._all

    def mutated(self, rng: Random) -> bytes:
        """Damaged JSON."""
        if rng.randrange(3) == 0:
            return changed_bytes(rng, rng.choice(self._all), self._all)
        return changed_json(rng, rng.choice(self._texts))

    def made_up(self) -> st.SearchStrategy[bytes]:
        """Messages with anything in them."""
        names = ("role", "content", "type", "id", "messages", "data", "created_at", "app_data")
        message = st.fixed_dictionaries(
            {"role": junk.WORDS}, optional={"content": junk.trees(names), "id": junk.trees()}
        )
        strands = st.fixed_dictionaries(
            {
                "schema_version": st.just("1.0"),
                "created_at": st.just("2026-01-01T00:00:00Z") | junk.WORDS,
                "data": junk.trees(names) | st.dictionaries(st.sampled_from(names), junk.trees()),
            }
        )
        return (st.lists(message, max_size=3) | strands | junk.trees(names)).map(written)

    def attempt(self, data: bytes) -> None:
        """Read it, and import what was read."""
        self._path.write_bytes(data)
        documents = holdfast.importers.read(str(self._path))
        if len(documents) < 20:
            self._runner.run(imported(documents))

    def close(self) -> None:
        """End its loop."""
        self._runner.close()


class ForeignDatabases(Target):
    """SQLite databases of LangGraph's saver: damaged files, and rows with other values in them."""

    name = "foreign-databases"
    refusals = (*Target.refusals, NotFoundError, StateStoreError)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._path = folder / "checkpoints.sqlite"
        made_database(self._path)
        self._data = self._path.read_bytes()
        self._rows = folder / "rows.sqlite"
        self._runner = asyncio.Runner()

    @property
    def corpus(self) -> Sequence[bytes]:
        """The database."""
        return [self._data]

    def mutated(self, rng: Random) -> bytes:
        """A damaged file, or one row with other values."""
        if rng.randrange(2):
            return changed_bytes(rng, self._data, (), 3)
        shutil.copyfile(self._path, self._rows)
        table = rng.choice(("checkpoints", "writes"))
        with closing(sqlite3.connect(self._rows)) as connection, connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            column = rng.choice(columns)
            row, value = connection.execute(
                f"SELECT rowid, {column} FROM {table} LIMIT 1 OFFSET {rng.randrange(3)}"
            ).fetchone()
            new = changed_value(rng, value)
            connection.execute(
                f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (new, row)
            )
        return self._rows.read_bytes()

    def made_up(self) -> st.SearchStrategy[bytes]:
        """A database with one checkpoint of any msgpack."""

        def build(data: bytes) -> bytes:
            made_database(self._rows, [data])
            return self._rows.read_bytes()

        channels = st.dictionaries(junk.WORDS, junk.trees(), max_size=3)
        tree = st.fixed_dictionaries(
            {
                "channel_values": channels | junk.trees(),
                "channel_versions": channels | junk.trees(),
                "ts": st.just("2026-01-01T00:00:00Z") | junk.WORDS,
            }
        )
        return (tree.map(packed_tree) | junk.packed()).map(build)

    def attempt(self, data: bytes) -> None:
        """Read it, and import what was read."""
        path = self._folder / "read.sqlite"
        path.write_bytes(data)
        documents = holdfast.importers.read(str(path))
        if path.read_bytes() != data:
            raise Wrong("the database was written to")
        if len(documents) < 20:
            self._runner.run(imported(documents))

    def close(self) -> None:
        """End its loop."""
        self._runner.close()


class ForeignValues(Target):
    """Single values of LangGraph, whose msgpack names types."""

    name = "foreign-values"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._serde = Serde()
        self._codec = Codec(ExtensionSerializer())

    @property
    def corpus(self) -> Sequence[bytes]:
        """What LangGraph's own serializer writes."""
        return real_values()

    def mutated(self, rng: Random) -> bytes:
        """Damaged bytes."""
        return changed_bytes(rng, rng.choice(self.corpus), self.corpus)

    def made_up(self) -> st.SearchStrategy[bytes]:
        """Extension types that name a type, and what it is to be made of."""
        modules = st.sampled_from(
            ("os", "builtins", "datetime", "decimal", "uuid", "pathlib", "langchain_core.messages")
        )
        names = st.sampled_from(
            ("system", "set", "date", "time", "timedelta", "Decimal", "UUID", "AIMessage", "eval")
        )
        arguments = st.lists(st.tuples(modules, names, junk.trees()).map(list), max_size=2)
        return st.builds(named, st.integers(0, 8), modules, names, junk.trees() | arguments)

    def attempt(self, data: bytes) -> None:
        """Read it; what a session can keep is kept."""
        value = self._serde.decode("msgpack", data, "the value")
        encode(self._codec.encode(value, "the value"))


async def imported(documents: Sequence[Any]) -> None:
    """Import what was read into an empty store."""
    manager = SnapshotManager(state_store=MemoryStateStore())
    for document in documents:
        result = await manager.import_session(document)
        if result.messages_restored != len(document.state.messages):
            raise Wrong("what was imported has another number of messages than what was read")


def named(code: int, module: str, name: str, made_of: Any) -> bytes:
    """A value of LangGraph that names a type."""
    return ormsgpack.packb(ormsgpack.Ext(code, packed_tree([module, name, made_of, "m"])))


def packed_tree(tree: Any) -> bytes:
    """Msgpack of a tree, or what stands for one that it cannot say."""
    try:
        return msgspec.msgpack.encode(tree)
    except (OverflowError, UnicodeEncodeError):
        return msgspec.msgpack.encode({"channel_values": None})


def real_values() -> list[bytes]:
    """What LangGraph's own serializer writes."""
    extension = [
        named(0, "datetime", "datetime", "2026-11-15T09:00:00+00:00"),
        named(1, "datetime", "date", [2026, 1, 2]),
        named(0, "uuid", "UUID", "00000000-0000-0000-0000-000000000007"),
        named(5, "langchain_core.messages.human", "HumanMessage", {"content": "Hi", "id": "1"}),
        named(0, "builtins", "set", [1, 2]),
    ]
    plain: list[Any] = [{"a": [1, 2.5, None, "x"]}, [b"x", True], {"messages": [{"role": "user"}]}]
    return [*extension, *(msgspec.msgpack.encode(each) for each in plain)]


def made_database(path: Path, checkpoints: Sequence[bytes] | None = None) -> None:
    """A database with the tables of the saver, and a few checkpoints."""
    path.unlink(missing_ok=True)
    if checkpoints is None:
        message = {"role": "user", "content": "Hi", "id": "1"}
        checkpoints = [
            msgspec.msgpack.encode(
                {"v": 4, "ts": f"2026-01-0{n + 1}T00:00:00+00:00", "id": str(n)}
                | {"channel_values": {"messages": [message] * n, "step": n, "deep": [[{}]]}}
                | {"channel_versions": {"step": "1"}, "versions_seen": {}}
            )
            for n in range(3)
        ]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 1024")
        connection.executescript(
            "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,"
            " parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB);"
            "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT,"
            " task_id TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB);"
        )
        for number, data in enumerate(checkpoints):
            parent = str(number - 1) if number else None
            row = ("t1", "", str(number), parent, "msgpack", data, b'{"step": 1}')
            connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            value = msgspec.msgpack.encode([number])
            write = ("t1", "", str(number), "task", 0, "step", "msgpack", value)
            connection.execute("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", write)


def changed_value(rng: Random, value: Any) -> Any:
    """Another value of a row."""
    if isinstance(value, bytes) and rng.randrange(4):
        return changed_bytes(rng, value, real_values())
    if isinstance(value, str) and rng.randrange(2):
        return changed_text(rng, value).encode(errors="replace").decode()
    new = rng.choice(
        (scalar(rng), rng.choice(("json", "pickle", "msgpack", "null", "bytes", "x+aes")))
    )
    if isinstance(new, str):
        return new.encode(errors="replace").decode()
    return new if isinstance(new, float) or (isinstance(new, int) and abs(new) < 2**63) else b"\x80"
