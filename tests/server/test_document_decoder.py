"""Documents are decoded in a process that has limits and can be killed."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from fastapi.testclient import TestClient

import holdfast
from holdfast.server import Limits, create_app
from holdfast.server.document_decoder import SMALL, Decoder, needs_no_worker
from holdfast.server.problems import Problem
from support.async_tests import async_test
from support.rest_api import S, client, entries, filled, good, opened, problem
from support.running_server import Running, until

IMPORT = "/agents/snapshot/restore"
HEAD = b'{"schema_version": 1, "agent_id": "a", "session_id": "s", "state": {"messages": ['
TAIL = b"]}}"
SHAPES = [b"[],", b"{},", b'{"":0},', b"0,", b'"",', b"[[[[]]]],"]


def bomb(shape, size):
    """A valid document of many small values."""
    return HEAD + shape * (size // len(shape)) + shape[:-1] + TAIL


def workers():
    """The processes that decode, of this one."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread or a process that has just ended
            for pid in (task / "children").read_text().split():
                if b"decode_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


@pytest.fixture(autouse=True)
def nothing_left():
    """No worker survives its app."""
    for pid in workers():  # of tests in other files, whose apps were not closed
        os.kill(pid, signal.SIGKILL)
    until(lambda: not workers())
    yield
    until(lambda: not workers())


@pytest.fixture
def served(store):
    """An app that ends with the test, and its decoder."""
    with TestClient(create_app(store)) as api:
        yield api, api.app.state.context.decoder


async def large(store):
    """A document that needs a worker."""
    await filled(store)
    session = await opened(store)
    session.add_message("user", "x" * 2 * SMALL)
    await session.commit()
    return (await client(store).get(f"{S}/document")).content


# ------------------------------------------------------------------------------------- small bombs


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_few_packed_kilobytes_cost_neither_memory_nor_time(served, pack, shape):
    api, _ = served
    body = pack(bomb(shape, 4_000_000))
    assert len(body) < 100_000
    api.post(IMPORT, content=pack(HEAD + b'"x"' + TAIL))  # the worker has started
    before, started = memory(), time.monotonic()
    answered = api.post(IMPORT, content=body)
    assert time.monotonic() - started < 20
    assert memory() - before < 100_000_000
    tree = problem(answered, 413, "values and names", kind="too-large")
    assert "command line" in tree["hint"]


