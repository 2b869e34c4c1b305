"""Figures for Prometheus, of one app: how many requests, how long they took, what they did."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import holdfast

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Metrics:
    """The figures of one app, apart from those of others in the same process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "holdfast_http_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "holdfast_http_request_duration_seconds",
            "Time until the end of the answer.",
            ("method", "route"),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._acts = Counter(
            "holdfast_sessions_changed",
            "What was done to sessions.",
            ("act",),
            registry=self._registry,
        )
        version = Gauge(
            "holdfast_info", "The version that runs.", ("version",), registry=self._registry
        )
        version.labels(holdfast.__version__).set(1)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request. Methods and routes are known ones, so that nobody can make up labels."""
        method = method if method in METHODS else "other"
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)

    def acted(self, act: str) -> None:
        """One change to a session: saved, restored, forked, imported, deleted."""
        self._acts.labels(act).inc()

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)
