"""What turnlog counts, for Prometheus."""

import os
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

# Where several server processes keep their counts, so that whichever is scraped answers for all.
SHARED_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"


class Meter:
    """The counters of one process."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self._requests = Histogram(
            "turnlog_request_seconds", "Time to answer a request", ["method", "route", "status"], registry=r
        )
        self._appended = Counter("turnlog_events_appended", "Events stored", registry=r)
        self._views = Counter("turnlog_views_read", "Views read", ["format"], registry=r)
        self._compactions = Counter("turnlog_compactions", "Compactions by outcome", ["status", "reason"], registry=r)
        self._summaries = Histogram(
            "turnlog_summary_seconds",
            "Time of a compaction that called the model, by outcome",
            ["status"],
            buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, float("inf")),
            registry=r,
        )
        self._summary_tokens = Counter(
            "turnlog_summary_tokens", "Tokens that the provider counted", ["direction"], registry=r
        )
        self._due = Gauge(
            "turnlog_sessions_due",
            "Sessions whose trigger fires, as of the newest run of the fleet",
            ["state"],
            registry=r,
            multiprocess_mode="mostrecent",
        )
        self._pool = Gauge(
            "turnlog_pool_connections", "Connections in use", ["pool"], registry=r, multiprocess_mode="livesum"
        )

    def answered(self, *, method: str, route: str, status: int, seconds: float) -> None:
        """Take note of a request; ``route`` is the template, so that ids make no series of their own."""
        self._requests.labels(method, route, str(status)).observe(seconds)

    def appended(self, events: int) -> None:
        """Take note of stored events."""
        self._appended.inc(events)

    def read(self, output: str) -> None:
        """Take note of a view that was read, by format."""
        self._views.labels(output).inc()

    def compacted(self, status: str, reason: str | None) -> None:
        """Take note of how a compaction ended."""
        self._compactions.labels(status, reason or "").inc()

    def summarized(self, *, status: str, seconds: float, input_tokens: int, output_tokens: int) -> None:
        """Take note of how an attempt that called the model ended, and what it cost."""
        self._summaries.labels(status).observe(seconds)
        self._summary_tokens.labels("input").inc(input_tokens)
        self._summary_tokens.labels("output").inc(output_tokens)

    def fleet(self, *, due: int, deferred: int) -> None:
        """Take note of how many sessions are due, and how many more wait or are being worked on."""
        self._due.labels("due").set(due)
        self._due.labels("deferred").set(deferred)

    def pools(self, in_use: dict[str, int]) -> None:
        """Take note of how many connections of each pool are in use."""
        for pool, count in in_use.items():
            self._pool.labels(pool).set(count)

    def exposition(self) -> bytes:
        """Return everything counted so far, of all server processes, in Prometheus's text format."""
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self.registry)
        everyone = CollectorRegistry()
        MultiProcessCollector(everyone)  # type: ignore[no-untyped-call]
        return generate_latest(everyone)
