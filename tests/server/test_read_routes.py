"""Summary, events, states, diffs and growth of a session."""

from __future__ import annotations

import jsonpatch
import pytest

from holdfast import RetentionPolicy, Session
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import InterruptedStore
from support.rest_api import (
    SES_1,
    add_pruned_session,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)

LONG = "/agents/long-bot/sessions/long"


async def get_with_etag(api, path):
    """Return a response's JSON and ETag, and check that the ETag saves sending it again."""
    response = await api.get(path)
    tag = response.headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = await api.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert (await api.get(path, headers={"If-None-Match": '"other"'})).status_code == 200
    return expect_ok(response), tag


# ------------------------------------------------------------------------------------- summary


@async_test
async def test_summary_of_a_session(store, api):
    first, second = await fill_store(store)
    tree, _ = await get_with_etag(api, SES_1)
    session = await open_session(store)
    assert tree["head"] == session.log.head.hash
    assert (tree["first_event"], tree["last_event"]) == (1, session.log.head.seq)
    assert (tree["agent_id"], tree["session_id"], tree["scope"]) == (
        "research-bot",
        "ses_1",
        "agent",
    )
    assert (tree["status"], tree["message_count"], tree["snapshot_count"]) == ("running", 2, 2)
    assert tree["namespaces"] == ["messages", "session", "state"]
    assert tree["size_bytes"] == session.snapshot().size_bytes
    assert tree["latest_snapshot"]["snapshot_id"] == second
    assert tree["unfinished"] == []
    assert tree["started_at"] <= tree["updated_at"]
    assert first != second


@async_test
async def test_etag_of_a_session_changes_with_each_commit_and_snapshot(store, api):
    await fill_store(store)
    tags = [(await get_with_etag(api, SES_1))[1]]
    session = await open_session(store)
    session.add_message("user", "more")
    await session.commit()
    tags.append((await get_with_etag(api, SES_1))[1])
    await session.save()
    tags.append((await get_with_etag(api, SES_1))[1])
    assert len(set(tags)) == 3


@async_test
async def test_etags_change_when_a_session_is_recreated_or_restored_from_a_backup(store, api):
    async def commit(value):
        session = await Session.open(store, agent_id="research-bot", session_id="ses_1")
        session.set("a", value)
        await session.commit()
        tags.extend([(await get_with_etag(api, path))[1] for path in (SES_1, f"{SES_1}/growth")])

    tags = []
    await commit("one")
    expect_ok(await api.delete(SES_1), 204)
    await commit("other")
    backup = await dump_store(store)
    await commit("more")
    expect_ok(await api.delete(SES_1), 204)
    for key, value in backup.items():
        await store.put(key, value)
    await commit("else")
    assert len(set(tags)) == 8


@async_test
async def test_etag_of_growth_changes_when_events_are_pruned(store, api):
    session = await Session.open(store, agent_id="research-bot", session_id="ses_1")
    for text in "abc":
        session.add_message("user", text)
        await session.save()
    await session._committer.timeline.write_keyframe(session.snapshot())
    before, tag = await get_with_etag(api, f"{SES_1}/growth")
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    after, other = await get_with_etag(api, f"{SES_1}/growth")
    assert len(after["points"]) < len(before["points"])
    assert other != tag


