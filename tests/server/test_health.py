"""For those who run it: health, figures, spans, and what happens when the store fails."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast import ConflictError, Session, StateStoreError, UnsupportedValueError
from holdfast.server import create_app
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.faults import Fault, FaultyStateStore
from support.rest_api import (
    ODD,
    ODD_PATH,
    TOKENS,
    WRITER,
    S,
    bearer,
    client,
    client_of,
    entries,
    filled,
    good,
    opened,
    problem,
)

DOWN = "the database at db.internal:5432 cannot be reached"


class Down(MemoryStateStore):
    """A store that fails when it is told to."""

    error: Exception | None = None

    async def get(self, key):
        self._check()
        return await super().get(key)

    async def get_many(self, keys):
        self._check()
        return await super().get_many(keys)

    def list(self, prefix="", **bounds):
        self._check()
        return super().list(prefix, **bounds)

    def _check(self):
        if self.error is not None:
            raise self.error


async def figures(api):
    """What the metrics say, by name and labels; the text must be what Prometheus reads."""
    answered = await api.get("/metrics")
    assert answered.status_code == 200
    assert answered.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answered.text)
        for sample in family.samples
    }


# ----------------------------------------------------------------------------------------- health


@async_test
async def test_a_server_is_live_and_ready(api):
    assert good(await api.get("/health/live")) == {"status": "live"}
    assert good(await api.get("/health/ready"))["status"] == "ready"


@async_test
async def test_a_server_whose_store_fails_is_live_and_not_ready(caplog):
    store = Down()
    api, guarded = client(store), client(store, tokens=TOKENS)
    store.error = StateStoreError(DOWN, transient=True)
    good(await api.get("/health/live"))
    problem(await api.get("/health/ready"), 503, DOWN, kind="unavailable")
    # Where the store is, is not for everybody.
    assert "db.internal" not in problem(await guarded.get("/health/ready"), 503)["detail"]
    problem(await guarded.get("/health/ready", headers=bearer(WRITER)), 503, DOWN)
    assert DOWN in caplog.text
    store.error = None
    good(await api.get("/health/ready"))


# --------------------------------------------------------------------------- a store that fails


@async_test
async def test_a_store_that_fails_is_told_in_its_own_words_and_asked_again_later(caplog):
    store = Down()
    await filled(store)
    api = client(store)
    store.error = StateStoreError(DOWN, transient=True)
    for path in ("/agents", S, f"{S}/events", f"{S}/state?at=3", "/agents/ses_1/snapshot"):
        answered = await api.get(path)
        tree = problem(answered, 503, DOWN, kind="unavailable")
        assert "doctor" in tree["hint"]
        assert answered.headers["retry-after"] == "1"
    problem(await api.post(f"{S}/restore", json={"at": "3"}), 503, DOWN)
    assert DOWN in caplog.text
    store.error = StateStoreError(DOWN)
    assert "retry-after" not in (await api.get("/agents")).headers


@pytest.mark.parametrize(
    ("kind", "done"), [("error", False), ("unknown", False), ("unknown", True)]
)
@pytest.mark.parametrize("act", ["snapshots", "restore", "fork", "import"])
@async_test
async def test_a_write_that_fails_is_told_and_leaves_a_sound_session(act, kind, done):
    inner = MemoryStateStore()
    await filled(inner)
    store = FaultyStateStore(inner)
    api = client(store)
    document = (await api.get(f"{S}/document")).content
    for at in range(1, 6):
        store.plan(Fault(at, kind, done))
        if act == "import":
            query = {"session_id": f"copy-{at}"}
            answered = await api.post("/agents/snapshot/restore", params=query, content=document)
        else:
            body = {"restore": {"at": "3"}, "fork": {"session_id": f"fork-{at}"}}.get(act, {})
            answered = await api.post(f"{S}/{act}", json=body)
        if store.happened is None:
            assert answered.status_code in (200, 201)
            break
        assert answered.status_code in (200, 201, 409, 503), answered.text
        if answered.status_code == 503:
            problem(answered, 503, kind="unavailable")
    store.plan(None)
    assert (await (await opened(inner)).verify()).damage == []
    good(await api.get(S))


@async_test
async def test_what_two_writers_changed_is_listed_and_other_refusals_are_told():
    store = Down()
    api = client(store)
    store.error = ConflictError("both changed it", [("state", "plan"), ("state", "\ud800")])
    tree = problem(await api.get("/agents"), 409, "both changed it", kind="conflict")
    assert tree["conflicts"] == [["state", "plan"], ["state", "\\ud800"]]
    store.error = UnsupportedValueError("no such type")
    problem(await api.get("/agents"), 422, "no such type", kind="invalid")


@async_test
async def test_damaged_data_is_told_as_damage_and_never_shown_as_sound(store, api, caplog):
    await filled(store)
    for key, value in (await entries(store)).items():
        if "/log/" in key and "research-bot" in key:
            await store.put(key, value.replace(b"Compare the two", b"Compare the TWO"))
    for path in (f"{S}/events", f"{S}/state", f"{S}/document", f"{S}/events/3", f"{S}/growth"):
        tree = problem(await api.get(path), 500, kind="damaged")
        assert "verify" in tree["hint"]
        assert "TWO" not in str(tree)
    problem(await api.post(f"{S}/restore", json={"at": "3"}), 500, kind="damaged")
    assert "ERROR" in [record.levelname for record in caplog.records]
    good(await api.get("/agents/ann/sessions/ses_shared"))


@async_test
async def test_data_that_is_no_data_is_told_as_damage(store, api):
    await filled(store)
    for key in await entries(store):
        if "research-bot" in key and "/scopes/" in key:
            await store.put(key, b"\x00garbage")
    for path in (S, f"{S}/events", f"{S}/state", f"{S}/snapshots", f"{S}/document"):
        problem(await api.get(path), 500, kind="damaged")


@async_test
async def test_a_fault_of_the_server_is_logged_and_told_without_its_words(caplog):
    store = Down()
    api = client(store)
    store.error = ZeroDivisionError("the inner secret")
    tree = problem(await api.get("/agents"), 500, "ZeroDivisionError", kind="failed")
    assert "inner secret" not in str(tree)
    assert "inner secret" in caplog.text
    store.error = None
    good(await api.get("/agents"))


# ---------------------------------------------------------------------------------------- figures


@async_test
async def test_requests_and_changes_are_counted_by_route(store, api):
    first, _ = await filled(store)
    for _ in range(3):
        await api.get(f"{S}/state")
    await api.get("/agents/nobody/sessions")
    await api.get("/made-up-1")
    await api.get("/made-up-2")
    await api.request("BREW", "/agents")
    await api.post(f"{S}/snapshots")
    await api.post(f"{S}/snapshots", params={"dry_run": "true"})
    await api.post(f"{S}/restore", json={"at": first})
    await api.post(f"{S}/fork")
    document = (await api.get(f"{S}/document")).content
    await api.post("/agents/snapshot/restore", content=document)
    await api.delete(S)
    found = await figures(api)
    route = "/agents/{agent_id}/sessions/{session_id}/state"
    assert found["holdfast_http_requests_total", route, "200", "GET"] == 3
    assert found["holdfast_http_request_duration_seconds_count", route, "GET"] == 3
    listing = "/agents/{agent_id}/sessions"
    assert found["holdfast_http_requests_total", listing, "404", "GET"] == 1
    for act in ("saved", "restored", "forked", "imported", "deleted"):
        assert found["holdfast_sessions_changed_total", act] == 1
    text = (await api.get("/metrics")).text
    for word in ("made-up", "BREW", "research-bot", "ses_1"):
        assert word not in text


@async_test
async def test_two_apps_in_one_process_count_apart(store):
    one, two = client(store), client(store)
    for _ in range(3):
        await one.get("/agents")
    key = ("holdfast_http_requests_total", "/agents", "200", "GET")
    assert (await figures(one))[key] == 3
    assert key not in await figures(two)


# ------------------------------------------------------------------------------------------ spans


@pytest.fixture
def spans(monkeypatch):
    """The spans of a provider that the process has set up, for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@async_test
