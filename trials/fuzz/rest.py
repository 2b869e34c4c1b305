"""Requests to the server: any bytes in paths, queries, headers and bodies.

An answer is below 500, and a refusal is a problem document that changed nothing.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote, unquote

from hypothesis import strategies as st

from holdfast import IntegrityError, Session, SnapshotManager
from holdfast.server import create_app
from holdfast.stores.memory import MemoryStateStore
from trials.fuzz import junk
from trials.fuzz.mutation import changed_bytes, changed_json, changed_text, written
from trials.fuzz.stored import content_of, put_content
from trials.fuzz.trying import Target, Wrong

S = "/agents/research-bot/sessions/ses_1"
TWO = "from_agent=research-bot&from_session=ses_1"
GETS = (
    *(
        "/agents",
        "/agents?limit=1&search=res",
        "/agents/research-bot/sessions",
        "/access",
        "/metrics",
    ),
    *(S, f"{S}/events?first=1&last=3", f"{S}/events/2", f"{S}/state?at=3"),
    *(f"{S}/snapshots?limit=1", f"{S}/document", f"{S}/diff?from=1&to=2", f"{S}/growth"),
    *("/agents/ses_1/snapshot?agent_id=research-bot", "/health/ready", "/", "/openapi.json"),
    *("/viewer/app.js", f"/diff?{TWO}&to_agent=research-bot&to_session=ses_1"),
)
POSTS: tuple[tuple[str, str, Any], ...] = (
    ("POST", f"{S}/restore", {"at": "2"}),
    ("POST", f"{S}/snapshots", {"tags": {"env": "test"}}),
    ("POST", f"{S}/fork", {"session_id": "other", "at": "2"}),
    ("DELETE", f"{S}", None),
)
HEADERS = ("if-match", "if-none-match", "origin", "content-type", "accept", "authorization", "host")
Request = tuple[str, str, list[list[str]], bytes]


def as_input(method: str, target: str, headers: list[list[str]], body: bytes) -> bytes:
    """A request as an input."""
    return json.dumps([method, target, headers, base64.b64encode(body).decode()]).encode()


class REST(Target):
    """The app in this process, on a store in memory."""

    name = "rest"
    refusals = (IntegrityError,)
    """What stands here for an answer of 400 to 499."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._runner = asyncio.Runner()
        self._store = MemoryStateStore()
        self._documents, self._content = self._runner.run(self._filled())
        self._app = create_app(self._store)
        self._requests: list[Request] = [("GET", path, [], b"") for path in GETS]
        self._requests += [
            (method, path, [["content-type", "application/json"]], json.dumps(body).encode())
            for method, path, body in POSTS
        ]
        for path in ("/agents/snapshot/restore", "/agents/snapshot/restore?dry_run=true"):
            self._requests.append(("POST", path, [], self._documents))

    async def _filled(self) -> tuple[bytes, dict[str, bytes]]:
        opened = Session.open(self._store, agent_id="research-bot", session_id="ses_1")
        async with opened as session:
            session.add_message("user", "Compare the two")
            session.set("plan", ("read", b"x"))
            await session.save(tags={"turn": "1"})
            session.add_message("assistant", "Done")
            await session.save()
        manager = SnapshotManager(state_store=self._store)
        document = await manager.export_session(agent_id="research-bot")
        return written(document.to_dict()), await content_of(self._store)

    @property
    def corpus(self) -> Sequence[bytes]:
        """A request to every route."""
        return [as_input(*each) for each in self._requests]

    def mutated(self, rng: Random) -> bytes:
        """A request with another method, path, header or body."""
        method, target, headers, body = rng.choice(self._requests)
        kind = rng.randrange(8)
        if kind == 0:
            method = rng.choice(
                ("GET", "POST", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "BREW")
            )
        if kind in (1, 2, 3):
            target = changed_target(rng, target)
        if kind == 4:
            headers = [*headers, [rng.choice(HEADERS), changed_text(rng, '"*"')]]
        if body and kind > 4:
            body = changed_json(rng, body) if rng.randrange(3) else changed_bytes(rng, body)
        return as_input(method, target, headers, body)

    def made_up(self) -> st.SearchStrategy[bytes]:
        """Bodies of any JSON, and queries of any text."""
        posts = [each for each in self._requests if each[0] == "POST"]
        gets = [each[1].partition("?")[0] for each in self._requests if each[0] == "GET"]
        names = ("at", "tags", "session_id", "agent_id", "state", "schema_version", "if_seq")
        body = st.builds(
            lambda post, tree: as_input(post[0], post[1], post[2], written(tree)),
            st.sampled_from(posts),
            junk.trees(names),
        )
        queries = st.lists(
            st.builds(
                lambda name, value: f"{name}={quote(value.encode(errors='replace'))}",
                st.sampled_from(("limit", "at", "from", "to", "search", "next_token", "agent_id")),
                junk.WORDS | st.integers().map(str),
            ),
            max_size=3,
        )
        query = st.builds(
            lambda path, more: as_input("GET", f"{path}?{'&'.join(more)}", [], b""),
            st.sampled_from(gets),
            queries,
        )
        return body | query

    def attempt(self, data: bytes) -> None:
        """Ask, and see what was answered and what changed."""
        method, target, headers, body = json.loads(data)
        self._runner.run(self._ask(method, target, headers, base64.b64decode(body)))

    async def _ask(self, method: str, target: str, headers: list[list[str]], body: bytes) -> None:
        status, found, content = await self._answer(method, target, headers, body)
        after = await content_of(self._store)
        if after != self._content:
            await put_content(self._store, self._content)
            if status >= 400 or method == "GET":
                raise Wrong(f"an answer of {status} to {method} {target} changed the store")
        if status >= 500:
            raise Wrong(f"{status} for {method} {target[:80]}: {content[:300]!r}")
        if status < 400:
            return
        is_problem = found.get(b"content-type") == b"application/problem+json"
        if not is_problem or json.loads(content)["status"] != status:
            raise Wrong(f"{status} for {method} {target[:80]} is no problem document")
        raise IntegrityError(json.loads(content)["detail"])

    async def _answer(
        self, method: str, target: str, headers: list[list[str]], body: bytes
    ) -> tuple[int, dict[bytes, bytes], bytes]:
        """What the app answers to a request whose bytes nobody looks at before."""
        sent: list[MutableMapping[str, Any]] = []
        arriving = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            if not arriving:
                await asyncio.Event().wait()
            return arriving.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        path, _, query = target.partition("?")
        raw = path.encode(errors="surrogateescape")
        encoded = [(b"host", b"127.0.0.1")] if not any(h[0] == "host" for h in headers) else []
        for name, value in [*headers, ["content-length", str(len(body))]]:
            encoded.append((name.encode(), value.encode(errors="replace")))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(raw.decode("utf-8", "replace")),
            "raw_path": raw,
            "query_string": query.encode(errors="surrogateescape"),
            "headers": encoded,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "root_path": "",
        }
        await asyncio.wait_for(self._app(scope, receive, send), 30)
        start, *parts = sent
        content = b"".join(part.get("body", b"") for part in parts)
        return int(start["status"]), dict(start["headers"]), content

    def close(self) -> None:
        """End its loop."""
        self._runner.close()


def changed_target(rng: Random, target: str) -> str:
    """A path and a query with a change, percent-encoded or not."""
    found = changed_text(rng, target)[:5000].encode(errors="replace")
    return quote(found, safe="/?&=%") if rng.randrange(3) else found.decode()
