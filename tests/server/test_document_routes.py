"""Export and import of documents, plain and compressed."""

from __future__ import annotations

import gzip
import json

import pytest
import zstandard

import holdfast
from holdfast import Session, SnapshotManager
from support.async_tests import async_test
from support.importable_documents import PRUNED, WHOLE
from support.rest_api import (
    ODD,
    ODD_PATH,
    SES_1,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)
from support.sample_documents import update_digest

IMPORT = "/agents/snapshot/restore"
UNREADABLE = "it is not JSON, or not compression as it says"
COMPRESS = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


def connect_to_new_store():
    """Return another store and a client of the app on it."""
    store = holdfast.open_state_store("memory://")
    return store, connect(store)


@pytest.mark.parametrize("compression", COMPRESS)
@async_test
async def test_exported_session_is_imported_into_another_store(store, api, compression):
    await fill_store(store)
    document = (await api.get("/agents/ses_1/snapshot")).content
    other, other_api = connect_to_new_store()
    body = COMPRESS[compression](document)
    dry = expect_ok(await other_api.post(IMPORT, params={"dry_run": "true"}, content=body))
    assert await dump_store(other) == {}
    # The media type that curl -d sends.
    kind = {"Content-Type": "application/x-www-form-urlencoded", "Content-Encoding": compression}
    done = expect_ok(await other_api.post(IMPORT, content=body, headers=kind))
    assert done == {**dry, "dry_run": False}
    assert (done["created"], done["undo_snapshot_id"]) == (True, None)
    assert (done["messages_restored"], done["events_restored"]) == (2, 10)
    assert ["state", "exact"] in done["changes"]["added"]
    for path in (f"{SES_1}/state?at=7", f"{SES_1}/events/5", f"{SES_1}/diff?from=0&to=10"):
        assert expect_ok(await other_api.get(path)) == expect_ok(await api.get(path))
    assert (await (await open_session(other)).verify()).damage == []


@pytest.mark.parametrize("document", [WHOLE, PRUNED], ids=["whole", "pruned"])
@async_test
async def test_imported_document_is_exported_unchanged(document):
    _, other_api = connect_to_new_store()
    tree = SnapshotManager(holdfast.open_state_store("memory://")).to_dict(document)
    expect_ok(await other_api.post(IMPORT, content=json.dumps(tree).encode()))
    back = expect_ok(await other_api.get("/agents/ses/snapshot"))
    assert back["state"] == tree["state"]
    assert back["digest"] != tree["digest"]
    assert back["events"][:-1] == tree["events"]
    assert back["events"][-1]["type"] == "session.imported"


@async_test
async def test_import_over_a_session_can_be_undone(store, api):
    first, _ = await fill_store(store)
    old = (await api.get(f"{SES_1}/document", params={"at": first})).content
    before = expect_ok(await api.get(f"{SES_1}/state"))["state"]
    dry = expect_ok(await api.post(IMPORT, params={"dry_run": "true"}, content=old))
    done = expect_ok(await api.post(IMPORT, content=old))
    assert (dry["created"], done["created"]) == (False, False)
    assert dry["changes"] == done["changes"]
    assert done["changes"]["removed"] == [["messages", "000000000001"], ["state", "exact"]]
    assert expect_ok(await api.get(f"{SES_1}/state"))["message_count"] == 1
    expect_ok(await api.post(f"{SES_1}/restore", json={"at": done["undo_snapshot_id"]}))
    assert expect_ok(await api.get(f"{SES_1}/state"))["state"] == before


@async_test
async def test_document_is_imported_under_other_ids(store, api):
    await fill_store(store)
    document = (await api.get(f"{SES_1}/document")).content
    done = expect_ok(
        await api.post(IMPORT, params={"agent_id": ODD, "session_id": ODD}, content=document)
    )
    assert (done["agent_id"], done["session_id"]) == (ODD, ODD)
    copy = f"/agents/{ODD_PATH}/sessions/{ODD_PATH}"
    assert (
        expect_ok(await api.get(f"{copy}/state"))["state"]
        == expect_ok(await api.get(f"{SES_1}/state"))["state"]
    )


@async_test
async def test_document_has_a_safe_filename(store, api):
    first, _ = await fill_store(store)
    response = await api.get(f"{SES_1}/document")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["content-disposition"] == 'attachment; filename="ses_1.json"'
    response = await api.get(f"{SES_1}/document", params={"at": first})
    assert f"ses_1_{first}.json" in response.headers["content-disposition"]
    assert expect_ok(response)["snapshot_id"] == first
    assert expect_ok(response)["tags"] == {"turn": "1"}
    for session_id in (ODD, '"; filename=evil.exe', "\r\nSet-Cookie: a=b", "...", "\u00e9" * 200):
        async with Session.open(store, agent_id="bot", session_id=session_id) as session:
            session.add_message("user", "hello")
        path = "".join(f"%{byte:02X}" for byte in session_id.encode())
        response = await api.get(f"/agents/bot/sessions/{path}/document")
        named = response.headers["content-disposition"]
        name = named.removeprefix('attachment; filename="').removesuffix('.json"')
        assert not set(name) - set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.-0123456789"
        )
        assert "set-cookie" not in response.headers


