"""Limits on the bytes, depth and time of a request. Nothing is written beyond them."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
import zstandard
from fastapi import FastAPI

from holdfast.server import Limits, create_app
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.rest_api import (
    READER,
    SES_1,
    TOKENS,
    auth_header,
    connect,
    connect_app,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
    send_raw,
)

IMPORT = "/agents/snapshot/restore"
JSON = {"Content-Type": "application/json"}
SMALL = Limits(body_bytes=20_000)
QUICK = Limits(seconds=0.2)


def stream_parts(*parts, pause=0.0):
    """Return a body without a length."""

    async def stream():
        for part in parts:
            await asyncio.sleep(pause)
            yield part

    return stream()


async def stream_endlessly(read):
    """Yield a body that never ends; ``read`` grows with each part."""
    while True:
        read.append(1)
        yield b" " * 10_000
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------ bytes


@async_test
async def test_body_with_too_large_content_length_is_not_read(store):
    await fill_store(store)
    api = connect(store, limits=SMALL)
    before = await dump_store(store)
    for path in (IMPORT, f"{SES_1}/restore", f"{SES_1}/snapshots", f"{SES_1}/fork"):
        response = await api.post(path, content=b"x" * 20_001, headers=JSON)
        tree = expect_problem(response, 413, "20,001", "20,000", kind="too-large")
        assert "--max-body" in tree["hint"]
        assert response.headers["connection"] == "close"
    assert await dump_store(store) == before


@async_test
async def test_chunked_body_is_read_up_to_the_limit(store):
    await fill_store(store)
    api = connect(store, limits=SMALL)
    before = await dump_store(store)
    for path in (IMPORT, f"{SES_1}/restore", f"{SES_1}/snapshots", f"{SES_1}/fork"):
        read: list[int] = []
        response = await api.post(path, content=stream_endlessly(read), headers=JSON)
        expect_problem(response, 413, "20,000", kind="too-large")
        assert response.headers["connection"] == "close"
        assert len(read) == 3
    assert await dump_store(store) == before


@async_test
async def test_body_of_exactly_the_limit_is_accepted(store):
    await fill_store(store)
    document = (await connect(store).get(f"{SES_1}/document")).content
    api = connect(store, limits=Limits(body_bytes=len(document)))
    expect_ok(await api.post(IMPORT, content=document))
    expect_ok(await api.post(IMPORT, content=stream_parts(document[:100], document[100:])))
    api = connect(store, limits=Limits(body_bytes=len(document) - 1))
    expect_problem(await api.post(IMPORT, content=document), 413)
    expect_problem(
        await api.post(IMPORT, content=stream_parts(document[:100], document[100:])), 413
    )


@async_test
async def test_other_bodies_are_limited_to_1_mib(store):
    """They are parsed on the event loop: 60 MB of empty lists blocked it for a minute."""
    await fill_store(store)
    api = connect(store)
    before = await dump_store(store)
    for path in (f"{SES_1}/restore", f"{SES_1}/snapshots", f"{SES_1}/fork"):
        body = b'{"at": [' + b"[]," * 400_000 + b"[]]}"
        for content in (
            body,
            stream_parts(*(body[at : at + 65_536] for at in range(0, len(body), 65_536))),
        ):
            response = await api.post(path, content=content, headers=JSON)
            tree = expect_problem(response, 413, "1,048,576 bytes", kind="too-large")
            assert tree["hint"] == "send less"
    assert await dump_store(store) == before
    app = FastAPI()
    app.mount("/below", create_app(store))
    document = (await connect(store).get(f"{SES_1}/document")).content
    padded = document + b" " * 2_000_000
    expect_ok(await connect_app(app).post(f"/below{IMPORT}", content=padded))
    response = await connect_app(app).post(f"/below{SES_1}/fork", content=padded, headers=JSON)
    assert response.status_code == 413


@async_test
async def test_large_chunked_body_is_imported(store, api):
    await fill_store(store)
    session = await open_session(store)
    for number in range(40):
        session.add_message("user", f"{number} " + "x" * 100_000)
    await session.commit()
    document = (await api.get(f"{SES_1}/document")).content
    assert len(document) > 4_000_000
    parts = [document[at : at + 65_536] for at in range(0, len(document), 65_536)]
    done = expect_ok(
        await api.post(IMPORT, params={"session_id": "copy"}, content=stream_parts(*parts))
    )
    assert done["messages_restored"] == 42


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@async_test
async def test_compressed_body_that_expands_too_much_is_rejected(store, compress):
    api = connect(store, limits=Limits(body_bytes=200_000))
    bomb = compress(b'{"schema_version": 1, "x": "' + b" " * 30_000_000 + b'"}')
    assert len(bomb) < 200_000
    response = await api.post(IMPORT, content=bomb)
    assert response.status_code in (413, 422)
    expect_problem(response, response.status_code)
    assert await dump_store(store) == {}


# ------------------------------------------------------------------------------------------ depth


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@async_test
async def test_deeply_nested_document_is_rejected(store, open_, close):
    api = connect(store)
    depth = 100_000
    deep = open_ * depth + "1" + close * depth
    for body in (
        deep,
        open_ * depth,
        f'{{"schema_version": 1, "x": {deep}}}',
        f'{{"schema_version": 1, "agent_id": "a", "session_id": "s", "state": {deep}}}',
    ):
        response = await api.post(IMPORT, content=body.encode())
        assert response.status_code in (400, 422)
        tree = expect_problem(response, response.status_code)
        assert len(json.dumps(tree)) < 5000
    assert await dump_store(store) == {}


# ------------------------------------------------------------------------------------------- time


@async_test
async def test_body_that_arrives_too_slowly_gets_408(store):
    await fill_store(store)
    api = connect(store, limits=QUICK)
    before = await dump_store(store)
    for path in (IMPORT, f"{SES_1}/restore"):
        response = await api.post(path, content=stream_parts(b"{", b"}", pause=5), headers=JSON)
        tree = expect_problem(response, 408, "0.2 s", kind="too-slow")
        assert "--timeout" in tree["hint"]
        assert response.headers["connection"] == "close"
    assert await dump_store(store) == before


class SlowStore(MemoryStateStore):
    """Delays reads while ``slow`` is set."""

    runs_inline = False
    slow = False

    async def get(self, key):
        await asyncio.sleep(10 if self.slow else 0)
        return await super().get(key)

    async def get_many(self, keys):
        await asyncio.sleep(10 if self.slow else 0)
        return await super().get_many(keys)


@async_test
async def test_slow_store_gets_503():
    store = SlowStore()
    await fill_store(store)
    api = connect(store, limits=QUICK)
    store.slow = True
    tree = expect_problem(await api.get(f"{SES_1}/state?at=3"), 503, "0.2 s", kind="unavailable")
    assert "--timeout" in tree["hint"]
    expect_problem(await api.post(f"{SES_1}/restore", json={"at": "3"}), 503)
    store.slow = False
    assert expect_ok(await api.get(f"{SES_1}/state?at=3"))["seq"] == 3


@async_test
async def test_started_response_has_no_time_limit(store):
    await fill_store(store)
    session = await open_session(store)
    session.add_message("user", "x" * 3_000_000)
    await session.commit()
    api = connect(store, limits=Limits(seconds=1))
    pauses = [1.2]

    async def pause():
        await asyncio.sleep(pauses.pop() if pauses else 0)

    status, content = await send_raw(api, "GET", f"{SES_1}/document".encode(), on_send=pause)
    assert status == 200
    assert not pauses
    assert len(json.loads(content)["state"]["messages"]) == 3


# ------------------------------------------------------------------------------------------ tokens


@async_test
async def test_body_is_not_read_before_the_token_is_checked(store):
    await fill_store(store)
    api = connect(store, tokens=TOKENS)
    for headers, status in (({}, 401), (auth_header("x" * 20), 401), (auth_header(READER), 403)):
        read: list[int] = []
        for path in (IMPORT, f"{SES_1}/restore", f"{SES_1}/fork"):
            response = await api.post(path, content=stream_endlessly(read), headers=headers)
            expect_problem(response, status)
            assert response.headers["connection"] == "close"
        assert read == []


@pytest.mark.parametrize(
    ("bytes_", "seconds"), [(0, 1), (-1, 1), (1, 0), (1, -1), (1, float("nan"))]
)
def test_limits_must_be_positive(bytes_, seconds):
    with pytest.raises(ValueError, match="limit"):
        Limits(bytes_, seconds)
