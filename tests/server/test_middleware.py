"""The gate around any app: answers that break off, and those who are gone before one comes."""

from __future__ import annotations

import logging

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from holdfast.server.auth import Token, Tokens
from holdfast.server.metrics import Metrics
from holdfast.server.middleware import Gate, Limits
from holdfast.server.problems import Problem
from support.async_tests import async_test
from support.rest_api import READER

ASKED = {
    "type": "http",
    "method": "GET",
    "path": "/a",
    "raw_path": b"/a",
    "root_path": "",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
    "client": ("127.0.0.1", 1),
}


def gate(app, *tokens):
    """A gate before an app, with what it counted."""
    metrics = Metrics()
    return Gate(app, tokens=Tokens(tokens), limits=Limits(), metrics=metrics), metrics


async def ask(app, *, scope=ASKED, arriving=(), hang_up_at=99):
    """What an app sends; at one of its messages the other side is gone."""
    sent, parts = [], list(arriving)

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
async def test_an_answer_that_breaks_off_is_not_followed_by_another_one(caplog):
    async def breaking(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ZeroDivisionError("in the middle")

    app, metrics = gate(breaking)
    # The server behind it hears of it and cuts the connection: half must not look like all.
    with pytest.raises(Problem):
        await ask(app)
    assert "in the middle" in caplog.text
    assert b'status="200"' in metrics.text()


@pytest.mark.parametrize("hang_up_at", [0, 1])
@async_test
async def test_who_is_gone_before_the_answer_comes_is_no_error(caplog, hang_up_at):
    caplog.set_level(logging.INFO, logger="holdfast")
    for tokens in ((), (Token(READER),)):
        app, _ = gate(hello, *tokens)
        assert len(await ask(app, hang_up_at=hang_up_at)) == hang_up_at
    assert caplog.text.count("went away") == 2
    assert "ERROR" not in [record.levelname for record in caplog.records]


@async_test
async def test_who_is_gone_before_the_body_is_there_is_no_error_and_counted_apart(caplog):
    async def reading(scope, receive, send):
        await Request(scope, receive).body()
        raise AssertionError("there was none")

    app, metrics = gate(reading)
    arriving = [{"type": "http.request", "body": b"{", "more_body": True}]
    assert await ask(app, arriving=arriving) == []
    assert b'status="499"' in metrics.text()
    assert "ERROR" not in [record.levelname for record in caplog.records]


@async_test
async def test_what_is_no_request_passes():
    seen = []

    async def noting(scope, receive, send):
        seen.append(scope)

    app, _ = gate(noting, Token(READER))
    await ask(app, scope={"type": "lifespan"})
    assert seen == [{"type": "lifespan"}]


@async_test
async def test_headers_that_an_app_sets_itself_stay():
    async def own(scope, receive, send):
        headers = {"Cache-Control": "private", "Content-Security-Policy": "default-src 'none'"}
        await PlainTextResponse("hello", headers=headers)(scope, receive, send)

    app, _ = gate(own)
    headers = dict((await ask(app))[0]["headers"])
    assert headers[b"cache-control"] == b"private"
    assert headers[b"content-security-policy"] == b"default-src 'none'"
    assert headers[b"x-frame-options"] == b"DENY"
