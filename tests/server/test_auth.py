"""Tokens: what a request may do. Knowing an id grants nothing."""

from __future__ import annotations

import hmac
import logging
import re

import pytest

import holdfast
from holdfast import InvalidDocumentError, Session
from holdfast.server import Token, create_app, read_tokens
from support.async_tests import async_test
from support.rest_api import (
    ANN_ONLY,
    READ_PATHS,
    READER,
    SES_1,
    TOKENS,
    WRITER,
    auth_header,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
)

SHARED = "/agents/ann/sessions/ses_shared"
PUBLIC = [
    "/",
    "/docs",
    "/viewer/app.js",
    "/openapi.json",
    "/health/live",
    "/health/ready",
    "/access",
]
READS = [
    *READ_PATHS,
    "/diff?from_agent=ann&from_session=ses_shared&to_agent=bob&to_session=ses_shared",
    "/metrics",
]
WRITES = [
    ("POST", f"{SES_1}/snapshots"),
    ("POST", f"{SES_1}/restore"),
    ("POST", f"{SES_1}/fork"),
    ("POST", f"{SES_1}/blobs"),
    ("POST", "/agents/snapshot/restore"),
    ("DELETE", SES_1),
    ("DELETE", f"{SES_1}/snapshots/019a8b5e"),
]


# ------------------------------------------------------------------------------------ any token


@async_test
async def test_only_public_paths_are_served_without_a_token(store, remote_api):
    await fill_store(store)
    before = await dump_store(store)
    for path in PUBLIC:
        assert (await remote_api.get(path)).status_code == 200, path
    for method, path in [*(("GET", path) for path in READS), *WRITES, ("GET", "/nothing")]:
        response = await remote_api.request(method, path)
        tree = expect_problem(response, 401, kind="unauthorized")
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert "Authorization: Bearer" in tree["hint"]
        assert "research-bot" not in tree["detail"]
    assert await dump_store(store) == before


@async_test
async def test_invalid_authorization_header_gets_401(remote_api):
    for header in (
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {READER}x",
        f"Bearer {READER[:-1]}",
        f"Bearer {READER.upper()}",
        f"Bearer {READER} {WRITER}",
        f"Bearer {READER},{WRITER}",
        f"Bearer: {READER}",
        f"Basic {READER}",
        f"Token {READER}",
        READER,
        "Bearer \xff\xfe",
        "Bearer \x00",
        "Bearer " + "x" * 100_000,
    ):
        response = await remote_api.get(
            "/agents", headers={"Authorization": header.encode("latin-1")}
        )
        expect_problem(response, 401)


@async_test
async def test_token_in_query_or_cookie_is_ignored(remote_api):
    for query in ("token", "access_token", "authorization"):
        expect_problem(await remote_api.get("/agents", params={query: WRITER}), 401)
    expect_problem(await remote_api.get("/agents", headers={"Cookie": f"token={WRITER}"}), 401)


@async_test
async def test_bearer_scheme_is_case_insensitive(remote_api):
    for kind in ("Bearer", "bearer", "BEARER"):
        expect_ok(await remote_api.get("/agents", headers={"Authorization": f"{kind} {READER}"}))


@async_test
async def test_read_token_cannot_write(store, remote_api):
    await fill_store(store)
    before = await dump_store(store)
    for path in READS:
        assert (await remote_api.get(path, headers=auth_header(READER))).status_code == 200, path
    for method, path in WRITES:
        for query in ("", "?dry_run=true"):
            response = await remote_api.request(method, path + query, headers=auth_header(READER))
            expect_problem(response, 403, "reader", "read-only", kind="forbidden")
    assert await dump_store(store) == before


@async_test
async def test_write_token_can_read_and_write(store, remote_api):
    await fill_store(store)
    for path in READS:
        assert (await remote_api.get(path, headers=auth_header(WRITER))).status_code == 200, path
    expect_ok(await remote_api.post(f"{SES_1}/snapshots", headers=auth_header(WRITER)), 201)
    expect_ok(await remote_api.delete(SES_1, headers=auth_header(WRITER)), 204)


@async_test
async def test_all_tokens_are_compared_in_constant_time(remote_api, monkeypatch):
    compared = []

    def spy(one, two, compare=hmac.compare_digest):
        compared.append((len(one), len(two)))
        return compare(one, two)

    monkeypatch.setattr(hmac, "compare_digest", spy)
    for secret in (READER, WRITER, ANN_ONLY, "x", "x" * 1000):
        compared.clear()
        await remote_api.get("/access", headers=auth_header(secret))
        assert compared == [(32, 32)] * len(TOKENS)


