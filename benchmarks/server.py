"""Measure what the server adds: documents out and in over HTTP, and the viewer's slider.

A session of 14 messages on SQLite, with a server in its own process. Eight connections, then 64,
request its document, the state at one event after the other, and a page of messages; then they
restore a document to one new session after the other. The limit is the same server with the same
middleware, responding with the same bytes from memory; restores are also compared with the same
calls without a server. Nothing may fail, everything acknowledged must be stored, and memory must
not grow. `--smoke` runs for a moment.
Run: make bench-server
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import uvicorn
from starlette.requests import Request
from starlette.responses import Response

import holdfast
from benchmarks.harness import Row, format_table, keep, progress, shuffle
from holdfast.documents.files import read_document
from holdfast.server import Limits, create_app
from holdfast.server.run import open_socket, server_config

LIMIT, OURS = "constant", "holdfast"
CONNECTIONS = (8, 64)
AGENT, SESSION = "research-bot", "ses_abc123"
WORDS = ["agent", "reads", "report", "writes", "found", "user", "plan", "later", "tool", "answer"]
MILLI = 1e3
READS = "GET /agents/{id}/snapshot"
STATE = "GET .../state?at={event}"
PAGE = "GET .../state?message_limit=10"
WRITES = "POST /agents/snapshot/restore"
IN_PROCESS = "restore over import_session in process"
TARGETS = {READS: 1 / 2, STATE: 1 / 3, PAGE: 1 / 3, WRITES: 1 / 8}
"""The limit's time over ours."""
EVENTS = 21
STATE_PATH = f"/agents/{AGENT}/sessions/{SESSION}/state"
PATHS = {
    READS: f"/agents/{SESSION}/snapshot",
    STATE: f"{STATE_PATH}?at={{event}}",
    PAGE: f"{STATE_PATH}?at={{event}}&message_offset=-10&message_limit=10",
    WRITES: "/agents/snapshot/restore?session_id=ses_{number}",
}
HOST = "Host: 127.0.0.1\r\n"


async def record(path: Path) -> bytes:
    """Write a session of 14 messages; return its document."""
    rng = random.Random(14)
    async with holdfast.open_state_store(f"sqlite:///{path}") as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SESSION)
        for turn in range(7):
            session.add_message("user", " ".join(rng.choices(WORDS, k=30)))
            session.add_message("assistant", " ".join(rng.choices(WORDS, k=120)))
            session.set("turn", turn)
            await session.save()
        document = await session.export()
    return json.dumps(document.to_dict()).encode()


def run_server(path: Path, parent: Connection) -> None:
    """Run the server in its own process, with extra routes for the limit."""
    app = create_app(holdfast.open_state_store(f"sqlite:///{path}"), owns_store=True)
    bodies = dict.fromkeys(range(len(PATHS)), b"")

    @app.put("/constant/{number}")
    async def keep_body(number: int, request: Request) -> Response:
        bodies[number] = await request.body()
        return Response()

    @app.get("/constant/{number}")
    async def read(number: int) -> Response:
        return Response(bodies[number], media_type="application/json")

    @app.post("/constant/{number}")
    async def write(number: int, request: Request) -> Response:  # noqa: ARG001
        async for _ in request.stream():
            continue
        return Response(b'{"dry_run":false}', media_type="application/json")

    # Before all others, as a route is searched in order.
    app.router.routes[:] = [*app.router.routes[-3:], *app.router.routes[:-3]]
    with open_socket("127.0.0.1", 0) as listener:
        parent.send(listener.getsockname()[1])
        uvicorn.Server(server_config(app, Limits())).run(sockets=[listener])


@dataclass(slots=True)
class Load:
    """The results of some connections."""

    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    took: float = 0.0
    cpu: float = 0.0
    """CPU time of the server, or of this process without one."""

    def percentile(self, part: float) -> float:
        """Return the time below which a share of the requests stays."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * part))]


async def connection(port: int, requests: Iterator[bytes], until: float, load: Load) -> None:
    """Send one request after the other over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while (start := time.perf_counter()) < until:
            writer.write(next(requests))
            head = await reader.readuntil(b"\r\n\r\n")
            body = await read_body(reader, head.lower())
            load.seconds.append(time.perf_counter() - start)
            if not head.startswith(b"HTTP/1.1 200"):
                load.failed.append((head + body).decode(errors="replace"))
    finally:
        writer.close()
        await writer.wait_closed()


async def read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """Return the body of a response, of a known length or in chunks."""
    if b"content-length:" in head:
        length = head.split(b"content-length:")[1].split(b"\r\n")[0]
        return await reader.readexactly(int(length))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return body


async def under_load(
    port: int, requests: Iterator[bytes], seconds: float, connections: int
) -> Load:
    """Use some connections for some time."""
    load = Load()
    start = time.perf_counter()
    tasks = [connection(port, requests, start + seconds, load) for _ in range(connections)]
    await asyncio.gather(*tasks)
    load.took = time.perf_counter() - start
    return load


async def in_process(path: Path, document: bytes, seconds: float, connections: int) -> Load:
    """Import a document to one new session after the other, without a server."""
    load = Load()
    numbers = itertools.count()
    async with holdfast.open_state_store(f"sqlite:///{path}") as store:
        manager = holdfast.SnapshotManager(store)

        async def restore(until: float) -> None:
            while (start := time.perf_counter()) < until:
                found = read_document(io.BytesIO(document))
                await manager.import_session(found, session_id=f"ses_{next(numbers)}")
                load.seconds.append(time.perf_counter() - start)

        start, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(restore(start + seconds) for _ in range(connections)))
    load.took = time.perf_counter() - start
    load.cpu = time.process_time() - cpu
    return load


