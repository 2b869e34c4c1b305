"""Save, restore, fork, delete: what they do, how it is undone, and that a dry run does nothing."""

from __future__ import annotations

import pytest

from holdfast import Session
from support.async_tests import async_test
from support.rest_api import S, client, entries, filled, good, opened, problem


async def state_of(api, path=S, at="now"):
    """What a session holds at a moment."""
    return good(await api.get(f"{path}/state", params={"at": at}))["state"]


# ------------------------------------------------------------------------------------ nothing done


@async_test
async def test_no_dry_run_changes_a_single_entry_of_the_store(store, api):
    first, second = await filled(store)
    document = (await api.get("/agents/ses_1/snapshot")).content
    before = await entries(store)
    dry = {"dry_run": "true"}
    for method, path, body in [
        ("POST", f"{S}/snapshots", {"tags": {"a": "b"}}),
        ("POST", f"{S}/restore", {"at": first}),
        ("POST", f"{S}/restore", {"at": "0"}),
        ("POST", f"{S}/fork", {}),
        ("POST", f"{S}/fork", {"at": first, "session_id": "new", "agent_id": "other"}),
        ("DELETE", f"{S}/snapshots/{second}", None),
        ("DELETE", S, None),
        ("DELETE", "/agents/ann/sessions/ses_shared", None),
    ]:
        tree = good(await api.request(method, path, params=dry, json=body))
        assert tree.get("dry_run", True) is True
        assert await entries(store) == before
    for names in ({}, {"agent_id": "new", "session_id": "new"}, {"session_id": "ses_shared"}):
        answered = await api.post(
            "/agents/snapshot/restore", params={**dry, **names}, content=document
        )
        assert good(answered)["dry_run"] is True
        assert await entries(store) == before


@async_test
async def test_no_look_at_a_store_changes_a_single_entry_of_it(store, api):
    first, _ = await filled(store)
    before = await entries(store)
    for path in (
        "/agents",
        "/agents/ann/sessions",
        S,
        f"{S}/events",
        f"{S}/state?at=3",
        f"{S}/diff?from={first}",
        f"{S}/growth",
        f"{S}/snapshots",
        f"{S}/document",
        "/agents/ses_1/snapshot",
        "/health/ready",
        "/metrics",
    ):
        assert (await api.get(path)).status_code == 200
    assert await entries(store) == before


# ------------------------------------------------------------------------------------------ save


@async_test
async def test_a_saved_snapshot_is_there_with_its_tags_and_can_be_deleted(store, api):
    await filled(store)
    dry = good(await api.post(f"{S}/snapshots", params={"dry_run": "true"}))
    info = good(await api.post(f"{S}/snapshots", json={"tags": {"why": "\u00e9 <b>"}}), 201)
    assert info["tags"] == {"why": "\u00e9 <b>"}
    for name in ("status", "message_count", "size_bytes", "seq", "unfinished"):
        assert dry[name] == info[name]
    path = f"{S}/snapshots/{info['snapshot_id']}"
    assert good(await api.get(path)) == info
    assert good(await api.get(S))["snapshot_count"] == 3
    assert good(await api.delete(path, params={"dry_run": "true"})) == info
    gone = await api.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    problem(await api.get(path), 404, info["snapshot_id"])
    problem(await api.delete(path), 404)
    assert len(good(await api.get(f"{S}/snapshots"))["snapshots"]) == 2


@async_test
async def test_a_snapshot_is_saved_without_a_body_too(store, api):
    await filled(store)
    assert good(await api.post(f"{S}/snapshots"), 201)["tags"] == {}
    assert good(await api.post(f"{S}/snapshots", json={}), 201)["tags"] == {}


# --------------------------------------------------------------------------------------- restore


