"""Operations of a saver are traced and counted."""

from __future__ import annotations

import subprocess
import sys

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from swarmstate.observability import InMemoryMetrics, OpenTelemetryMetrics

from adapters.langgraph.graphs import at, build_agent, user_message
from holdfast import UnsupportedValueError, open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import run_async


class Telemetry:
    """A tracer and a meter of OpenTelemetry's SDK, and their data."""

    def __init__(self):
        self._spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.tracer = provider.get_tracer("test")
        self._reader = InMemoryMetricReader()
        self.meter = MeterProvider([self._reader]).get_meter("test")

    def spans(self):
        return self._spans.get_finished_spans()

    def points(self, name):
        """The points of a metric, by their attributes."""
        data = self._reader.get_metrics_data()
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        (found,) = [each for each in metrics if each.name == name]
        return {tuple(sorted(each.attributes.items())): each for each in found.data.data_points}

    def counts(self):
        """The number of operations by name, thread and success."""
        return {
            (dict(key)["op"], dict(key).get("thread_id"), dict(key)["ok"]): point.value
            for key, point in self.points("holdfast.checkpoint.operations").items()
        }


@pytest.fixture
def telemetry():
    return Telemetry()


@pytest.fixture
def observed(telemetry):
    store = open_state_store("memory:")
    with HoldfastSaver(store, metrics=telemetry.meter, tracer=telemetry.tracer) as saver:
        yield saver


def put(saver, thread="t", **values):
    versions = dict.fromkeys(values, "00000001.0")
    checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
    return saver.put(at(thread, checkpoint_ns=""), checkpoint, {"step": 1}, versions)


def test_every_operation_has_a_span_with_its_thread(observed, telemetry):
    config = put(observed, plan="x")
    observed.put_writes(config, [("plan", "y"), ("plan", "z")], "task")
    observed.get_tuple(config)
    list(observed.list(at(), limit=1))
    list(observed.list(None))
    observed.copy_thread("t", "u")
    observed.rollback_threads(["t"], to="2026-01-01T00:00:00+00:00")
    observed.get_delta_channel_history(config=config, channels=["plan"])
    observed.prune(["t"])
    observed.delete_for_runs(["none"])
    observed.delete_thread("t")
    id_ = config["configurable"]["checkpoint_id"]
    spans = {each.name.removeprefix("holdfast.checkpoint."): each for each in telemetry.spans()}
    assert set(spans) == {
        "put",
        "put_writes",
        "get_tuple",
        "list",
        "copy_thread",
        "rollback",
        "get_delta_channel_history",
        "prune",
        "delete_for_runs",
        "delete_thread",
    }
    for name, span in spans.items():
        assert span.status.status_code is StatusCode.UNSET
        if name not in ("list", "delete_for_runs"):
            assert span.attributes["holdfast.thread_id"] == "t", name
    for name in ("put", "put_writes", "get_tuple"):
        assert spans[name].attributes["holdfast.checkpoint_id"] == id_
        assert spans[name].attributes["holdfast.checkpoint_ns"] == ""
    assert spans["put_writes"].attributes["holdfast.task_id"] == "task"
    assert spans["put_writes"].attributes["holdfast.writes"] == 2
    lists = [each for each in telemetry.spans() if each.name == "holdfast.checkpoint.list"]
    assert [each.attributes.get("holdfast.thread_id") for each in lists] == ["t", None]
    counts = telemetry.counts()
    assert counts["put", "t", True] == counts["list", "t", True] == 1
    assert counts["list", None, True] == 1


def test_operations_are_counted_per_thread(observed, telemetry):
    graph = build_agent(observed)
    for thread, turns in (("a", 1), ("b", 2)):
        for number in range(turns):
            graph.invoke(user_message("monday", str(number)), at(thread))
    counts = telemetry.counts()
    assert counts["put", "b", True] == 2 * counts["put", "a", True] == 10
    assert counts["get_tuple", "b", True] == 2
    durations = telemetry.points("holdfast.checkpoint.duration")
    (point,) = [
        each
        for key, each in durations.items()
        if dict(key) == {"op": "put", "ok": True, "thread_id": "b"}
    ]
    assert point.count == 10
    assert 0 < point.sum < 60


def test_spans_are_children_of_the_callers_span(observed, telemetry):
    with telemetry.tracer.start_as_current_span("blocking"):
        put(observed, plan="x")

    async def ask():
        with telemetry.tracer.start_as_current_span("async"):
            await observed.aget_tuple(at())

    run_async(ask())
    spans = {each.name: each for each in telemetry.spans()}
    for inner, outer in (("put", "blocking"), ("get_tuple", "async")):
        parent = spans[f"holdfast.checkpoint.{inner}"].parent
        assert parent.span_id == spans[outer].context.span_id


def test_a_failed_operation_is_recorded_as_an_error(observed, telemetry):
    with pytest.raises(UnsupportedValueError):
        put(observed, plan=object())
    (span,) = telemetry.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert [each.name for each in span.events] == ["exception"]
    assert telemetry.counts() == {("put", "t", False): 1}


def test_sinks_of_swarmstate_work_too(telemetry):
    metrics = InMemoryMetrics()
    with HoldfastSaver.from_url("memory:", metrics=metrics) as saver:
        put(saver, plan="x")
        saver.get_tuple(at())
        with pytest.raises(UnsupportedValueError):
            put(saver, plan=object())
    found = metrics.summary()
    assert (found["put"]["count"], found["put"]["errors"]) == (2, 1)
    assert (found["get_tuple"]["count"], found["get_tuple"]["errors"]) == (1, 0)
    with HoldfastSaver.from_url("memory:", metrics=OpenTelemetryMetrics(telemetry.meter)) as saver:
        put(saver, plan="x")
    assert telemetry.points("swarmstate.checkpoint.operations")


def test_the_span_of_list_ends_before_its_first_row(observed, telemetry):
    for _ in range(3):
        put(observed, plan="x")
    rows = observed.list(at())
    next(rows)
    assert telemetry.spans()[-1].name == "holdfast.checkpoint.list"
    rows.close()


@pytest.mark.parametrize("option", ["metrics", "tracer"])
def test_an_invalid_meter_or_tracer_is_refused(option):
    with pytest.raises(TypeError, match=f"{option} must .*, got 5"):
        HoldfastSaver(open_state_store("memory:"), **{option: 5})


def test_opentelemetry_is_not_imported_by_the_adapter():
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.partition('.')[0] == 'opentelemetry':\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from holdfast.adapters.langgraph import HoldfastSaver\n"
        "HoldfastSaver.from_url('memory:').close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
