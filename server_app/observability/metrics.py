"""Prometheus metrics of one server.

Label values are bounded: routes are templates, codes come from the error tree, methods from
the registry, HTTP verbs and eviction reasons from fixed lists. docs/operate.md explains each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from edge_sdk.errors import CosdError
from server_app.engine.observer import Observer, StepReport

OTHER: Final = "other"

_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG = (*_SHORT, 10.0, 30.0, 60.0, 300.0)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_ACCEPTED = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64)
_VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})
_REASONS = frozenset({"ttl", "limit"})

# Times at which series began would double their number, and nobody asks for them.
_without_created: Callable[[], None] = disable_created_metrics
_without_created()


class Metrics(Observer):
    """Counts what the engine, the host and the requests report.

    Args:
        methods: names of the decoding methods that are served.

    Attributes:
        registry: holds the metrics of this server alone, so that one process can run several.
    """

    def __init__(self, methods: Iterable[str]) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

        def histogram(
            name: str, text: str, buckets: Collection[float], labels: Collection[str] = ()
        ) -> Histogram:
            return Histogram(name, text, labels, buckets=tuple(buckets), registry=registry)

        def counter(name: str, text: str, labels: Collection[str] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, registry=registry)

        self._queue_wait = histogram(
            "cosd_queue_wait_seconds", "Time from handing a request in to its first step.", _LONG
        )
        self._step = histogram("cosd_step_seconds", "Time of a whole engine step.", _SHORT)
        self._forward = histogram(
            "cosd_forward_seconds", "Time of the forward pass of a step.", _SHORT
        )
        self._outside = histogram(
            "cosd_step_outside_forward_seconds", "Step time outside of the forward pass.", _SHORT
        )
        self._tokens = histogram("cosd_step_tokens", "Tokens fed by a step.", _TOKENS)
        self._rows = histogram("cosd_step_rows", "Rows of logits of a step.", _TOKENS)
        works = counter("cosd_works_total", "Works carried on by steps, by kind.", ("kind",))
        self._prefills, self._verifies = works.labels("prefill"), works.labels("verify")

        names = tuple(methods)
        accepted_length = histogram(
            "cosd_accepted_length", "Accepted drafted tokens of a block.", _ACCEPTED, ("method",)
        )
        drafted = counter("cosd_drafted_tokens_total", "Tokens drafted by devices.", ("method",))
        examined = counter(
            "cosd_examined_tokens_total", "Drafted tokens that were examined.", ("method",)
        )
        accepted = counter(
            "cosd_accepted_tokens_total", "Drafted tokens that were accepted.", ("method",)
        )
        stale = counter(
            "cosd_stale_blocks_total", "Blocks dropped without computation.", ("method",)
        )
        self._blocks = {
            name: (
                accepted_length.labels(name),
                drafted.labels(name),
                examined.labels(name),
                accepted.labels(name),
            )
            for name in (*names, OTHER)
        }
        self._stale = {name: stale.labels(name) for name in (*names, OTHER)}

        evicted = counter("cosd_sessions_evicted_total", "Sessions dropped, by why.", ("reason",))
        self._evicted = {reason: evicted.labels(reason) for reason in (*_REASONS, OTHER)}
        self._cache_evictions = counter(
            "cosd_cache_evictions_total", "Idle sessions whose cache was dropped to make room."
        )
        self._cache_evicted = counter(
            "cosd_cache_evicted_tokens_total", "Cached tokens dropped to make room."
        )
        self._shared = counter(
            "cosd_prefix_shared_tokens_total", "Prompt tokens taken from another session's cache."
        )
        self._faults = counter("cosd_faults_total", "Requests on which the model raised.")

        codes = sorted(_codes(CosdError))
        errors = counter("cosd_errors_total", "Errors told to clients, by code.", ("code",))
        self._errors = {code: errors.labels(code) for code in (*codes, OTHER)}
        self._requests = counter(
            "cosd_requests_total", "HTTP requests answered.", ("verb", "route", "status")
        )
        self._request_seconds = histogram(
            "cosd_request_seconds",
            "Time of an HTTP request, the whole stream included.",
            _LONG,
            ("verb", "route"),
        )
        self.requests_in_flight = gauge("cosd_requests_in_flight", "HTTP requests under way.")
        self.websocket_connections = gauge(
            "cosd_websocket_connections", "WebSocket connections open."
        )

    def step(self, report: StepReport) -> None:
        for wait in report.waits:
            self._queue_wait.observe(wait)
        self._step.observe(report.seconds)
        self._forward.observe(report.forward_seconds)
        self._outside.observe(max(report.seconds - report.forward_seconds, 0.0))
        self._tokens.observe(report.tokens)
        self._rows.observe(report.rows)
        self._prefills.inc(report.prefills)
        self._verifies.inc(report.verifies)

    def verdict(self, method: str, drafted: int, examined: int, accepted: int) -> None:
        length, *counts = self._blocks.get(method) or self._blocks[OTHER]
        length.observe(accepted)
        for count, tokens in zip(counts, (drafted, examined, accepted), strict=True):
            count.inc(tokens)

    def stale(self, method: str) -> None:
        (self._stale.get(method) or self._stale[OTHER]).inc()

    def session_evicted(self, reason: str) -> None:
        (self._evicted.get(reason) or self._evicted[OTHER]).inc()

    def cache_evicted(self, tokens: int) -> None:
        self._cache_evictions.inc()
        self._cache_evicted.inc(tokens)

    def prefix_shared(self, tokens: int) -> None:
        self._shared.inc(tokens)

    def fault(self) -> None:
        self._faults.inc()

    def error(self, code: str) -> None:
        """An error was told to a client."""
        (self._errors.get(code) or self._errors[OTHER]).inc()

    def request(self, verb: str, route: str, status: int, seconds: float) -> None:
        """A request is done.

        Args:
            route: its template, or a fixed word where none matched.
            status: 0 where nothing was answered.
        """
        verb = verb if verb in _VERBS else OTHER
        self._requests.labels(verb, route, str(status)).inc()
        self._request_seconds.labels(verb, route).observe(seconds)


def _codes(cls: type[CosdError]) -> set[str]:
    return {cls.code}.union(*map(_codes, cls.__subclasses__()))
