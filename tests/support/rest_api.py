"""Clients of the REST API, sample sessions, and checks that hold for every response."""

from __future__ import annotations

import asyncio
import hashlib
import json
from urllib.parse import unquote

import httpx

from holdfast import RetentionPolicy, Session
from holdfast.server import Token, create_app
from holdfast.stores.memory import MemoryStateStore

LOOPBACK = ("127.0.0.1", 1234)
READER, WRITER, ANN_ONLY = (
    "reader-secret-0123456789",
    "writer-secret-0123456789",
    "ann-secret-0123456789",
)
TOKENS = [
    Token(READER, "read", name="reader"),
    Token(WRITER, name="writer"),
    Token(ANN_ONLY, agents=frozenset(("ann", "ghost")), name="ann-only"),
]
SES_1 = "/agents/research-bot/sessions/ses_1"
IMAGE = b"\x89PNG\r\n\x1a\npixels"
IMAGE_DIGEST = hashlib.sha256(IMAGE).hexdigest()
READ_PATHS = [
    "/agents",
    "/agents/research-bot/sessions",
    SES_1,
    f"{SES_1}/events",
    f"{SES_1}/events/1",
    f"{SES_1}/state",
    f"{SES_1}/diff?from=0",
    f"{SES_1}/growth",
    f"{SES_1}/snapshots",
    f"{SES_1}/document",
    f"{SES_1}/blobs/{IMAGE_DIGEST}",
    "/agents/ses_1/snapshot",
]
"""A path of every route that reads agents and sessions."""
ODD = "a/b ..?#%<script>\u00e9\u2028"
ODD_PATH = "a%2Fb%20..%3F%23%25%3Cscript%3E%C3%A9%E2%80%A8"


def connect(
    store, *, address=LOOPBACK, host="http://127.0.0.1", token=None, raises=True, **options
):
    """Return a client of a new app on a store."""
    return connect_app(
        create_app(store, **options), address=address, host=host, token=token, raises=raises
    )


def connect_app(app, *, address=LOOPBACK, host="http://127.0.0.1", token=None, raises=True):
    """Return a client of an app; it checks the headers of every response."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app, client=address, raise_app_exceptions=raises),
        base_url=host,
        headers={} if token is None else auth_header(token),
        event_hooks={"response": [check_headers]},
    )


def auth_header(secret):
    """Return the header with a token."""
    return {"Authorization": f"Bearer {secret}"}


async def check_headers(response):
    """Check that a response lets a browser run nothing but the viewer's files."""
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cross-origin-resource-policy"] == "same-origin"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert "cache-control" in response.headers


def expect_problem(response, status, *words, kind=None):
    """Check that a response is a problem document with these words, and return it."""
    assert response.status_code == status, (response.status_code, response.text)
    assert response.headers["content-type"] == "application/problem+json"
    tree = response.json()
    assert tree["status"] == status
    assert tree["type"].startswith("urn:holdfast:")
    assert tree["title"]
    assert tree["detail"]
    assert tree["hint"]
    assert tree["instance"] == response.request.url.raw_path.split(b"?")[0].decode()
    assert "Traceback" not in response.text
    assert 'File "' not in response.text
    for word in words:
        assert word in tree["detail"], tree
    if kind is not None:
        assert tree["type"] == f"urn:holdfast:{kind}"
    return tree


def expect_ok(response, status=200):
    """Check the status of a response, and return its JSON."""
    assert response.status_code == status, (response.status_code, response.text)
    return response.json() if response.content else None


async def send_raw(api, method, path, query=b"", headers=(), body=b"", on_send=None):
    """Send a path, a query and headers of any bytes; return the status and the body."""
    sent, incoming = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if not incoming:
            await asyncio.Event().wait()
        return incoming.pop()

    async def send(message):
        sent.append(message)
        if on_send is not None:
            await on_send()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path.decode("utf-8", "replace")),
        "raw_path": path,
        "query_string": query,
        "headers": [(b"host", b"127.0.0.1"), *headers],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }
    await api._transport.app(scope, receive, send)
    start, *parts = sent
    content = b"".join(part["body"] for part in parts)
    sent_headers = dict(start["headers"])
    assert b"content-security-policy" in sent_headers
    if start["status"] >= 400:
        assert sent_headers[b"content-type"] == b"application/problem+json"
        assert json.loads(content)["status"] == start["status"]
    return start["status"], content


async def dump_store(store):
    """Return everything in a store, by key."""
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


async def fill_store(store):
    """Add a session with two snapshots, and one shared by two agents; return the snapshot ids."""
    async with Session.open(store, agent_id="research-bot", session_id="ses_1") as one:
        one.status = "running"
        one.add_message("user", "Compare the two")
        one.set("plan", ["read", "compare"])
        one.set("old", 1)
        first = await one.save(tags={"turn": "1"})
        one.add_message("assistant", "B is newer")
        one.set("plan", ["answer"])
        one.set("exact", {1: (2, b"\x00")})
        one.delete("old")
        image = await one.attach(IMAGE, name="chart.png")
        one.record("tool.called", {"tool": "search", "image": image})
        second = await one.save(tags={"turn": "2", "odd": ODD})
    for agent in ("ann", "bob"):
        async with Session.open(store, agent_id=agent, session_id="ses_shared") as other:
            other.add_message("user", f"hello {agent}")
    return first.snapshot_id, second.snapshot_id


async def add_pruned_session(store):
    """Add a session whose first events were pruned; return the number of the first one kept."""
    session = await Session.open(store, agent_id="pruned-bot", session_id="ses_p")
    for text in "abcdef":
        session.add_message("user", text)
        await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    log_start = (await session.archive.load_manifest(location=session.location)).log_start.seq
    assert log_start > 1
    return log_start + 1


async def open_session(store, agent_id="research-bot", session_id="ses_1", **options):
    """Open an existing session, as another process would."""
    return await Session.open(
        store, agent_id=agent_id, session_id=session_id, must_exist=True, **options
    )


async def read_pages(api, path, name, **query):
    """Read a listing page by page; return all rows and the size of each page."""
    rows, sizes, cursor = [], [], None
    while True:
        params = query if cursor is None else {**query, "cursor": cursor}
        page = expect_ok(await api.get(path, params=params))
        assert set(page) == {name, "next_cursor"}
        rows += page[name]
        sizes.append(len(page[name]))
        cursor = page["next_cursor"]
        if cursor is None:
            return rows, sizes
        assert len(sizes) < 100


class FailingStateStore(MemoryStateStore):
    """A store whose reads raise ``error`` while it is set."""

    error: Exception | None = None

    async def get(self, key):
        self._check()
        return await super().get(key)

    async def get_many(self, keys):
        self._check()
        return await super().get_many(keys)

    def list(self, prefix="", **bounds):
        self._check()
        return super().list(prefix, **bounds)

    def _check(self):
        if self.error is not None:
            raise self.error
