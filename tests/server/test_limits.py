"""What a request may cost: bytes, depth and time. What is more is refused, and nothing is done."""

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
    TOKENS,
    S,
    bearer,
    client,
    client_of,
    entries,
    filled,
    good,
    opened,
    problem,
    raw,
)

IMPORT = "/agents/snapshot/restore"
JSON = {"Content-Type": "application/json"}
SMALL = Limits(body_bytes=20_000)
QUICK = Limits(seconds=0.2)


def pieces(*parts, pause=0.0):
    """A body without a length, part after part."""

    async def stream():
        for part in parts:
            await asyncio.sleep(pause)
            yield part

    return stream()


async def endless(read):
    """A body that never ends; notes how many parts were read of it."""
    while True:
        read.append(1)
        yield b" " * 10_000
        await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------ bytes


@async_test
async def test_a_body_that_says_that_it_is_too_large_is_refused_unread(store):
    await filled(store)
    api = client(store, limits=SMALL)
    before = await entries(store)
    for path in (IMPORT, f"{S}/restore", f"{S}/snapshots", f"{S}/fork"):
        answered = await api.post(path, content=b"x" * 20_001, headers=JSON)
        tree = problem(answered, 413, "20,001", "20,000", kind="too-large")
        assert "--max-body" in tree["hint"]
        assert answered.headers["connection"] == "close"
    assert await entries(store) == before


@async_test
async def test_a_body_without_a_length_is_read_up_to_the_limit_and_no_further(store):
    await filled(store)
    api = client(store, limits=SMALL)
    before = await entries(store)
    for path in (IMPORT, f"{S}/restore", f"{S}/snapshots", f"{S}/fork"):
        read: list[int] = []
        answered = await api.post(path, content=endless(read), headers=JSON)
        problem(answered, 413, "20,000", kind="too-large")
        assert answered.headers["connection"] == "close"
        assert len(read) == 3
    assert await entries(store) == before


@async_test
async def test_a_body_of_just_the_limit_is_taken(store):
    await filled(store)
    document = (await client(store).get(f"{S}/document")).content
    api = client(store, limits=Limits(body_bytes=len(document)))
    good(await api.post(IMPORT, content=document))
    good(await api.post(IMPORT, content=pieces(document[:100], document[100:])))
    api = client(store, limits=Limits(body_bytes=len(document) - 1))
    problem(await api.post(IMPORT, content=document), 413)
    problem(await api.post(IMPORT, content=pieces(document[:100], document[100:])), 413)


@async_test
async def test_a_body_that_is_not_a_document_has_a_limit_of_its_own(store):
    """It is read as JSON at once: 60 MB of empty lists held the server up for a minute."""
    await filled(store)
    api = client(store)
    before = await entries(store)
    for path in (f"{S}/restore", f"{S}/snapshots", f"{S}/fork"):
        body = b'{"at": [' + b"[]," * 1_000_000 + b"[]]}"
        for content in (
            body,
            pieces(*(body[at : at + 65_536] for at in range(0, len(body), 65_536))),
        ):
            answered = await api.post(path, content=content, headers=JSON)
            tree = problem(answered, 413, "1,048,576 bytes", kind="too-large")
            assert tree["hint"] == "send less"
    assert await entries(store) == before
    app = FastAPI()
    app.mount("/below", create_app(store))
    document = (await client(store).get(f"{S}/document")).content
    padded = document + b" " * 2_000_000
    good(await client_of(app).post(f"/below{IMPORT}", content=padded))
    problem_of = await client_of(app).post(f"/below{S}/fork", content=padded, headers=JSON)
    assert problem_of.status_code == 413


@async_test
async def test_a_large_body_is_kept_on_the_disk_until_it_is_read(store, api):
    await filled(store)
    session = await opened(store)
    for number in range(40):
        session.add_message("user", f"{number} " + "x" * 100_000)
    await session.commit()
    document = (await api.get(f"{S}/document")).content
    assert len(document) > 4_000_000
    parts = [document[at : at + 65_536] for at in range(0, len(document), 65_536)]
    done = good(await api.post(IMPORT, params={"session_id": "copy"}, content=pieces(*parts)))
    assert done["messages_restored"] == 42


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
@async_test
async def test_a_small_body_that_unpacks_to_a_huge_one_is_refused(store, pack):
    api = client(store, limits=Limits(body_bytes=200_000))
    bomb = pack(b'{"schema_version": 1, "x": "' + b" " * 30_000_000 + b'"}')
    assert len(bomb) < 200_000
    answered = await api.post(IMPORT, content=bomb)
    assert answered.status_code in (413, 422)
    problem(answered, answered.status_code)
    assert await entries(store) == {}


