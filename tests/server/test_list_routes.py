"""Agents, sessions and snapshots, page after page."""

from __future__ import annotations

import base64

import pytest

from holdfast import Session
from support.async_tests import async_test
from support.rest_api import (
    ANNS,
    ODD,
    ODD_PATH,
    READER,
    TOKENS,
    S,
    client,
    filled,
    good,
    pages,
    problem,
)


async def many(store, count=7):
    for number in range(count):
        agent = f"Bot-{number}" if number % 2 else f"helper-{number}"
        async with Session.open(store, agent_id=agent, session_id=f"s{number}") as session:
            session.add_message("user", "hello")


@async_test
async def test_agents_come_page_after_page_each_once(store, api):
    await many(store)
    rows, sizes = await pages(api, "/agents", "agents", limit=3)
    names = [row["agent_id"] for row in rows]
    assert sorted(names) == sorted(f"{'Bot' if n % 2 else 'helper'}-{n}" for n in range(7))
    assert max(sizes) <= 3
    assert (await pages(api, "/agents", "agents"))[0] == rows


@async_test
async def test_a_store_without_agents_has_an_empty_page(api):
    assert good(await api.get("/agents")) == {"agents": [], "next_cursor": None}


@pytest.mark.parametrize("limit", [1, 2, 100])
@async_test
async def test_agents_are_found_by_a_part_of_their_id_in_any_case(store, api, limit):
    await many(store)
    rows, sizes = await pages(api, "/agents", "agents", search="bOT", limit=limit)
    assert sorted(row["agent_id"] for row in rows) == ["Bot-1", "Bot-3", "Bot-5"]
    assert max(sizes) <= limit
    assert await pages(api, "/agents", "agents", search="nobody", limit=limit) == ([], [0])


