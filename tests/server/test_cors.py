"""Requests from pages of other origins."""

from __future__ import annotations

import pytest

from holdfast.server import create_app
from support.async_tests import async_test
from support.rest_api import (
    READER,
    SES_1,
    TOKENS,
    WRITER,
    auth_header,
    connect,
    expect_ok,
    expect_problem,
    fill_store,
)

EVIL = "https://evil.example"


FRIEND = "https://agents.example.com"


@pytest.mark.parametrize(
    "origin",
    [
        EVIL,
        "null",
        "",
        "http://127.0.0.1:9999",
        "http://127.0.0.1.evil.example",
        "http://evil.example/127.0.0.1",
        "http://127.0.0.1@evil.example",
        "http://[",
        "127.0.0.1",
        "\xff",
    ],
)
@async_test
async def test_cross_origin_write_gets_403(connect_readonly, origin):
    api = connect_readonly()
    headers = {"Origin": origin.encode("latin-1"), "Content-Type": "text/plain"}
    document = (await api.get(f"{SES_1}/document")).content
    for method, path, body in (
        ("POST", f"{SES_1}/snapshots", b""),
        ("POST", f"{SES_1}/fork", b""),
        ("POST", "/agents/snapshot/restore?session_id=new", document),
        ("DELETE", SES_1, b""),
    ):
        response = await api.request(method, path, content=body, headers=headers)
        expect_problem(response, 403, "page", kind="forbidden")
        assert "access-control-allow-origin" not in response.headers


@async_test
async def test_same_origin_write_is_allowed(store, api):
    await fill_store(store)
    for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        expect_ok(await api.post(f"{SES_1}/snapshots", headers=headers), 201)


@async_test
async def test_no_cors_headers_without_allowed_origins(store, api):
    await fill_store(store)
    for path in ("/agents", SES_1, "/nothing", "/", "/openapi.json"):
        response = await api.get(path, headers={"Origin": EVIL})
        assert not [name for name in response.headers if name.startswith("access-control")]
    asking = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
    response = await api.options(f"{SES_1}/fork", headers=asking)
    expect_problem(response, 405)
    assert not [name for name in response.headers if name.startswith("access-control")]


@async_test
async def test_allowed_origin_can_read_and_write_with_a_token(store):
    await fill_store(store)
    api = connect(store, tokens=TOKENS, cors_origins=[FRIEND])
    asking = {
        "Origin": FRIEND,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    response = await api.options(f"{SES_1}/fork", headers=asking)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == FRIEND
    friend = {"Origin": FRIEND}
    refused = await api.get("/agents", headers=friend)
    expect_problem(refused, 401)
    assert refused.headers["access-control-allow-origin"] == FRIEND
    response = await api.get("/agents", headers={**friend, **auth_header(READER)})
    assert response.headers["access-control-allow-origin"] == FRIEND
    assert "access-control-allow-credentials" not in response.headers
    expect_ok(await api.post(f"{SES_1}/fork", headers={**friend, **auth_header(WRITER)}), 201)
    response = await api.get("/agents", headers={"Origin": EVIL, **auth_header(READER)})
    assert "access-control-allow-origin" not in response.headers
    expect_problem(
        await api.post(f"{SES_1}/fork", headers={"Origin": EVIL, **auth_header(WRITER)}), 403
    )
    response = await api.options(f"{SES_1}/fork", headers={**asking, "Origin": EVIL})
    assert response.headers.get("access-control-allow-origin") != EVIL


@async_test
async def test_options_request_reveals_nothing_without_a_token(store):
    await fill_store(store)
    for origins in ([], [FRIEND]):
        api = connect(store, tokens=TOKENS, cors_origins=origins)
        response = await api.options(f"{SES_1}/state")
        assert response.status_code in (401, 405)
        assert "Compare" not in response.text


@pytest.mark.parametrize(
    "origin", ["*", "null", "agents.example.com", "https://a.example/", "ftp://x"]
)
def test_invalid_origin_is_rejected(store, origin):
    with pytest.raises(ValueError, match="origin"):
        create_app(store, cors_origins=[origin])


def test_origins_given_as_a_str_are_rejected(store):
    with pytest.raises(TypeError, match="list of origins"):
        create_app(store, cors_origins=FRIEND)


@async_test
async def test_allowed_origin_may_send_head(store):
    origin = "https://agents.example.com"
    api = connect(store, cors_origins=[origin])
    headers = {"Origin": origin, "Access-Control-Request-Method": "HEAD"}
    assert (await api.options("/agents", headers=headers)).status_code == 200
