"""Errors of the store and of the server become problem documents."""

from __future__ import annotations

import pytest

from holdfast import ConflictError, StateStoreError, UnsupportedValueError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.faults import Fault, FaultyStateStore
from support.rest_api import (
    SES_1,
    FailingStateStore,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)

DOWN = "cannot connect to db.internal:5432"


@async_test
async def test_store_error_gets_503_with_its_message(caplog):
    store = FailingStateStore()
    await fill_store(store)
    api = connect(store)
    store.error = StateStoreError(DOWN, transient=True)
    for path in (
        "/agents",
        SES_1,
        f"{SES_1}/events",
        f"{SES_1}/state?at=3",
        "/agents/ses_1/snapshot",
    ):
        response = await api.get(path)
        tree = expect_problem(response, 503, DOWN, kind="unavailable")
        assert "doctor" in tree["hint"]
        assert response.headers["retry-after"] == "1"
    expect_problem(await api.post(f"{SES_1}/restore", json={"at": "3"}), 503, DOWN)
    assert DOWN in caplog.text
    store.error = StateStoreError(DOWN)
    assert "retry-after" not in (await api.get("/agents")).headers


@pytest.mark.parametrize(
    ("kind", "done"), [("error", False), ("unknown", False), ("unknown", True)]
)
@pytest.mark.parametrize("action", ["snapshots", "restore", "fork", "import"])
@async_test
async def test_failed_write_is_reported_and_leaves_the_session_intact(action, kind, done):
    inner = MemoryStateStore()
    await fill_store(inner)
    store = FaultyStateStore(inner)
    api = connect(store)
    document = (await api.get(f"{SES_1}/document")).content
    for at in range(1, 6):
        store.plan(Fault(at, kind, done))
        if action == "import":
            query = {"session_id": f"copy-{at}"}
            response = await api.post("/agents/snapshot/restore", params=query, content=document)
        else:
            body = {"restore": {"at": "3"}, "fork": {"session_id": f"fork-{at}"}}.get(action, {})
            response = await api.post(f"{SES_1}/{action}", json=body)
        if store.happened is None:
            assert response.status_code in (200, 201)
            break
        assert response.status_code in (200, 201, 409, 503), response.text
        if response.status_code == 503:
            expect_problem(response, 503, kind="unavailable")
    store.plan(None)
    assert (await (await open_session(inner)).verify()).damage == []
    expect_ok(await api.get(SES_1))


@async_test
async def test_conflicting_keys_are_listed():
    store = FailingStateStore()
    api = connect(store)
    store.error = ConflictError("both changed it", [("state", "plan"), ("state", "\ud800")])
    tree = expect_problem(await api.get("/agents"), 409, "both changed it", kind="conflict")
    assert tree["conflicts"] == [["state", "plan"], ["state", "\\ud800"]]
    store.error = UnsupportedValueError("no such type")
    expect_problem(await api.get("/agents"), 422, "no such type", kind="invalid")


@async_test
async def test_damaged_session_gets_500(store, api, caplog):
    await fill_store(store)
    for key, value in (await dump_store(store)).items():
        if "/log/" in key and "research-bot" in key:
            await store.put(key, value.replace(b"Compare the two", b"Compare the TWO"))
    for path in (
        f"{SES_1}/events",
        f"{SES_1}/state",
        f"{SES_1}/document",
        f"{SES_1}/events/3",
        f"{SES_1}/growth",
    ):
        tree = expect_problem(await api.get(path), 500, kind="damaged")
        assert "verify" in tree["hint"]
        assert "TWO" not in str(tree)
    expect_problem(await api.post(f"{SES_1}/restore", json={"at": "3"}), 500, kind="damaged")
    assert "ERROR" in [record.levelname for record in caplog.records]
    expect_ok(await api.get("/agents/ann/sessions/ses_shared"))


@async_test
async def test_undecodable_session_gets_500(store, api):
    await fill_store(store)
    for key in await dump_store(store):
        if "research-bot" in key and "/scopes/" in key:
            await store.put(key, b"\x00garbage")
    for path in (
        SES_1,
        f"{SES_1}/events",
        f"{SES_1}/state",
        f"{SES_1}/snapshots",
        f"{SES_1}/document",
    ):
        expect_problem(await api.get(path), 500, kind="damaged")


@async_test
async def test_unexpected_error_is_logged_but_not_shown(caplog):
    store = FailingStateStore()
    api = connect(store)
    store.error = ZeroDivisionError("the inner secret")
    tree = expect_problem(await api.get("/agents"), 500, "ZeroDivisionError", kind="failed")
    assert "inner secret" not in str(tree)
    assert "inner secret" in caplog.text
    store.error = None
    expect_ok(await api.get("/agents"))
