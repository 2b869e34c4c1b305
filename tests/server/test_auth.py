"""Tokens: who may do what. Knowing an id is no authority."""

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
    ANNS,
    READER,
    TOKENS,
    WRITER,
    S,
    bearer,
    client,
    entries,
    filled,
    good,
    problem,
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
    "/diff?from_agent=ann&from_session=ses_shared&to_agent=bob&to_session=ses_shared",
    "/metrics",
]
WRITES = [
    ("POST", f"{S}/snapshots"),
    ("POST", f"{S}/restore"),
    ("POST", f"{S}/fork"),
    ("POST", "/agents/snapshot/restore"),
    ("DELETE", S),
    ("DELETE", f"{S}/snapshots/019a8b5e"),
]


# ------------------------------------------------------------------------------------ any token


@async_test
async def test_without_a_token_there_is_the_viewer_and_nothing_of_any_agent(store, guarded):
    await filled(store)
    before = await entries(store)
    for path in PUBLIC:
        assert (await guarded.get(path)).status_code == 200, path
    for method, path in [*(("GET", path) for path in READS), *WRITES, ("GET", "/nothing")]:
        answered = await guarded.request(method, path)
        tree = problem(answered, 401, kind="unauthorized")
        assert answered.headers["www-authenticate"].startswith("Bearer")
        assert "Authorization: Bearer" in tree["hint"]
        assert "research-bot" not in tree["detail"]
    assert await entries(store) == before


@async_test
async def test_what_is_no_token_lets_nobody_in(guarded):
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
        answered = await guarded.get("/agents", headers={"Authorization": header.encode("latin-1")})
        problem(answered, 401)


@async_test
async def test_a_token_in_the_query_or_a_cookie_is_none(guarded):
    for query in ("token", "access_token", "authorization"):
        problem(await guarded.get("/agents", params={query: WRITER}), 401)
    problem(await guarded.get("/agents", headers={"Cookie": f"token={WRITER}"}), 401)


@async_test
async def test_the_kind_of_a_token_is_written_in_any_case(guarded):
    for kind in ("Bearer", "bearer", "BEARER"):
        good(await guarded.get("/agents", headers={"Authorization": f"{kind} {READER}"}))


@async_test
async def test_a_token_to_read_reads_all_and_writes_nothing(store, guarded):
    await filled(store)
    before = await entries(store)
    for path in READS:
        assert (await guarded.get(path, headers=bearer(READER))).status_code == 200, path
    for method, path in WRITES:
        for query in ("", "?dry_run=true"):
            answered = await guarded.request(method, path + query, headers=bearer(READER))
            problem(answered, 403, "reader", "reading", kind="forbidden")
    assert await entries(store) == before


@async_test
async def test_a_token_to_write_reads_and_writes(store, guarded):
    await filled(store)
    for path in READS:
        assert (await guarded.get(path, headers=bearer(WRITER))).status_code == 200, path
    good(await guarded.post(f"{S}/snapshots", headers=bearer(WRITER)), 201)
    good(await guarded.delete(S, headers=bearer(WRITER)), 204)


@async_test
async def test_every_token_is_compared_in_constant_time_whether_it_is_the_right_one(
    guarded, monkeypatch
):
    compared = []

    def comparing(one, two, compare=hmac.compare_digest):
        compared.append((len(one), len(two)))
        return compare(one, two)

    monkeypatch.setattr(hmac, "compare_digest", comparing)
    for secret in (READER, WRITER, ANNS, "x", "x" * 1000):
        compared.clear()
        await guarded.get("/access", headers=bearer(secret))
        assert compared == [(32, 32)] * len(TOKENS)


@async_test
async def test_what_a_token_allows_is_told_to_its_bearer(guarded, api):
    for secret, scope, agents in (
        (READER, "read", None),
        (WRITER, "write", None),
        (ANNS, "write", ["ann", "ghost"]),
        ("x" * 20, None, None),
    ):
        tree = good(await guarded.get("/access", headers=bearer(secret)))
        assert tree == {"required": True, "scope": scope, "agents": agents}
    assert good(await guarded.get("/access"))["scope"] is None
    assert good(await api.get("/access")) == {"required": False, "scope": "write", "agents": None}


# ------------------------------------------------------------------------------- for some agents


@async_test
async def test_a_token_for_some_agents_shows_those_alone(store, guarded):
    await filled(store)
    anns = bearer(ANNS)
    assert good(await guarded.get("/agents", headers=anns))["agents"] == [{"agent_id": "ann"}]
    assert good(await guarded.get("/agents?search=bob", headers=anns))["agents"] == []
    good(await guarded.get(SHARED, headers=anns))
    good(await guarded.get(f"{SHARED}/state", headers=anns))
    document = good(await guarded.get("/agents/ses_shared/snapshot", headers=anns))
    assert document["agent_id"] == "ann"
    good(await guarded.post(f"{SHARED}/snapshots", headers=anns), 201)
    good(await guarded.post(f"{SHARED}/fork", headers=anns), 201)


