"""Measure what the server adds: documents out and in over HTTP, eight connections at a time.

A session of 14 messages on SQLite, with a server in its own process. Eight connections request its
document, then post one to be restored, as often as they can. The limit is the same server with the
same middleware, responding with the same bytes from memory. Nothing may fail, everything
acknowledged must be stored, and memory must not grow. `--smoke` runs for a moment.
Run: make bench-server
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import tempfile
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import Response

import holdfast
from benchmarks.harness import Row, format_table, keep, progress, shuffle
from holdfast.server import create_app
from holdfast.server.run import open_socket

LIMIT, OURS = "constant", "holdfast"
CONNECTIONS = 8
AGENT, SESSION = "research-bot", "ses_abc123"
# Each restore adds to the log of its session, so reads use another one.
RESTORED = "ses_restored"
WORDS = ["agent", "reads", "report", "writes", "found", "user", "plan", "later", "tool", "answer"]
MILLI = 1e3
WRITES = "POST /agents/snapshot/restore"
RESTORE = f"/agents/snapshot/restore?session_id={RESTORED}"
READS = "GET /agents/{id}/snapshot"


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


def run_server(path: Path, document: bytes, parent: Connection) -> None:
    """Run the server in its own process, with extra routes for the limit."""
    app = create_app(holdfast.open_state_store(f"sqlite:///{path}"), owns_store=True)

    @app.get(f"/constant/{SESSION}/snapshot")
    async def read() -> Response:
        return Response(document, media_type="application/json")

    @app.post("/constant/restore")
    async def write(request: Request) -> Response:
        async for _ in request.stream():
            continue
        return Response(b'{"dry_run":false}', media_type="application/json")

    with open_socket("127.0.0.1", 0) as listener:
        parent.send(listener.getsockname()[1])
        config = uvicorn.Config(app, log_config=None, access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


@dataclass(slots=True)
class Load:
    """The results of some connections."""

    seconds: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    took: float = 0.0

    def percentile(self, part: float) -> float:
        """Return the time below which a share of the requests stays."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * part))]


async def repeat_request(port: int, request: bytes, until: float, load: Load) -> None:
    """Repeat a request over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while (start := time.perf_counter()) < until:
            writer.write(request)
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


async def run_load(port: int, request: bytes, seconds: float) -> Load:
    """Run eight connections for some time."""
    load = Load()
    start = time.perf_counter()
    tasks = [repeat_request(port, request, start + seconds, load) for _ in range(CONNECTIONS)]
    await asyncio.gather(*tasks)
    load.took = time.perf_counter() - start
    return load


def build_requests(document: bytes) -> dict[tuple[str, str], bytes]:
    """Return the requests, and which server they go to."""
    head = "Host: 127.0.0.1\r\n"
    sent = f"{head}Content-Type: application/json\r\nContent-Length: {len(document)}\r\n\r\n"
    return {
        (READS, LIMIT): f"GET /constant/{SESSION}/snapshot HTTP/1.1\r\n{head}\r\n".encode(),
        (READS, OURS): f"GET /agents/{SESSION}/snapshot HTTP/1.1\r\n{head}\r\n".encode(),
        (WRITES, LIMIT): f"POST /constant/restore HTTP/1.1\r\n{sent}".encode() + document,
        (WRITES, OURS): f"POST {RESTORE} HTTP/1.1\r\n{sent}".encode() + document,
    }


def read_resident_memory(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1e6


async def count_restores(path: Path) -> int:
    """Verify the session, and return how many restores its log has."""
    async with holdfast.open_state_store(f"sqlite:///{path}") as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=RESTORED)
        if (await session.verify()).damage:
            raise SystemExit("the session is damaged")
        return len([1 async for event in session.events if event.type == "session.imported"])


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="for a moment only")
    smoke = parser.parse_args().smoke
    seconds, rounds = (0.3, 1) if smoke else (10.0, 2)
    rng = random.Random(6)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = Path(folder) / "state.db"
        document = asyncio.run(record(path))
        here, there = multiprocessing.Pipe()
        # Spawned, as a fork would share memory with this process.
        spawn = multiprocessing.get_context("spawn")
        server = spawn.Process(target=run_server, args=(path, document, there))
        server.start()
        try:
            port = here.recv()
            measured = measure(port, server.pid or 0, document, seconds, rounds, rng)
        finally:
            server.terminate()
            server.join()
        acknowledged = measured["restored"]
        kept = asyncio.run(count_restores(path))
    if kept < acknowledged or measured["failed"]:
        raise SystemExit(f"{measured['failed']} failed, {acknowledged - kept} lost")
    print(
        format_table(f"{CONNECTIONS} connections, {seconds:g} s", measured["rows"], LIMIT, [OURS])
    )
    for line in measured["lines"]:
        print(line)
    print(f"{acknowledged:,} restores acknowledged, {kept:,} in the log, none failed")
    if not smoke:
        more = {name: measured[name] for name in ("lines", "restored")}
        keep("server", measured["rows"], **more)


def measure(
    port: int, pid: int, document: bytes, seconds: float, rounds: int, rng: random.Random
) -> dict[str, Any]:
    """Run all requests in turn, and sample the server's memory."""
    asked = build_requests(document)
    rows = {
        (what, name): Row(f"{what}, {name}", "ms")
        for what in (READS, WRITES)
        for name in ("a request's share", "p50", "p99")
    }
    lines: dict[tuple[str, str], str] = {}
    memory: list[float] = []
    failed = restored = 0
    names = [f"{what}|{who}" for what, who in asked]
    for number in range(rounds + 1):
        for name in shuffle(names, rng):
            what, who = name.split("|")
            progress(f"round {number} of {rounds}: {what}, {who}")
            # The first round warms up.
            load = asyncio.run(run_load(port, asked[what, who], seconds if number else 0.3))
            failed += len(load.failed)
            if (what, who) == (WRITES, OURS):
                restored += len(load.seconds) - len(load.failed)
            if not number:
                continue
            rows[what, "a request's share"].offer(who, load.took / len(load.seconds) * MILLI)
            rows[what, "p50"].offer(who, load.percentile(0.5) * MILLI)
            rows[what, "p99"].offer(who, load.percentile(0.99) * MILLI)
            rate = len(load.seconds) / load.took
            lines[what, who] = f"{what}, {who}: {rate:,.0f} requests a second"
        memory.append(read_resident_memory(pid))
    grown = ", ".join(f"{each:.0f}" for each in memory)
    return {
        "rows": list(rows.values()),
        "lines": [*lines.values(), f"memory of the server after each round: {grown} MB"],
        "failed": failed,
        "restored": restored,
    }


if __name__ == "__main__":
    main()