@async_test
async def test_sessions_come_newest_first_page_after_page(store, api):
    for number in range(7):
        async with Session.open(store, agent_id="bot", session_id=f"ses_{number}") as session:
            session.add_message("user", "hello")
    rows, sizes = await pages(api, "/agents/bot/sessions", "sessions", limit=3)
    assert [row["session_id"] for row in rows] == [f"ses_{n}" for n in reversed(range(7))]
    assert max(sizes) <= 3
    assert {row["agent_id"] for row in rows} == {"bot"}
    assert {row["scope"] for row in rows} == {"agent"}
    times = [row["started_at"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert all(time.endswith("Z") and len(time) == 27 for time in times)


async def various(store):
    """Sessions of two agents; the later ones were active later."""
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
async def test_sessions_of_all_agents_or_of_one_are_filtered(store, api, params, expected, limit):
    await various(store)
    rows, _ = await pages(api, "/sessions", "sessions", **params, limit=limit)
    assert [row["session_id"] for row in rows] == list(expected)
    rows, _ = await pages(api, "/agents/bot/sessions", "sessions", **params, limit=limit)
    assert [row["session_id"] for row in rows] == [each for each in expected if each != "c"]


@async_test
async def test_details_tell_what_a_session_is(store, api):
    await various(store)
    rows = good(await api.get("/sessions", params={"details": "true"}))["sessions"]
    assert [row["session_id"] for row in rows] == list("dcba")
    first = rows[0]
    whole = good(await api.get("/agents/bot/sessions/d"))
    assert (first["agent_id"], first["scope"], first["status"]) == ("bot", "agent", "running")
    assert (first["message_count"], first["unfinished_calls"], first["tags"]) == (1, 1, {})
    assert first["active_at"] == whole["updated_at"]
    assert (first["size_bytes"], first["last_event"]) == (whole["size_bytes"], whole["last_event"])
    assert first["problem"] is None
    (plain, *_) = good(await api.get("/sessions"))["sessions"]
    assert plain.keys() == {"agent_id", "session_id", "scope", "started_at", "active_at"}


@async_test
async def test_snapshots_are_filtered(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        for number in range(6):
            session.status = "failed" if number % 3 == 0 else "running"
            await session.save(tags={"turn": str(number), "even": str(number % 2 == 0)})
    path = "/agents/bot/sessions/ses/snapshots"

    async def turns(**params):
        rows, _ = await pages(api, path, "snapshots", limit=1, **params)
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
async def test_a_filter_that_means_nothing_is_refused(store, api, params, status):
    await various(store)
    problem(await api.get("/sessions", params=params), status)
    problem(await api.get("/agents/bot/sessions", params=params), status)


@async_test
async def test_a_token_for_some_agents_lists_the_sessions_of_those(store):
    await various(store)
    async with client(store, tokens=TOKENS, token=ANNS) as api:
        rows = good(await api.get("/sessions"))["sessions"]
        assert [row["session_id"] for row in rows] == ["c"]
        rows = good(await api.get("/sessions", params={"status": "failed"}))["sessions"]
        assert rows == []


@async_test
async def test_sessions_are_found_by_a_part_of_their_id_in_any_case(store, api):
    for name in ("Alpha", "beta", "alphabet"):
        async with Session.open(store, agent_id="bot", session_id=name) as session:
            session.add_message("user", "hello")
    rows, _ = await pages(api, "/agents/bot/sessions", "sessions", search="ALPHA")
    assert [row["session_id"] for row in rows] == ["alphabet", "Alpha"]


@async_test
async def test_snapshots_come_oldest_first_page_after_page(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        saved = []
        for number in range(5):
            session.add_message("user", str(number))
            saved.append((await session.save(tags={"turn": str(number)})).snapshot_id)
    path = "/agents/bot/sessions/ses/snapshots"
    rows, sizes = await pages(api, path, "snapshots", limit=2)
    assert [row["snapshot_id"] for row in rows] == saved
    assert [row["tags"]["turn"] for row in rows] == list("01234")
    assert [row["message_count"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["parent_id"] for row in rows] == [None, *saved[:-1]]
    assert max(sizes) <= 2
    for row in rows:
        answered = await api.get(f"{path}/{row['snapshot_id']}")
        assert good(answered) == row
        again = await api.get(
            f"{path}/{row['snapshot_id']}", headers={"If-None-Match": answered.headers["etag"]}
        )
        assert again.status_code == 304
        assert again.content == b""


@async_test
async def test_two_agents_that_share_a_session_have_a_part_each(store, api):
    await filled(store)
    for agent in ("ann", "bob"):
        (row,) = good(await api.get(f"/agents/{agent}/sessions"))["sessions"]
        assert (row["agent_id"], row["session_id"]) == (agent, "ses_shared")
        state = good(await api.get(f"/agents/{agent}/sessions/ses_shared/state"))["state"]
        assert state["messages"] == [{"role": "user", "content": f"hello {agent}"}]


@async_test
async def test_ids_of_any_characters_are_listed_and_found_by_their_encoded_path(store, api):
    async with Session.open(store, agent_id=ODD, session_id=ODD) as session:
        session.add_message("user", "hello")
        saved = await session.save()
    assert good(await api.get("/agents"))["agents"] == [{"agent_id": ODD}]
    (row,) = good(await api.get(f"/agents/{ODD_PATH}/sessions"))["sessions"]
    assert (row["agent_id"], row["session_id"]) == (ODD, ODD)
    place = f"/agents/{ODD_PATH}/sessions/{ODD_PATH}"
    assert good(await api.get(place))["session_id"] == ODD
    for part in ("events", "events/1", "state", "growth", "snapshots", "document", "diff?from=0"):
        assert (await api.get(f"{place}/{part}")).status_code == 200
    assert good(await api.get(f"{place}/snapshots/{saved.snapshot_id}"))["agent_id"] == ODD
    assert good(await api.get(f"/agents/{ODD_PATH}/snapshot"))["session_id"] == ODD
    params = {"from_agent": ODD, "from_session": ODD, "to_agent": ODD, "to_session": ODD}
    assert good(await api.get("/diff", params=params))["entries"] == []


@async_test
async def test_an_unknown_agent_has_no_sessions_and_those_like_it_are_named(store, api):
    await filled(store)
    tree = problem(await api.get("/agents/reserch-bot/sessions"), 404, kind="not-found")
    assert "research-bot" in tree["detail"]


@pytest.mark.parametrize(
    "cursor",
    ["!", "%", "=", "====", "a", "\u00e9", "_-8", "\x00", "x" * 2001],
    ids=lambda text: repr(text[:10]),
)
@pytest.mark.parametrize("path", ["/agents/research-bot/sessions", f"{S}/snapshots"])
@async_test
async def test_what_is_no_cursor_of_a_listing_is_refused(looking, path, cursor):
    status = 422 if len(cursor) > 2000 else 400
    problem(await looking().get(path, params={"cursor": cursor}), status, "cursor")


@async_test
async def test_a_cursor_of_another_listing_is_refused_or_a_place_in_this_one(store, api):
    await filled(store)
    await many(store)
    for number in range(3):
        async with Session.open(store, agent_id="bot", session_id=f"ses_{number}") as session:
            session.add_message("user", "hello")
    listings = ["/agents", "/agents/bot/sessions", f"{S}/snapshots"]
    for path in listings:
        cursor = good(await api.get(path, params={"limit": 1}))["next_cursor"]
        assert cursor
        for other in listings:
            answered = await api.get(other, params={"cursor": cursor, "limit": 1})
            assert answered.status_code == 200 or problem(answered, 400, "cursor")


@async_test
async def test_a_cursor_is_no_way_out_of_a_listing(store, api):
    """A cursor is a place in a listing, and never one in another agent's."""
    await filled(store)
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
        for path in ("/agents/ann/sessions", "/agents", f"{S}/snapshots"):
            answered = await api.get(path, params={"cursor": cursor})
            assert answered.status_code in (200, 400)
            if path == "/agents/ann/sessions":
                assert "bob" not in answered.text


@async_test
async def test_a_limited_token_pages_through_its_own_agents(store):
    from holdfast.server import Token

    await many(store)
    own = frozenset(("Bot-1", "Bot-3", "helper-2", "ghost"))
    tokens = [Token(READER, "read", own)]
    api = client(store, tokens=tokens, token=READER)
    rows, sizes = await pages(api, "/agents", "agents", limit=1)
    assert sorted(row["agent_id"] for row in rows) == ["Bot-1", "Bot-3", "helper-2"]
    assert max(sizes) == 1
    rows, _ = await pages(api, "/agents", "agents", limit=1, search="HELP")
    assert [row["agent_id"] for row in rows] == ["helper-2"]
