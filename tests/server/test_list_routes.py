"""Lists of agents, sessions and snapshots."""

from __future__ import annotations

import base64

import pytest

from holdfast import Session
from holdfast.server import Token
from support.async_tests import async_test
from support.rest_api import (
    ANN_ONLY,
    ODD,
    ODD_PATH,
    READER,
    SES_1,
    TOKENS,
    connect,
    expect_ok,
    expect_problem,
    fill_store,
    read_pages,
)


async def add_agents(store, count=7):
    for number in range(count):
        agent = f"Bot-{number}" if number % 2 else f"helper-{number}"
        async with Session.open(store, agent_id=agent, session_id=f"s{number}") as session:
            session.add_message("user", "hello")


@async_test
async def test_agents_are_listed_in_pages(store, api):
    await add_agents(store)
    rows, sizes = await read_pages(api, "/agents", "agents", limit=3)
    names = [row["agent_id"] for row in rows]
    assert sorted(names) == sorted(f"{'Bot' if n % 2 else 'helper'}-{n}" for n in range(7))
    assert max(sizes) <= 3
    assert (await read_pages(api, "/agents", "agents"))[0] == rows


@async_test
async def test_empty_store_has_an_empty_page(api):
    assert expect_ok(await api.get("/agents")) == {"agents": [], "next_cursor": None}


@pytest.mark.parametrize("limit", [1, 2, 100])
@async_test
async def test_agents_are_searched_by_part_of_their_id_ignoring_case(store, api, limit):
    await add_agents(store)
    rows, sizes = await read_pages(api, "/agents", "agents", search="bOT", limit=limit)
    assert sorted(row["agent_id"] for row in rows) == ["Bot-1", "Bot-3", "Bot-5"]
    assert max(sizes) <= limit
    assert await read_pages(api, "/agents", "agents", search="unknown", limit=limit) == ([], [0])


@async_test
async def test_sessions_are_listed_newest_first_in_pages(store, api):
    for number in range(7):
        async with Session.open(store, agent_id="bot", session_id=f"ses_{number}") as session:
            session.add_message("user", "hello")
    rows, sizes = await read_pages(api, "/agents/bot/sessions", "sessions", limit=3)
    assert [row["session_id"] for row in rows] == [f"ses_{n}" for n in reversed(range(7))]
    assert max(sizes) <= 3
    assert {row["agent_id"] for row in rows} == {"bot"}
    assert {row["scope"] for row in rows} == {"agent"}
    times = [row["started_at"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert all(time.endswith("Z") and len(time) == 27 for time in times)


async def add_sessions(store):
    """Add sessions of two agents, in the order of their activity."""
    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    for agent, name, status, tags, fields in (
        ("bot", "a", "failed", {"env": "x", "team": "1"}, {}),
        ("bot", "b", "failed", {"env": "y=z"}, {}),
        ("ann", "c", "completed", {"env": "x"}, {}),
        ("bot", "d", "running", {}, {"tool_calls": [call]}),
    ):
        async with Session.open(store, agent_id=agent, session_id=name) as session:
            session.add_message("assistant", "hello", **fields)
            session.status = status
            await session.save(tags=tags)


FILTERS = [
    ({}, "dcba"),
    ({"status": "failed"}, "ba"),
    ({"status": ["failed", "completed"]}, "cba"),
    ({"tag": "env=x"}, "ca"),
    ({"tag": ["env=x", "team=1"]}, "a"),
    ({"tag": "env=y=z"}, "b"),
    ({"status": "failed", "tag": "env=x"}, "a"),
    ({"unfinished": "true"}, "d"),
    ({"since": "1h"}, "dcba"),
    ({"since": "2999-01-01"}, ""),
    ({"search": "A", "status": "failed"}, "a"),
]


@pytest.mark.parametrize("limit", [1, 100])
@pytest.mark.parametrize(("params", "expected"), FILTERS, ids=lambda each: str(each))
@async_test
async def test_sessions_are_filtered(store, api, params, expected, limit):
    await add_sessions(store)
    rows, _ = await read_pages(api, "/sessions", "sessions", **params, limit=limit)
    assert [row["session_id"] for row in rows] == list(expected)
    rows, _ = await read_pages(api, "/agents/bot/sessions", "sessions", **params, limit=limit)
    assert [row["session_id"] for row in rows] == [each for each in expected if each != "c"]


@async_test
async def test_details_include_status_counts_and_tags(store, api):
    await add_sessions(store)
    rows = expect_ok(await api.get("/sessions", params={"details": "true"}))["sessions"]
    assert [row["session_id"] for row in rows] == list("dcba")
    first = rows[0]
    whole = expect_ok(await api.get("/agents/bot/sessions/d"))
    assert (first["agent_id"], first["scope"], first["status"]) == ("bot", "agent", "running")
    assert (first["message_count"], first["unfinished_calls"], first["tags"]) == (1, 1, {})
    assert first["active_at"] == whole["updated_at"]
    assert (first["size_bytes"], first["last_event"]) == (whole["size_bytes"], whole["last_event"])
    assert first["problem"] is None
    (plain, *_) = expect_ok(await api.get("/sessions"))["sessions"]
    assert plain.keys() == {"agent_id", "session_id", "scope", "started_at", "active_at"}


@async_test
async def test_snapshots_are_filtered(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        for number in range(6):
            session.status = "failed" if number % 3 == 0 else "running"
            await session.save(tags={"turn": str(number), "even": str(number % 2 == 0)})
    path = "/agents/bot/sessions/ses/snapshots"

    async def turns(**params):
        rows, _ = await read_pages(api, path, "snapshots", limit=1, **params)
        return "".join(row["tags"]["turn"] for row in rows)

    assert await turns() == "012345"
    assert await turns(status="failed") == "03"
    assert await turns(tag="even=True") == "024"
    assert await turns(tag="even=True", status="failed") == "0"
    assert await turns(since="1d") == "012345"
    assert await turns(since="2999-01-01") == ""
    assert await turns(unfinished="true") == ""


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"status": "done"}, 422),
        ({"tag": "env"}, 422),
        ({"since": "soon"}, 422),
        ({"since": "2026-99-99"}, 400),
        ({"cursor": "bm90"}, 400),
        ({"states": "failed"}, 422),
    ],
)
@async_test
async def test_invalid_filter_is_rejected(store, api, params, status):
    await add_sessions(store)
    expect_problem(await api.get("/sessions", params=params), status)
    expect_problem(await api.get("/agents/bot/sessions", params=params), status)


