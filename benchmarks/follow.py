"""Measure how soon a receiver has an event: from the call of commit() to `Session.follow`.

The delay includes the commit itself. The writer is in the same process and event loop, or in
another process on the same machine, and commits every 20 to 80 ms. With 100 receivers in one
process, the delay is that of each of them. The limits are what we promise for the median.
`--smoke` runs on a small scale, `--only sqlite,redis` some backends. Run: make bench-follow
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path

import holdfast
from benchmarks.harness import ROOT, Row, format_table, keep, progress

sys.path.insert(0, str(ROOT / "tests"))

from servers.nats_server import NatsServer
from servers.postgres import PostgresServer
from servers.redis_server import RedisServer

LIMIT, OURS = "limit", "holdfast"
AGENT = "bench"
LAST = "bench.last"
BACKENDS = ("sqlite", "files", "postgresql", "redis", "nats")
IN_PROCESS_LIMIT = 20.0
OTHER_PROCESS_LIMIT = 50.0
WOKEN = ("postgresql", "redis")
"""Backends with a limit for other processes."""


async def write(url: str, session_id: str, count: int) -> None:
    """Commit events that hold the time at which they were committed."""
    async with holdfast.open_state_store(url) as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=session_id)
        await write_events(session, count)


async def write_events(session: holdfast.Session, count: int) -> None:
    """Commit some events and a last one, with pauses."""
    rng = random.Random(1)
    for number in range(count + 1):
        await asyncio.sleep(rng.uniform(0.02, 0.08))
        # The clock of perf_counter is the same in all processes of a machine on Linux.
        name = "bench.event" if number < count else LAST
        session.record(name, {"at": time.perf_counter()})
        await session.commit()


async def receive(session: holdfast.Session, delays: list[float], ready: asyncio.Event) -> None:
    """Add the delays of all events, in milliseconds."""
    async with aclosing(session.follow()) as events:
        ready.set()
        async for event in events:
            if event.type == LAST:
                return
            delays.append((time.perf_counter() - event.data["at"]) * 1e3)


async def measure(url: str, *, receivers: int, count: int, same_process: bool) -> list[float]:
    """Return the delays of all receivers."""
    session_id = f"ses-{receivers}-{same_process}"
    delays: list[float] = []
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(holdfast.open_state_store(url))
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=session_id)
        await session.commit()
        started = [asyncio.Event() for _ in range(receivers)]
        receiving = [asyncio.create_task(receive(session, delays, each)) for each in started]
        for each in started:
            await each.wait()
        await asyncio.sleep(0.3)  # until all have subscribed
        if same_process:
            await write_events(session, count)
        else:
            program = [sys.executable, "-m", "benchmarks.follow", "--writer", url, session_id]
            writer = await asyncio.create_subprocess_exec(*program, str(count), cwd=ROOT)
            if await writer.wait():
                raise RuntimeError(f"the writer ended with {writer.returncode}")
        async with asyncio.timeout(60):
            await asyncio.gather(*receiving)
    return delays


@contextmanager
def start_backend(name: str, folder: Path) -> Iterator[str]:
    """Start the server of a backend, if it has one, and yield the URL of a store."""
    if name == "sqlite":
        yield f"sqlite:///{folder}/state.db"
    elif name == "files":
        yield f"file://{folder}/state"
    elif name == "postgresql":
        with PostgresServer(folder) as server:
            yield server.url()
    elif name == "redis":
        with RedisServer(folder) as server:
            yield server.url()
    else:
        with NatsServer(folder) as server:
            yield server.url("bench")


def make_rows(what: str, delays: list[float], limit: float | None) -> list[Row]:
    """Return the median and the 99th percentile."""
    ranks = statistics.quantiles(delays, n=100, method="inclusive")
    median = Row(f"{what}, median", "ms", {OURS: ranks[49]})
    if limit is not None:
        median.times[LIMIT] = limit
        median.target = 1.0
    return [median, Row(f"{what}, 99th percentile", "ms", {OURS: ranks[98]})]


def compare(name: str, url: str, *, smoke: bool) -> list[Row]:
    """Measure one backend."""
    rows = []
    count, many = (6, 5) if smoke else (200, 100)
    for receivers in (1, many):
        for same_process in (True, False):
            where = "same process" if same_process else "other process"
            who = "1 receiver" if receivers == 1 else f"{receivers} receivers"
            progress(f"{name}, {where}, {who}")
            limit = IN_PROCESS_LIMIT if same_process else OTHER_PROCESS_LIMIT
            has_limit = receivers == 1 and (same_process or name in WOKEN)
            delays = asyncio.run(
                measure(url, receivers=receivers, count=count, same_process=same_process)
            )
            assert len(delays) == count * receivers
            rows += make_rows(f"{name}, {where}, {who}", delays, limit if has_limit else None)
    return rows


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--only", default=",".join(BACKENDS))
    parser.add_argument("--writer", nargs=3, metavar=("URL", "SESSION", "COUNT"))
    options = parser.parse_args()
    if options.writer is not None:
        url, session_id, count = options.writer
        asyncio.run(write(url, session_id, int(count)))
        return
    only = ["sqlite"] if options.smoke else options.only.split(",")
    rows = []
    for name in only:
        with (
            tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
            start_backend(name, Path(folder)) as url,
        ):
            rows += compare(name, url, smoke=options.smoke)
    print(format_table("delay of an event", rows, LIMIT, [OURS]))
    if not options.smoke and tuple(only) == BACKENDS:
        keep("follow", rows)


if __name__ == "__main__":
    main()
