"""Documents are decoded in a worker process that has limits and can be killed."""

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
from support.http_server import LoggedServer, wait_until
from support.rest_api import (
    SES_1,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)

IMPORT = "/agents/snapshot/restore"
HEAD = b'{"schema_version": 1, "agent_id": "a", "session_id": "s", "state": {"messages": ['
TAIL = b"]}}"
SHAPES = [b"[],", b"{},", b'{"":0},', b"0,", b'"",', b"[[[[]]]],", b'{"$tuple":[]},']


def make_bomb(shape, size):
    """Return a valid document of many small values."""
    return HEAD + shape * (size // len(shape)) + shape[:-1] + TAIL


def workers():
    """Return the pids of the workers of this process."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            for pid in (task / "children").read_text().split():
                if b"decode_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


@pytest.fixture(autouse=True)
def no_workers_left():
    """Check that no worker survives its app."""
    for pid in workers():  # of apps that other tests did not close
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not workers())
    yield
    wait_until(lambda: not workers())


@pytest.fixture
def running_app(store):
    """A client of an app that ends with the test, and the app's decoder."""
    with TestClient(create_app(store)) as api:
        yield api, api.app.state.context.decoder


async def export_large(store):
    """Return a document that needs a worker."""
    await fill_store(store)
    session = await open_session(store)
    session.add_message("user", "x" * 2 * SMALL)
    await session.commit()
    return (await connect(store).get(f"{SES_1}/document")).content


# ------------------------------------------------------------------------------------- ------ bombs


@pytest.mark.parametrize(
    ("compress", "shape"),
    [*((gzip.compress, shape) for shape in SHAPES), (zstandard.compress, b"[],")],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_compressed_bomb_is_rejected_with_little_memory(running_app, compress, shape):
    api, _ = running_app
    body = compress(make_bomb(shape, 4_000_000))
    assert len(body) < 100_000
    api.post(IMPORT, content=compress(HEAD + b'"x"' + TAIL))  # start the worker
    before, started = peak_memory(), time.monotonic()
    response = api.post(IMPORT, content=body)
    assert time.monotonic() - started < 20
    assert peak_memory() - before < 100_000_000
    tree = expect_problem(response, 413, "values and names", kind="too-large")
    assert "command line" in tree["hint"]


def peak_memory():
    """Return the peak memory of this process and its children, in bytes."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return 1024 * sum(resource.getrusage(who).ru_maxrss for who in both)


def test_decoding_limits_follow_the_body_limit():
    small, usual = (Decoder(Limits(body_bytes=size)) for size in (1 << 20, 64 << 20))
    assert (small.limits.max_bytes, small.limits.max_objects) == (4 << 20, 100_000)
    assert (usual.limits.max_bytes, usual.limits.max_objects) == (256 << 20, 4 << 20)
    assert small.memory < usual.memory < 2 << 30


# ------------------------------------------------------------------------------------------ limits


@async_test
async def test_worker_that_exceeds_its_cpu_time_is_killed(store):
    api = connect(store)
    api._transport.app.state.context.decoder.cpu_seconds = 0.5
    expect_problem(
        await api.post(IMPORT, content=make_bomb(b"0,", 8_000_000)),
        413,
        "0.5 s of CPU",
        kind="too-large",
    )
    assert workers() == []
    assert await dump_store(store) == {}


@async_test
async def test_worker_is_killed_if_the_request_times_out(store):
    api = connect(store, limits=Limits(seconds=2))
    api._transport.app.state.context.decoder.cpu_seconds = 60
    expect_problem(
        await api.post(IMPORT, content=make_bomb(b"0,", 8_000_000)), 503, "longer than 2 s"
    )
    assert workers() == []
    assert await dump_store(store) == {}


@async_test
async def test_document_that_needs_too_much_memory_is_rejected():
    decoder = Decoder(Limits())
    decoder.memory = 50_000_000
    with pytest.raises(Problem, match="47 MiB of memory") as raised:
        await decoder.decode(io.BytesIO(make_bomb(b"0,", 8_000_000)), allow_modified=False)
    assert raised.value.status == 413
    decoder.close()


@async_test
async def test_worker_is_killed_if_decoding_is_cancelled():
    decoder = Decoder(Limits())
    body = io.BytesIO(make_bomb(b"0,", 8_000_000))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await decoder.decode(body, allow_modified=False)
    assert workers() == []


def test_worker_is_killed_if_the_client_disconnects(store):
    body = make_bomb(b"0,", 8_000_000)
    with LoggedServer(store) as server:
        with server.connect() as connection:
            head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % (IMPORT.encode(), len(body)) + body)
            wait_until(workers)
        wait_until(lambda: not workers(), seconds=2)
        wait_until(lambda: "client disconnected" in server.log)


# ----------------------------------------------------------------------------------------- workers


def test_worker_is_reused_and_ends_with_the_app(store):
    with TestClient(create_app(store)) as api:
        for _ in range(3):
            expect_problem(api.post(IMPORT, content=gzip.compress(b"{}")), 422)
            (worker,) = workers()
            assert "HOLDFAST" not in Path(f"/proc/{worker}/environ").read_text()
    assert workers() == []


def test_dead_worker_is_replaced(running_app):
    api, decoder = running_app
    body = gzip.compress(b"{}")
    expect_problem(api.post(IMPORT, content=body), 422)
    before = workers()
    decoder._idle[0]._process.kill()
    expect_problem(api.post(IMPORT, content=body), 422)
    assert workers() != before


@async_test
async def test_concurrent_documents_share_two_workers(store):
    api = connect(store)
    sent = [api.post(IMPORT, content=gzip.compress(b"{}")) for _ in range(8)]
    for response in await asyncio.gather(*sent):
        expect_problem(response, 422)
    assert len(workers()) <= 2
    api._transport.app.state.context.decoder.close()


def test_small_plain_document_needs_no_worker(running_app):
    api, _ = running_app
    assert api.post(IMPORT, content=HEAD + b'"x"' + TAIL).status_code == 200
    assert workers() == []
    assert needs_no_worker(io.BytesIO(b"{" + b" " * (SMALL - 1)))
    for body in (b"{" + b" " * SMALL, gzip.compress(b"{}"), zstandard.compress(b"{}")):
        assert not needs_no_worker(io.BytesIO(body))
    assert not needs_no_worker(io.BytesIO(b"\x50\x2a\x4d\x18"))


# ------------------------------------------------------------------------------------------ results


@async_test
async def test_large_document_is_imported_by_a_worker(store):
    document = await export_large(store)
    api = connect(store)
    for name, body in (("plain", document), ("compressed", gzip.compress(document))):
        result = expect_ok(await api.post(IMPORT, params={"session_id": name}, content=body))
        assert (result["created"], result["messages_restored"]) == (True, 3)
    api._transport.app.state.context.decoder.close()


@async_test
async def test_worker_and_server_report_the_same_errors(store):
    document = await export_large(store)
    tree = json.loads(document)
    app = create_app(store)
    api = connect(store)
    for change, status in (
        ({"digest": "sha256:0"}, 422),
        ({"agent_id": 5}, 422),
        ({"schema_version": 99}, 422),
        ({"events": [{"seq": 1}]}, 422),
        ({"state": []}, 422),
    ):
        wrong = {**tree, **change}
        response = await api.post(IMPORT, content=gzip.compress(json.dumps(wrong).encode()))
        here = app.state.context.decoder
        with pytest.raises((holdfast.HoldfastError, Problem)) as raised:
            here.decode_here(io.BytesIO(json.dumps(wrong).encode()), allow_modified=False)
        assert expect_problem(response, status)["detail"] == str(raised.value)
    cut = await api.post(IMPORT, content=gzip.compress(document)[:-20])
    expect_problem(cut, 400, "the body", kind="bad-request")
    api._transport.app.state.context.decoder.close()


class Money:
    """A type registered by a user."""

    def __init__(self, cents):
        self.cents = cents

    def __eq__(self, other):
        return self.cents == other.cents

    __hash__ = None


@async_test
async def test_worker_passes_on_types_registered_in_the_server(store):
    holdfast.register_type(
        Money, name="server-test-money", encode=lambda value: value.cents, decode=Money
    )
    await fill_store(store)
    session = await open_session(store)
    session.set("price", Money(500))
    await session.commit()
    api = connect(store)
    document = (await api.get(f"{SES_1}/document")).content
    params = {"session_id": "copy"}
    expect_ok(await api.post(IMPORT, params=params, content=gzip.compress(document)))
    copy = await open_session(store, session_id="copy")
    assert copy.get("price") == Money(500)
    other = gzip.compress(document.replace(b"server-test-money", b"an-unknown-type"))
    response = await api.post(IMPORT, content=other)
    expect_problem(response, 422, "an-unknown-type")
    api._transport.app.state.context.decoder.close()
