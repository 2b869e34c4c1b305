"""Live events as server-sent events, on a real server."""

from __future__ import annotations

import json
import socket
from contextlib import ExitStack, contextmanager

import httpx
import pytest

import holdfast
from holdfast import BlockingSession, RetentionPolicy, Session, SnapshotArchive
from holdfast.server import Limits, Token
from holdfast.server.auth import Authority
from holdfast.server.event_stream import StreamSlots
from holdfast.server.problems import Problem
from support.async_tests import run_async
from support.http_server import LoggedServer, wait_until
from support.rest_api import ANN_ONLY, READER, TOKENS, WRITER, auth_header, connect

SESSION = "/agents/bot/sessions/ses"
STREAM = f"{SESSION}/events/stream"
# One client, because each loads the certificates of all authorities.
HTTP = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=20)


@pytest.fixture
def url(tmp_path):
    """The URL of a store with a session of four events."""
    found = f"sqlite:///{tmp_path}/state.db"
    with BlockingSession.open(found, agent_id="bot", session_id="ses") as session:
        for number in range(3):
            session.set("value", number)
            session.commit()
    return found


@contextmanager
def serve(url, **options):
    with LoggedServer(holdfast.open_state_store(url), owns_store=True, **options) as server:
        yield server


def commit(url, *values):
    """Commit in another thread and event loop, as another process would."""
    with BlockingSession.open(url, agent_id="bot", session_id="ses") as session:
        for value in values:
            session.set("value", value)
            session.commit()


class Stream:
    """An open stream, read frame by frame."""

    def __init__(self, response):
        self.response = response
        self._lines = response.iter_lines()

    def read(self):
        """Return the fields of the next frame; a comment is the field with an empty name."""
        found = {}
        for line in self._lines:
            if not line:
                return found
            name, _, value = line.partition(":")
            found[name] = value.strip()
        return None

    def read_events(self, count):
        """Return the numbers of the next events, without comments."""
        seqs = []
        while len(seqs) < count:
            frame = self.read()
            assert frame is not None, "the stream ended"
            if frame.get("event") == "event":
                assert int(frame["id"]) == json.loads(frame["data"])["seq"]
                seqs.append(int(frame["id"]))
        return seqs


@contextmanager
def follow(address, path=STREAM, *, headers=None, timeout=20, **params):
    with HTTP.stream(
        "GET", f"{address}{path}", params=params, headers=headers, timeout=timeout
    ) as response:
        yield Stream(response)


def test_events_as_they_are_committed(url):
    with serve(url) as server, follow(server.url, after=0) as stream:
        response = stream.response
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["cache-control"] == "no-store"
        assert "content-length" not in response.headers
        assert stream.read() == {"retry": "2000"}
        first = stream.read()
        assert (first["id"], first["event"]) == ("1", "event")
        expected = HTTP.get(f"{server.url}{SESSION}/events").json()["events"]
        assert json.loads(first["data"]) == expected[0]
        assert stream.read_events(3) == [2, 3, 4]
        commit(url, 5, 6)
        assert stream.read_events(2) == [5, 6]
        text = HTTP.get(f"{server.url}/metrics").text
        assert "holdfast_event_streams 1.0" in text


def test_start_and_resume(url):
    with serve(url) as server:
        with follow(server.url) as live, follow(server.url, after=2) as stream:
            assert stream.read_events(2) == [3, 4]
            commit(url, "new")
            assert live.read_events(1) == [5]
        resumed = {"Last-Event-ID": "4"}
        with follow(server.url, after=0, headers=resumed) as stream:
            assert stream.read_events(1) == [5]
        with follow(server.url, after=4, brief="true") as stream:
            stream.read()
            frame = stream.read()
            assert json.loads(frame["data"]).keys() == {"seq", "id", "type", "at"}


def test_heartbeats(url):
    with serve(url, limits=Limits(heartbeat=0.05)) as server, follow(server.url) as stream:
        stream.read()
        assert [stream.read() for _ in range(3)] == [{"": "keep-alive"}] * 3
        commit(url, "new")
        assert stream.read_events(1) == [5]


def test_a_stream_takes_no_request_thread(url):
    with serve(url) as server, ExitStack() as stack:
        streams = [stack.enter_context(follow(server.url)) for _ in range(10)]
        assert HTTP.get(f"{server.url}{SESSION}").status_code == 200
        commit(url, "new")
        assert [each.read_events(1) for each in streams] == [[5]] * 10


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/agents/bot/sessions/none/events/stream", {}, 404),
        ("/agents/none/sessions/ses/events/stream", {}, 404),
        (f"{STREAM}?after=5", {}, 404),
        (f"{STREAM}?after=-1", {}, 422),
        (f"{STREAM}?after=x", {}, 422),
        (f"{STREAM}?afer=1", {}, 422),
        (STREAM, {"Last-Event-ID": "x"}, 422),
        (STREAM, {"Last-Event-ID": "99"}, 404),
    ],
)
def test_invalid_requests(url, path, headers, status):
    async def get():
        store = holdfast.open_state_store(url)
        async with store, connect(store) as api:
            response = await api.get(path, headers=headers)
            assert response.headers["content-type"] == "application/problem+json"
            return response

    response = run_async(get())
    assert response.status_code == status, response.text
    if status == 404 and "after=5" in path:
        assert response.json()["last_event"] == 4