@async_test
async def test_limited_token_lists_only_sessions_of_its_agents(store):
    await add_sessions(store)
    async with connect(store, tokens=TOKENS, token=ANN_ONLY) as api:
        rows = expect_ok(await api.get("/sessions"))["sessions"]
        assert [row["session_id"] for row in rows] == ["c"]
        rows = expect_ok(await api.get("/sessions", params={"status": "failed"}))["sessions"]
        assert rows == []


@async_test
async def test_snapshots_are_listed_oldest_first_in_pages(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        saved = []
        for number in range(5):
            session.add_message("user", str(number))
            saved.append((await session.save(tags={"turn": str(number)})).snapshot_id)
    path = "/agents/bot/sessions/ses/snapshots"
    rows, sizes = await read_pages(api, path, "snapshots", limit=2)
    assert [row["snapshot_id"] for row in rows] == saved
    assert [row["tags"]["turn"] for row in rows] == list("01234")
    assert [row["message_count"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["parent_id"] for row in rows] == [None, *saved[:-1]]
    assert max(sizes) <= 2
    for row in rows:
        response = await api.get(f"{path}/{row['snapshot_id']}")
        assert expect_ok(response) == row
        again = await api.get(
            f"{path}/{row['snapshot_id']}", headers={"If-None-Match": response.headers["etag"]}
        )
        assert again.status_code == 304
        assert again.content == b""


@async_test
async def test_agents_that_share_a_session_have_separate_states(store, api):
    await fill_store(store)
    for agent in ("ann", "bob"):
        (row,) = expect_ok(await api.get(f"/agents/{agent}/sessions"))["sessions"]
        assert (row["agent_id"], row["session_id"]) == (agent, "ses_shared")
        state = expect_ok(await api.get(f"/agents/{agent}/sessions/ses_shared/state"))["state"]
        assert state["messages"] == [{"role": "user", "content": f"hello {agent}"}]


@async_test
async def test_ids_with_any_characters_are_percent_encoded_in_paths(store, api):
    async with Session.open(store, agent_id=ODD, session_id=ODD) as session:
        session.add_message("user", "hello")
        saved = await session.save()
    assert expect_ok(await api.get("/agents"))["agents"] == [{"agent_id": ODD}]
    (row,) = expect_ok(await api.get(f"/agents/{ODD_PATH}/sessions"))["sessions"]
    assert (row["agent_id"], row["session_id"]) == (ODD, ODD)
    session = f"/agents/{ODD_PATH}/sessions/{ODD_PATH}"
    assert expect_ok(await api.get(session))["session_id"] == ODD
    for part in ("events", "events/1", "state", "growth", "snapshots", "document", "diff?from=0"):
        assert (await api.get(f"{session}/{part}")).status_code == 200
    assert expect_ok(await api.get(f"{session}/snapshots/{saved.snapshot_id}"))["agent_id"] == ODD
    assert expect_ok(await api.get(f"/agents/{ODD_PATH}/snapshot"))["session_id"] == ODD
    params = {"from_agent": ODD, "from_session": ODD, "to_agent": ODD, "to_session": ODD}
    assert expect_ok(await api.get("/diff", params=params))["entries"] == []


@async_test
async def test_unknown_agent_gets_404_that_suggests_similar_names(store, api):
    await fill_store(store)
    tree = expect_problem(await api.get("/agents/reserch-bot/sessions"), 404, kind="not-found")
    assert "research-bot" in tree["detail"]


@pytest.mark.parametrize(
    "cursor",
    ["!", "%", "=", "====", "a", "\u00e9", "_-8", "\x00", "x" * 2001],
    ids=lambda text: repr(text[:10]),
)
@pytest.mark.parametrize("path", ["/agents/research-bot/sessions", f"{SES_1}/snapshots"])
@async_test
async def test_invalid_cursor_is_rejected(connect_readonly, path, cursor):
    status = 422 if len(cursor) > 2000 else 400
    expect_problem(await connect_readonly().get(path, params={"cursor": cursor}), status, "cursor")


@async_test
async def test_cursor_of_another_listing_is_not_an_error_of_the_server(store, api):
    await fill_store(store)
    await add_agents(store)
    for number in range(3):
        async with Session.open(store, agent_id="bot", session_id=f"ses_{number}") as session:
            session.add_message("user", "hello")
    listings = ["/agents", "/agents/bot/sessions", f"{SES_1}/snapshots"]
    for path in listings:
        cursor = expect_ok(await api.get(path, params={"limit": 1}))["next_cursor"]
        assert cursor
        for other in listings:
            response = await api.get(other, params={"cursor": cursor, "limit": 1})
            assert response.status_code == 200 or expect_problem(response, 400, "cursor")


@async_test
async def test_forged_cursor_does_not_reveal_other_agents(store, api):
    await fill_store(store)
    for text in (
        "../bob",
        "bob/ses_shared",
        "\x00",
        "~~~~",
        "sessions/",
        "0" * 300,
        "019",
        "/",
        "",
    ):
        cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        for path in ("/agents/ann/sessions", "/agents", f"{SES_1}/snapshots"):
            response = await api.get(path, params={"cursor": cursor})
            assert response.status_code in (200, 400)
            if path == "/agents/ann/sessions":
                assert "bob" not in response.text


@async_test
async def test_limited_token_pages_through_its_agents(store):
    await add_agents(store)
    own = frozenset(("Bot-1", "Bot-3", "helper-2", "ghost"))
    tokens = [Token(READER, "read", own)]
    api = connect(store, tokens=tokens, token=READER)
    rows, sizes = await read_pages(api, "/agents", "agents", limit=1)
    assert sorted(row["agent_id"] for row in rows) == ["Bot-1", "Bot-3", "helper-2"]
    assert max(sizes) == 1
    rows, _ = await read_pages(api, "/agents", "agents", limit=1, search="HELP")
    assert [row["agent_id"] for row in rows] == ["helper-2"]


@pytest.mark.parametrize("limit", [1, 2, 100])
@async_test
async def test_sessions_are_searched_by_part_of_their_id_ignoring_case(store, api, limit):
    for number in range(5):
        async with Session.open(store, agent_id="bot", session_id=f"Ses_{number}") as session:
            session.add_message("user", "hello")
    rows, sizes = await read_pages(
        api, "/agents/bot/sessions", "sessions", search="sES", limit=limit
    )
    assert [row["session_id"] for row in rows] == [f"Ses_{n}" for n in reversed(range(5))]
    assert max(sizes) <= limit
