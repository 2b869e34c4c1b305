"""HEAD: the headers that GET has, and no body."""

from __future__ import annotations

import pytest

from support.async_tests import async_test
from support.rest_api import READER, S, bearer, client, filled, good

PATHS = [
    "/",
    "/docs",
    "/openapi.json",
    "/viewer/app.js",
    "/health/live",
    "/health/ready",
    "/access",
    "/agents",
    "/agents/research-bot/sessions",
    S,
    f"{S}/events",
    f"{S}/events/1",
    f"{S}/state",
    f"{S}/diff?from=1",
    f"{S}/growth",
    f"{S}/snapshots",
    f"{S}/document",
    "/agents/ses_1/snapshot",
    "/agents/nothing/snapshot",
    f"{S}/state?at=1000",
    "/agents?limit=0",
    "/nothing",
]


@pytest.mark.parametrize("path", PATHS)
@async_test
async def test_head_has_the_headers_of_get_and_no_body(looking, path):
    api = looking()
    asked = await api.get(path)
    answered = await api.head(path)
    assert answered.status_code == asked.status_code
    assert answered.headers == asked.headers
    assert answered.content == b""
    tag = asked.headers.get("etag")
    if tag is not None:
        again = await api.head(path, headers={"If-None-Match": tag})
        assert again.status_code == 304


@async_test
async def test_head_needs_the_token_that_get_needs(store, guarded):
    await filled(store)
    for path, status in (("/agents", 401), (S, 401), ("/", 200), ("/metrics", 401)):
        answered = await guarded.head(path)
        assert (answered.status_code, answered.content) == (status, b"")
        assert (await guarded.head(path, headers=bearer(READER))).status_code == 200


@async_test
async def test_head_is_for_what_get_is_for(looking):
    api = looking()
    for path in (f"{S}/restore", f"{S}/fork", "/agents/snapshot/restore"):
        answered = await api.head(path)
        assert (answered.status_code, answered.content) == (405, b"")
        assert answered.headers["allow"] == "POST"
    answered = await api.put(f"{S}/snapshots")
    assert {each.strip() for each in answered.headers["allow"].split(",")} == {
        "GET",
        "HEAD",
        "POST",
    }


@async_test
async def test_head_is_counted_and_logged_as_what_it_is(store, caplog):
    caplog.set_level("INFO", logger="holdfast.access")
    api = client(store)
    good(await api.head("/agents"))
    assert " HEAD /agents 200 0 bytes " in caplog.text
    found = (await api.get("/metrics")).text
    assert 'method="HEAD",route="/agents",status="200"' in found


@async_test
async def test_a_page_elsewhere_that_may_read_may_ask_for_headers(store):
    origin = "https://agents.example.com"
    api = client(store, cors_origins=[origin])
    asked = {"Origin": origin, "Access-Control-Request-Method": "HEAD"}
    assert (await api.options("/agents", headers=asked)).status_code == 200
