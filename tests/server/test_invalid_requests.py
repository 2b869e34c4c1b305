"""Invalid paths, queries, headers and bodies."""

from __future__ import annotations

import pytest

from holdfast import NotFoundError, SnapshotManager
from support.async_tests import async_test
from support.rest_api import READ_PATHS, SES_1, expect_ok, expect_problem, send_raw

JSON = {"Content-Type": "application/json"}
GETS = [
    *READ_PATHS,
    "/health/live",
    "/metrics",
    "/access",
    "/",
    "/openapi.json",
]


@pytest.fixture
def api(connect_readonly):
    """A client of an app whose store must not change."""
    return connect_readonly()


# ------------------------------------------------------------------------------------------ paths


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/agents/",
        "/agents//sessions",
        "/agents/research-bot",
        "/agents/research-bot/sessions/",
        "/agents/research-bot/sessions/ses_1/",
        f"{SES_1}/nothing",
        "/viewer/",
        "/viewer/nothing.js",
        "/viewer/..%2Fapp.py",
        "/viewer/%2e%2e%2fapp.py",
        "/viewer/..%5Capp.py",
        "/viewer/%00",
        "/viewer/index.html%00.js",
        "//agents",
        "/AGENTS",
        "/redoc",
        "/docs/oauth2-redirect",
        "/agents/research-bot%2Fsessions",
        "/agents%2Fresearch-bot/sessions",
        "/%61gents",
    ],
)
@async_test
async def test_unknown_path_gets_404(api, path):
    status, content = await send_raw(api, "GET", path.encode())
    assert status == 404
    assert b"<script>" not in content


@pytest.mark.parametrize(
    ("encoded", "status"),
    [
        ("%ff", 422),
        ("%C3%28", 422),
        ("%ED%A0%80", 422),
        ("a" * 257, 422),
        ("a" * 300, 422),
        ("%F0%9F%92%A9" * 257, 422),
        ("a" * 256, 404),
        ("%00", 404),
        ("..", 404),
        ("%2E%2E", 404),
        ("..%2F..%2Fetc%2Fpasswd", 404),
        ("%2F", 404),
        ("%252F", 404),
        ("%", 404),
        ("%zz", 404),
        ("%0D%0ASet-Cookie:%20a=b", 404),
        ("<script>alert(1)</script>", 404),
        ("%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404),
        ("'%20OR%201=1%20--", 404),
        ("*", 404),
        ("now", 404),
    ],
)
@async_test
async def test_hostile_id_in_a_path_is_not_found(api, encoded, status):
    for path in (f"/agents/{encoded}/sessions/ses_1", f"/agents/research-bot/sessions/{encoded}"):
        for method, end in (
            ("GET", ""),
            ("GET", "/state"),
            ("GET", "/document"),
            ("POST", "/snapshots"),
            ("POST", "/fork"),
            ("DELETE", ""),
        ):
            if "/" in encoded:
                encoded = encoded.replace("/", "%2F")
            found, content = await send_raw(api, method, f"{path}{end}".encode())
            assert found in (404, 405, status), (path, content)
            assert b"Traceback" not in content
    found, _ = await send_raw(api, "GET", f"/agents/{encoded}/sessions".encode())
    assert found == status
    found, _ = await send_raw(api, "GET", f"/agents/{encoded}/snapshot".encode())
    assert found == status


@pytest.mark.parametrize("path", [b"/agents/\xff/sessions", b"/\xff", b"/agents/a b", b"", b"*"])
@async_test
async def test_non_ascii_path_is_not_an_error_of_the_server(api, path):
    status, _ = await send_raw(api, "GET", path)
    assert status in (404, 422)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/agents"),
        ("DELETE", "/agents"),
        ("PATCH", SES_1),
        ("POST", f"{SES_1}/state"),
        ("GET", f"{SES_1}/restore"),
        ("GET", f"{SES_1}/fork"),
        ("GET", "/agents/snapshot/restore"),
        ("POST", "/"),
        ("TRACE", "/agents"),
        ("BREW", "/agents"),
        ("OPTIONS", "/agents"),
    ],
)
@async_test
async def test_unsupported_method_gets_405(api, method, path):
    response = await api.request(method, path)
    expect_problem(response, 405, method, kind="method-not-allowed")
    assert response.headers["allow"]


# ---------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=-1",
        "limit=1001",
        "limit=x",
        "limit=1.5",
        "limit=",
        "limit=NaN",
        "limit=" + "9" * 5000,
        "search=" + "x" * 257,
    ],
)
@async_test
async def test_invalid_parameter_of_a_listing_is_named(api, query):
    for path in ("/agents", "/agents/research-bot/sessions", f"{SES_1}/snapshots"):
        if "search" in query and path == f"{SES_1}/snapshots":
            continue
        tree = expect_problem(
            await api.get(f"{path}?{query}"), 422, query.split("=")[0], kind="invalid"
        )
        assert tree["errors"][0]["where"] == f"query.{query.split('=')[0]}"
        assert tree["errors"][0]["what"]