async def test_requests_are_spans_where_the_process_has_a_provider(store, spans):
    await filled(store)
    api = client(store, tokens=TOKENS, token=WRITER)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await api.get(f"{S}/state?at=3", headers={"traceparent": parent})
    await api.get("/agents/nobody/sessions")
    await api.get("/agents", headers=bearer("wrong-secret-0123456789"))
    one, two, three = spans.get_finished_spans()
    assert one.name == "GET /agents/{agent_id}/sessions/{session_id}/state"
    assert f"{one.context.trace_id:x}" == "af7651916cd43dd8448eb211c80319c"
    assert one.attributes["http.response.status_code"] == 200
    assert two.attributes["http.response.status_code"] == 404
    assert three.attributes["http.response.status_code"] == 401
    for span in (one, two, three):
        assert "secret" not in span.to_json()


# ---------------------------------------------------------------------------------------- mounted


@pytest.mark.parametrize("outside", ["", "/outer", "/gr\u00f6\u00dfe und %/mehr"])
@async_test
async def test_everything_works_below_a_prefix_of_another_app(store, outside):
    async with Session.open(store, agent_id=ODD, session_id=ODD) as session:
        session.add_message("user", "hello")
    parent = FastAPI()
    parent.mount("/state", create_app(store, tokens=TOKENS))
    app = parent
    if outside:
        app = FastAPI()
        app.mount(outside, parent)
    api = client_of(app, host="http://agents.example.com")
    below = f"{quote(outside)}/%73tate"
    for path in ("/", "/viewer/app.js", "/openapi.json", "/health/live", "/access"):
        assert (await api.get(below + path)).status_code == 200, path
    problem(await api.get(f"{below}/agents"), 401)
    problem(await api.get(f"{below}/viewer/nothing"), 404)
    writer = bearer(WRITER)
    assert good(await api.get(f"{below}/agents", headers=writer))["agents"] == [{"agent_id": ODD}]
    place = f"{below}/agents/{ODD_PATH}/sessions/{ODD_PATH}"
    assert good(await api.get(place, headers=writer))["session_id"] == ODD
    good(await api.post(f"{place}/fork", json={"session_id": "a/b"}, headers=writer), 201)
    good(await api.delete(f"{below}/agents/{ODD_PATH}/sessions/a%2Fb", headers=writer), 204)
    problem(await api.get(f"{place}/nothing", headers=writer), 404)
    found = (await api.get(f"{below}/metrics", headers=writer)).text
    assert 'route="/agents/{agent_id}/sessions/{session_id}"' in found