@async_test
async def test_access_route_reports_what_a_token_allows(remote_api, api):
    for secret, scope, agents in (
        (READER, "read", None),
        (WRITER, "write", None),
        (ANN_ONLY, "write", ["ann", "ghost"]),
        ("x" * 20, None, None),
    ):
        tree = expect_ok(await remote_api.get("/access", headers=auth_header(secret)))
        assert tree == {"required": True, "scope": scope, "agents": agents}
    assert expect_ok(await remote_api.get("/access"))["scope"] is None
    assert expect_ok(await api.get("/access")) == {
        "required": False,
        "scope": "write",
        "agents": None,
    }


# ------------------------------------------------------------------------------- limited tokens


@async_test
async def test_limited_token_sees_only_its_agents(store, remote_api):
    await fill_store(store)
    ann_only = auth_header(ANN_ONLY)
    assert expect_ok(await remote_api.get("/agents", headers=ann_only))["agents"] == [
        {"agent_id": "ann"}
    ]
    assert expect_ok(await remote_api.get("/agents?search=bob", headers=ann_only))["agents"] == []
    expect_ok(await remote_api.get(SHARED, headers=ann_only))
    expect_ok(await remote_api.get(f"{SHARED}/state", headers=ann_only))
    document = expect_ok(await remote_api.get("/agents/ses_shared/snapshot", headers=ann_only))
    assert document["agent_id"] == "ann"
    expect_ok(await remote_api.post(f"{SHARED}/snapshots", headers=ann_only), 201)
    expect_ok(await remote_api.post(f"{SHARED}/fork", headers=ann_only), 201)


@async_test
async def test_limited_token_gets_403_for_other_agents_whether_they_exist_or_not(store, remote_api):
    await fill_store(store)
    before = await dump_store(store)
    ann_only = auth_header(ANN_ONLY)
    requests = [
        ("GET", "/agents/{}/sessions"),
        ("GET", "/agents/{}/sessions/{}"),
        ("GET", "/agents/{}/sessions/{}/state?at=3"),
        ("GET", "/agents/{}/sessions/{}/events/1"),
        ("GET", "/agents/{}/sessions/{}/document"),
        ("GET", "/agents/{}/sessions/{}/snapshots/019a8b5e"),
        ("POST", "/agents/{}/sessions/{}/snapshots"),
        ("POST", "/agents/{}/sessions/{}/fork"),
        ("DELETE", "/agents/{}/sessions/{}"),
        ("GET", "/agents/{1}/snapshot?agent_id={0}"),
        ("GET", "/diff?from_agent={}&from_session={}&to_agent=ann&to_session=ses_shared"),
        ("GET", "/diff?from_agent=ann&from_session=ses_shared&to_agent={}&to_session={}"),
    ]
    for method, template in requests:
        details = []
        for agent, session in (("bob", "ses_shared"), ("eve", "nothing")):
            response = await remote_api.request(
                method, template.format(agent, session), headers=ann_only
            )
            tree = expect_problem(response, 403, "ann-only", agent, kind="forbidden")
            details.append(tree["detail"].replace(agent, "?"))
        assert details[0] == details[1]
    assert await dump_store(store) == before


@async_test
async def test_session_of_another_agent_looks_missing_to_a_limited_token(store, remote_api):
    await fill_store(store)
    for session in ("ses_1", "nothing"):
        response = await remote_api.get(
            f"/agents/{session}/snapshot", headers=auth_header(ANN_ONLY)
        )
        tree = expect_problem(response, 404)
        assert "research-bot" not in str(tree)
        assert tree["detail"] == f"no session '{session}'"


@async_test
async def test_limited_token_cannot_copy_to_or_from_other_agents(store, remote_api):
    await fill_store(store)
    ann_only = auth_header(ANN_ONLY)
    document = (await remote_api.get("/agents/ses_1/snapshot", headers=auth_header(WRITER))).content
    before = await dump_store(store)
    fork = await remote_api.post(f"{SHARED}/fork", json={"agent_id": "bob"}, headers=ann_only)
    expect_problem(fork, 403, "bob")
    path = "/agents/snapshot/restore"
    expect_problem(
        await remote_api.post(path, content=document, headers=ann_only), 403, "research-bot"
    )
    for query in ("agent_id=bob", "agent_id=research-bot", "dry_run=true&agent_id=bob"):
        expect_problem(
            await remote_api.post(f"{path}?{query}", content=document, headers=ann_only), 403
        )
    expect_problem(await remote_api.get("/metrics", headers=ann_only), 403, "some agents")
    assert await dump_store(store) == before
    own = f"{path}?agent_id=ann&session_id=ses_own"
    done = expect_ok(await remote_api.post(own, content=document, headers=ann_only))
    assert done["agent_id"] == "ann"


