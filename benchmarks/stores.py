"""Compare every backend with its bare client library doing the same.

The bare client is the limit: it validates no keys, keeps no etags, and retries nothing. All writes
are durable on both sides. Servers come from wheels and run locally, so the network costs nothing.
`--smoke` runs on a small scale, `--only sqlite,redis` some backends. Run: make bench-stores
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import nats
import obstore
import psycopg
import redis.asyncio
from dapr.aio.clients import DaprClient
from obstore.store import S3Store

import holdfast
from benchmarks.harness import ROOT, Row, format_table, keep, progress, shuffle

sys.path.insert(0, str(ROOT / "tests"))

from servers.dapr_stand_in import DaprStandIn
from servers.nats_server import NatsServer
from servers.postgres import PostgresServer
from servers.redis_server import RedisServer
from servers.seaweed import SeaweedServer

PEER, OURS = "bare client", "holdfast"
MILLI = 1e3
BATCH = 10
PAGE = 100
WORDS = ["agent", "reads", "report", "writes", "found", "user", "plan", "later", "tool", "answer"]


class Bare(Protocol):
    """A client library doing the minimum."""

    async def put(self, key: str, value: bytes) -> object: ...
    async def get(self, key: str) -> object: ...
    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object: ...
    async def page(self, prefix: str) -> object: ...


class BareMemory:
    """A dict."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    async def put(self, key: str, value: bytes) -> object:
        self.entries[key] = value
        return None

    async def get(self, key: str) -> object:
        return self.entries[key]

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        self.entries.update(pairs)
        return None

    async def page(self, prefix: str) -> object:
        return sorted(key for key in self.entries if key.startswith(prefix))[:PAGE]


class BareSqlite:
    """The standard library's module, blocking the event loop."""

    def __init__(self, path: Path) -> None:
        self.base = sqlite3.connect(path, isolation_level=None)
        self.base.execute("PRAGMA journal_mode = WAL")
        self.base.execute("PRAGMA synchronous = FULL")
        self.base.execute("CREATE TABLE e (key TEXT PRIMARY KEY, value BLOB)")

    async def put(self, key: str, value: bytes) -> object:
        return self.base.execute("INSERT OR REPLACE INTO e VALUES (?, ?)", (key, value))

    async def get(self, key: str) -> object:
        return self.base.execute("SELECT value FROM e WHERE key = ?", (key,)).fetchone()

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        self.base.execute("BEGIN IMMEDIATE")
        self.base.executemany("INSERT OR REPLACE INTO e VALUES (?, ?)", pairs)
        return self.base.execute("COMMIT")

    async def page(self, prefix: str) -> object:
        query = "SELECT key FROM e WHERE key >= ? ORDER BY key LIMIT ?"
        return self.base.execute(query, (prefix, PAGE)).fetchall()