@pytest.mark.parametrize("at", ["first", "5", "3", "0"])
@async_test
async def test_a_restore_does_what_its_dry_run_said_and_is_undone_by_the_event_that_it_names(
    store, api, at
):
    first, _ = await filled(store)
    at = first if at == "first" else at
    before, goal = await state_of(api), await state_of(api, at=at)
    dry = good(await api.post(f"{S}/restore", params={"dry_run": "true"}, json={"at": at}))
    done = good(await api.post(f"{S}/restore", json={"at": at}))
    assert dry["changes"] == done["changes"]
    assert (dry["dry_run"], done["dry_run"]) == (True, False)
    assert (dry["last_event"], done["last_event"]) == (10, 11)
    assert await state_of(api) == goal
    assert (await opened(store)).log.head.seq == 11
    event = good(await api.get(f"{S}/events/11"))
    assert event["type"] == "state.restored"
    undone = good(await api.post(f"{S}/restore", json={"at": str(done["previous_event"])}))
    assert undone["last_event"] == 12
    assert await state_of(api) == before
    assert len(good(await api.get(f"{S}/events"))["events"]) == 12


@async_test
async def test_a_session_that_was_restored_goes_on(store, api):
    first, _ = await filled(store)
    good(await api.post(f"{S}/restore", json={"at": first}))
    session = await opened(store)
    session.add_message("user", "and on")
    await session.save()
    assert (await session.verify()).damage == []
    assert [each["content"] for each in (await state_of(api))["messages"]] == [
        "Compare the two",
        "and on",
    ]


# ------------------------------------------------------------------------------------------ fork


@pytest.mark.parametrize("at", ["now", "first", "3"])
@async_test
async def test_a_fork_has_the_state_of_its_moment_and_goes_its_own_way(store, api, at):
    first, _ = await filled(store)
    at = first if at == "first" else at
    body = {"at": at, "session_id": "what/if", "agent_id": "other bot"}
    dry = good(await api.post(f"{S}/fork", params={"dry_run": "true"}, json=body))
    done = good(await api.post(f"{S}/fork", json=body), 201)
    assert done == {**dry, "dry_run": False}
    assert (done["agent_id"], done["session_id"]) == ("other bot", "what/if")
    path = "/agents/other%20bot/sessions/what%2Fif"
    goal = await state_of(api, at=at)
    assert await state_of(api, path) == goal
    assert done["message_count"] == len(goal["messages"])
    fork = await opened(store, "other bot", "what/if")
    fork.add_message("user", "elsewhere")
    await fork.commit()
    assert await state_of(api, at=at) == goal
    before = await entries(store)
    for dry_run in ("true", "false"):
        answered = await api.post(f"{S}/fork", params={"dry_run": dry_run}, json=body)
        problem(answered, 409, "what/if", kind="conflict")
    assert await entries(store) == before
    good(await api.delete(path), 204)
    problem(await api.get(path), 404)


@async_test
async def test_a_fork_without_an_id_gets_one(store, api):
    await filled(store)
    dry = good(await api.post(f"{S}/fork", params={"dry_run": "true"}))
    assert dry["session_id"] is None
    one, two = [good(await api.post(f"{S}/fork"), 201)["session_id"] for _ in range(2)]
    assert one != two
    assert await state_of(api, f"/agents/research-bot/sessions/{one}") == await state_of(api)


# ---------------------------------------------------------------------------------------- delete


@async_test
async def test_a_deleted_session_is_gone_for_all_its_agents_and_no_other_is(store, api):
    await filled(store)
    path = "/agents/ann/sessions/ses_shared"
    dry = good(await api.delete(path, params={"dry_run": "true"}))
    assert (dry["session_id"], dry["agents"]) == ("ses_shared", ["ann", "bob"])
    assert (dry["events"], dry["snapshots"]) == (4, 0)
    assert dry["parts"] == [
        {"agent_id": agent, "session_id": "ses_shared", "scope": "agent"}
        for agent in ("ann", "bob")
    ]
    good(await api.delete(path), 204)
    problem(await api.get(path), 404)
    problem(await api.get("/agents/bob/sessions/ses_shared"), 404)
    problem(await api.delete(path), 404)
    assert good(await api.get("/agents"))["agents"] == [{"agent_id": "research-bot"}]
    assert good(await api.get(S))["message_count"] == 2
    assert not [key for key in await entries(store) if "/scopes/" in key and "ses_shared" in key]