VARYING = re.compile("[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{64}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
@async_test
async def test_responses_to_a_limited_token_do_not_depend_on_other_agents(query):
    """The two stores differ only in sessions of agents that the token does not cover."""
    alone, crowded = (holdfast.open_state_store("memory://") for _ in range(2))
    async with Session.open(alone, agent_id="ann", session_id="ses_own") as session:
        session.add_message("user", "hello")
        await session.save()
    for key, value in (await dump_store(alone)).items():
        await crowded.put(key, value)
    for agent, name in (("bob", "ses_own"), ("bob", "ses_bob"), ("research-bot", "ses_1")):
        async with Session.open(crowded, agent_id=agent, session_id=name) as session:
            session.add_message("user", "a secret")
            await session.save()
    one, other = [await record_responses(store, query) for store in (alone, crowded)]
    assert one == other


async def record_responses(store, query):
    """Return the responses to a token for ann, about her sessions and the ids of others."""
    api = connect(store, address=("203.0.113.7", 1), tokens=TOKENS, token=ANN_ONLY, raises=False)
    own = "/agents/ann/sessions/ses_own"
    document = (await api.get(f"{own}/document")).content
    heads = ({}, {"If-Match": "*"}, {"If-Match": '"0"'})
    requests = [
        ("GET", path, {})
        for name in ("ses_own", "ses_bob", "ses_1", "nothing")
        for path in (
            "/agents",
            f"/agents/{name}/snapshot",
            f"/agents/ann/sessions/{name}",
            f"/agents/ghost/sessions/{name}/state",
            f"/agents/ann/sessions/{name}/events",
            "/agents/ghost/sessions",
            f"/diff?from_agent=ann&from_session={name}&to_agent=ghost&to_session={name}",
        )
    ]
    requests += [("DELETE", f"{own}{query}", {"headers": head}) for head in heads]
    for name in ("ses_bob", "ses_1", "nothing"):
        more = f"{query or '?dry_run=false'}&session_id={name}"
        path = f"/agents/snapshot/restore{more}"
        for head in heads:
            json = {"session_id": name, "at": "2"}
            requests.append(("POST", f"{own}/fork{query}", {"json": json, "headers": head}))
            requests.append(("POST", path, {"content": document, "headers": head}))
        requests.append(("POST", f"{path}&agent_id=ghost", {"content": document}))
        requests.append(("DELETE", f"/agents/ann/sessions/{name}{query}", {}))
    responses = []
    for method, path, options in requests:
        response = await api.request(method, path, **options)
        assert "bob" not in response.text.replace("ses_bob", "")
        responses.append((method, path, response.status_code, VARYING.sub("?", response.text)))
    return responses


@async_test
async def test_limited_token_cannot_delete_a_session(store, remote_api):
    await fill_store(store)
    before = await dump_store(store)
    for query in ("", "?dry_run=true"):
        response = await remote_api.delete(SHARED + query, headers=auth_header(ANN_ONLY))
        expect_problem(response, 403, "ann-only", "some agents", kind="forbidden")
    assert await dump_store(store) == before


@async_test
async def test_agent_ids_of_a_token_are_compared_decoded(store):
    async with Session.open(store, agent_id="a/b", session_id="s") as session:
        session.add_message("user", "hello")
    tokens = [Token(READER, "read", frozenset(("a%2Fb", "a")))]
    api = connect(store, tokens=tokens, token=READER)
    expect_problem(await api.get("/agents/a%2Fb/sessions/s"), 403)
    tokens = [Token(READER, "read", frozenset(("a/b",)))]
    api = connect(store, tokens=tokens, token=READER)
    expect_ok(await api.get("/agents/a%2Fb/sessions/s"))
    expect_ok(await api.get("/agents/a%2fb/sessions/s"))
    expect_problem(await api.get("/agents/a%252Fb/sessions/s"), 403)


# ----------------------------------------------------------------------------- tokens and files


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"secret": "short"}, "16"),
        ({"secret": ""}, "16"),
        ({"secret": None}, "16"),
        ({"secret": "x" * 20 + " y"}, "ASCII"),
        ({"secret": "\u00e9" * 20}, "ASCII"),
        ({"secret": "x" * 20 + "\n"}, "ASCII"),
        ({"secret": READER, "scope": "admin"}, "read or write"),
        ({"secret": READER, "agents": "bot"}, "set of ids"),
        ({"secret": READER, "agents": 5}, "set of ids"),
        ({"secret": READER, "agents": [""]}, "1 to 256"),
        ({"secret": READER, "agents": [5]}, "agent_id"),
        ({"secret": READER, "name": "a\nb"}, "printable"),
    ],
)
def test_invalid_token_is_rejected_without_showing_its_secret(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words) as raised:
        Token(**arguments)
    assert READER not in str(raised.value)