def test_pruned_start_and_damaged_log(url):
    async def prune_and_damage():
        async with holdfast.open_state_store(url) as store:
            session = await Session.open(store, agent_id="bot", session_id="ses")
            for number in range(3):
                session.set("value", f"{number}")
                await session.save()
            archive = SnapshotArchive(store)
            await archive.prune(location=session.location, policy=RetentionPolicy(last=1))
            session = await Session.open(store, agent_id="bot", session_id="ses")
            for number in range(2):
                session.set("value", number)
                await session.commit()
            log = session.committer.timeline.log
            entry = await store.get(log.key(8))
            await store.put(log.key(9), entry.value)

    run_async(prune_and_damage())
    with serve(url) as server:
        response = HTTP.get(f"{server.url}{STREAM}?after=3")
        assert response.status_code == 404
        assert response.json()["first_event"] == 8
        with follow(server.url, after=7) as stream:
            assert stream.read_events(1) == [8]
            problem = stream.read()
            assert problem["event"] == "problem"
            assert json.loads(problem["data"])["status"] == 500
            assert "is missing" in json.loads(problem["data"])["detail"]
            assert stream.read() is None


def test_deleted_session_ends_the_stream(url):
    with serve(url) as server, follow(server.url) as stream:
        assert stream.read() == {"retry": "2000"}
        HTTP.delete(f"{server.url}{SESSION}").raise_for_status()
        problem = stream.read()
        assert (problem["event"], "id" in problem) == ("problem", False)
        assert json.loads(problem["data"])["status"] == 404
        assert stream.read() is None


def test_tokens_and_limits(url):
    with (
        serve(url, tokens=TOKENS, limits=Limits(streams=3, streams_per_token=2)) as server,
        ExitStack() as stack,
    ):
        assert HTTP.get(f"{server.url}{STREAM}").status_code == 401
        refused = HTTP.get(f"{server.url}{STREAM}", headers=auth_header(ANN_ONLY))
        assert refused.status_code == 403
        reader, writer = auth_header(READER), auth_header(WRITER)
        first = stack.enter_context(follow(server.url, headers=reader))
        stack.enter_context(follow(server.url, headers=reader))
        refused = HTTP.get(f"{server.url}{STREAM}", headers=reader)
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["type"] == "urn:holdfast:too-many"
        assert "reader has 2 open event streams" in refused.json()["detail"]
        stack.enter_context(follow(server.url, headers=writer))
        refused = HTTP.get(f"{server.url}{STREAM}", headers=writer)
        assert refused.status_code == 429
        assert "there are 3 open event streams" in refused.json()["detail"]
        first.response.close()

        def is_free():
            with follow(server.url, headers=reader) as stream:
                return stream.response.status_code == 200

        wait_until(is_free)


def test_slots_are_counted_by_token():
    slots = StreamSlots(Limits(streams=2, streams_per_token=1))
    first, second, third = (Authority("read", name="t", token=number) for number in range(3))
    with slots.hold(first):
        with pytest.raises(Problem, match="t has 1"), slots.hold(first):
            pass
        with slots.hold(second):
            assert slots.count == 2
            with pytest.raises(Problem, match="there are 2"), slots.hold(third):
                pass
    assert slots.count == 0


def test_head_request_ends_at_once(url):
    with serve(url) as server:
        response = HTTP.head(f"{server.url}{STREAM}", timeout=10)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.content == b""


def test_client_that_does_not_read_stops_the_stream_and_not_the_server(url):
    with BlockingSession.open(url, agent_id="bot", session_id="ses") as session:
        for number in range(40):
            for name in "abcd":  # too small for a blob
                session.set(name, f"{number:02}" * 30_000)
            session.commit()
    with serve(url, limits=Limits(seconds=1.0)) as server:
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(f"GET {STREAM}?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            wait_until(lambda: "response abandoned" in server.log)
        wait_until(lambda: not server.tasks)
        assert "holdfast_event_streams 0.0" in HTTP.get(f"{server.url}/metrics").text


def test_open_streams_end_when_the_server_stops(url):
    server = LoggedServer(holdfast.open_state_store(url), owns_store=True)
    server.grace_seconds = 20.0
    with ExitStack() as stack:
        with server:
            streams = [stack.enter_context(follow(server.url)) for _ in range(3)]
            for each in streams:
                each.read()
        assert [each.read() for each in streams] == [None] * 3
    assert "Cancel" not in server.log  # as uvicorn logs when it has waited long enough


def test_limits_must_be_positive():
    for name in ("streams", "streams_per_token", "heartbeat"):
        with pytest.raises(ValueError, match=f"got 0 for {name}"):
            Limits(**{name: 0})


def test_tokens_with_equal_names_are_counted_apart(url):
    tokens = [Token("a" * 20), Token("b" * 20)]
    with (
        serve(url, tokens=tokens, limits=Limits(streams_per_token=1)) as server,
        follow(server.url, headers=auth_header("a" * 20)) as first,
        follow(server.url, headers=auth_header("b" * 20)) as second,
    ):
        assert {first.response.status_code, second.response.status_code} == {200}
