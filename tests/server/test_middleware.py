"""The middlewares around any app: logs, metrics, responses that break off, disconnects."""

from __future__ import annotations

import logging

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from holdfast.server.app import make_middleware
from holdfast.server.auth import Token, Tokens
from holdfast.server.context import AppContext
from holdfast.server.limits import Limits
from holdfast.server.problems import Problem
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.rest_api import READER

SCOPE = {
    "type": "http",
    "method": "GET",
    "path": "/a",
    "raw_path": b"/a",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
    "client": ("127.0.0.1", 1),
}


def wrap(app, *tokens, origins=()):
    """Return an app behind all middlewares, and the metrics that they count."""
    limits = Limits()
    context = AppContext(MemoryStateStore(), limits)
    for each in reversed(make_middleware(Tokens(tokens), limits, context, origins)):
        app = each.cls(app, *each.args, **each.kwargs)
    return app, context.metrics


async def call(app, *, scope=SCOPE, incoming=(), hang_up_at=99):
    """Return what an app sends; the client disconnects at one of its messages."""
    sent, parts = [], list(incoming)

    async def receive():
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message):
        if len(sent) >= hang_up_at:
            raise OSError("the connection is gone")
        sent.append(message)

    await app(scope, receive, send)
    return sent


async def hello(scope, receive, send):
    await PlainTextResponse("hello")(scope, receive, send)


@async_test
async def test_response_that_breaks_off_is_not_followed_by_another_one(caplog):
    async def breaking(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError("in the middle")

    app, metrics = wrap(breaking)
    # The server cuts the connection, so that half a response does not look complete.
    with pytest.raises(Problem):
        await call(app)
    assert "in the middle" in caplog.text
    assert b'status="200"' in metrics.text()


@pytest.mark.parametrize("hang_up_at", [0, 1])
@async_test
async def test_client_that_disconnects_before_the_response_is_not_an_error(caplog, hang_up_at):
    caplog.set_level(logging.INFO, logger="holdfast")
    for tokens in ((), (Token(READER),)):
        app, _ = wrap(hello, *tokens)
        assert len(await call(app, hang_up_at=hang_up_at)) == hang_up_at
    assert caplog.text.count("client disconnected") == 2
    assert "ERROR" not in [record.levelname for record in caplog.records]


@async_test
async def test_client_that_disconnects_before_the_body_arrives_counts_as_499(caplog):
    async def reading(scope, receive, send):
        await Request(scope, receive).body()
        raise AssertionError("there was none")

    app, metrics = wrap(reading)
    incoming = [{"type": "http.request", "body": b"{", "more_body": True}]
    assert await call(app, incoming=incoming) == []
    assert b'status="499"' in metrics.text()
    assert "ERROR" not in [record.levelname for record in caplog.records]


@async_test
async def test_every_request_is_logged_and_counted(caplog):
    async def fail(scope, receive, send):
        raise ZeroDivisionError

    caplog.set_level(logging.INFO, logger="holdfast.access")
    origin = (b"origin", b"https://a.example")
    app, metrics = wrap(fail, Token(READER), origins=("https://a.example",))
    for method, headers, status in (
        ("GET", [], 401),
        ("HEAD", [(b"authorization", f"Bearer {READER}".encode())], 500),
        ("OPTIONS", [origin, (b"access-control-request-method", b"POST")], 200),
        ("POST", [(b"content-length", b"9" * 9)], 401),
    ):
        caplog.clear()
        scope = {**SCOPE, "method": method, "headers": [*SCOPE["headers"], *headers]}
        start, *_ = await call(app, scope=scope)
        assert start["status"] == status
        lines = [each.getMessage() for each in caplog.records if each.name == "holdfast.access"]
        assert len(lines) == 1
        assert lines[0].startswith(f"127.0.0.1 {method} /a {status} ")
        assert f'method="{method}",route="-",status="{status}"'.encode() in metrics.text()


@async_test
async def test_scopes_other_than_http_pass():
    seen = []

    async def record(scope, receive, send):
        seen.append(scope)

    app, _ = wrap(record, Token(READER))
    await call(app, scope={"type": "lifespan"})
    assert seen == [{"type": "lifespan"}]


@async_test
async def test_headers_set_by_the_app_are_kept():
    async def own(scope, receive, send):
        headers = {"Cache-Control": "private", "Content-Security-Policy": "default-src 'none'"}
        await PlainTextResponse("hello", headers=headers)(scope, receive, send)

    app, _ = wrap(own)
    headers = dict((await call(app))[0]["headers"])
    assert headers[b"cache-control"] == b"private"
    assert headers[b"content-security-policy"] == b"default-src 'none'"
    assert headers[b"x-frame-options"] == b"DENY"