def test_repr_of_a_token_hides_its_secret():
    assert READER not in repr(TOKENS)


def test_two_tokens_with_the_same_secret_are_rejected(store):
    with pytest.raises(ValueError, match="same secret"):
        create_app(store, tokens=[Token(READER, "read"), Token(READER, "write")])


def test_tokens_are_read_from_a_file(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(
        f'[[token]]\nsecret = "{READER}"\nscope = "read"\nname = "grafana"\n'
        f'[[token]]\nsecret = "{ANN_ONLY}"\nagents = ["ann"]\n'
    )
    one, two = read_tokens(file)
    assert (one.secret, one.scope, one.agents, one.name) == (READER, "read", None, "grafana")
    assert (two.secret, two.scope, two.agents) == (ANN_ONLY, "write", frozenset(("ann",)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "table"),
        (b"[[token", "TOML"),
        (b"\xff", "TOML"),
        (b"token = 5", "table"),
        (b"token = []", "table"),
        (b"[[token]]\nscope = 'read'", "secret"),
        (b"[[token]]\nsecret = 'short'", "token 1"),
        (b"[[token]]\nsecret = 'reader-secret-0123456789'\nagent = ['x']", "agents"),
        (b"[[token]]\nsecret = 'reader-secret-0123456789'\nagents = 'bot'", "set of ids"),
        (b"[[token]]\nsecret = 'reader-secret-0123456789'\nagents = [5]", "token 1"),
        (b"[[token]]\nsecret = 'reader-secret-0123456789'\nscope = 'all'", "read or write"),
        (b"[[token]]\nsecret = 'reader-secret-0123456789'\n[other]", "table"),
    ],
)
def test_invalid_token_file_is_rejected(tmp_path, text, words):
    file = tmp_path / "tokens.toml"
    file.write_bytes(text)
    with pytest.raises(InvalidDocumentError, match=words) as raised:
        read_tokens(file)
    assert READER not in str(raised.value)
    with pytest.raises(InvalidDocumentError, match="cannot read"):
        read_tokens(tmp_path / "nothing.toml")


# ------------------------------------------------------------------------------------------- log


@async_test
async def test_access_log_contains_no_token_query_or_header(store, remote_api, caplog):
    await fill_store(store)
    caplog.set_level(logging.DEBUG, logger="holdfast")
    headers = {**auth_header(WRITER), "Cookie": "cookie-secret", "X-Odd": "odd-secret"}
    await remote_api.get(f"{SES_1}/document?tag=token=query-secret", headers=headers)
    await remote_api.get("/agents", headers=auth_header("wrong-secret-0123456789"))
    await remote_api.post(
        f"{SES_1}/restore?x=query-secret", json={"at": "body-secret"}, headers=headers
    )
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.access"]
    assert len(lines) == 3
    assert lines[0].startswith(f"203.0.113.7 GET {SES_1}/document 200 ")
    assert lines[0].endswith(" writer")
    assert lines[1].startswith("203.0.113.7 GET /agents 401 ")
    assert lines[1].endswith(" -")
    for record in caplog.records:
        assert "secret" not in record.getMessage()
        assert "secret" not in (record.exc_text or "")


@async_test
async def test_path_cannot_inject_a_line_into_the_log(store, api, caplog):
    caplog.set_level(logging.INFO, logger="holdfast.access")
    await api.get("/agents/a%0D%0A127.0.0.1%20GET%20fake/sessions")
    await api.get("/" + "x" * 5000)
    for record in caplog.records:
        assert len(record.getMessage().splitlines()) == 1
        assert len(record.getMessage()) < 700