def make_requests(what: str, who: str, document: bytes) -> Iterator[bytes]:
    """Return an endless sequence of requests."""
    body = document if what == WRITES else b""
    method = "POST" if what == WRITES else "GET"
    more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    for number in itertools.count():
        path = PATHS[what].format(event=1 + number % EVENTS, number=number)
        if who == LIMIT:
            path = f"/constant/{list(PATHS).index(what)}"
        yield f"{method} {path} HTTP/1.1\r\n{HOST}{more}\r\n".encode() + body


def fill_constants(port: int) -> None:
    """Have the server respond with the same bytes from memory."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        for number, path in enumerate(PATHS.values()):
            if number < len(PATHS) - 1:
                body = http.get(path.format(event=EVENTS)).raise_for_status().content
                http.put(f"/constant/{number}", content=body).raise_for_status()


def resident(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def count_restored(path: Path) -> int:
    """Verify a few sessions, and return how many were restored."""
    async with holdfast.open_state_store(f"sqlite:///{path}") as store:
        names = await holdfast.Catalog(store).session_ids()
        for name in names[:10]:
            session = await holdfast.Session.open(store, agent_id=AGENT, session_id=name)
            if (await session.verify()).damage:
                raise SystemExit(f"session {name} is damaged")
        return len(names) - 1


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="for a moment only")
    parser.add_argument("--seconds", type=float, default=10.0, help="per measurement")
    options = parser.parse_args()
    smoke = options.smoke
    seconds, rounds = (0.2, 1) if smoke else (options.seconds, 2)
    counts = CONNECTIONS[:1] if smoke else CONNECTIONS
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder) / "state.db"
        document = asyncio.run(record(path))
        here, there = multiprocessing.Pipe()
        # Spawned, as a fork would share memory with this process.
        spawn = multiprocessing.get_context("spawn")
        server = spawn.Process(target=run_server, args=(path, there))
        server.start()
        try:
            port = here.recv()
            fill_constants(port)
            measured = Measured(port, server.pid or 0, Path(folder), document)
            for number in range(rounds + 1):
                for connections in counts:
                    measured.run_round(number, connections, seconds if number else 0.3)
        finally:
            server.terminate()
            server.join()
        kept = asyncio.run(count_restored(path))
    if kept < measured.restored or measured.failed:
        raise SystemExit(f"{measured.failed} failed, {measured.restored - kept} lost")
    rows = list(measured.rows.values())
    print(format_table(f"{CONNECTIONS[0]} connections, {seconds:g} s", rows, LIMIT, [OURS]))
    lines = [f"memory of the server after each round: {', '.join(measured.memory)} MB"]
    lines.append(f"{measured.restored:,} restores acknowledged, {kept:,} stored, none failed")
    for line in lines:
        print(line)
    if not smoke:
        keep("server", rows, lines=lines, restored=measured.restored)


class Measured:
    """The results of all rounds."""

    def __init__(self, port: int, pid: int, folder: Path, document: bytes) -> None:
        self._port = port
        self._pid = pid
        self._folder = folder
        self._document = document
        self._rng = random.Random(6)
        self._writes = make_requests(WRITES, OURS, document)
        self.rows: dict[tuple[int, str, str], Row] = {}
        self.memory: list[str] = []
        self.failed: list[str] = []
        self.restored = 0

    def run_round(self, number: int, connections: int, seconds: float) -> None:
        """Run all requests in random order. The first round warms up."""
        names = [f"{what}|{who}" for what in PATHS for who in (LIMIT, OURS)]
        for name in shuffle([*names, f"{IN_PROCESS}|{LIMIT}"], self._rng):
            what, who = name.split("|")
            progress(f"round {number}: {connections} connections, {what}, {who}")
            load = self._run(what, who, connections, seconds)
            self.failed += load.failed
            if (what, who) == (WRITES, OURS):
                self.restored += len(load.seconds) - len(load.failed)
                if number:
                    self._offer(connections, IN_PROCESS, who, load)
            if number:
                self._offer(connections, what, who, load)
        self.memory.append(f"{resident(self._pid):.0f}")

    def _run(self, what: str, who: str, connections: int, seconds: float) -> Load:
        if what == IN_PROCESS:
            path = self._folder / f"{time.monotonic_ns()}.db"
            return asyncio.run(in_process(path, self._document, seconds, connections))
        requests = self._writes
        if (what, who) != (WRITES, OURS):
            requests = make_requests(what, who, self._document)
        before = cpu_seconds(self._pid)
        load = asyncio.run(under_load(self._port, requests, seconds, connections))
        load.cpu = cpu_seconds(self._pid) - before
        return load

    def _offer(self, connections: int, what: str, who: str, load: Load) -> None:
        for name, value in (
            ("a request's share", load.took / len(load.seconds)),
            ("CPU", load.cpu / len(load.seconds)),
            ("p50", load.percentile(0.5)),
            ("p99", load.percentile(0.99)),
        ):
            question = f"{what}, {name}"
            if connections != CONNECTIONS[0]:
                question += f", {connections} connections"
            target = TARGETS.get(what) if name.startswith("a") else None
            row = self.rows.setdefault(
                (connections, what, name), Row(question, "ms", target=target)
            )
            row.offer(who, value * MILLI)


if __name__ == "__main__":
    main()