def memory():
    """The most bytes that this process and those that it waited for had."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return 1024 * sum(resource.getrusage(who).ru_maxrss for who in both)


def test_how_much_a_document_may_hold_follows_the_largest_body():
    small, usual = (Decoder(Limits(body_bytes=size)) for size in (1 << 20, 64 << 20))
    assert (small.limits.max_bytes, small.limits.max_objects) == (4 << 20, 100_000)
    assert (usual.limits.max_bytes, usual.limits.max_objects) == (256 << 20, 4 << 20)
    assert small.memory < usual.memory < 2 << 30


# ------------------------------------------------------------------------------------------ limits


@async_test
async def test_a_document_that_takes_too_long_to_decode_is_refused_and_its_worker_gone(store):
    api = client(store)
    api._transport.app.state.context.decoder.cpu_seconds = 0.5
    problem(
        await api.post(IMPORT, content=bomb(b"0,", 8_000_000)),
        413,
        "0.5 s of CPU",
        kind="too-large",
    )
    assert workers() == []
    assert await entries(store) == {}


@async_test
async def test_a_request_that_times_out_kills_its_worker(store):
    api = client(store, limits=Limits(seconds=2))
    api._transport.app.state.context.decoder.cpu_seconds = 60
    problem(await api.post(IMPORT, content=bomb(b"0,", 8_000_000)), 503, "longer than 2 s")
    assert workers() == []
    assert await entries(store) == {}


@async_test
async def test_a_document_that_takes_too_much_memory_is_refused():
    decoder = Decoder(Limits())
    decoder.memory = 50_000_000
    with pytest.raises(Problem, match="47 MiB of memory") as said:
        await decoder.decode(io.BytesIO(bomb(b"0,", 8_000_000)), allow_modified=False)
    assert said.value.status == 413
    decoder.close()


@async_test
async def test_a_worker_is_killed_where_the_request_is_given_up():
    decoder = Decoder(Limits())
    body = io.BytesIO(bomb(b"0,", 8_000_000))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await decoder.decode(body, allow_modified=False)
    assert workers() == []


def test_a_worker_is_killed_where_the_client_goes_away(store):
    body = bomb(b"0,", 8_000_000)
    with Running(store) as server:
        with server.connect() as connection:
            head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % (IMPORT.encode(), len(body)) + body)
            until(workers)
        until(lambda: not workers(), seconds=2)
        until(lambda: "went away" in server.log)


# ----------------------------------------------------------------------------------------- workers


def test_a_worker_is_used_again_and_ends_with_the_app(store):
    with TestClient(create_app(store)) as api:
        for _ in range(3):
            problem(api.post(IMPORT, content=gzip.compress(b"{}")), 422)
            (worker,) = workers()
            assert "HOLDFAST" not in Path(f"/proc/{worker}/environ").read_text()
    assert workers() == []


def test_a_worker_that_ended_is_replaced(served):
    api, decoder = served
    body = gzip.compress(b"{}")
    problem(api.post(IMPORT, content=body), 422)
    before = workers()
    decoder._idle[0]._process.kill()
    problem(api.post(IMPORT, content=body), 422)
    assert workers() != before


def test_documents_that_come_together_are_decoded_by_a_few_workers(store):
    async def together():
        api = client(store)
        sent = [api.post(IMPORT, content=gzip.compress(b"{}")) for _ in range(8)]
        for answered in await asyncio.gather(*sent):
            problem(answered, 422)
        assert len(workers()) <= 2
        api._transport.app.state.context.decoder.close()

    asyncio.run(together())


def test_a_small_plain_document_needs_no_worker(served):
    api, _ = served
    assert api.post(IMPORT, content=HEAD + b'"x"' + TAIL).status_code == 200
    assert workers() == []
    assert needs_no_worker(io.BytesIO(b"{" + b" " * (SMALL - 1)))
    for body in (b"{" + b" " * SMALL, gzip.compress(b"{}"), zstandard.compress(b"{}")):
        assert not needs_no_worker(io.BytesIO(body))
    assert not needs_no_worker(io.BytesIO(b"\x50\x2a\x4d\x18"))


# ------------------------------------------------------------------------------------ same answers


@async_test
async def test_a_large_document_is_imported_as_a_small_one_is(store):
    document = await large(store)
    api = client(store)
    for name, body in (("plain", document), ("packed", gzip.compress(document))):
        done = good(await api.post(IMPORT, params={"session_id": name}, content=body))
        assert (done["created"], done["messages_restored"]) == (True, 3)
    api._transport.app.state.context.decoder.close()


@async_test
async def test_a_worker_and_the_server_refuse_a_document_with_the_same_words(store):
    document = await large(store)
    tree = json.loads(document)
    app = create_app(store)
    api = client(store)
    for change, status in (
        ({"digest": "sha256:0"}, 422),
        ({"agent_id": 5}, 422),
        ({"schema_version": 99}, 422),
        ({"events": [{"seq": 1}]}, 422),
        ({"state": []}, 422),
    ):
        wrong = {**tree, **change}
        packed = await api.post(IMPORT, content=gzip.compress(json.dumps(wrong).encode()))
        here = app.state.context.decoder
        with pytest.raises((holdfast.HoldfastError, Problem)) as said:
            here._decode_here(io.BytesIO(json.dumps(wrong).encode()), allow_modified=False)
        assert problem(packed, status)["detail"] == str(said.value)
    cut = await api.post(IMPORT, content=gzip.compress(document)[:-20])
    problem(cut, 400, "the body", kind="bad-request")
    api._transport.app.state.context.decoder.close()


class Money:
    """A type of a user's own."""

    def __init__(self, cents):
        self.cents = cents

    def __eq__(self, other):
        return self.cents == other.cents

    __hash__ = None


@async_test
async def test_types_that_the_server_has_registered_pass_a_worker_that_does_not_know_them(store):
    holdfast.register_type(
        Money, name="server-test-money", encode=lambda value: value.cents, decode=Money
    )
    await filled(store)
    session = await opened(store)
    session.set("price", Money(500))
    await session.commit()
    api = client(store)
    document = (await api.get(f"{S}/document")).content
    params = {"session_id": "copy"}
    good(await api.post(IMPORT, params=params, content=gzip.compress(document)))
    copy = await opened(store, session_id="copy")
    assert copy.get("price") == Money(500)
    other = gzip.compress(document.replace(b"server-test-money", b"nobody-knows-this"))
    answered = await api.post(IMPORT, content=other)
    problem(answered, 422, "nobody-knows-this")
    api._transport.app.state.context.decoder.close()
