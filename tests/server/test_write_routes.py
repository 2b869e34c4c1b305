"""Save, restore, fork and delete; dry runs and undo."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import Session
from support.async_tests import async_test
from support.rest_api import (
    SES_1,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)


async def get_state(api, path=SES_1, at="now"):
    """Return the state of a session at a position."""
    return expect_ok(await api.get(f"{path}/state", params={"at": at}))["state"]


# ----------------------------------------------------------------------------------- dry runs


@async_test
async def test_dry_run_does_not_change_the_store(store, api):
    first, second = await fill_store(store)
    document = (await api.get("/agents/ses_1/snapshot")).content
    before = await dump_store(store)
    dry = {"dry_run": "true"}
    for method, path, body in [
        ("POST", f"{SES_1}/snapshots", {"tags": {"a": "b"}}),
        ("POST", f"{SES_1}/restore", {"at": first}),
        ("POST", f"{SES_1}/restore", {"at": "0"}),
        ("POST", f"{SES_1}/fork", {}),
        ("POST", f"{SES_1}/fork", {"at": first, "session_id": "new", "agent_id": "other"}),
        ("DELETE", f"{SES_1}/snapshots/{second}", None),
        ("DELETE", SES_1, None),
        ("DELETE", "/agents/ann/sessions/ses_shared", None),
    ]:
        tree = expect_ok(await api.request(method, path, params=dry, json=body))
        assert tree.get("dry_run", True) is True
        assert await dump_store(store) == before
    for names in ({}, {"agent_id": "new", "session_id": "new"}, {"session_id": "ses_shared"}):
        response = await api.post(
            "/agents/snapshot/restore", params={**dry, **names}, content=document
        )
        assert expect_ok(response)["dry_run"] is True
        assert await dump_store(store) == before


# ------------------------------------------------------------------------------------------ save


@async_test
async def test_snapshot_is_saved_with_tags_and_deleted(store, api):
    await fill_store(store)
    dry = expect_ok(await api.post(f"{SES_1}/snapshots", params={"dry_run": "true"}))
    info = expect_ok(
        await api.post(f"{SES_1}/snapshots", json={"tags": {"why": "\u00e9 <b>"}}), 201
    )
    assert info["tags"] == {"why": "\u00e9 <b>"}
    for name in ("status", "message_count", "size_bytes", "seq", "unfinished"):
        assert dry[name] == info[name]
    path = f"{SES_1}/snapshots/{info['snapshot_id']}"
    assert expect_ok(await api.get(path)) == info
    assert expect_ok(await api.get(SES_1))["snapshot_count"] == 3
    assert expect_ok(await api.delete(path, params={"dry_run": "true"})) == info
    gone = await api.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    expect_problem(await api.get(path), 404, info["snapshot_id"])
    expect_problem(await api.delete(path), 404)
    assert len(expect_ok(await api.get(f"{SES_1}/snapshots"))["snapshots"]) == 2


@async_test
async def test_snapshot_is_saved_without_a_body(store, api):
    await fill_store(store)
    assert expect_ok(await api.post(f"{SES_1}/snapshots"), 201)["tags"] == {}
    assert expect_ok(await api.post(f"{SES_1}/snapshots", json={}), 201)["tags"] == {}


# --------------------------------------------------------------------------------------- restore


@pytest.mark.parametrize("at", ["first", "5", "3", "0"])
@async_test
async def test_restore_matches_its_dry_run_and_can_be_undone(store, api, at):
    first, _ = await fill_store(store)
    at = first if at == "first" else at
    before, goal = await get_state(api), await get_state(api, at=at)
    dry = expect_ok(await api.post(f"{SES_1}/restore", params={"dry_run": "true"}, json={"at": at}))
    done = expect_ok(await api.post(f"{SES_1}/restore", json={"at": at}))
    assert dry["changes"] == done["changes"]
    assert (dry["dry_run"], done["dry_run"]) == (True, False)
    assert (dry["last_event"], done["last_event"]) == (10, 11)
    assert await get_state(api) == goal
    assert (await open_session(store)).log.head.seq == 11
    event = expect_ok(await api.get(f"{SES_1}/events/11"))
    assert event["type"] == "state.restored"
    undone = expect_ok(await api.post(f"{SES_1}/restore", json={"at": str(done["previous_event"])}))
    assert undone["last_event"] == 12
    assert await get_state(api) == before
    assert len(expect_ok(await api.get(f"{SES_1}/events"))["events"]) == 12


@async_test
async def test_restored_session_can_be_continued(store, api):
    first, _ = await fill_store(store)
    expect_ok(await api.post(f"{SES_1}/restore", json={"at": first}))
    session = await open_session(store)
    session.add_message("user", "and on")
    await session.save()
    assert (await session.verify()).damage == []
    assert [each["content"] for each in (await get_state(api))["messages"]] == [
        "Compare the two",
        "and on",
    ]


# ------------------------------------------------------------------------------------------ fork


@pytest.mark.parametrize("at", ["now", "first", "3"])
@async_test
async def test_fork_has_the_state_at_its_position_and_is_independent(store, api, at):
    first, _ = await fill_store(store)
    at = first if at == "first" else at
    body = {"at": at, "session_id": "what/if", "agent_id": "other bot"}
    dry = expect_ok(await api.post(f"{SES_1}/fork", params={"dry_run": "true"}, json=body))
    done = expect_ok(await api.post(f"{SES_1}/fork", json=body), 201)
    assert done == {**dry, "dry_run": False}
    assert (done["agent_id"], done["session_id"]) == ("other bot", "what/if")
    path = "/agents/other%20bot/sessions/what%2Fif"
    goal = await get_state(api, at=at)
    assert await get_state(api, path) == goal
    assert done["message_count"] == len(goal["messages"])
    fork = await open_session(store, "other bot", "what/if")
    fork.add_message("user", "elsewhere")
    await fork.commit()
    assert await get_state(api, at=at) == goal
    before = await dump_store(store)
    for dry_run in ("true", "false"):
        response = await api.post(f"{SES_1}/fork", params={"dry_run": dry_run}, json=body)
        expect_problem(response, 409, "what/if", kind="conflict")
    assert await dump_store(store) == before
    expect_ok(await api.delete(path), 204)
    expect_problem(await api.get(path), 404)


@async_test
async def test_fork_without_an_id_gets_a_generated_one(store, api):
    await fill_store(store)
    dry = expect_ok(await api.post(f"{SES_1}/fork", params={"dry_run": "true"}))
    assert dry["session_id"] is None
    one, two = [expect_ok(await api.post(f"{SES_1}/fork"), 201)["session_id"] for _ in range(2)]
    assert one != two
    assert await get_state(api, f"/agents/research-bot/sessions/{one}") == await get_state(api)


# ---------------------------------------------------------------------------------------- delete


@async_test
async def test_delete_removes_a_session_for_all_its_agents(store, api):
    await fill_store(store)
    path = "/agents/ann/sessions/ses_shared"
    dry = expect_ok(await api.delete(path, params={"dry_run": "true"}))
    assert (dry["session_id"], dry["agents"]) == ("ses_shared", ["ann", "bob"])
    assert (dry["events"], dry["snapshots"]) == (4, 0)
    assert dry["parts"] == [
        {"agent_id": agent, "session_id": "ses_shared", "scope": "agent"}
        for agent in ("ann", "bob")
    ]
    expect_ok(await api.delete(path), 204)
    expect_problem(await api.get(path), 404)
    expect_problem(await api.get("/agents/bob/sessions/ses_shared"), 404)
    expect_problem(await api.delete(path), 404)
    assert expect_ok(await api.get("/agents"))["agents"] == [{"agent_id": "research-bot"}]
    assert expect_ok(await api.get(SES_1))["message_count"] == 2
    assert not [key for key in await dump_store(store) if "/scopes/" in key and "ses_shared" in key]


@async_test
async def test_responses_name_agent_session_and_scope_separately(store, api):
    async with Session.open(
        store, agent_id="a/b", session_id="c/d", scope="multi_agent"
    ) as session:
        session.add_message("user", "hello")
    session = "/agents/a%2Fb/sessions/c%2Fd"
    document = (await api.get(f"{session}/document")).json()
    dry = {"dry_run": "true"}
    response = [
        await api.get(session),
        await api.post(f"{session}/snapshots", params=dry),
        await api.post(f"{session}/snapshots"),
        await api.post(f"{session}/restore", params=dry, json={"at": "1"}),
        await api.post(f"{session}/fork", params=dry, json={"session_id": "c/d", "agent_id": "x"}),
        await api.post("/agents/snapshot/restore", params=dry, json=document),
    ]
    for each in response:
        tree = each.json()
        assert each.status_code < 300, tree
        assert tree["agent_id"] in ("a/b", "x")
        assert (tree["session_id"], tree["scope"]) == ("c/d", "multi_agent")


# ------------------------------------------------------------------------------ concurrent writers


@async_test
async def test_concurrent_commits_are_not_lost(store, api):
    first, _ = await fill_store(store)
    others = [await open_session(store) for _ in range(3)]

    async def add(session, number):
        session.add_message("user", f"from {number}")
        await session.commit(on_conflict="rebase")

    work = [add(session, number) for number, session in enumerate(others)]
    restores = [api.post(f"{SES_1}/restore", json={"at": first}) for _ in range(3)]
    results = await asyncio.gather(*work, *restores, return_exceptions=True)
    for response in results[3:]:
        assert response.status_code == 200 or expect_problem(response, 409)
    session = await open_session(store)
    assert (await session.verify()).damage == []
    added = [
        value["content"]
        async for event in session.events
        for _, _, value in event.changes["set"]
        if event.type == "message.appended"
    ]
    kept = [text for text in added if text.startswith("from ")]
    failed = [each for each in results[:3] if isinstance(each, Exception)]
    assert len(kept) + len(failed) == 3


@async_test
async def test_multi_agent_session_is_saved_restored_and_forked(store):
    async with Session.open(store, agent_id="crew", session_id="s", scope="multi_agent") as session:
        session.add_message("user", "one")
        saved = await session.save()
        session.add_message("user", "two")
    api = connect(store)
    path, scope = "/agents/crew/sessions/s", {"scope": "multi_agent"}
    expect_ok(await api.post(f"{path}/snapshots", params=scope), 201)
    expect_ok(await api.post(f"{path}/restore", params=scope, json={"at": saved.snapshot_id}))
    assert expect_ok(await api.get(path, params=scope))["message_count"] == 1
    expect_ok(await api.post(f"{path}/fork", params=scope, json={"session_id": "s2"}), 201)
    assert expect_ok(await api.get("/agents/crew/sessions/s2"))["scope"] == "multi_agent"
    expect_problem(await api.get(path, params={"scope": "agent"}), 404)


@async_test
async def test_misspelled_dry_run_is_rejected(store, api):
    await fill_store(store)
    before = await dump_store(store)
    for name in ("dryrun", "dry-run", "dryRun"):
        expect_problem(await api.delete(SES_1, params={name: "true"}), 422, name)
    assert await dump_store(store) == before
