"""Eight connections read, import, restore and fork: no request fails and no write is lost."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx
import pytest

import holdfast

SECONDS = float(os.environ.get("HOLDFAST_LOAD_SECONDS", "2"))
"""Duration of each half; memory is compared after both."""
CONNECTIONS = 8
AGENT, SHARED = "research-bot", "ses_shared"
SESSION = f"/agents/{AGENT}/sessions/{SHARED}"


async def record(url: str) -> dict:
    async with holdfast.open_state_store(url) as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SHARED)
        for turn in range(7):
            session.add_message("user", f"question {turn}")
            session.add_message("assistant", f"response {turn}")
            session.set("turn", turn)
            await session.save(tags={"turn": str(turn)})
        return (await session.export()).to_dict()


class Acknowledged:
    """Writes that the server has acknowledged."""

    def __init__(self) -> None:
        self.imported = 0
        self.restored = 0
        self.requests = 0
        self.forks: set[str] = set()


async def send_requests(
    client: httpx.AsyncClient, number: int, document: dict, acknowledged: Acknowledged
) -> None:
    """Send reads and every kind of write on one connection."""
    rng = random.Random(number)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        action = rng.choice(["document", "state", "events", "diff", "summary", "import", "restore"])
        if action == "import":
            response = await client.post("/agents/snapshot/restore", json=document)
            acknowledged.imported += response.status_code == 200
        elif action == "restore":
            response = await client.post(f"{SESSION}/restore", json={"at": str(rng.randint(1, 20))})
            acknowledged.restored += response.status_code == 200
        else:
            path = {
                "document": f"/agents/{SHARED}/snapshot",
                "state": f"{SESSION}/state?at={rng.randint(0, 20)}",
                "events": f"{SESSION}/events?limit=20",
                "diff": f"{SESSION}/diff?from={rng.randint(0, 20)}",
                "summary": SESSION,
            }[action]
            response = await client.get(path)
        assert response.status_code == 200, (action, response.text)
        acknowledged.requests += 1
        if acknowledged.requests % 100 == 0:
            name = f"ses_fork_{uuid.uuid4()}"
            response = await client.post(f"{SESSION}/fork", json={"session_id": name})
            assert response.status_code == 201, response.text
            acknowledged.forks.add(name)


async def load(address: str, document: dict) -> Acknowledged:
    acknowledged = Acknowledged()
    limits = httpx.Limits(max_connections=CONNECTIONS)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        await asyncio.gather(
            *(send_requests(client, n, document, acknowledged) for n in range(CONNECTIONS))
        )
    return acknowledged


async def check(url: str, acknowledged: Acknowledged) -> None:
    async with holdfast.open_state_store(url) as store:
        session = await holdfast.Session.open(
            store, agent_id=AGENT, session_id=SHARED, must_exist=True
        )
        types = [event.type async for event in session.events]
        assert types.count("session.imported") == acknowledged.imported > 0
        assert types.count("state.restored") == acknowledged.restored > 0
        assert (await session.verify()).ok
        entries = (await holdfast.Catalog(store).sessions(AGENT)).sessions
        assert {each.session_id for each in entries} == {SHARED, *acknowledged.forks}


def resident_megabytes(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_concurrent_writes_are_not_lost_and_memory_stays_flat(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    document = asyncio.run(record(url))
    server = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--store", url, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        address = re.search(r"http://[\d.:]+", line)
        assert address, line
        # Read the access log, so that the server is never blocked by a full pipe.
        with (
            (tmp_path / "log").open("w") as log,
            subprocess.Popen(["cat"], stdin=server.stderr, stdout=log),
        ):
            warm = asyncio.run(load(address[0], document))
            before = resident_megabytes(server.pid)
            acknowledged = asyncio.run(load(address[0], document))
            grown = resident_megabytes(server.pid) - before
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=30) == 0
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
    for name in ("imported", "restored"):
        setattr(acknowledged, name, getattr(acknowledged, name) + getattr(warm, name))
    acknowledged.forks |= warm.forks
    asyncio.run(check(url, acknowledged))
    assert grown < 30, f"{grown:.0f} MB more after the second half"
