"""Large values are references in responses, and no request reads their blobs."""

from __future__ import annotations

import json

from holdfast.values.references import BlobReference
from support.async_tests import async_test
from support.blob_sessions import (
    CHART,
    IMAGE_DATA,
    LARGE_BYTES,
    LONG_TEXT,
    PATH,
    blob_reads,
    digest_of,
    record_blobs,
)
from support.observed_store import ObservedStore
from support.rest_api import connect, expect_ok, open_session

TEXT = {"$blob": [digest_of(LONG_TEXT), len(LONG_TEXT), "str"]}
IMAGE = {"$blob": [digest_of(IMAGE_DATA), len(IMAGE_DATA), "str"]}
RAW = {"$blob": [digest_of(LARGE_BYTES), len(LARGE_BYTES), "bytes"]}


async def connect_to_blobs():
    """Return an observed store with large values, a client of it, and the snapshot ids."""
    store = ObservedStore()
    ids = await record_blobs(store)
    store.forget()
    return store, connect(store), ids


@async_test
async def test_reading_a_session_reads_no_blobs():
    store, api, (first, second, _) = await connect_to_blobs()
    last = expect_ok(await api.get(PATH))["last_event"]
    for path in (
        "/agents",
        "/sessions?details=true",
        "/sessions?unfinished=true",
        PATH,
        f"{PATH}/events",
        f"{PATH}/events?brief=true",
        f"{PATH}/growth",
        f"{PATH}/snapshots",
        f"{PATH}/snapshots/{first}",
        f"{PATH}/diff?from={first}&to={second}",
        f"{PATH}/diff?from=0",
        *(f"{PATH}/state?at={seq}" for seq in range(1, last + 1)),
        *(f"{PATH}/events/{seq}" for seq in range(1, last + 1)),
    ):
        response = await api.get(path)
        expect_ok(response)
        assert len(response.content) < 10_000, path
    assert blob_reads(store) == []


@async_test
async def test_large_values_are_references_in_states_events_and_diffs():
    _, api, (first, second, _) = await connect_to_blobs()
    state = expect_ok(await api.get(f"{PATH}/state?at={second}"))["state"]
    assert state["messages"][1]["content"] == TEXT
    assert state["messages"][2]["content"][0]["source"]["data"] == IMAGE
    assert state["values"]["raw"] == RAW
    chart = [digest_of(CHART), len(CHART), "image/png", "chart.png"]
    assert state["values"]["chart"] == {"$attachment": chart}

    events = expect_ok(await api.get(f"{PATH}/events"))["events"]
    called = next(event for event in events if event["type"] == "tool.called")
    assert called["data"] == {"argument": TEXT}

    found = expect_ok(await api.get(f"{PATH}/diff?from={first}&to={second}"))
    after = {entry["key"]: entry.get("after") for entry in found["entries"]}
    assert after["raw"] == RAW
    assert LONG_TEXT[:1000] not in json.dumps(found)

    unfinished = expect_ok(await api.get(PATH))["unfinished"]
    assert [(call["id"], call["name"]) for call in unfinished] == [("call_1", "store")]


@async_test
async def test_save_restore_and_fork_keep_large_values_without_showing_them():
    store, api, (first, second, _) = await connect_to_blobs()
    for path, body in (
        (f"{PATH}/snapshots", {}),
        (f"{PATH}/restore", {"at": second}),
        (f"{PATH}/fork", {"at": second}),
    ):
        expect_ok(await api.post(path, params={"dry_run": "true"}, json=body))
    expect_ok(await api.post(f"{PATH}/snapshots"), 201)
    restored = expect_ok(await api.post(f"{PATH}/restore", json={"at": first}))
    assert restored["changes"]["removed"] > 0
    expect_ok(await api.post(f"{PATH}/restore", json={"at": second}))
    assert blob_reads(store) == []
    expect_ok(await api.post(f"{PATH}/fork", json={"at": second, "session_id": "other"}), 201)

    for session_id in ("ses_blobs", "other"):
        session = await open_session(store, session_id=session_id)
        assert session.get("raw") == LARGE_BYTES
        assert session.messages[1]["content"] == LONG_TEXT
        assert await session.read_attachment(session.get("chart")) == CHART
        assert not isinstance(session.get("raw"), BlobReference)
        assert (await session.verify()).damage == []