class BareFiles:
    """Write to a temporary file, sync, rename, sync the folder; blocks the event loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    async def put(self, key: str, value: bytes) -> object:
        name = key.replace("/", "_")
        with (self.folder / f"{name}.tmp").open("wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.folder / f"{name}.tmp", self.folder / name)  # noqa: PTH105
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        return None

    async def get(self, key: str) -> object:
        return (self.folder / key.replace("/", "_")).read_bytes()

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        return [await self.put(key, value) for key, value in pairs]

    async def page(self, prefix: str) -> object:
        name = prefix.replace("/", "_")
        return sorted(file for file in os.listdir(self.folder) if file.startswith(name))[:PAGE]


class BarePostgres:
    """One psycopg connection in autocommit mode."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def put(self, key: str, value: bytes) -> object:
        query = (
            "INSERT INTO bare VALUES (%s, %s) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        return await self.connection.execute(query, (key, value))

    async def get(self, key: str) -> object:
        found = await self.connection.execute("SELECT value FROM bare WHERE key = %s", (key,))
        return await found.fetchone()

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        async with self.connection.transaction(), self.connection.pipeline():
            for key, value in pairs:
                await self.put(key, value)
        return None

    async def page(self, prefix: str) -> object:
        query = "SELECT key FROM bare WHERE key >= %s ORDER BY key LIMIT %s"
        return await (await self.connection.execute(query, (prefix, PAGE))).fetchall()


class BareRedis:
    """SET and GET, with the keys in a sorted set."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def put(self, key: str, value: bytes) -> object:
        return await self.put_many([(key, value)])

    async def get(self, key: str) -> object:
        return await self.client.get(key)

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        async with self.client.pipeline(transaction=True) as pipe:
            pipe.mset(dict(pairs))
            pipe.zadd("index", {key: 0 for key, _ in pairs})
            return await pipe.execute()

    async def page(self, prefix: str) -> object:
        return await self.client.zrangebylex("index", f"[{prefix}", "+", start=0, num=PAGE)


class BareObjects:
    """Plain obstore."""

    def __init__(self, store: S3Store) -> None:
        self.store = store

    async def put(self, key: str, value: bytes) -> object:
        return await obstore.put_async(self.store, key, value)

    async def get(self, key: str) -> object:
        return await (await obstore.get_async(self.store, key)).bytes_async()

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        return [await self.put(key, value) for key, value in pairs]

    async def page(self, prefix: str) -> object:
        async for page in obstore.list(self.store, prefix, chunk_size=PAGE):
            return page
        return None


class BareNats:
    """A nats-py bucket; keys are listed from its stream."""

    def __init__(self, stream: Any, bucket: Any) -> None:
        self.stream = stream
        self.bucket = bucket

    async def put(self, key: str, value: bytes) -> object:
        return await self.bucket.put(key.replace("/", "."), value)

    async def get(self, key: str) -> object:
        return await self.bucket.get(key.replace("/", "."))

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        return [await self.put(key, value) for key, value in pairs]

    async def page(self, prefix: str) -> object:
        below = f"$KV.bare.{prefix.replace('/', '.')}>"
        found = await self.stream.stream_info("KV_bare", subjects_filter=below)
        return sorted(found.state.subjects)[:PAGE]


class BareDapr:
    """The SDK's client. It cannot list, so it reads a document with all keys."""

    def __init__(self, client: DaprClient) -> None:
        self.client = client
        self.keys: set[str] = set()

    async def put(self, key: str, value: bytes) -> object:
        self.keys.add(key)
        return await self.client.save_state("statestore", key.replace("/", "."), value)

    async def get(self, key: str) -> object:
        return (await self.client.get_state("statestore", key.replace("/", "."))).data

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        return [await self.put(key, value) for key, value in pairs]

    async def page(self, prefix: str) -> object:
        await self.client.save_state("statestore", "index", json.dumps(sorted(self.keys)))
        found = await self.client.get_state("statestore", "index")
        return [key for key in json.loads(found.data) if key.startswith(prefix)][:PAGE]


@asynccontextmanager
async def open_pair(name: str, folder: Path) -> AsyncIterator[tuple[Bare, holdfast.StateStore]]:
    """Yield the bare client and our store on the same server."""
    bare: Bare
    async with AsyncExitStack() as stack:
        url = {"memory": "memory:", "sqlite": f"sqlite:///{folder}/ours.db"}.get(name, "")
        match name:
            case "memory":
                bare = BareMemory()
            case "sqlite":
                bare = BareSqlite(folder / "bare.db")
            case "files":
                bare, url = BareFiles(folder / "bare"), f"file://{folder}/ours"
            case "postgresql":
                server = stack.enter_context(PostgresServer(folder))
                url = server.url()
                connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
                await stack.enter_async_context(connection)
                await connection.execute("CREATE TABLE bare (key text PRIMARY KEY, value bytea)")
                bare = BarePostgres(connection)
            case "redis":
                server = stack.enter_context(RedisServer(folder))
                url = server.url()
                client: Any = redis.asyncio.from_url(server.url(1))
                stack.push_async_callback(client.aclose)
                bare = BareRedis(client)
            case "s3":
                server = stack.enter_context(SeaweedServer(folder))
                url = server.url("ours")
                bare = BareObjects(server.bucket())
            case "nats":
                server = stack.enter_context(NatsServer(folder))
                url = server.url()
                connected = await nats.connect(server.url())
                stack.push_async_callback(connected.close)
                stream = connected.jetstream()
                bare = BareNats(stream, await stream.create_key_value(bucket="bare"))
            case _:
                server = stack.enter_context(DaprStandIn())
                os.environ.update(server.environment)
                url = "dapr://statestore?namespace=ours"
                bare = BareDapr(await stack.enter_async_context(DaprClient()))
        store = await stack.enter_async_context(holdfast.open_state_store(url))
        yield bare, store


BACKENDS = ["memory", "sqlite", "files", "postgresql", "redis", "s3", "nats", "dapr (stand-in)"]


class Ours:
    """Our store, with the interface of the bare clients."""

    def __init__(self, store: holdfast.StateStore) -> None:
        self.store = store

    async def put(self, key: str, value: bytes) -> object:
        return await self.store.put(key, value)

    async def get(self, key: str) -> object:
        return await self.store.get(key)

    async def put_many(self, pairs: list[tuple[str, bytes]]) -> object:
        return await self.store.put_many([holdfast.Put(*pair) for pair in pairs])

    async def page(self, prefix: str) -> object:
        return [key async for key in self.store.list(prefix, limit=PAGE)]


async def time_calls(calls: list[Awaitable[object]]) -> float:
    """Return the seconds that a contestant takes."""
    start = time.perf_counter()
    for call in calls:
        await call
    return (time.perf_counter() - start) / len(calls)


def list_operations(
    turn: int, count: int, value: bytes
) -> dict[str, Callable[[Bare], list[Awaitable[object]]]]:
    """Return the operations of a round."""
    keys = [f"one/{turn}/{number}" for number in range(count)]
    batches = [[(f"many/{turn}/{a}/{b}", value) for b in range(BATCH)] for a in range(count // 3)]
    return {
        "put": lambda side: [side.put(key, value) for key in keys],
        "get": lambda side: [side.get(key) for key in keys],
        f"put_many of {BATCH}": lambda side: [side.put_many(batch) for batch in batches],
        f"a page of {PAGE} keys": lambda side: [side.page("fill/") for _ in batches],
    }


async def compare(name: str, folder: Path, *, smoke: bool) -> list[Row]:
    """Return the rows of one backend."""
    rng = random.Random(name)
    value = " ".join(rng.choices(WORDS, k=400))[:2048].encode()
    count, rounds, filled = (3, 1, 20) if smoke else (100, 5, 1000)
    rows: dict[str, Row] = {}
    async with open_pair(name, folder) as (bare, store):
        sides: dict[str, Bare] = {PEER: bare, OURS: Ours(store)}
        for side in sides.values():
            for start in range(0, filled, BATCH):
                batch = [(f"fill/{number:06}", b"x") for number in range(start, start + BATCH)]
                await side.put_many(batch)
        for turn in range(rounds):
            for what, calls in list_operations(turn, count, value).items():
                progress(f"{name}: {what}, round {turn + 1} of {rounds}")
                row = rows.setdefault(what, Row(f"{name}: {what}", "ms"))
                for who in shuffle(list(sides), rng):
                    row.offer(who, await time_calls(calls(sides[who])) * MILLI)
    return list(rows.values())


async def main() -> None:
    """Measure all backends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--only", default=",".join(BACKENDS))
    options = parser.parse_args()
    rows = []
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            rows += await compare(name, Path(folder), smoke=options.smoke)
    print(format_table("state stores, values of 2 KB", rows, PEER, [OURS]))
    if not options.smoke and options.only == ",".join(BACKENDS):
        keep("stores", rows)


if __name__ == "__main__":
    asyncio.run(main())
