"""What is wrong in a request is told as a problem document, in the library's words."""

from __future__ import annotations

import pytest

from support.async_tests import async_test
from support.rest_api import S, good, problem, raw

JSON = {"Content-Type": "application/json"}
GETS = [
    "/agents",
    "/agents/research-bot/sessions",
    S,
    f"{S}/events",
    f"{S}/events/1",
    f"{S}/state",
    f"{S}/diff?from=0",
    f"{S}/growth",
    f"{S}/snapshots",
    f"{S}/document",
    "/agents/ses_1/snapshot",
    "/health/live",
    "/metrics",
    "/access",
    "/",
    "/openapi.json",
]


@pytest.fixture
def api(looking):
    """Asks the app, which changes nothing."""
    return looking()


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
        f"{S}/nothing",
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
async def test_a_path_that_leads_nowhere_is_said_to(api, path):
    status, content = await raw(api, "GET", path.encode())
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
async def test_a_hostile_id_in_a_path_is_an_id_that_is_not_there(api, encoded, status):
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
            found, content = await raw(api, method, f"{path}{end}".encode())
            assert found in (404, 405, status), (path, content)
            assert b"Traceback" not in content
    found, _ = await raw(api, "GET", f"/agents/{encoded}/sessions".encode())
    assert found == status
    found, _ = await raw(api, "GET", f"/agents/{encoded}/snapshot".encode())
    assert found == status


@pytest.mark.parametrize("path", [b"/agents/\xff/sessions", b"/\xff", b"/agents/a b", b"", b"*"])
@async_test
async def test_bytes_in_a_path_that_no_browser_sends_are_refused(api, path):
    status, _ = await raw(api, "GET", path)
    assert status in (404, 422)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/agents"),
        ("DELETE", "/agents"),
        ("PATCH", S),
        ("POST", f"{S}/state"),
        ("GET", f"{S}/restore"),
        ("GET", f"{S}/fork"),
        ("GET", "/agents/snapshot/restore"),
        ("POST", "/"),
        ("TRACE", "/agents"),
        ("BREW", "/agents"),
        ("OPTIONS", "/agents"),
    ],
)
@async_test
async def test_another_method_than_a_route_has_is_refused(api, method, path):
    answered = await api.request(method, path)
    problem(answered, 405, method, kind="method-not-allowed")
    assert answered.headers["allow"]


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
async def test_a_wrong_parameter_of_a_listing_is_named(api, query):
    for path in ("/agents", "/agents/research-bot/sessions", f"{S}/snapshots"):
        if "search" in query and path == f"{S}/snapshots":
            continue
        tree = problem(await api.get(f"{path}?{query}"), 422, query.split("=")[0], kind="invalid")
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
async def test_a_wrong_parameter_of_a_session_is_refused(api, path):
    answered = await api.get(S + (path if path.startswith("?") else f"/{path}"))
    assert answered.status_code in (404, 422)
    tree = problem(answered, answered.status_code)
    assert len(answered.content) < 10_000
    assert tree["status"] == 422 or path.startswith(("state?at=-1", "state?at=9", "events/"))


@async_test
async def test_a_query_of_any_bytes_is_no_failure(api):
    for query in (b"\xff", b"search=\xff\xfe", b"search=%ff", b"a=b&&&=&;", b"limit=%00", b"%"):
        for path in GETS:
            status, _ = await raw(api, "GET", path.split("?")[0].encode(), query)
            assert status in (200, 422)
        status, _ = await raw(api, "GET", b"/nothing", query)
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
async def test_a_header_of_any_bytes_is_no_failure(api, header):
    for path in GETS:
        status, _ = await raw(api, "GET", path.split("?")[0].encode(), headers=[header])
        assert status in (200, 422)
    status, _ = await raw(
        api, "POST", f"{S}/snapshots".encode(), b"dry_run=1", headers=[header], body=b"{}"
    )
    assert status in (200, 400, 403, 422)


@async_test
async def test_a_length_of_thousands_of_digits_is_too_large(api):
    status, _ = await raw(api, "POST", b"/agents", headers=[(b"content-length", b"9" * 5000)])
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
async def test_a_body_of_the_wrong_shape_is_refused_and_nothing_is_done(api, body, status):
    for end in ("restore", "fork", "snapshots"):
        if end != "restore" and body in (b"", b"{}"):
            continue  # these take none at all
        answered = await api.post(f"{S}/{end}", content=body, headers=JSON)
        problem(answered, answered.status_code)
        assert answered.status_code in (status, 422)
        assert len(answered.content) < 20_000


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "x"])
@async_test
async def test_a_body_that_a_form_of_another_page_can_send_is_not_taken_for_json(api, kind):
    headers = {} if kind is None else {"Content-Type": kind}
    answered = await api.post(f"{S}/restore", content=b'{"at": "0"}', headers=headers)
    assert answered.status_code in (415, 422)
    problem(answered, answered.status_code)


@async_test
async def test_tags_that_cannot_be_kept_are_refused(api):
    for tags in (b'{"a": 1}', b'{"a": null}', b"[]", b'{"a": "\\ud800"}', b'{"\\ud800": "a"}'):
        body = b'{"tags": ' + tags + b"}"
        problem(await api.post(f"{S}/snapshots", content=body, headers=JSON), 422, kind="invalid")


@async_test
async def test_the_details_of_a_problem_are_the_words_of_the_library(api, unchanging):
    from holdfast import NotFoundError, SnapshotManager

    with pytest.raises(NotFoundError) as said:
        await SnapshotManager(unchanging[0]).locate("research-bot", "ses_9")
    tree = problem(await api.get("/agents/research-bot/sessions/ses_9"), 404, kind="not-found")
    assert tree["detail"] == str(said.value)
    assert set(tree) == {"type", "title", "status", "detail", "hint", "instance"}
    assert good(await api.get(S))["session_id"] == "ses_1"