@pytest.mark.parametrize(
    "path",
    [
        "events?first=0",
        "events?first=-1",
        "events?first=1000000000000",
        "events?last=0",
        "events?limit=1001",
        "events?brief=perhaps",
        "events/x",
        "events/1e3",
        "growth?points=1",
        "growth?points=2001",
        "state?at=",
        "state?at=-1",
        "state?at=1.5",
        "state?at=9999999999999",
        "state?at=a%2Fb",
        "state?at=%00",
        "state?at=" + "x" * 129,
        "state?message_limit=-1",
        "state?message_offset=x",
        "state?message_offset=" + "9" * 30,
        "diff",
        "diff?from=",
        "diff?from=0&limit=0",
        "diff?from=0&patch=7",
        "snapshots/a%2Fb",
        "snapshots/" + "x" * 129,
        "?scope=",
        "?scope=agent%00",
        "document?at=a%20b",
        "document?redact=maybe",
    ],
)
@async_test
async def test_invalid_parameter_of_a_session_is_rejected(api, path):
    response = await api.get(SES_1 + (path if path.startswith("?") else f"/{path}"))
    assert response.status_code in (404, 422)
    tree = expect_problem(response, response.status_code)
    assert len(response.content) < 10_000
    assert tree["status"] == 422 or path.startswith(("state?at=-1", "state?at=9", "events/"))


@async_test
async def test_query_of_any_bytes_is_not_an_error_of_the_server(api):
    for query in (b"\xff", b"search=\xff\xfe", b"search=%ff", b"a=b&&&=&;", b"limit=%00", b"%"):
        for path in GETS:
            status, _ = await send_raw(api, "GET", path.split("?")[0].encode(), query)
            assert status in (200, 422)
        status, _ = await send_raw(api, "GET", b"/nothing", query)
        assert status == 404


@pytest.mark.parametrize(
    "header",
    [
        (b"if-none-match", b"\xff\xfe"),
        (b"if-none-match", b'"' * 5000),
        (b"authorization", b"\xff"),
        (b"authorization", b"Bearer"),
        (b"authorization", b"Basic \x80:\x80"),
        (b"content-length", b"-1"),
        (b"content-length", b"x"),
        (b"content-length", "\u00b2".encode("latin-1")),
        (b"content-type", b"\xff/;;;="),
        (b"content-type", b"application/json; charset=nothing"),
        (b"origin", b"http://["),
        (b"origin", b"\xff"),
        (b"accept", b"nothing/nothing"),
        (b"traceparent", b"garbage"),
        (b"range", b"bytes=-1-"),
        (b"cookie", b";;;===\xff"),
    ],
    ids=repr,
)
@async_test
async def test_header_of_any_bytes_is_not_an_error_of_the_server(api, header):
    for path in GETS:
        status, _ = await send_raw(api, "GET", path.split("?")[0].encode(), headers=[header])
        assert status in (200, 422)
    status, _ = await send_raw(
        api, "POST", f"{SES_1}/snapshots".encode(), b"dry_run=1", headers=[header], body=b"{}"
    )
    assert status in (200, 400, 403, 422)


@async_test
async def test_content_length_with_thousands_of_digits_gets_413(api):
    status, _ = await send_raw(api, "POST", b"/agents", headers=[(b"content-length", b"9" * 5000)])
    assert status == 413


# ----------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"nonsense", 400),
        (b"\xff\xfe\x00", 400),
        (b"[" * 10_000, 400),
        (b"[" * 10_000 + b"]" * 10_000, 400),
        (b'{"at":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 400),
        (b'{"at":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001, 400),
        (b'{"at":' + b"[" * 500 + b"]" * 500 + b"}", 422),
        (b'{"at":' + b"9" * 5000 + b"}", 400),
        (b"NaN", 422),
        (b'{"at": NaN}', 422),
        (b'{"at": 1e999}', 422),
        (b'{"at": -1}', 422),
        (b'{"at": 17}', 422),
        (b'{"at": "-1"}', 404),
        (b'{"at": null}', 422),
        (b'{"at": ""}', 422),
        (b'{"at": "\\ud800"}', 422),
        (b'{"at": "a\\u0000"}', 422),
        (b'{"at": "now", "more": 1}', 422),
        (b'{"at": "now", "\\ud800": 1}', 422),
        (b"[]", 422),
        (b"null", 422),
        (b'"now"', 422),
        (b"{}", 422),
    ],
    ids=lambda value: repr(value)[:25],
)
@async_test
async def test_body_of_the_wrong_shape_is_rejected(api, body, status):
    for end in ("restore", "fork", "snapshots"):
        if end != "restore" and body in (b"", b"{}"):
            continue  # the body is optional
        response = await api.post(f"{SES_1}/{end}", content=body, headers=JSON)
        expect_problem(response, response.status_code)
        assert response.status_code in (status, 422)
        assert len(response.content) < 20_000


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "x"])
@async_test
async def test_body_that_an_html_form_can_send_is_not_parsed_as_json(api, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    response = await api.post(f"{SES_1}/restore", content=b'{"at": "0"}', headers=headers)
    assert response.status_code in (415, 422)
    expect_problem(response, response.status_code)


@async_test
async def test_invalid_tags_are_rejected(api):
    for tags in (b'{"a": 1}', b'{"a": null}', b"[]", b'{"a": "\\ud800"}', b'{"\\ud800": "a"}'):
        body = b'{"tags": ' + tags + b"}"
        for path in (f"{SES_1}/snapshots", f"{SES_1}/snapshots?dry_run=true"):
            response = await api.post(path, content=body, headers=JSON)
            expect_problem(response, 422, kind="invalid")


@async_test
async def test_problem_detail_is_the_message_of_the_library(api, sample_app):
    with pytest.raises(NotFoundError) as raised:
        await SnapshotManager(sample_app[0]).locate("research-bot", "ses_9")
    tree = expect_problem(
        await api.get("/agents/research-bot/sessions/ses_9"), 404, kind="not-found"
    )
    assert tree["detail"] == str(raised.value)
    assert set(tree) == {"type", "title", "status", "detail", "hint", "instance"}
    assert expect_ok(await api.get(SES_1))["session_id"] == "ses_1"