@async_test
async def test_document_is_tagged_and_redacted_on_request(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        session.add_message("user", "mail ada@example.com")
    query = [("tag", "reason=a=b"), ("tag", "empty="), ("redact", "true")]
    for path in ("/agents/ses/snapshot", "/agents/bot/sessions/ses/document"):
        response = await api.get(path, params=query)
        assert expect_ok(response)["tags"] == {"reason": "a=b", "empty": ""}
        assert "ada@example.com" not in response.text
        assert "ada@example.com" in (await api.get(path)).text
        for bad in ("", "=", "novalue", "=x"):
            expect_problem(await api.get(path, params={"tag": bad}), 422, "tag")


@async_test
async def test_export_needs_agent_id_if_agents_share_a_session(store, api):
    await fill_store(store)
    path = "/agents/ses_shared/snapshot"
    tree = expect_problem(await api.get(path), 409, "ann", "bob")
    assert "agent_id" in tree["hint"]
    for agent in ("ann", "bob"):
        assert expect_ok(await api.get(path, params={"agent_id": agent}))["agent_id"] == agent
    expect_problem(await api.get(path, params={"agent_id": "eve"}), 404, "eve")
    expect_problem(await api.get("/agents/nothing/snapshot"), 404, "nothing", kind="not-found")


@async_test
async def test_export_needs_scope_if_an_agent_has_both(store, api):
    for scope in ("agent", "multi_agent"):
        async with Session.open(store, agent_id="crew", session_id="ses", scope=scope) as session:
            session.add_message("user", f"hello {scope}")
    path = "/agents/ses/snapshot"
    for query in ({}, {"agent_id": "crew"}):
        tree = expect_problem(await api.get(path, params=query), 409, "crew", "agent, multi_agent")
        assert "scope" in tree["hint"]
        for scope in ("agent", "multi_agent"):
            document = expect_ok(await api.get(path, params={**query, "scope": scope}))
            assert document["state"]["messages"][0]["content"] == f"hello {scope}"
    expect_problem(await api.get(path, params={"scope": "all"}), 422, "scope")
    one, other = ({f"{end}_agent": "crew", f"{end}_session": "ses"} for end in ("from", "to"))
    scopes = {"from_scope": "agent", "to_scope": "multi_agent"}
    tree = expect_ok(await api.get("/diff", params={**one, **other, **scopes}))
    assert (tree["from"]["scope"], tree["to"]["scope"]) == ("agent", "multi_agent")
    assert tree["changed"] == 1


@async_test
async def test_snapshot_is_exported_by_its_id(store, api):
    first, second = await fill_store(store)
    path = "/agents/ses_1/snapshot"
    for each in (first, second):
        assert expect_ok(await api.get(path, params={"snapshot_id": each}))["snapshot_id"] == each
    expect_problem(await api.get(path, params={"snapshot_id": "019a8b5e"}), 404)
    expect_problem(await api.get(f"{SES_1}/document", params={"at": "019a8b5e"}), 404)
    expect_problem(await api.get(path, params={"snapshot_id": "../x"}), 422)


@async_test
async def test_document_with_unknown_fields_is_imported(store, api):
    await fill_store(store)
    tree = expect_ok(await api.get(f"{SES_1}/document"))
    tree["x-team"] = {"owner": ["ada", {"$future": 1}]}
    tree = update_digest(tree)
    _, other_api = connect_to_new_store()
    assert expect_ok(await other_api.post(IMPORT, json=tree))["created"] is True
    assert expect_ok(await other_api.get(f"{SES_1}/state"))["state"] == tree["state"]


@async_test
async def test_document_with_duplicate_names_is_rejected(store, api):
    """Otherwise two parsers could see two different sessions in it."""
    await fill_store(store)
    text = (await api.get(f"{SES_1}/document")).text
    twice = text.replace('"agent_id": "research-bot"', '"agent_id": "eve", "agent_id": "bob"', 1)
    assert twice != text
    response = await api.post(IMPORT, content=twice.encode())
    assert (
        response.status_code == 422
        or expect_ok(response)["agent_id"] == json.loads(twice)["agent_id"]
    )


@async_test
async def test_edited_document_is_rejected_without_allow_modified(store, api):
    await fill_store(store)
    tree = expect_ok(await api.get(f"{SES_1}/document"))
    tree["state"]["messages"][0]["content"] = "something else"
    before = await dump_store(store)
    expect_problem(await api.post(IMPORT, json=tree), 422, kind="invalid")
    assert await dump_store(store) == before
    expect_ok(await api.post(IMPORT, params={"allow_modified": "true"}, json=tree))
    state = expect_ok(await api.get(f"{SES_1}/state"))["state"]
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
async def test_invalid_document_is_rejected(connect_readonly, body, words):
    for query in ({}, {"dry_run": "true"}, {"allow_modified": "true"}):
        response = await connect_readonly().post(IMPORT, params=query, content=body)
        if words is UNREADABLE:
            expect_problem(response, 400, "the body", kind="bad-request")
        else:
            expect_problem(response, 422, words, kind="invalid")
