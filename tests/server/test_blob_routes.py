"""Downloads of blobs, with ranges and ETags, and uploads of attachments."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from holdfast import RetentionPolicy, Session
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.server import Limits
from support.async_tests import async_test, run_async
from support.blob_sessions import (
    AGENT,
    CHART,
    FILE,
    IMAGE_DATA,
    LONG_TEXT,
    PATH,
    SESSION,
    blob_reads,
    digest_of,
    record_blobs,
)
from support.http_server import LoggedServer, wait_until
from support.observed_store import ObservedStore
from support.rest_api import (
    ANN_ONLY,
    SES_1,
    TOKENS,
    auth_header,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)

FILE_PATH = f"{PATH}/blobs/{digest_of(FILE)}"
CHART_PATH = f"{PATH}/blobs/{digest_of(CHART)}"
UPLOAD = f"{SES_1}/blobs"
UNKNOWN = "0" * 64


async def connect_to_blobs():
    """Return an observed store with large values, and a client of it."""
    store = ObservedStore()
    await record_blobs(store)
    store.forget()
    return store, connect(store)


def chunk_numbers(store):
    """Return the numbers of the chunks that were read."""
    return [int(key.rpartition("/")[2]) for key in blob_reads(store)]


def chunk_key(store, content, number=0):
    """Return the key of a chunk."""
    return store.keys_with(f"{digest_of(content)}/{number:06}")[0]


# ------------------------------------------------------------------------------------- downloads


@async_test
async def test_attachment_is_downloaded_with_its_type_and_name():
    _, api = await connect_to_blobs()
    response = await api.get(CHART_PATH)
    assert (response.status_code, response.content) == (200, CHART)
    headers = response.headers
    assert headers["content-type"] == "image/png"
    assert headers["content-length"] == str(len(CHART))
    assert headers["content-disposition"] == 'inline; filename="chart.png"'
    assert headers["etag"] == f'"{digest_of(CHART)}"'
    assert headers["cache-control"] == "private, max-age=31536000, immutable"
    assert headers["accept-ranges"] == "bytes"
    assert "sandbox" in headers["content-security-policy"]

    response = await api.get(FILE_PATH)
    assert response.content == FILE
    assert response.headers["content-type"] == "application/octet-stream"
    assert response.headers["content-disposition"] == 'attachment; filename="report.bin"'


@async_test
async def test_large_value_is_downloaded_with_the_requested_type():
    _, api = await connect_to_blobs()
    path = f"{PATH}/blobs/{digest_of(LONG_TEXT)}"
    response = await api.get(path, params={"media_type": "text/plain", "name": "notes.txt"})
    assert response.text == LONG_TEXT
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["content-disposition"] == 'inline; filename="notes.txt"'
    response = await api.get(f"{PATH}/blobs/{digest_of(IMAGE_DATA)}")
    assert response.text == IMAGE_DATA
    assert response.headers["content-type"] == "application/octet-stream"


@async_test
async def test_blob_is_never_served_as_a_page_or_script():
    _, api = await connect_to_blobs()
    for kind in ("text/html", "image/svg+xml", "text/javascript", "application/xhtml+xml"):
        response = await api.get(CHART_PATH, params={"media_type": kind})
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["content-disposition"].startswith("attachment")
        assert response.headers["x-content-type-options"] == "nosniff"


@async_test
async def test_cached_blob_is_not_read_again():
    store, api = await connect_to_blobs()
    response = await api.get(FILE_PATH, headers={"If-None-Match": f'"{digest_of(FILE)}"'})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["etag"] == f'"{digest_of(FILE)}"'
    assert blob_reads(store) == []
    response = await api.get(FILE_PATH, headers={"If-None-Match": f'"{digest_of(CHART)}"'})
    assert response.content == FILE


@async_test
async def test_head_reads_only_the_last_chunk():
    store, api = await connect_to_blobs()
    response = await api.head(FILE_PATH)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(FILE))
    assert chunk_numbers(store) == [3]


@async_test
async def test_first_range_verifies_the_blob_and_later_ones_read_their_chunks():
    store, api = await connect_to_blobs()
    response = await api.get(FILE_PATH, headers={"Range": "bytes=10-19"})
    assert (response.status_code, response.content) == (206, FILE[10:20])
    assert response.headers["content-range"] == f"bytes 10-19/{len(FILE)}"
    assert response.headers["content-length"] == "10"
    assert {0, 1, 2, 3} == set(chunk_numbers(store))
    at = CHUNK_SIZE
    for range_, expected, chunks in (
        ("bytes=0-0", FILE[:1], [0]),
        (f"bytes={at - 1}-{at}", FILE[at - 1 : at + 1], [0, 1]),
        (f"bytes={at}-{2 * at - 1}", FILE[at : 2 * at], [1]),
        ("bytes=-5", FILE[-5:], [3]),
        (f"bytes={3 * at}-", FILE[3 * at :], [3]),
        (f"bytes=1-{2 * len(FILE)}", FILE[1:], [0, 1, 2, 3]),
    ):
        store.forget()
        response = await api.get(FILE_PATH, headers={"Range": range_})
        assert (response.status_code, response.content) == (206, expected), range_
        assert chunk_numbers(store) == chunks, range_


@async_test
async def test_range_outside_the_blob_is_416():
    _, api = await connect_to_blobs()
    for range_ in (f"bytes={len(CHART)}-", "bytes=1000-2000", "bytes=-0"):
        response = await api.get(CHART_PATH, headers={"Range": range_})
        expect_problem(response, 416, f"{len(CHART)} bytes", kind="no-such-range")
        assert response.headers["content-range"] == f"bytes */{len(CHART)}"


@async_test
async def test_range_is_ignored_if_malformed_multiple_or_of_another_content():
    _, api = await connect_to_blobs()
    for headers in (
        {"Range": "bytes=0-1,3-4"},
        {"Range": "bytes=5-4"},
        {"Range": "rows=0-1"},
        {"Range": "bytes=0-1", "If-Range": '"other"'},
        {"Range": "bytes=0-1", "If-Range": f'W/"{digest_of(CHART)}"'},
        {"Range": "bytes=0-1", "If-Range": "Sun, 15 Nov 2026 09:30:00 GMT"},
    ):
        response = await api.get(CHART_PATH, headers=headers)
        assert (response.status_code, response.content) == (200, CHART), headers
    headers = {"Range": "bytes=0-1", "If-Range": f'"{digest_of(CHART)}"'}
    assert (await api.get(CHART_PATH, headers=headers)).content == CHART[:2]


@async_test
async def test_empty_attachment_is_downloaded(store, api):
    await fill_store(store)
    expect_ok(await api.post(UPLOAD, content=b""), 201)
    response = await api.get(f"{UPLOAD}/{digest_of(b'')}")
    assert (response.status_code, response.content) == (200, b"")
    response = await api.get(f"{UPLOAD}/{digest_of(b'')}", headers={"Range": "bytes=0-"})
    expect_problem(response, 416)


@async_test
async def test_missing_blob_is_404():
    store, api = await connect_to_blobs()
    await store.delete(chunk_key(store, CHART))
    for headers in ({}, {"Range": "bytes=0-1"}):
        expect_problem(await api.get(CHART_PATH, headers=headers), 404, digest_of(CHART), "backup")
    assert (await api.head(CHART_PATH)).status_code == 404
    expect_problem(await api.get(f"{PATH}/blobs/{UNKNOWN}"), 404, UNKNOWN)
    for digest in ("abc", UNKNOWN.upper().replace("0", "A"), "..%2f..", f"{UNKNOWN}0"):
        expect_problem(await api.get(f"{PATH}/blobs/{digest}"), 422)
    expect_problem(await api.get(f"/agents/{AGENT}/sessions/nothing/blobs/{UNKNOWN}"), 404)


@async_test
async def test_damaged_blob_is_an_error_before_the_response_starts():
    store, api = await connect_to_blobs()
    await store.damage(chunk_key(store, CHART), lambda data: data + b"!")
    for headers in ({}, {"Range": "bytes=0-1"}):
        response = await api.get(CHART_PATH, headers=headers)
        expect_problem(response, 500, digest_of(CHART), "damaged", kind="damaged")
    await store.damage(chunk_key(store, FILE, 2), lambda data: b"?" + data[1:])
    response = await api.get(FILE_PATH, headers={"Range": "bytes=0-1"})
    expect_problem(response, 500, digest_of(FILE), kind="damaged")


@async_test
async def test_blob_that_was_verified_and_then_lost_is_an_error():
    store, api = await connect_to_blobs()
    assert (await api.get(FILE_PATH)).content == FILE
    await store.delete(chunk_key(store, FILE, 1))
    store.forget()
    range_ = {"Range": f"bytes={CHUNK_SIZE}-{CHUNK_SIZE + 9}"}
    expect_problem(await api.get(FILE_PATH, headers=range_), 404, digest_of(FILE))
    # It is read whole again from now on.
    response = await api.get(FILE_PATH, headers={"Range": "bytes=0-1"})
    expect_problem(response, 500, digest_of(FILE))


def test_download_of_a_damaged_blob_is_cut():
    store = ObservedStore()
    run_async(record_blobs(store))
    run_async(store.damage(chunk_key(store, FILE, 2), lambda data: b"?" + data[1:]))
    with LoggedServer(store) as server, httpx.Client(base_url=server.url) as http:
        with pytest.raises(httpx.RemoteProtocolError):  # noqa: SIM117
            with http.stream("GET", FILE_PATH) as response:
                assert response.status_code == 200
                received = b"".join(response.iter_bytes())
                assert received != FILE
        assert http.get(CHART_PATH).content == CHART
        assert digest_of(FILE) in server.log


@async_test
async def test_blobs_belong_to_one_agent(store):
    await fill_store(store)
    api = connect(store, tokens=TOKENS, token=ANN_ONLY)
    for agent, status in (("ann", 201), ("bob", 403)):
        path = f"/agents/{agent}/sessions/ses_shared/blobs"
        assert (await api.post(path, content=b"for ann")).status_code == status
    digest = digest_of(b"for ann")
    assert (await api.get(f"/agents/ann/sessions/ses_shared/blobs/{digest}")).status_code == 200
    expect_problem(await api.get(f"/agents/bob/sessions/ses_shared/blobs/{digest}"), 403)
    other = connect(store)
    expect_problem(await other.get(f"/agents/bob/sessions/ses_shared/blobs/{digest}"), 404)


# --------------------------------------------------------------------------------------- uploads


@async_test
async def test_uploaded_attachment_is_stored_and_recorded(store, api):
    await fill_store(store)
    response = await api.post(UPLOAD, params={"name": "scan.png"}, content=FILE)
    tree = expect_ok(response, 201)
    assert tree["digest"] == digest_of(FILE)
    assert (tree["size"], tree["media_type"], tree["name"]) == (len(FILE), "image/png", "scan.png")
    fields = [digest_of(FILE), len(FILE), "image/png", "scan.png"]
    assert tree["value"] == {"$attachment": fields}
    assert (await api.get(f"{UPLOAD}/{tree['digest']}")).content == FILE
    event = expect_ok(await api.get(f"{SES_1}/events/{tree['last_event']}"))
    assert (event["type"], event["data"]) == ("attachment.added", tree["value"])

    session = await open_session(store)
    assert await session.read_attachment(session.events[-1].data) == FILE
    assert (await session.verify()).damage == []


@async_test
async def test_upload_has_a_dry_run_and_conditions(store, api):
    await fill_store(store)
    before = await dump_store(store)
    tree = expect_ok(await api.post(UPLOAD, params={"dry_run": "true"}, content=b"new"))
    assert (tree["dry_run"], tree["digest"], tree["size"]) == (True, digest_of(b"new"), 3)
    head = {"If-Match": f'"{UNKNOWN}"'}
    expect_problem(await api.post(UPLOAD, content=b"new", headers=head), 412, kind="moved-on")
    missing = "/agents/research-bot/sessions/nothing/blobs"
    expect_problem(await api.post(missing, content=b"new"), 404)
    for query in ({"media_type": "png"}, {"media_type": "a/b\r\nx: y"}, {"name": "x" * 256}):
        expect_problem(await api.post(UPLOAD, params=query, content=b"new"), 422)
    assert await dump_store(store) == before

    head = {"If-Match": f'"{expect_ok(await api.get(SES_1))["head"]}"'}
    expect_ok(await api.post(UPLOAD, content=b"new", headers=head), 201)
    expect_problem(await api.post(UPLOAD, content=b"newer", headers=head), 412)


@async_test
async def test_upload_beyond_the_limit_is_413_and_stores_nothing(store):
    await fill_store(store)
    before = await dump_store(store)
    api = connect(store, limits=Limits(attachment_bytes=2_000_000))

    async def stream_parts(count):
        for _ in range(count):
            yield b"x" * 100_000

    response = await api.post(UPLOAD, content=b"x" * 2_000_001)
    tree = expect_problem(response, 413, "2,000,000", "2,000,001", kind="too-large")
    assert "--max-attachment" in tree["hint"]
    response = await api.post(UPLOAD, content=stream_parts(21))
    expect_problem(response, 413, "2,000,000", kind="too-large")
    assert await dump_store(store) == before
    expect_ok(await api.post(UPLOAD, content=stream_parts(20)), 201)


@async_test
async def test_upload_gets_more_time_as_it_arrives(store):
    await fill_store(store)

    async def stream_slowly(part):
        for _ in range(6):
            await asyncio.sleep(0.1)
            yield part

    api = connect(store, limits=Limits(seconds=0.3))
    expect_ok(await api.post(UPLOAD, content=stream_slowly(b"x" * 20_000)), 201)
    expect_problem(await api.post(UPLOAD, content=stream_slowly(b"x")), 408)


@async_test
async def test_upload_and_commit_of_another_writer_are_both_kept(store, api):
    await fill_store(store)
    other = await open_session(store)

    async def stream_during_a_commit():
        yield b"one "
        other.set("during", "the upload")
        await other.commit()
        yield b"two"

    tree = expect_ok(await api.post(UPLOAD, content=stream_during_a_commit()), 201)
    session = await open_session(store)
    assert session.get("during") == "the upload"
    assert session.events[-1].seq == tree["last_event"]
    assert (await api.get(f"{UPLOAD}/{tree['digest']}")).content == b"one two"


def test_interrupted_upload_leaves_nothing_behind(store, tmp_path, monkeypatch):
    run_async(fill_store(store))
    before = run_async(dump_store(store))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LoggedServer(store) as server:
        with server.connect() as connection:
            head = f"POST {UPLOAD} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 600_000)
        wait_until(lambda: "499" in server.log)
    assert list(tmp_path.iterdir()) == []
    assert run_async(dump_store(store)) == before


@async_test
async def test_session_reads_what_was_uploaded_to_a_new_session(store, api):
    async with Session.open(store, agent_id=AGENT, session_id=SESSION) as session:
        session.set("a", 1)
    tree = expect_ok(await api.post(f"{PATH}/blobs?media_type=text/plain", content=b"hello"), 201)
    assert tree["value"]["$attachment"] == [digest_of(b"hello"), 5, "text/plain", None]
    again = expect_ok(await api.post(f"{PATH}/blobs", content=b"hello"), 201)
    assert again["last_event"] == tree["last_event"] + 1
    headers = auth_header("unused")
    response = await api.get(f"{PATH}/blobs/{tree['digest']}", headers=headers)
    assert response.content == b"hello"


@async_test
async def test_prune_keeps_an_upload_that_a_value_refers_to(store, api):
    await fill_store(store)
    kept = expect_ok(await api.post(UPLOAD, content=b"kept"), 201)
    unused = expect_ok(await api.post(UPLOAD, content=b"unused"), 201)
    session = await open_session(store)
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    for each in (kept, unused):  # their events are in the log
        assert (await api.get(f"{UPLOAD}/{each['digest']}")).status_code == 200
    session.set("file", session.events[-2].data)
    await session.save()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    assert (await api.get(f"{UPLOAD}/{kept['digest']}")).content == b"kept"
    # The app remembers that it was intact, but not that it is there.
    expect_problem(await api.get(f"{UPLOAD}/{unused['digest']}"), 404)
    assert (await session.verify()).damage == []