@async_test
async def test_a_path_that_somebody_in_between_gave_is_the_one_that_counts(store):
    """Servers differ in what they say of a path, and what hands requests on may shorten it."""
    await filled(store)
    inside = create_app(store)

    def given(**changes):
        async def app(scope, receive, send):
            await inside({**scope, **changes}, receive, send)

        return client_of(app)

    path = "/agents/research-bot/sessions"
    for api in (
        given(path=path, raw_path=None),
        given(path=path, raw_path=b"/elsewhere/agents"),
        given(path=path, raw_path=b"/agents/research%2Dbot/sessions".replace(b"%2D", b"-")),
        given(path=path, raw_path=path.encode(), root_path="/proxied"),
        given(path=f"/proxied{path}", raw_path=f"/proxied{path}".encode(), root_path="/proxied"),
    ):
        assert len(good(await api.get("/"))["sessions"]) == 1
    for odd in ("\udcff", "\u00e9", "a b", "%"):
        api = given(path=f"/agents/{odd}/sessions", raw_path=None)
        assert (await api.get("/")).status_code == 404


@async_test
async def test_the_store_is_closed_with_the_app_where_it_is_its_own(tmp_path):
    for owns in (False, True):
        store = holdfast.open_state_store(f"sqlite:///{tmp_path}/state.db")
        await filled(store) if not owns else None
        app = create_app(store, owns_store=owns)
        async with app.router.lifespan_context(app):
            good(await client_of(app).get("/agents"))
        if owns:
            with pytest.raises(StateStoreError):
                await store.get("x")
        else:
            await store.get("x")
            await store.close()


def test_an_app_is_made_over_a_store_and_not_over_its_url():
    with pytest.raises(TypeError, match="open_state_store"):
        create_app("sqlite:///state.db")


@async_test
async def test_the_api_describes_itself(api):
    tree = good(await api.get("/openapi.json"))
    assert tree["openapi"].startswith("3.")
    for path in (
        "/agents",
        "/agents/{agent_id}/sessions/{session_id}/state",
        "/agents/snapshot/restore",
        "/agents/{session_id}/snapshot",
        "/diff",
    ):
        assert path in tree["paths"]
    assert "Problem" in tree["components"]["schemas"]
    assert logging.getLogger("holdfast.access").propagate