@async_test
async def test_every_answer_about_a_session_names_its_agent_session_and_scope_apart(store, api):
    async with Session.open(
        store, agent_id="a/b", session_id="c/d", scope="multi_agent"
    ) as session:
        session.add_message("user", "hello")
    place = "/agents/a%2Fb/sessions/c%2Fd"
    document = (await api.get(f"{place}/document")).json()
    dry = {"dry_run": "true"}
    answered = [
        await api.get(place),
        await api.post(f"{place}/snapshots", params=dry),
        await api.post(f"{place}/snapshots"),
        await api.post(f"{place}/restore", params=dry, json={"at": "1"}),
        await api.post(f"{place}/fork", params=dry, json={"session_id": "c/d", "agent_id": "x"}),
        await api.post("/agents/snapshot/restore", params=dry, json=document),
    ]
    for each in answered:
        tree = each.json()
        assert each.status_code < 300, tree
        assert tree["agent_id"] in ("a/b", "x")
        assert (tree["session_id"], tree["scope"]) == ("c/d", "multi_agent")


# -------------------------------------------------------------------------------------- If-Match


@async_test
async def test_a_change_to_what_was_looked_at_is_refused_where_the_session_went_on(store, api):
    first, _ = await filled(store)
    head = good(await api.get(S))["head"]
    session = await opened(store)
    session.add_message("user", "meanwhile")
    await session.commit()
    before = await entries(store)
    stale = {"If-Match": f'"{head}"'}
    for method, path, body in (
        ("POST", f"{S}/snapshots", {}),
        ("POST", f"{S}/restore", {"at": first}),
        ("DELETE", S, None),
    ):
        for garbage in (stale["If-Match"], head, '"', "", "x" * 5000, '"a", "b"', "\xff", "W/*"):
            answered = await api.request(
                method, path, json=body, headers={"If-Match": garbage.encode("latin-1")}
            )
            tree = problem(answered, 412, kind="moved-on")
            assert session.log.head.hash in tree["detail"]
        assert await entries(store) == before
    now = {"If-Match": f'"{head}", "{session.log.head.hash}"'}
    good(await api.post(f"{S}/snapshots", headers=now), 201)
    good(await api.post(f"{S}/restore", json={"at": first}, headers={"If-Match": "*"}))
    head = good(await api.get(S))["head"]
    good(await api.delete(S, headers={"If-Match": f'"{head}"'}), 204)


# ------------------------------------------------------------------------------- two who write


@async_test
async def test_what_a_writer_adds_while_the_server_writes_is_never_lost(store, api):
    """Somebody else commits between the look and the write of a restore: one of them is told."""
    import asyncio

    first, _ = await filled(store)
    others = [await opened(store) for _ in range(3)]

    async def add(session, number):
        session.add_message("user", f"from {number}")
        await session.commit(on_conflict="rebase")

    work = [add(session, number) for number, session in enumerate(others)]
    asked = [api.post(f"{S}/restore", json={"at": first}) for _ in range(3)]
    results = await asyncio.gather(*work, *asked, return_exceptions=True)
    for answered in results[3:]:
        assert answered.status_code == 200 or problem(answered, 409)
    session = await opened(store)
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
async def test_a_session_of_all_agents_is_saved_restored_and_forked_by_its_scope(store):
    async with Session.open(store, agent_id="crew", session_id="s", scope="multi_agent") as session:
        session.add_message("user", "one")
        saved = await session.save()
        session.add_message("user", "two")
    api = client(store)
    path, scope = "/agents/crew/sessions/s", {"scope": "multi_agent"}
    good(await api.post(f"{path}/snapshots", params=scope), 201)
    good(await api.post(f"{path}/restore", params=scope, json={"at": saved.snapshot_id}))
    assert good(await api.get(path, params=scope))["message_count"] == 1
    good(await api.post(f"{path}/fork", params=scope, json={"session_id": "s2"}), 201)
    assert good(await api.get("/agents/crew/sessions/s2"))["scope"] == "multi_agent"
    problem(await api.get(path, params={"scope": "agent"}), 404)
