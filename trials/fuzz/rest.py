"""Requests to the server: any bytes in paths, queries, headers and bodies.

A response is below 500, and a refusal is a problem document and changes nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from hypothesis import strategies as st

from holdfast import IntegrityError, Session, SnapshotManager
from holdfast.server import create_app
from holdfast.stores.memory import MemoryStateStore
from trials.fuzz.stored import Content, read_content, write_content
from trials.fuzz.strategies import (
    WORDS,
    dump_json,
    mutated_bytes,
    mutated_json,
    mutated_texts,
    trees,
)
from trials.fuzz.target import Target

S = "/agents/research-bot/sessions/ses_1"
TWO = "from_agent=research-bot&from_session=ses_1&to_agent=research-bot&to_session=ses_1"
GETS = (
    *("/agents", "/agents?limit=1&search=res", "/agents/research-bot/sessions", "/access"),
    *(S, f"{S}/events?first=1&last=3", f"{S}/events/2", f"{S}/state?at=3", "/metrics"),
    *(f"{S}/snapshots?limit=1", f"{S}/document", f"{S}/diff?from=1&to=2", f"{S}/growth"),
    *("/agents/ses_1/snapshot?agent_id=research-bot", "/health/ready", "/", "/openapi.json"),
    *("/viewer/app.js", f"/diff?{TWO}"),
)
POSTS: dict[str, Any] = {
    f"{S}/restore": {"at": "2"},
    f"{S}/snapshots": {"tags": {"env": "test"}},
    f"{S}/fork": {"session_id": "other", "at": "2"},
}
HEADERS = ("if-match", "if-none-match", "origin", "content-type", "accept", "authorization", "host")
METHODS = ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "BREW")
PARAMETERS = ("limit", "at", "from", "to", "search", "next_token", "agent_id")
FIELDS = ("at", "tags", "session_id", "agent_id", "state", "schema_version", "if_seq")
Request = tuple[str, str, dict[str, str], bytes]
JSON = {"content-type": "application/json"}


@st.composite
def requests(draw: st.DrawFn, valid: list[Request]) -> Request:
    """Generate a request with another method, path, query, header or body."""
    method, target, headers, body = draw(st.sampled_from(valid))
    match draw(st.sampled_from(("method", "target", "target", "query", "header", "body", "body"))):
        case "method":
            method = draw(st.sampled_from(METHODS))
        case "target":
            target = draw(mutated_texts([target]))[:5000]
            if draw(st.booleans()):
                target = quote(target, safe="/?&=%", errors="replace")
        case "query":
            values = (WORDS | st.integers().map(str)).map(quote)
            query = draw(st.dictionaries(st.sampled_from(PARAMETERS), values, max_size=3))
            target = f"{target.partition('?')[0]}?{'&'.join(map('='.join, query.items()))}"
        case "header":
            value = draw(mutated_texts(['"*"']))
            headers = {**headers, draw(st.sampled_from(HEADERS)): value}
        case "body" if body:
            generated = trees(*FIELDS).map(dump_json)
            body = draw(mutated_json([json.loads(body)]) | mutated_bytes([body]) | generated)
    return method, target, headers, body


class REST(Target):
    """The app in this process, over a store in memory."""

    refusals = (IntegrityError,)
    """Raised here for a response from 400 to 499."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._runner = asyncio.Runner()
        self._store = MemoryStateStore()
        document, self._content = self._runner.run(self._fill())
        self._app = create_app(self._store)
        self.valid = [
            *(("GET", path, {}, b"") for path in GETS),
            *(("POST", path, JSON, dump_json(body)) for path, body in POSTS.items()),
            ("DELETE", S, {}, b""),
            ("POST", "/agents/snapshot/restore", {}, document),
            ("POST", "/agents/snapshot/restore?dry_run=true", {}, document),
        ]
        self.inputs = requests(self.valid)

    async def _fill(self) -> tuple[bytes, Content]:
        opened = Session.open(self._store, agent_id="research-bot", session_id="ses_1")
        async with opened as session:
            session.add_message("user", "Compare the two")
            session.set("plan", ("read", b"x"))
            await session.save(tags={"turn": "1"})
            session.add_message("assistant", "Done")
            await session.save()
        manager = SnapshotManager(state_store=self._store)
        document = await manager.export_session(agent_id="research-bot")
        return dump_json(document.to_dict()), await read_content(self._store)

    def check(self, data: Request) -> None:
        """Send the request, and check the response and the store."""
        self._runner.run(self._check(*data))

    async def _check(self, method: str, target: str, headers: dict[str, str], body: bytes) -> None:
        status, received, content = await self._send(method, target, headers, body)
        if await read_content(self._store) != self._content:
            await write_content(self._store, self._content)
            assert status < 400, f"{status} for {method} {target} changed the store"
            assert method != "GET", f"GET {target} changed the store"
        assert status < 500, f"{status} for {method} {target[:80]}: {content[:300]!r}"
        if status >= 400:
            assert received[b"content-type"] == b"application/problem+json"
            problem = {"status": status, "detail": ""} if method == "HEAD" else json.loads(content)
            assert problem["status"] == status
            raise IntegrityError(problem["detail"])

    async def _send(
        self, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        """Return the app's response to a request that no HTTP server has checked."""
        sent: list[MutableMapping[str, Any]] = []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            if not messages:
                await asyncio.Event().wait()
            return messages.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        path, _, query = target.partition("?")
        raw = path.encode(errors="replace")
        headers = {"host": "127.0.0.1", **headers, "content-length": str(len(body))}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw.decode()),
            "raw_path": raw,
            "query_string": query.encode(errors="replace"),
            "headers": [(k.encode(), v.encode(errors="replace")) for k, v in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "root_path": "",
        }
        await asyncio.wait_for(self._app(scope, receive, send), 30)
        start, *parts = sent
        content = b"".join(part.get("body", b"") for part in parts)
        return int(start["status"]), dict(start["headers"]), content
