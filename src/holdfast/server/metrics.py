"""Prometheus metrics of one app."""

from __future__ import annotations

import os
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import holdfast

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Metrics:
    """The metrics of one app, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "holdfast_http_requests",
            "Requests served.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "holdfast_http_request_duration_seconds",
            "Time until the end of the response.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._changes = Counter(
            "holdfast_sessions_changed",
            "Changes to sessions.",
            ("act",),
            registry=self._registry,
        )
        self._counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """The metrics of a method, route and status: finding them takes longer than counting."""
        version = Gauge(
            "holdfast_info", "Version information.", ("version",), registry=self._registry
        )
        version.labels(holdfast.__version__).set(1)
        process = Gauge(
            "holdfast_process_id",
            "The process that answered; each worker counts its own requests.",
            registry=self._registry,
        )
        process.set_function(os.getpid)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request. Unknown methods and routes share one label."""
        counted = self._counted.get((method, route, status))
        if counted is None:
            known = method if method in METHODS else "other"
            counted = (
                self._requests.labels(known, route, status),
                self._seconds.labels(known, route),
            )
            if known == method:
                self._counted[method, route, status] = counted
        requests, durations = counted
        requests.inc()
        durations.observe(seconds)

    def watch_streams(self, count: Callable[[], int]) -> None:
        """Report the number of open event streams, which a function returns."""
        streams = Gauge(
            "holdfast_event_streams", "Open event streams of this process.", registry=self._registry
        )
        streams.set_function(count)

    def count_change(self, act: str) -> None:
        """Count a change to a session: saved, restored, forked, imported, and so on."""
        self._changes.labels(act).inc()

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)
