"""What a host holds at the moment, read when metrics are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from server_app.host import Host


class HostState(Collector):
    """Gauges of a host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        host = self._host
        engine, target = host.engine, host.target
        figures: list[tuple[str, str, Callable[[], float]]] = [
            ("cosd_sessions", "Sessions held.", lambda: host.sessions),
            (
                "cosd_ready",
                "1 while new sessions are taken, else 0.",
                lambda: engine.alive and not host.draining,
            ),
            (
                "cosd_engine_heartbeat_age_seconds",
                "Time since the engine thread last went round.",
                lambda: engine.heartbeat_age,
            ),
            ("cosd_queue_length", "Requests that wait or are under way.", lambda: engine.waiting),
            ("cosd_cache_tokens", "Tokens that the cache holds.", lambda: target.cache_used),
            (
                "cosd_cache_tokens_limit",
                "Most tokens that the cache can hold.",
                lambda: target.cache_limit,
            ),
        ]
        for name, text, read in figures:
            try:
                value = float(read())
            except RuntimeError:
                # The engine thread changed what was being counted; the next scrape has it.
                continue
            yield GaugeMetricFamily(name, text, value=value)