@async_test
async def test_tool_calls_without_a_result_are_listed(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        session.add_message("assistant", "", tool_calls=[call])
    tree = expect_ok(await api.get("/agents/bot/sessions/ses"))
    assert [(each["id"], each["name"]) for each in tree["unfinished"]] == [("c1", "search")]
    assert (
        expect_ok(await api.post("/agents/bot/sessions/ses/snapshots"), 201)["unfinished"] is True
    )


@async_test
async def test_scope_selects_between_states_of_the_same_id(store, api):
    for scope in ("agent", "multi_agent"):
        async with Session.open(store, agent_id="crew", session_id="ses", scope=scope) as session:
            session.add_message("user", f"hello {scope}")
    path = "/agents/crew/sessions/ses"
    for scope in ("agent", "multi_agent"):
        assert expect_ok(await api.get(path, params={"scope": scope}))["scope"] == scope
        for part in ("state", "events", "growth", "snapshots", "diff?from=0", "document"):
            join = "&" if "?" in part else "?"
            response = await api.get(f"{path}/{part}{join}scope={scope}")
            assert response.status_code == 200
        tree = expect_ok(await api.get(f"{path}/state?scope={scope}"))
        assert tree["state"]["messages"][0]["content"] == f"hello {scope}"
    expect_problem(await api.get(path, params={"scope": "all"}), 422, "scope")


# ---------------------------------------------------------------------------------------- events


@async_test
async def test_events_are_listed_in_full_or_in_brief(store, api):
    await fill_store(store)
    events = [event async for event in (await open_session(store)).events]
    tree = expect_ok(await api.get(f"{SES_1}/events"))
    assert tree["next"] is None
    assert [row["seq"] for row in tree["events"]] == [event.seq for event in events]
    assert [row["hash"] for row in tree["events"]] == [event.hash for event in events]
    for row, event in zip(tree["events"], events, strict=True):
        one, _ = await get_with_etag(api, f"{SES_1}/events/{event.seq}")
        assert one == row
        assert (row["type"], row["id"], row["prev"]) == (event.type, event.id, event.prev)
    brief = expect_ok(await api.get(f"{SES_1}/events", params={"brief": "true"}))["events"]
    for short, row in zip(brief, tree["events"], strict=True):
        assert set(short) == {"seq", "id", "type", "at", "set", "added", "delete"}
        assert short["set"] == [pair[:2] for pair in row["changes"]["set"]]
        assert short["delete"] == row["changes"]["delete"]


@async_test
async def test_values_that_json_lacks_are_tagged(store, api):
    await fill_store(store)
    values = expect_ok(await api.get(f"{SES_1}/state"))["state"]["values"]
    assert values["exact"] == {"$map": [[1, {"$tuple": [2, {"$bytes": "AA=="}]}]]}


@pytest.mark.parametrize(
    ("query", "seqs", "next_event"),
    [
        ("limit=3", [1, 2, 3], 4),
        ("first=4&limit=3", [4, 5, 6], 7),
        ("first=9&limit=3", [9, 10], None),
        ("first=9&limit=2", [9, 10], None),
        ("first=2&last=4", [2, 3, 4], None),
        ("first=2&last=4&limit=2", [2, 3], 4),
        ("first=2&last=3&limit=2", [2, 3], None),
        ("first=10&last=10", [10], None),
        ("first=5&last=4", [], None),
        ("first=11", [], None),
        ("last=999999999999&first=10", [10], None),
    ],
)
@async_test
async def test_events_are_listed_by_range(connect_readonly, query, seqs, next_event):
    for more in ("", "&brief=true"):
        tree = expect_ok(await connect_readonly().get(f"{SES_1}/events?{query}{more}"))
        assert [row["seq"] for row in tree["events"]] == seqs
        assert tree["next"] == next_event


@async_test
async def test_brief_events_list_added_keys(connect_readonly):
    for first in range(1, 11):
        query = {"brief": "true", "first": first}
        rows = expect_ok(await connect_readonly().get(f"{SES_1}/events", params=query))["events"]
        for row in rows:
            sides = {"from": row["seq"] - 1, "to": row["seq"]}
            entries = expect_ok(await connect_readonly().get(f"{SES_1}/diff", params=sides))[
                "entries"
            ]
            added = [
                [each["namespace"], each["key"]] for each in entries if each["kind"] == "added"
            ]
            assert sorted(row["added"]) == sorted(added)


@pytest.mark.parametrize("seq", ["0", "11", "-1", "999999999999", "9" * 30])
@async_test
async def test_unknown_event_gets_404_with_the_range_of_the_log(connect_readonly, seq):
    tree = expect_problem(
        await connect_readonly().get(f"{SES_1}/events/{seq}"), 404, "no event", kind="not-found"
    )
    assert "its log has events 1 to 10" in tree["detail"]
    assert (tree["first_event"], tree["last_event"]) == (1, 10)


@pytest.mark.parametrize(
    "path", ["events?first=12", "events?first=999999999999", "state?at=11", "diff?from=1&to=11"]
)
@async_test
async def test_position_after_the_head_gets_404_with_the_range_of_the_log(connect_readonly, path):
    for more in ("", "&brief=true") if path.startswith("events") else ("",):
        tree = expect_problem(
            await connect_readonly().get(f"{SES_1}/{path}{more}"), 404, "no event", kind="not-found"
        )
        assert (tree["first_event"], tree["last_event"]) == (1, 10)


# ----------------------------------------------------------------------------------------- state


@async_test
async def test_state_at_every_event_is_the_fold_of_the_changes(store, api):
    first, _ = await fill_store(store)
    folded: dict = {}
    events = expect_ok(await api.get(f"{SES_1}/events"))["events"]
    assert expect_ok(await api.get(f"{SES_1}/state?at=0"))["state"]["messages"] == []
    for event in events:
        for space, key, value in event["changes"]["set"]:
            folded[space, key] = value
        for space, key in event["changes"]["delete"]:
            del folded[space, key]
        tree, _ = await get_with_etag(api, f"{SES_1}/state?at={event['seq']}")
        state = tree["state"]
        assert (tree["seq"], tree["hash"], tree["at"]) == (
            event["seq"],
            event["hash"],
            event["at"],
        )
        assert state["values"] == {key: v for (space, key), v in folded.items() if space == "state"}
        assert state["messages"] == [v for (space, _), v in folded.items() if space == "messages"]
        assert state["status"] == tree["status"] == folded["session", "status"]
    snapshot, _ = await get_with_etag(api, f"{SES_1}/state?at={first}")
    assert snapshot["snapshot_id"] == first
    assert (
        snapshot["state"]
        == expect_ok(await api.get(f"{SES_1}/state?at={snapshot['seq']}"))["state"]
    )
    assert expect_ok(await api.get(f"{SES_1}/state?at=now"))["seq"] == len(events)


@async_test
async def test_messages_are_windowed_by_offset_and_limit(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        for text in "abcde":
            session.add_message("user", text)
    for query, expected, offset in (
        ("", "abcde", 0),
        ("message_limit=0", "", 0),
        ("message_limit=2", "ab", 0),
        ("message_offset=2", "cde", 2),
        ("message_offset=1&message_limit=2", "bc", 1),
        ("message_offset=-2", "de", 3),
        ("message_offset=-3&message_limit=1", "c", 2),
        ("message_offset=-99", "abcde", 0),
        ("message_offset=99", "", 5),
        ("message_limit=1000000000000", "abcde", 0),
    ):
        tree = expect_ok(await api.get(f"/agents/bot/sessions/ses/state?{query}"))
        assert [message["content"] for message in tree["state"]["messages"]] == list(expected)
        assert (tree["message_count"], tree["message_offset"]) == (5, offset)


@pytest.mark.parametrize("at", ["11", "999999999999", "nothing", "019a8b5e", "0" * 128])
@async_test
async def test_unknown_position_gets_404(connect_readonly, at):
    for path in (
        f"{SES_1}/state?at={at}",
        f"{SES_1}/diff?from={at}",
        f"{SES_1}/diff?from=1&to={at}",
    ):
        response = await connect_readonly().get(path)
        if at.startswith("000"):
            assert response.status_code in (404, 422)
        else:
            expect_problem(response, 404, kind="not-found")


# ------------------------------------------------------------------------------------------ diff


@async_test
async def test_diff_of_two_positions_has_a_working_json_patch(store, api):
    first, second = await fill_store(store)
    tree = expect_ok(await api.get(f"{SES_1}/diff?from={first}&to={second}"))
    assert (tree["added"], tree["removed"], tree["changed"]) == (2, 1, 1)
    kinds = {(each["namespace"], each["key"]): each for each in tree["entries"]}
    assert "before" not in kinds["state", "exact"]
    assert "after" not in kinds["state", "old"]
    plan = kinds["state", "plan"]
    assert (plan["before"], plan["after"]) == (["read", "compare"], ["answer"])
    assert jsonpatch.apply_patch(plan["before"], plan["fields"]) == plan["after"]
    assert (tree["from"]["snapshot_id"], tree["to"]["snapshot_id"]) == (first, second)
    assert tree["truncated"] is False
    one, two = [
        expect_ok(await api.get(f"{SES_1}/state?at={at}"))["state"] for at in (first, second)
    ]
    one, two = {"state": one}, {"state": two}
    assert jsonpatch.apply_patch(one, tree["patch"]) == two
    back = expect_ok(await api.get(f"{SES_1}/diff?from={second}&to={first}"))
    assert jsonpatch.apply_patch(two, back["patch"]) == one
    assert expect_ok(await api.get(f"{SES_1}/diff?from={first}&patch=false"))["patch"] is None
    few = expect_ok(await api.get(f"{SES_1}/diff?from=0&limit=1"))
    assert (len(few["entries"]), few["truncated"], few["patch"]) == (1, True, None)
    assert expect_ok(await api.get(f"{SES_1}/diff?from=now"))["entries"] == []


@async_test
async def test_diff_of_two_sessions(store, api):
    await fill_store(store)
    sides = {"from_agent": "ann", "from_session": "ses_shared"}
    sides |= {"to_agent": "bob", "to_session": "ses_shared"}
    tree = expect_ok(await api.get("/diff", params=sides))
    assert (tree["from"]["agent_id"], tree["to"]["agent_id"]) == ("ann", "bob")
    (entry,) = tree["entries"]
    assert entry["before"]["content"] == "hello ann"
    assert entry["after"]["content"] == "hello bob"
    tree = expect_ok(
        await api.get("/diff", params={**sides, "from": "0", "to": "1", "patch": "false"})
    )
    assert (tree["from"]["seq"], tree["to"]["seq"], tree["patch"]) == (0, 1, None)
    expect_problem(await api.get("/diff", params={**sides, "to_session": "x"}), 404)
    expect_problem(await api.get("/diff", params={"from_agent": "ann"}), 422)


# ----------------------------------------------------------------------------- pruned, and large


@async_test
async def test_pruned_events_get_404_and_the_rest_is_served(store, api):
    first = await add_pruned_session(store)
    path = "/agents/pruned-bot/sessions/ses_p"
    tree = expect_ok(await api.get(path))
    assert (tree["first_event"], tree["message_count"]) == (first, 6)
    events = expect_ok(await api.get(f"{path}/events"))
    assert [row["seq"] for row in events["events"]] == list(range(first, tree["last_event"] + 1))
    for query in (f"events?last={first - 1}", "events?first=1&last=1", "events/1"):
        gone = expect_problem(await api.get(f"{path}/{query}"), 404, "was pruned")
        assert (gone["first_event"], gone["last_event"]) == (first, tree["last_event"])
    partly = expect_ok(await api.get(f"{path}/events?first=1&last={first}"))["events"]
    assert [row["seq"] for row in partly] == [first]
    next_event = expect_ok(await api.get(f"{path}/events?first={tree['last_event'] + 1}"))
    assert next_event == {"events": [], "next": None}
    for at in ("0", "1", str(first - 2)):
        expect_problem(await api.get(f"{path}/state?at={at}"), 404, "pruned")
        expect_problem(await api.get(f"{path}/diff?from={at}"), 404, "pruned")
        expect_problem(await api.post(f"{path}/restore", json={"at": at}), 404, "pruned")
        expect_problem(await api.post(f"{path}/fork", json={"at": at}), 404, "pruned")
    assert expect_ok(await api.get(f"{path}/state?at={first}"))["message_count"] == 6
    points = expect_ok(await api.get(f"{path}/growth"))["points"]
    assert [point["seq"] for point in points] == [row["seq"] for row in events["events"]]


@async_test
async def test_long_session_is_correct_at_every_position(store, api):
    async with Session.open(store, agent_id="long-bot", session_id="long") as session:
        for number in range(2999):
            session.add_message("user", str(number))
            if number % 10 == 9:
                await session.commit()
    tree = expect_ok(await api.get(LONG))
    assert (tree["last_event"], tree["message_count"]) == (3000, 2999)
    seen, next_event = [], 1
    while next_event is not None:
        page = expect_ok(await api.get(f"{LONG}/events?first={next_event}&limit=1000&brief=true"))
        seen += [row["seq"] for row in page["events"]]
        next_event = page["next"]
    assert seen == list(range(1, 3001))
    for at in (1, 2, 255, 1500, 2999, 3000):
        state = expect_ok(await api.get(f"{LONG}/state?at={at}&message_offset=-2"))
        assert state["message_count"] == at - 1
        contents = [message["content"] for message in state["state"]["messages"]]
        assert contents == [str(n) for n in range(max(0, at - 3), at - 1)]
    diff = expect_ok(await api.get(f"{LONG}/diff?from=1500"))
    assert (diff["added"], diff["truncated"]) == (1500, True)
    growth, _ = await get_with_etag(api, f"{LONG}/growth?points=50")
    assert len(growth["points"]) == 50
    assert [growth["points"][0]["seq"], growth["points"][-1]["seq"]] == [1, 3000]
    assert all(point["messages"] == point["seq"] - 1 for point in growth["points"])
    assert growth["last_event"] == 3000


@async_test
async def test_growth_includes_new_events(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        await session.commit()
        path = "/agents/bot/sessions/ses/growth"
        one, tag = await get_with_etag(api, path)
        assert [point["seq"] for point in one["points"]] == [1]
        session.add_message("user", "hello")
        await session.commit()
        two, other = await get_with_etag(api, path)
        assert [point["messages"] for point in two["points"]] == [0, 1]
        assert tag != other


@async_test
async def test_etag_of_a_session_changes_when_a_snapshot_is_deleted(store, api):
    first, _ = await fill_store(store)
    tag = (await api.get(SES_1)).headers["etag"]
    expect_ok(await api.delete(f"{SES_1}/snapshots/{first}"), 204)
    response = await api.get(SES_1, headers={"If-None-Match": tag})
    assert expect_ok(response)["snapshot_count"] == 1


@async_test
async def test_growth_continues_where_it_ended(api):
    store = api._transport.app.state.context.state_store
    session = await Session.open(store, agent_id="research-bot", session_id="ses_1")
    expected = []
    for number in range(12):
        session.add_message("user", "x" * number)
        session.set("n", number)
        if number % 3 == 2:
            session.pop_message()
        await session.commit()
        found = (await api.get(f"{SES_1}/growth?points=2000")).json()
        state = session.snapshot()
        expected.append((found["last_event"], state.count("messages"), state.size_bytes))
        last = found["points"][-1]
        assert (last["seq"], last["messages"], last["size_bytes"]) == expected[-1]
    rows = {(row["seq"], row["messages"], row["size_bytes"]) for row in found["points"]}
    assert rows >= set(expected)
    assert len(found["points"]) == found["last_event"]


@async_test
async def test_session_is_found_while_its_head_is_pruned():
    async def commit_and_prune():
        session = await Session.open(disk, agent_id="bot", session_id="ses")
        session.add_message("user", "new")
        await session.save()
        await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))

    for at in range(1, 99):
        disk = MemoryStateStore()
        session = await Session.open(disk, agent_id="bot", session_id="ses")
        session.add_message("user", "old")
        await session.save()
        store = InterruptedStore(disk, at, commit_and_prune)
        found = expect_ok(await connect(store).get("/agents/bot/sessions/ses"))
        assert found["message_count"] == 1 + (found["last_event"] == 3)
        if store.calls < at:
            break
    assert at > 2


@async_test
async def test_state_without_a_namespace(store, api):
    async with Session.open(store, agent_id="research-bot", session_id="ses_1") as session:
        session.set("plan", 1)
        changes = {"set": [("files", "a.py", {"link": "b.py", "mode": 511}), ("memory", "a", 1)]}
        session.record("files.captured", changes={**changes, "delete": []})
    whole, tag = await get_with_etag(api, f"{SES_1}/state")
    assert set(whole["state"]["namespaces"]) == {"files", "memory"}
    part, other_tag = await get_with_etag(api, f"{SES_1}/state?without=files")
    assert part["state"]["namespaces"] == {"memory": {"a": 1}}
    assert part["state"]["values"] == {"plan": 1}
    assert tag != other_tag
    query = "without=files&without=memory&without=state&without=nothing"
    least = expect_ok(await api.get(f"{SES_1}/state?{query}"))["state"]
    assert "namespaces" not in least
    assert least["values"] == {"plan": 1}
