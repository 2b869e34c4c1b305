"""Documents: a session leaves as one and comes back as one, plain or packed."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

import holdfast
from holdfast import Session, SnapshotManager
from support.async_tests import async_test
from support.importable_documents import PRUNED, WHOLE
from support.rest_api import ODD, ODD_PATH, S, client, entries, filled, good, opened, problem
from support.sample_documents import with_digest

IMPORT = "/agents/snapshot/restore"
UNREADABLE = "it is not JSON, or not packed as it says"
PACKED = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


def elsewhere():
    """Another store, and somebody who asks the app on it."""
    store = holdfast.open_state_store("memory://")
    return store, client(store)


@pytest.mark.parametrize("packed", PACKED)
@async_test
async def test_a_session_goes_to_another_store_with_all_its_events(store, api, packed):
    await filled(store)
    document = (await api.get("/agents/ses_1/snapshot")).content
    other, there = elsewhere()
    body = PACKED[packed](document)
    dry = good(await there.post(IMPORT, params={"dry_run": "true"}, content=body))
    assert await entries(other) == {}
    kind = {"Content-Type": "application/octet-stream", "Content-Encoding": packed}
    done = good(await there.post(IMPORT, content=body, headers=kind))
    assert done == {**dry, "dry_run": False}
    assert (done["created"], done["undo_snapshot_id"]) == (True, None)
    assert (done["messages_restored"], done["events_restored"]) == (2, 10)
    assert ["state", "exact"] in done["changes"]["added"]
    for path in (f"{S}/state?at=7", f"{S}/events/5", f"{S}/diff?from=0&to=10"):
        assert good(await there.get(path)) == good(await api.get(path))
    assert (await (await opened(other)).verify()).damage == []


@pytest.mark.parametrize("document", [WHOLE, PRUNED], ids=["whole", "pruned"])
@async_test
async def test_a_document_of_the_library_is_the_same_after_a_round_trip(document):
    _, there = elsewhere()
    tree = SnapshotManager(holdfast.open_state_store("memory://")).to_dict(document)
    good(await there.post(IMPORT, content=json.dumps(tree).encode()))
    back = good(await there.get("/agents/ses/snapshot"))
    assert back["state"] == tree["state"]
    assert back["digest"] != tree["digest"]
    assert back["events"][:-1] == tree["events"]
    assert back["events"][-1]["type"] == "session.imported"


@async_test
async def test_an_import_over_a_session_is_undone_by_the_snapshot_that_it_names(store, api):
    first, _ = await filled(store)
    old = (await api.get(f"{S}/document", params={"at": first})).content
    before = good(await api.get(f"{S}/state"))["state"]
    dry = good(await api.post(IMPORT, params={"dry_run": "true"}, content=old))
    done = good(await api.post(IMPORT, content=old))
    assert (dry["created"], done["created"]) == (False, False)
    assert dry["changes"] == done["changes"]
    assert done["changes"]["removed"] == [["messages", "000000000001"], ["state", "exact"]]
    assert good(await api.get(f"{S}/state"))["message_count"] == 1
    good(await api.post(f"{S}/restore", json={"at": done["undo_snapshot_id"]}))
    assert good(await api.get(f"{S}/state"))["state"] == before


@async_test
async def test_a_document_is_imported_under_other_ids(store, api):
    await filled(store)
    document = (await api.get(f"{S}/document")).content
    done = good(
        await api.post(IMPORT, params={"agent_id": ODD, "session_id": ODD}, content=document)
    )
    assert (done["agent_id"], done["session_id"]) == (ODD, ODD)
    copy = f"/agents/{ODD_PATH}/sessions/{ODD_PATH}"
    assert (
        good(await api.get(f"{copy}/state"))["state"] == good(await api.get(f"{S}/state"))["state"]
    )


@async_test
async def test_a_document_is_a_file_to_be_saved_under_a_harmless_name(store, api):
    first, _ = await filled(store)
    answered = await api.get(f"{S}/document")
    assert answered.headers["content-type"] == "application/json"
    assert answered.headers["content-disposition"] == 'attachment; filename="ses_1.json"'
    answered = await api.get(f"{S}/document", params={"at": first})
    assert f"ses_1_{first}.json" in answered.headers["content-disposition"]
    assert good(answered)["snapshot_id"] == first
    assert good(answered)["tags"] == {"turn": "1"}
    for session_id in (ODD, '"; filename=evil.exe', "\r\nSet-Cookie: a=b", "...", "\u00e9" * 200):
        async with Session.open(store, agent_id="bot", session_id=session_id) as session:
            session.add_message("user", "hello")
        path = "".join(f"%{byte:02X}" for byte in session_id.encode())
        answered = await api.get(f"/agents/bot/sessions/{path}/document")
        named = answered.headers["content-disposition"]
        name = named.removeprefix('attachment; filename="').removesuffix('.json"')
        assert not set(name) - set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-0123456789"
        )
        assert "set-cookie" not in answered.headers


@async_test
async def test_a_document_gets_tags_and_loses_secrets_where_asked(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        session.add_message("user", "mail ada@example.com")
    query = [("tag", "reason=a=b"), ("tag", "empty="), ("redact", "true")]
    for path in ("/agents/ses/snapshot", "/agents/bot/sessions/ses/document"):
        answered = await api.get(path, params=query)
        assert good(answered)["tags"] == {"reason": "a=b", "empty": ""}
        assert "ada@example.com" not in answered.text
        assert "ada@example.com" in (await api.get(path)).text
        for bad in ("", "=", "novalue", "=x"):
            problem(await api.get(path, params={"tag": bad}), 422, "tag")


@async_test
async def test_the_agent_is_asked_for_where_several_share_a_session(store, api):
    await filled(store)
    path = "/agents/ses_shared/snapshot"
    tree = problem(await api.get(path), 409, "ann", "bob")
    assert "agent_id" in tree["hint"]
    for agent in ("ann", "bob"):
        assert good(await api.get(path, params={"agent_id": agent}))["agent_id"] == agent
    problem(await api.get(path, params={"agent_id": "eve"}), 404, "eve")
    problem(await api.get("/agents/nothing/snapshot"), 404, "nothing", kind="not-found")


@async_test
async def test_the_scope_is_asked_for_where_an_agent_has_both_in_a_session(store, api):
    for scope in ("agent", "multi_agent"):
        async with Session.open(store, agent_id="crew", session_id="ses", scope=scope) as session:
            session.add_message("user", f"hello {scope}")
    path = "/agents/ses/snapshot"
    for query in ({}, {"agent_id": "crew"}):
        tree = problem(await api.get(path, params=query), 409, "crew", "agent, multi_agent")
        assert "scope" in tree["hint"]
        for scope in ("agent", "multi_agent"):
            document = good(await api.get(path, params={**query, "scope": scope}))
            assert document["state"]["messages"][0]["content"] == f"hello {scope}"
    problem(await api.get(path, params={"scope": "all"}), 422, "scope")
    one, other = ({f"{end}_agent": "crew", f"{end}_session": "ses"} for end in ("from", "to"))
    scopes = {"from_scope": "agent", "to_scope": "multi_agent"}
    tree = good(await api.get("/diff", params={**one, **other, **scopes}))
    assert (tree["from"]["scope"], tree["to"]["scope"]) == ("agent", "multi_agent")
    assert tree["changed"] == 1


@async_test
async def test_a_snapshot_of_a_session_leaves_as_its_document(store, api):
    first, second = await filled(store)
    path = "/agents/ses_1/snapshot"
    for each in (first, second):
        assert good(await api.get(path, params={"snapshot_id": each}))["snapshot_id"] == each
    problem(await api.get(path, params={"snapshot_id": "019a8b5e"}), 404)
    problem(await api.get(f"{S}/document", params={"at": "019a8b5e"}), 404)
    problem(await api.get(path, params={"snapshot_id": "../x"}), 422)


@async_test
async def test_fields_that_are_not_known_are_no_reason_to_refuse_a_document(store, api):
    await filled(store)
    tree = good(await api.get(f"{S}/document"))
    tree["x-team"] = {"owner": ["ada", {"$future": 1}]}
    tree = with_digest(tree)
    _, there = elsewhere()
    assert good(await there.post(IMPORT, json=tree))["created"] is True
    assert good(await there.get(f"{S}/state"))["state"] == tree["state"]


@async_test
async def test_a_document_with_a_name_twice_is_refused_or_means_one_thing(store, api):
    """Two readers of such a document must not see two sessions in it."""
    await filled(store)
    text = (await api.get(f"{S}/document")).text
    twice = text.replace('"agent_id": "research-bot"', '"agent_id": "eve", "agent_id": "bob"', 1)
    assert twice != text
    answered = await api.post(IMPORT, content=twice.encode())
    assert (
        answered.status_code == 422 or good(answered)["agent_id"] == json.loads(twice)["agent_id"]
    )


@async_test
async def test_a_document_that_was_edited_is_refused_unless_it_was_on_purpose(store, api):
    await filled(store)
    tree = good(await api.get(f"{S}/document"))
    tree["state"]["messages"][0]["content"] = "something else"
    before = await entries(store)
    problem(await api.post(IMPORT, json=tree), 422, kind="invalid")
    assert await entries(store) == before
    good(await api.post(IMPORT, params={"allow_modified": "true"}, json=tree))
    state = good(await api.get(f"{S}/state"))["state"]
    assert state["messages"][0]["content"] == "something else"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", UNREADABLE),
        (b"{", UNREADABLE),
        (b"\xff\xfe", UNREADABLE),
        (b"[]", "document"),
        (b"null", UNREADABLE),
        (b'"text"', UNREADABLE),
        (b"{}", "schema_version"),
        (b'{"schema_version": 99}', "99"),
        (b'{"schema_version": true}', "schema_version"),
        (b'{"schema_version": 1, "agent_id": 5}', ""),
        (b'{"schema_version": 1, "agent_id": "", "session_id": "s", "state": {}}', ""),
        (b'{"schema_version": 1, "agent_id": "a", "session_id": "s", "state": []}', ""),
        (b'{"schema_version": 1, "agent_id": "a", "agent_id": "b"}', ""),
        (b'{"schema_version": NaN}', UNREADABLE),
        (b'{"schema_version": 1' + b"0" * 5000 + b"}", UNREADABLE),
        (
            b'{"schema_version": 1, "agent_id": "\\ud800", "session_id": "s", "state": {}}',
            UNREADABLE,
        ),
        (gzip.compress(b"{}", mtime=0)[:-4], UNREADABLE),
        (b"\x1f\x8b\x08\x00garbage", UNREADABLE),
        (b"\x28\xb5\x2f\xfdgarbage", UNREADABLE),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), UNREADABLE),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else "",
)
@async_test
async def test_a_body_that_is_no_document_is_refused_with_the_words_of_the_library(
    looking, body, words
):
    for query in ({}, {"dry_run": "true"}, {"allow_modified": "true"}):
        answered = await looking().post(IMPORT, params=query, content=body)
        if words is UNREADABLE:
            problem(answered, 400, "the body", kind="bad-request")
        else:
            problem(answered, 422, words, kind="invalid")
