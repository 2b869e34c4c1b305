"""Eight connections for ten seconds of reads and restores: nothing fails, nothing is lost."""

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

SECONDS = float(os.environ.get("HOLDFAST_LOAD_SECONDS", "3"))
"""Of each half; memory is compared after both."""
CONNECTIONS = 8
AGENT, SHARED = "research-bot", "ses_shared"
SESSION = f"/agents/{AGENT}/sessions/{SHARED}"


async def record(url: str) -> dict:
    async with holdfast.open_state_store(url) as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SHARED)
        for turn in range(7):
            session.add_message("user", f"question {turn}")
            session.add_message("assistant", f"answer {turn}")
            session.set("turn", turn)
            await session.save(tags={"turn": str(turn)})
        return (await session.export()).to_dict()


class Acknowledged:
    """What the server said that it did."""

    def __init__(self) -> None:
        self.imported = 0
        self.restored = 0
        self.requests = 0
        self.forks: set[str] = set()


async def mixed(client: httpx.AsyncClient, number: int, document: dict, told: Acknowledged) -> None:
    """One connection: reads mostly, and every kind of write."""
    rng = random.Random(number)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        act = rng.choice(["document", "state", "events", "diff", "summary", "import", "restore"])
        if act == "import":
            answer = await client.post("/agents/snapshot/restore", json=document)
            told.imported += answer.status_code == 200
        elif act == "restore":
            answer = await client.post(f"{SESSION}/restore", json={"at": str(rng.randint(1, 20))})
            told.restored += answer.status_code == 200
        else:
            path = {
                "document": f"/agents/{SHARED}/snapshot",
                "state": f"{SESSION}/state?at={rng.randint(0, 20)}",
                "events": f"{SESSION}/events?limit=20",
                "diff": f"{SESSION}/diff?from={rng.randint(0, 20)}",
                "summary": SESSION,
            }[act]
            answer = await client.get(path)
        assert answer.status_code == 200, (act, answer.text)
        told.requests += 1
        if told.requests % 100 == 0:
            name = f"ses_fork_{uuid.uuid4()}"
            answer = await client.post(f"{SESSION}/fork", json={"session_id": name})
            assert answer.status_code == 201, answer.text
            told.forks.add(name)


async def load(address: str, document: dict) -> Acknowledged:
    told = Acknowledged()
    limits = httpx.Limits(max_connections=CONNECTIONS)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        await asyncio.gather(*(mixed(client, n, document, told) for n in range(CONNECTIONS)))
    return told


async def check(url: str, told: Acknowledged) -> None:
    async with holdfast.open_state_store(url) as store:
        session = await holdfast.Session.open(
            store, agent_id=AGENT, session_id=SHARED, must_exist=True
        )
        types = [event.type async for event in session.events]
        assert types.count("session.imported") == told.imported > 0
        assert types.count("state.restored") == told.restored > 0
        assert (await session.verify()).ok
        entries = (await holdfast.Catalog(store).sessions(AGENT)).sessions
        assert {each.session_id for each in entries} == {SHARED, *told.forks}


def resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_eight_connections_lose_nothing_and_memory_stays_flat(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    document = asyncio.run(record(url))
    server = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", "--store", url, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        said = server.stderr.readline()
        address = re.match(r"http://[\d.:]+", said)
        assert address, said
        # The access log is read away, so that the server never waits for it.
        with (
            (tmp_path / "log").open("w") as log,
            subprocess.Popen(["cat"], stdin=server.stderr, stdout=log),
        ):
            warm = asyncio.run(load(address[0], document))
            before = resident(server.pid)
            told = asyncio.run(load(address[0], document))
            grown = resident(server.pid) - before
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=30) == 0
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
    for name in ("imported", "restored"):
        setattr(told, name, getattr(told, name) + getattr(warm, name))
    told.forks |= warm.forks
    asyncio.run(check(url, told))
    assert grown < 30, f"{grown:.0f} MB more after as many requests again"
    print(f"{told.requests} requests, {told.imported} imports, {told.restored} restores")
