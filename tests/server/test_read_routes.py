"""A session as it is, its events, its state at any step, what differs, and how it grew."""

from __future__ import annotations

import jsonpatch
import pytest

from holdfast import RetentionPolicy, Session
from support.async_tests import async_test
from support.rest_api import S, entries, filled, good, opened, problem, pruned

LONG = "/agents/long-bot/sessions/long"


async def with_etag(api, path):
    """An answer, checked to be tagged and not to be sent twice."""
    answered = await api.get(path)
    tag = answered.headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = await api.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert (await api.get(path, headers={"If-None-Match": '"other"'})).status_code == 200
    return good(answered), tag


# ------------------------------------------------------------------------------------- a session


@async_test
async def test_a_session_is_summed_up(store, api):
    first, second = await filled(store)
    tree, _ = await with_etag(api, S)
    session = await opened(store)
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
async def test_the_tag_of_a_session_changes_with_each_commit_and_each_snapshot(store, api):
    await filled(store)
    tags = [(await with_etag(api, S))[1]]
    session = await opened(store)
    session.add_message("user", "more")
    await session.commit()
    tags.append((await with_etag(api, S))[1])
    await session.save()
    tags.append((await with_etag(api, S))[1])
    assert len(set(tags)) == 3


@async_test
async def test_the_tags_of_a_session_are_others_where_it_was_begun_again(store, api):
    """Or where it went on from a backup: as many events, and when it began is the same then."""

    async def begun(value):
        session = await Session.open(store, agent_id="research-bot", session_id="ses_1")
        session.set("a", value)
        await session.commit()
        tags.extend([(await with_etag(api, path))[1] for path in (S, f"{S}/growth")])

    tags = []
    await begun("one")
    good(await api.delete(S), 204)
    await begun("other")
    backup = await entries(store)
    await begun("more")
    good(await api.delete(S), 204)
    for key, value in backup.items():
        await store.put(key, value)
    await begun("else")
    assert len(set(tags)) == 8


@async_test
async def test_the_tag_of_a_growth_changes_where_its_first_events_are_pruned(store, api):
    session = await Session.open(store, agent_id="research-bot", session_id="ses_1")
    for text in "abc":
        session.add_message("user", text)
        await session.save()
    await session._committer.timeline.write_keyframe(session.snapshot())
    before, tag = await with_etag(api, f"{S}/growth")
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    after, other = await with_etag(api, f"{S}/growth")
    assert len(after["points"]) < len(before["points"])
    assert other != tag