@async_test
async def test_other_agents_are_refused_whether_they_exist_or_not(store, guarded):
    await filled(store)
    before = await entries(store)
    anns = bearer(ANNS)
    asked = [
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
    for method, template in asked:
        told = []
        for agent, session in (("bob", "ses_shared"), ("eve", "nothing")):
            answered = await guarded.request(method, template.format(agent, session), headers=anns)
            tree = problem(answered, 403, "anns", agent, kind="forbidden")
            told.append(tree["detail"].replace(agent, "?"))
        assert told[0] == told[1]
    assert await entries(store) == before


@async_test
async def test_a_session_of_others_looks_as_if_it_were_not_there(store, guarded):
    await filled(store)
    for session in ("ses_1", "nothing"):
        answered = await guarded.get(f"/agents/{session}/snapshot", headers=bearer(ANNS))
        tree = problem(answered, 404)
        assert "research-bot" not in str(tree)
        assert tree["detail"] == f"there is no session '{session}'"


@async_test
async def test_nothing_crosses_from_one_agent_to_another_with_a_token_for_one(store, guarded):
    await filled(store)
    anns = bearer(ANNS)
    document = (await guarded.get("/agents/ses_1/snapshot", headers=bearer(WRITER))).content
    before = await entries(store)
    fork = await guarded.post(f"{SHARED}/fork", json={"agent_id": "bob"}, headers=anns)
    problem(fork, 403, "bob")
    path = "/agents/snapshot/restore"
    problem(await guarded.post(path, content=document, headers=anns), 403, "research-bot")
    for query in ("agent_id=bob", "agent_id=research-bot", "dry_run=true&agent_id=bob"):
        problem(await guarded.post(f"{path}?{query}", content=document, headers=anns), 403)
    problem(await guarded.get("/metrics", headers=anns), 403, "some agents")
    assert await entries(store) == before
    own = f"{path}?agent_id=ann&session_id=ses_own"
    done = good(await guarded.post(own, content=document, headers=anns))
    assert done["agent_id"] == "ann"


VARYING = re.compile("[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{64}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z")


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
@async_test
async def test_what_other_agents_have_changes_no_answer_to_a_token_for_some(query):
    """Two stores differ only in sessions of agents that the token is not for."""
    alone, crowded = (holdfast.open_state_store("memory://") for _ in range(2))
    async with Session.open(alone, agent_id="ann", session_id="ses_own") as session:
        session.add_message("user", "hello")
        await session.save()
    for key, value in (await entries(alone)).items():
        await crowded.put(key, value)
    for agent, name in (("bob", "ses_own"), ("bob", "ses_bob"), ("research-bot", "ses_1")):
        async with Session.open(crowded, agent_id=agent, session_id=name) as session:
            session.add_message("user", "a secret")
            await session.save()
    one, other = [await everything_asked(store, query) for store in (alone, crowded)]
    assert one == other


async def everything_asked(store, query):
    """What a token for ann is answered about her own sessions and the ids of those of others."""
    api = client(store, address=("203.0.113.7", 1), tokens=TOKENS, token=ANNS, raises=False)
    own = "/agents/ann/sessions/ses_own"
    document = (await api.get(f"{own}/document")).content
    heads = ({}, {"If-Match": "*"}, {"If-Match": '"0"'})
    asked = [
        ("GET", path, {})
        for name in ("ses_own", "ses_bob", "ses_1", "nothing")
        for path in (
            "/agents",
            f"/agents/{name}/snapshot",
            f"/agents/ann/sessions/{name}",
            f"/agents/ghost/sessions/{name}/state",
            f"/diff?from_agent=ann&from_session={name}&to_agent=ghost&to_session={name}",
        )
    ]
    asked += [("DELETE", f"{own}{query}", {"headers": head}) for head in heads]
    for name in ("ses_bob", "ses_1", "nothing"):
        more = f"{query or '?dry_run=false'}&session_id={name}"
        path = f"/agents/snapshot/restore{more}"
        for head in heads:
            json = {"session_id": name, "at": "2"}
            asked.append(("POST", f"{own}/fork{query}", {"json": json, "headers": head}))
            asked.append(("POST", path, {"content": document, "headers": head}))
        asked.append(("POST", f"{path}&agent_id=ghost", {"content": document}))
        asked.append(("DELETE", f"/agents/ann/sessions/{name}{query}", {}))
    told = []
    for method, path, options in asked:
        answered = await api.request(method, path, **options)
        assert "bob" not in answered.text.replace("ses_bob", "")
        told.append((method, path, answered.status_code, VARYING.sub("?", answered.text)))
    return told


@async_test
async def test_a_token_for_some_agents_deletes_no_session_with_its_other_parts(store, guarded):
    await filled(store)
    before = await entries(store)
    for query in ("", "?dry_run=true"):
        answered = await guarded.delete(SHARED + query, headers=bearer(ANNS))
        problem(answered, 403, "anns", "parts of all agents", kind="forbidden")
    assert await entries(store) == before


@async_test
async def test_names_of_other_agents_are_in_no_answer_to_a_token_for_some(store, guarded):
    await filled(store)
    for path in (
        "/agents",
        "/agents/ann/sessions/ses_1",
        "/agents/ann/sessions/nothing/state",
        "/agents/ghost/sessions/ses_1",
        "/agents/ghost/sessions",
        "/diff?from_agent=ghost&from_session=s&to_agent=ann&to_session=ses_shared",
        "/diff?from_agent=ann&from_session=ses_shared&to_agent=ghost&to_session=s",
        "/agents/ghost/sessions/ses_shared/events",
        SHARED,
    ):
        answered = await guarded.get(path, headers=bearer(ANNS))
        assert "bob" not in answered.text
        assert "research-bot" not in answered.text


@async_test
async def test_the_name_of_an_agent_is_compared_as_it_is_and_not_as_it_is_encoded(store):
    async with Session.open(store, agent_id="a/b", session_id="s") as session:
        session.add_message("user", "hello")
    tokens = [Token(READER, "read", frozenset(("a%2Fb", "a")))]
    api = client(store, tokens=tokens, token=READER)
    problem(await api.get("/agents/a%2Fb/sessions/s"), 403)
    tokens = [Token(READER, "read", frozenset(("a/b",)))]
    api = client(store, tokens=tokens, token=READER)
    good(await api.get("/agents/a%2Fb/sessions/s"))
    good(await api.get("/agents/a%2fb/sessions/s"))
    problem(await api.get("/agents/a%252Fb/sessions/s"), 403)


# ------------------------------------------------------------------------------- tokens themselves


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
def test_a_token_that_would_not_protect_is_refused_without_its_secret_in_the_words(
    arguments, words
):
    with pytest.raises((TypeError, ValueError), match=words) as said:
        Token(**arguments)
    assert READER not in str(said.value)


def test_a_token_does_not_show_its_secret():
    assert READER not in repr(TOKENS)


def test_two_tokens_with_one_secret_are_refused(store):
    with pytest.raises(ValueError, match="same secret"):
        create_app(store, tokens=[Token(READER, "read"), Token(READER, "write")])


def test_tokens_are_read_from_a_file(tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text(
        f'[[token]]\nsecret = "{READER}"\nscope = "read"\nname = "grafana"\n'
        f'[[token]]\nsecret = "{ANNS}"\nagents = ["ann"]\n'
    )
    one, two = read_tokens(file)
    assert (one.secret, one.scope, one.agents, one.name) == (READER, "read", None, "grafana")
    assert (two.secret, two.scope, two.agents) == (ANNS, "write", frozenset(("ann",)))


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
def test_a_file_of_tokens_that_is_wrong_is_refused(tmp_path, text, words):
    file = tmp_path / "tokens.toml"
    file.write_bytes(text)
    with pytest.raises(InvalidDocumentError, match=words) as said:
        read_tokens(file)
    assert READER not in str(said.value)
    with pytest.raises(InvalidDocumentError, match="cannot be read"):
        read_tokens(tmp_path / "nothing.toml")


# ------------------------------------------------------------------------------------------- log


@async_test
async def test_the_log_names_neither_a_token_nor_a_query_nor_a_header(store, guarded, caplog):
    await filled(store)
    caplog.set_level(logging.DEBUG, logger="holdfast")
    headers = {**bearer(WRITER), "Cookie": "cookie-secret", "X-Odd": "odd-secret"}
    await guarded.get(f"{S}/document?tag=token=query-secret", headers=headers)
    await guarded.get("/agents", headers=bearer("wrong-secret-0123456789"))
    await guarded.post(f"{S}/restore?x=query-secret", json={"at": "body-secret"}, headers=headers)
    lines = [record.getMessage() for record in caplog.records if record.name == "holdfast.access"]
    assert len(lines) == 3
    assert lines[0].startswith(f"203.0.113.7 GET {S}/document 200 ")
    assert lines[0].endswith(" writer")
    assert lines[1].startswith("203.0.113.7 GET /agents 401 ")
    assert lines[1].endswith(" -")
    for record in caplog.records:
        assert "secret" not in record.getMessage()
        assert "secret" not in (record.exc_text or "")


@async_test
async def test_a_path_cannot_write_a_line_of_its_own_into_the_log(store, api, caplog):
    caplog.set_level(logging.INFO, logger="holdfast.access")
    await api.get("/agents/a%0D%0A127.0.0.1%20GET%20fake/sessions")
    await api.get("/" + "x" * 5000)
    for record in caplog.records:
        assert len(record.getMessage().splitlines()) == 1
        assert len(record.getMessage()) < 700
