"""Spans and metrics of the saver's operations, sent to objects that the user passes in.

OpenTelemetry is not imported: a tracer and a meter are used through their methods, so the package
stays optional. A sink with the ``record`` method of swarmstate's saver works as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, runtime_checkable

from holdfast.errors import short_repr

PREFIX = "holdfast.checkpoint"
NO_OPERATION: AbstractContextManager[None] = nullcontext()


@runtime_checkable
class MetricsSink(Protocol):
    """Receives one measurement per operation."""

    def record(self, op: str, duration_s: float, *, thread_id: str, ok: bool) -> None:
        """Record an operation, its duration in seconds, and whether it succeeded.

        ``thread_id`` is empty for an operation on all threads.
        """


@runtime_checkable
class Tracer(Protocol):
    """The methods of an OpenTelemetry tracer that are used."""

    def start_as_current_span(self, name: str) -> AbstractContextManager[Any]:
        """Start a span that ends with the block and records its exception."""


@runtime_checkable
class Meter(Protocol):
    """The methods of an OpenTelemetry meter that are used."""

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        """Create a counter."""

    def create_histogram(self, name: str, unit: str = "", description: str = "") -> Any:
        """Create a histogram."""


class MeterSink:
    """Counts and times operations with an OpenTelemetry meter."""

    def __init__(self, meter: Meter) -> None:
        self._operations = meter.create_counter(
            f"{PREFIX}.operations", unit="1", description="Operations of the checkpointer."
        )
        self._duration = meter.create_histogram(
            f"{PREFIX}.duration", unit="s", description="Duration of the checkpointer's operations."
        )

    def record(self, op: str, duration_s: float, *, thread_id: str, ok: bool) -> None:
        """Count an operation and its duration."""
        attributes: dict[str, Any] = {"op": op, "ok": ok}
        if thread_id:
            attributes["thread_id"] = thread_id
        self._operations.add(1, attributes)
        self._duration.record(duration_s, attributes)


class Observer:
    """Traces and measures operations with the given tracer and metrics, if any."""

    def __init__(self, metrics: Meter | MetricsSink | None, tracer: Tracer | None) -> None:
        sink: MetricsSink | None
        if metrics is None or isinstance(metrics, MetricsSink):
            sink = metrics
        elif isinstance(metrics, Meter):
            sink = MeterSink(metrics)
        else:
            raise TypeError(
                "metrics must be an OpenTelemetry meter or have a method record(op, duration_s, *, "
                f"thread_id, ok), got {short_repr(metrics)}"
            )
        if tracer is not None and not isinstance(tracer, Tracer):
            raise TypeError(f"tracer must be an OpenTelemetry tracer, got {short_repr(tracer)}")
        self._sink = sink
        self._tracer = tracer

    def operation(
        self, op: str, thread_id: str | None = None, **attributes: Any
    ) -> AbstractContextManager[None]:
        """Observe the operation in a block; attributes that are None are omitted."""
        if self._sink is None and self._tracer is None:
            return NO_OPERATION
        return self._observe(op, thread_id or "", {"thread_id": thread_id, **attributes})

    @contextmanager
    def _observe(self, op: str, thread_id: str, attributes: Mapping[str, Any]) -> Iterator[None]:
        tracer = self._tracer
        start = time.perf_counter()
        ok = False
        try:
            if tracer is None:
                yield
            else:
                with tracer.start_as_current_span(f"{PREFIX}.{op}") as span:
                    for name, value in attributes.items():
                        if value is not None:
                            span.set_attribute(f"holdfast.{name}", value)
                    yield
            ok = True
        finally:
            if self._sink is not None:
                duration = time.perf_counter() - start
                self._sink.record(op, duration, thread_id=thread_id, ok=ok)