@async_test
async def test_tool_calls_without_a_result_are_named(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        session.add_message("assistant", "", tool_calls=[call])
    tree = good(await api.get("/agents/bot/sessions/ses"))
    assert [(each["id"], each["name"]) for each in tree["unfinished"]] == [("c1", "search")]
    assert good(await api.post("/agents/bot/sessions/ses/snapshots"), 201)["unfinished"] is True


@async_test
async def test_the_parts_of_one_id_with_both_scopes_are_told_apart_by_the_scope(store, api):
    for scope in ("agent", "multi_agent"):
        async with Session.open(store, agent_id="crew", session_id="ses", scope=scope) as session:
            session.add_message("user", f"hello {scope}")
    path = "/agents/crew/sessions/ses"
    for scope in ("agent", "multi_agent"):
        assert good(await api.get(path, params={"scope": scope}))["scope"] == scope
        for part in ("state", "events", "growth", "snapshots", "diff?from=0", "document"):
            join = "&" if "?" in part else "?"
            answered = await api.get(f"{path}/{part}{join}scope={scope}")
            assert answered.status_code == 200
        tree = good(await api.get(f"{path}/state?scope={scope}"))
        assert tree["state"]["messages"][0]["content"] == f"hello {scope}"
    problem(await api.get(path, params={"scope": "all"}), 422, "scope")


# ---------------------------------------------------------------------------------------- events


@async_test
async def test_events_come_with_all_that_they_hold_or_in_brief(store, api):
    await filled(store)
    events = [event async for event in (await opened(store)).events]
    tree = good(await api.get(f"{S}/events"))
    assert tree["next"] is None
    assert [row["seq"] for row in tree["events"]] == [event.seq for event in events]
    assert [row["hash"] for row in tree["events"]] == [event.hash for event in events]
    for row, event in zip(tree["events"], events, strict=True):
        one, _ = await with_etag(api, f"{S}/events/{event.seq}")
        assert one == row
        assert (row["type"], row["id"], row["prev"]) == (event.type, event.id, event.prev)
    brief = good(await api.get(f"{S}/events", params={"brief": "true"}))["events"]
    for short, row in zip(brief, tree["events"], strict=True):
        assert set(short) == {"seq", "id", "type", "at", "set", "added", "delete"}
        assert short["set"] == [pair[:2] for pair in row["changes"]["set"]]
        assert short["delete"] == row["changes"]["delete"]


@async_test
async def test_values_beyond_json_have_their_tagged_form(store, api):
    await filled(store)
    values = good(await api.get(f"{S}/state"))["state"]["values"]
    assert values["exact"] == {"$map": [[1, {"$tuple": [2, {"$bytes": "AA=="}]}]]}


@pytest.mark.parametrize(
    ("query", "seqs", "following"),
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
async def test_events_from_one_number_to_another(looking, query, seqs, following):
    for more in ("", "&brief=true"):
        tree = good(await looking().get(f"{S}/events?{query}{more}"))
        assert [row["seq"] for row in tree["events"]] == seqs
        assert tree["next"] == following


@async_test
async def test_brief_events_tell_what_they_add_from_what_they_change(looking):
    for first in range(1, 11):
        query = {"brief": "true", "first": first}
        rows = good(await looking().get(f"{S}/events", params=query))["events"]
        for row in rows:
            sides = {"from": row["seq"] - 1, "to": row["seq"]}
            entries = good(await looking().get(f"{S}/diff", params=sides))["entries"]
            added = [
                [each["namespace"], each["key"]] for each in entries if each["kind"] == "added"
            ]
            assert sorted(row["added"]) == sorted(added)


@pytest.mark.parametrize("seq", ["0", "11", "-1", "999999999999", "9" * 30])
@async_test
async def test_an_event_that_never_happened_is_not_there(looking, seq):
    tree = problem(await looking().get(f"{S}/events/{seq}"), 404, "no event", kind="not-found")
    assert "its log has the events 1 to 10" in tree["detail"]
    assert (tree["first_event"], tree["last_event"]) == (1, 10)


@pytest.mark.parametrize(
    "path", ["events?first=12", "events?first=999999999999", "state?at=11", "diff?from=1&to=11"]
)
@async_test
async def test_what_is_past_the_end_of_the_log_is_not_found_and_says_which_events_exist(
    looking, path
):
    for more in ("", "&brief=true") if path.startswith("events") else ("",):
        tree = problem(await looking().get(f"{S}/{path}{more}"), 404, "no event", kind="not-found")
        assert (tree["first_event"], tree["last_event"]) == (1, 10)


# ---------------------------------------------------------------------------------------- states


@async_test
async def test_the_state_at_every_step_is_what_the_events_up_to_it_add_up_to(store, api):
    first, _ = await filled(store)
    folded: dict = {}
    events = good(await api.get(f"{S}/events"))["events"]
    assert good(await api.get(f"{S}/state?at=0"))["state"]["messages"] == []
    for event in events:
        for space, key, value in event["changes"]["set"]:
            folded[space, key] = value
        for space, key in event["changes"]["delete"]:
            del folded[space, key]
        tree, _ = await with_etag(api, f"{S}/state?at={event['seq']}")
        state = tree["state"]
        assert (tree["seq"], tree["hash"], tree["at"]) == (
            event["seq"],
            event["hash"],
            event["at"],
        )
        assert state["values"] == {key: v for (space, key), v in folded.items() if space == "state"}
        assert state["messages"] == [v for (space, _), v in folded.items() if space == "messages"]
        assert state["status"] == tree["status"] == folded["session", "status"]
    snapshot, _ = await with_etag(api, f"{S}/state?at={first}")
    assert snapshot["snapshot_id"] == first
    assert snapshot["state"] == good(await api.get(f"{S}/state?at={snapshot['seq']}"))["state"]
    assert good(await api.get(f"{S}/state?at=now"))["seq"] == len(events)


@async_test
async def test_a_window_of_the_messages(store, api):
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
        tree = good(await api.get(f"/agents/bot/sessions/ses/state?{query}"))
        assert [message["content"] for message in tree["state"]["messages"]] == list(expected)
        assert (tree["message_count"], tree["message_offset"]) == (5, offset)


@pytest.mark.parametrize("at", ["11", "999999999999", "nothing", "019a8b5e", "0" * 128])
@async_test
async def test_a_moment_that_never_was_is_not_there(looking, at):
    for path in (f"{S}/state?at={at}", f"{S}/diff?from={at}", f"{S}/diff?from=1&to={at}"):
        answered = await looking().get(path)
        if at.startswith("000"):
            assert answered.status_code in (404, 422)
        else:
            problem(answered, 404, kind="not-found")


# ----------------------------------------------------------------------------------- differences


@async_test
async def test_what_differs_between_two_moments_and_the_patch_that_leads_from_one_to_the_other(
    store, api
):
    first, second = await filled(store)
    tree = good(await api.get(f"{S}/diff?from={first}&to={second}"))
    assert (tree["added"], tree["removed"], tree["changed"]) == (2, 1, 1)
    kinds = {(each["namespace"], each["key"]): each for each in tree["entries"]}
    assert "before" not in kinds["state", "exact"]
    assert "after" not in kinds["state", "old"]
    plan = kinds["state", "plan"]
    assert (plan["before"], plan["after"]) == (["read", "compare"], ["answer"])
    assert jsonpatch.apply_patch(plan["before"], plan["fields"]) == plan["after"]
    assert (tree["from"]["snapshot_id"], tree["to"]["snapshot_id"]) == (first, second)
    assert tree["truncated"] is False
    one, two = [good(await api.get(f"{S}/state?at={at}"))["state"] for at in (first, second)]
    one, two = {"state": one}, {"state": two}
    assert jsonpatch.apply_patch(one, tree["patch"]) == two
    back = good(await api.get(f"{S}/diff?from={second}&to={first}"))
    assert jsonpatch.apply_patch(two, back["patch"]) == one
    assert good(await api.get(f"{S}/diff?from={first}&patch=false"))["patch"] is None
    few = good(await api.get(f"{S}/diff?from=0&limit=1"))
    assert (len(few["entries"]), few["truncated"], few["patch"]) == (1, True, None)
    assert good(await api.get(f"{S}/diff?from=now"))["entries"] == []


@async_test
async def test_what_differs_between_moments_of_two_sessions(store, api):
    await filled(store)
    sides = {"from_agent": "ann", "from_session": "ses_shared"}
    sides |= {"to_agent": "bob", "to_session": "ses_shared"}
    tree = good(await api.get("/diff", params=sides))
    assert (tree["from"]["agent_id"], tree["to"]["agent_id"]) == ("ann", "bob")
    (entry,) = tree["entries"]
    assert entry["before"]["content"] == "hello ann"
    assert entry["after"]["content"] == "hello bob"
    tree = good(await api.get("/diff", params={**sides, "from": "0", "to": "1", "patch": "false"}))
    assert (tree["from"]["seq"], tree["to"]["seq"], tree["patch"]) == (0, 1, None)
    problem(await api.get("/diff", params={**sides, "to_session": "x"}), 404)
    problem(await api.get("/diff", params={"from_agent": "ann"}), 422)


# ----------------------------------------------------------------------------- pruned, and large


@async_test
async def test_what_was_pruned_is_said_to_be_and_the_rest_is_there(store, api):
    first = await pruned(store)
    path = "/agents/pruned-bot/sessions/ses_p"
    tree = good(await api.get(path))
    assert (tree["first_event"], tree["message_count"]) == (first, 6)
    events = good(await api.get(f"{path}/events"))
    assert [row["seq"] for row in events["events"]] == list(range(first, tree["last_event"] + 1))
    for query in (f"events?last={first - 1}", "events?first=1&last=1", "events/1"):
        gone = problem(await api.get(f"{path}/{query}"), 404, "was pruned")
        assert (gone["first_event"], gone["last_event"]) == (first, tree["last_event"])
    partly = good(await api.get(f"{path}/events?first=1&last={first}"))["events"]
    assert [row["seq"] for row in partly] == [first]
    following = good(await api.get(f"{path}/events?first={tree['last_event'] + 1}"))
    assert following == {"events": [], "next": None}
    for at in ("0", "1", str(first - 2)):
        problem(await api.get(f"{path}/state?at={at}"), 404, "pruned")
        problem(await api.get(f"{path}/diff?from={at}"), 404, "pruned")
        problem(await api.post(f"{path}/restore", json={"at": at}), 404, "pruned")
        problem(await api.post(f"{path}/fork", json={"at": at}), 404, "pruned")
    assert good(await api.get(f"{path}/state?at={first}"))["message_count"] == 6
    points = good(await api.get(f"{path}/growth"))["points"]
    assert [point["seq"] for point in points] == [row["seq"] for row in events["events"]]


@async_test
async def test_a_session_of_three_thousand_events_stays_right_at_every_step(store, api):
    async with Session.open(store, agent_id="long-bot", session_id="long") as session:
        for number in range(2999):
            session.add_message("user", str(number))
            if number % 10 == 9:
                await session.commit()
    tree = good(await api.get(LONG))
    assert (tree["last_event"], tree["message_count"]) == (3000, 2999)
    seen, following = [], 1
    while following is not None:
        page = good(await api.get(f"{LONG}/events?first={following}&limit=1000&brief=true"))
        seen += [row["seq"] for row in page["events"]]
        following = page["next"]
    assert seen == list(range(1, 3001))
    for at in (1, 2, 255, 1500, 2999, 3000):
        state = good(await api.get(f"{LONG}/state?at={at}&message_offset=-2"))
        assert state["message_count"] == at - 1
        said = [message["content"] for message in state["state"]["messages"]]
        assert said == [str(n) for n in range(max(0, at - 3), at - 1)]
    difference = good(await api.get(f"{LONG}/diff?from=1500"))
    assert (difference["added"], difference["truncated"]) == (1500, True)
    growth, _ = await with_etag(api, f"{LONG}/growth?points=50")
    assert len(growth["points"]) == 50
    assert [growth["points"][0]["seq"], growth["points"][-1]["seq"]] == [1, 3000]
    assert all(point["messages"] == point["seq"] - 1 for point in growth["points"])
    assert growth["last_event"] == 3000


@async_test
async def test_growth_follows_the_session(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        await session.commit()
        path = "/agents/bot/sessions/ses/growth"
        one, tag = await with_etag(api, path)
        assert [point["seq"] for point in one["points"]] == [1]
        session.add_message("user", "hello")
        await session.commit()
        two, other = await with_etag(api, path)
        assert [point["messages"] for point in two["points"]] == [0, 1]
        assert tag != other
