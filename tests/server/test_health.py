"""Health checks, metrics and traces."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families

from holdfast import StateStoreError
from support.async_tests import async_test
from support.rest_api import (
    SES_1,
    TOKENS,
    WRITER,
    FailingStateStore,
    auth_header,
    connect,
    expect_ok,
    expect_problem,
    fill_store,
)

DOWN = "cannot connect to db.internal:5432"


async def read_metrics(api):
    """Return the metrics by name and labels, as Prometheus parses them."""
    response = await api.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


# ----------------------------------------------------------------------------------------- health


@async_test
async def test_server_is_live_and_ready(api):
    assert expect_ok(await api.get("/health/live")) == {"status": "live"}
    assert expect_ok(await api.get("/health/ready"))["status"] == "ready"


@async_test
async def test_server_is_live_but_not_ready_if_its_store_fails(caplog):
    store = FailingStateStore()
    api, remote_api = connect(store), connect(store, tokens=TOKENS)
    store.error = StateStoreError(DOWN, transient=True)
    expect_ok(await api.get("/health/live"))
    expect_problem(await api.get("/health/ready"), 503, DOWN, kind="unavailable")
    # The store's address is only for clients with a token.
    assert "db.internal" not in expect_problem(await remote_api.get("/health/ready"), 503)["detail"]
    expect_problem(await remote_api.get("/health/ready", headers=auth_header(WRITER)), 503, DOWN)
    assert DOWN in caplog.text
    store.error = None
    expect_ok(await api.get("/health/ready"))


# ---------------------------------------------------------------------------------------- metrics


@async_test
async def test_requests_and_changes_are_counted_by_route(store, api):
    first, _ = await fill_store(store)
    for _ in range(3):
        await api.get(f"{SES_1}/state")
    await api.get("/agents/unknown/sessions")
    await api.get("/made-up-1")
    await api.get("/made-up-2")
    await api.request("BREW", "/agents")
    await api.post(f"{SES_1}/snapshots")
    await api.post(f"{SES_1}/snapshots", params={"dry_run": "true"})
    await api.post(f"{SES_1}/restore", json={"at": first})
    await api.post(f"{SES_1}/fork")
    document = (await api.get(f"{SES_1}/document")).content
    await api.post("/agents/snapshot/restore", content=document)
    await api.delete(SES_1)
    found = await read_metrics(api)
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
async def test_each_app_has_its_own_metrics(store):
    one, two = connect(store), connect(store)
    for _ in range(3):
        await one.get("/agents")
    key = ("holdfast_http_requests_total", "/agents", "200", "GET")
    assert (await read_metrics(one))[key] == 3
    assert key not in await read_metrics(two)


# ------------------------------------------------------------------------------------------ spans


@pytest.fixture
def spans(monkeypatch):
    """The exporter of a tracer provider set up for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


@async_test
async def test_requests_are_traced_if_a_provider_is_set_up(store, spans):
    await fill_store(store)
    api = connect(store, tokens=TOKENS, token=WRITER)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await api.get(f"{SES_1}/state?at=3", headers={"traceparent": parent})
    await api.get("/agents/unknown/sessions")
    await api.get("/agents", headers=auth_header("wrong-secret-0123456789"))
    one, two, three = spans.get_finished_spans()
    assert one.name == "GET /agents/{agent_id}/sessions/{session_id}/state"
    assert f"{one.context.trace_id:x}" == "af7651916cd43dd8448eb211c80319c"
    assert one.attributes["http.response.status_code"] == 200
    assert two.attributes["http.response.status_code"] == 404
    assert three.attributes["http.response.status_code"] == 401
    for span in (one, two, three):
        assert "secret" not in span.to_json()
