"""HEAD has the headers of GET and no body."""

from __future__ import annotations

import pytest

from support.async_tests import async_test
from support.rest_api import READ_PATHS, READER, SES_1, auth_header, connect, expect_ok, fill_store

PATHS = [
    "/",
    "/docs",
    "/openapi.json",
    "/viewer/app.js",
    "/health/live",
    "/health/ready",
    "/access",
    *READ_PATHS,
    "/agents/nothing/snapshot",
    f"{SES_1}/state?at=1000",
    "/agents?limit=0",
    "/nothing",
]


@pytest.mark.parametrize("path", PATHS)
@async_test
async def test_head_has_the_headers_of_get_and_no_body(connect_readonly, path):
    api = connect_readonly()
    expected = await api.get(path)
    response = await api.head(path)
    assert response.status_code == expected.status_code
    assert response.headers == expected.headers
    assert response.content == b""
    tag = expected.headers.get("etag")
    if tag is not None:
        again = await api.head(path, headers={"If-None-Match": tag})
        assert again.status_code == 304


@async_test
async def test_head_needs_the_same_token_as_get(store, remote_api):
    await fill_store(store)
    for path, status in (("/agents", 401), (SES_1, 401), ("/", 200), ("/metrics", 401)):
        response = await remote_api.head(path)
        assert (response.status_code, response.content) == (status, b"")
        assert (await remote_api.head(path, headers=auth_header(READER))).status_code == 200


@async_test
async def test_head_is_allowed_where_get_is(connect_readonly):
    api = connect_readonly()
    for path in (f"{SES_1}/restore", f"{SES_1}/fork", "/agents/snapshot/restore"):
        response = await api.head(path)
        assert (response.status_code, response.content) == (405, b"")
        assert response.headers["allow"] == "POST"
    response = await api.put(f"{SES_1}/snapshots")
    assert {each.strip() for each in response.headers["allow"].split(",")} == {
        "GET",
        "HEAD",
        "POST",
    }


@async_test
async def test_head_is_counted_and_logged_as_head(store, caplog):
    caplog.set_level("INFO", logger="holdfast.access")
    api = connect(store)
    expect_ok(await api.head("/agents"))
    assert " HEAD /agents 200 0 bytes " in caplog.text
    found = (await api.get("/metrics")).text
    assert 'method="HEAD",route="/agents",status="200"' in found