@pytest.mark.parametrize("item", ["[]", "{}", "0", '""', '{"$tuple":[]}'])
@async_test
async def test_a_small_body_with_millions_of_values_is_refused(store, item):
    text = '{"schema_version":1,"agent_id":"a","session_id":"s","state":{"messages":[%s]}}'
    body = gzip.compress((text % ",".join([item] * 2_000_000)).encode())
    assert len(body) < 60_000
    api = client(store)
    answered = await api.post(IMPORT, content=body)
    assert answered.status_code in (413, 422)
    assert "values and names" in problem(answered, answered.status_code)["detail"]
    assert await entries(store) == {}


# ------------------------------------------------------------------------------------------ depth


@pytest.mark.parametrize("depth", [10_000, 1_000_000])
@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@async_test
async def test_a_document_nested_too_deeply_is_refused(store, depth, open_, close):
    api = client(store)
    deep = open_ * depth + "1" + close * depth
    for body in (
        deep,
        open_ * depth,
        f'{{"schema_version": 1, "x": {deep}}}',
        f'{{"schema_version": 1, "agent_id": "a", "session_id": "s", "state": {deep}}}',
    ):
        answered = await api.post(IMPORT, content=body.encode())
        assert answered.status_code in (400, 422)
        tree = problem(answered, answered.status_code)
        assert len(json.dumps(tree)) < 5000
    assert await entries(store) == {}


# ------------------------------------------------------------------------------------------- time


@async_test
async def test_a_body_that_does_not_arrive_in_time_is_given_up(store):
    await filled(store)
    api = client(store, limits=QUICK)
    before = await entries(store)
    for path in (IMPORT, f"{S}/restore"):
        answered = await api.post(path, content=pieces(b"{", b"}", pause=5), headers=JSON)
        tree = problem(answered, 408, "0.2 s", kind="too-slow")
        assert "--timeout" in tree["hint"]
        assert answered.headers["connection"] == "close"
    assert await entries(store) == before


class Slow(MemoryStateStore):
    """Answers nothing for a long time, once it is told to."""

    slow = False

    async def get(self, key):
        await asyncio.sleep(10 if self.slow else 0)
        return await super().get(key)

    async def get_many(self, keys):
        await asyncio.sleep(10 if self.slow else 0)
        return await super().get_many(keys)


@async_test
async def test_a_store_that_does_not_answer_in_time_is_given_up():
    store = Slow()
    await filled(store)
    api = client(store, limits=QUICK)
    store.slow = True
    tree = problem(await api.get(f"{S}/state?at=3"), 503, "0.2 s", kind="unavailable")
    assert "--timeout" in tree["hint"]
    problem(await api.post(f"{S}/restore", json={"at": "3"}), 503)
    store.slow = False
    assert good(await api.get(f"{S}/state?at=3"))["seq"] == 3


@async_test
async def test_an_answer_that_has_begun_may_take_as_long_as_the_other_side_reads(store):
    await filled(store)
    session = await opened(store)
    session.add_message("user", "x" * 3_000_000)
    await session.commit()
    api = client(store, limits=QUICK)

    async def slowly():
        await asyncio.sleep(0.1)

    status, content = await raw(api, "GET", f"{S}/document".encode(), on_send=slowly)
    assert status == 200
    assert len(json.loads(content)["state"]["messages"]) == 3


# ------------------------------------------------------------------------------ before all of that


@async_test
async def test_no_byte_of_a_body_is_read_before_the_token_is_looked_at(store):
    await filled(store)
    api = client(store, tokens=TOKENS)
    for headers, status in (({}, 401), (bearer("x" * 20), 401), (bearer(READER), 403)):
        read: list[int] = []
        for path in (IMPORT, f"{S}/restore", f"{S}/fork"):
            answered = await api.post(path, content=endless(read), headers=headers)
            problem(answered, status)
            assert answered.headers["connection"] == "close"
        assert read == []


@pytest.mark.parametrize(
    ("bytes_", "seconds"), [(0, 1), (-1, 1), (1, 0), (1, -1), (1, float("nan"))]
)
def test_a_limit_of_nothing_is_refused(bytes_, seconds):
    with pytest.raises(ValueError, match="limit"):
        Limits(bytes_, seconds)
