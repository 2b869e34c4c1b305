"""A process that queries the server like the viewer's pages, and checks the responses.

It opens agents and sessions, polls the summary with the etag it has, moves along the timeline,
compares positions and downloads documents.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import quote

import httpx

from holdfast import Document
from trials.soak.notes import COPIES, is_pruned
from trials.soak.worker import RoundResult

PAGES = 3
"""Pages that are open at the same time."""
STRETCH, BLOCK = 60, 100
REMEMBERED = 2000


class Page:
    """One open page of the viewer."""

    def __init__(self, client: httpx.AsyncClient, rng: random.Random) -> None:
        self.client = client
        self.rng = rng
        self.result = RoundResult()
        self.hashes: dict[tuple[str, int], str] = {}
        """Hashes of the events seen so far; events never change."""

    async def run(self, end: float) -> None:
        """View one session after another."""
        while time.monotonic() < end:
            try:
                await self.look(end)
            except Exception as error:  # noqa: BLE001 - recorded as a problem
                self.result.problems.append(f"viewer: {type(error).__name__}: {error}")

    async def look(self, end: float) -> None:
        """Choose a session and view some of its steps."""
        agents = (await self.get("/agents", {"limit": 50}))["agents"]
        if not agents:
            await asyncio.sleep(0.05)
            return
        agent = self.rng.choice(agents)["agent_id"]
        listed = await self.get(f"/agents/{quote(agent)}/sessions", {"limit": 50})
        session_id = self.rng.choice(listed["sessions"])["session_id"]
        path = f"/agents/{quote(agent)}/sessions/{quote(session_id)}"
        tag = ""
        last = 0
        for _ in range(self.rng.randint(1, 8)):
            if time.monotonic() > end:
                return
            answer = await self.request(path, {}, {"If-None-Match": tag} if tag else {})
            if answer.status_code == 304:
                continue
            summary = answer.json()
            tag = answer.headers["ETag"]
            if summary["last_event"] < last:
                self.result.problems.append(f"viewer: {session_id} went back from event {last}")
            last = summary["last_event"]
            await self.step(path, session_id, summary)
            await self.rest(path, agent)
            await asyncio.sleep(self.rng.uniform(0, 0.05))

    async def step(self, path: str, session_id: str, summary: Mapping[str, Any]) -> None:
        """Request what the viewer needs for one step of the timeline."""
        first, last = summary["first_event"], summary["last_event"]
        seq = self.rng.randint(min(first, last), last)
        start = max(first, (seq - 1) // BLOCK * BLOCK + 1)
        window = {"at": seq, "message_offset": -STRETCH, "message_limit": STRETCH}
        around = {
            "first": start,
            "last": min(start + BLOCK - 1, last),
            "limit": BLOCK,
            "brief": True,
        }
        between = {"from": max(seq - 1, 0), "to": seq, "patch": False}
        gone = is_pruned(session_id)
        state, event, _, _ = await asyncio.gather(
            self.get(f"{path}/state", window, gone=gone),
            self.get(f"{path}/events/{seq}", {}, gone=gone),
            self.get(f"{path}/diff", between, gone=gone),
            self.get(f"{path}/events", around, gone=gone),
        )
        if state and event and state["hash"] != event["hash"]:
            self.result.problems.append(f"viewer: {session_id} has two hashes for event {seq}")
        if event and self.hashes.setdefault((session_id, seq), event["hash"]) != event["hash"]:
            self.result.problems.append(f"viewer: {session_id} changed its event {seq}")
        while len(self.hashes) > REMEMBERED:
            del self.hashes[next(iter(self.hashes))]

    async def rest(self, path: str, agent: str) -> None:
        """Request what the viewer needs less often."""
        gone = agent != COPIES
        match self.rng.randrange(4):
            case 0:
                await self.get(f"{path}/growth", {"points": 300}, gone=gone)
            case 1:
                await self.get(f"{path}/snapshots", {"limit": 500})
            case 2:
                document = await self.get(f"{path}/document", {})
                Document.from_dict(document)  # checks the digest and the hash chain
                self.result.counts["documents downloaded and checked"] += 1

    async def get(self, path: str, query: Mapping[str, Any], *, gone: bool = False) -> Any:
        """Return the JSON of a response; None if the session is gone and may be."""
        answer = await self.request(path, query, {}, gone=gone)
        return answer.json() if answer.status_code == 200 else None

    async def request(
        self,
        path: str,
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        *,
        gone: bool = False,
    ) -> httpx.Response:
        """Send a request and check the status."""
        answer = await self.client.get(path, params=dict(query), headers=dict(headers))
        self.result.counts["HTTP requests"] += 1
        if gone and answer.status_code == 404 and "pruned" in answer.text:
            self.result.counts["HTTP responses: pruned"] += 1
            return answer
        if answer.status_code not in (200, 304):
            raise AssertionError(f"{answer.status_code} for {answer.request.url}: {answer.text}")
        return answer


def watch(address: str, seed: int, line: Connection) -> None:
    """Run rounds as ordered over the connection, until it sends None."""

    async def whole() -> None:
        rng = random.Random(f"{seed}-viewer")
        # The server closes idle connections after five seconds.
        limits = httpx.Limits(keepalive_expiry=2)
        async with httpx.AsyncClient(base_url=address, timeout=30, limits=limits) as client:
            pages = [Page(client, rng) for _ in range(PAGES)]
            while (seconds := await asyncio.to_thread(line.recv)) is not None:
                end = time.monotonic() + seconds
                result = RoundResult()
                for page in pages:
                    page.result = result
                await asyncio.gather(*(page.run(end) for page in pages))
                line.send(result)

    asyncio.run(whole())
