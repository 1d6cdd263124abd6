"""What a host holds at the moment, read when metrics are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from server_app.host import Host


class HostState(Collector):
    """Gauges of a host; a figure that its target or engine does not offer is left out."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def collect(self) -> Iterator[Metric]:
        host = self._host
        engine, target = host.engine, host.target
        figures: list[tuple[str, str, float | None]] = [
            ("cosd_sessions", "Sessions held.", host.sessions),
            (
                "cosd_ready",
                "1 while new sessions are taken, else 0.",
                float(engine.alive and not host.draining),
            ),
            (
                "cosd_engine_heartbeat_age_seconds",
                "Time since the engine thread last went round.",
                engine.heartbeat_age,
            ),
            ("cosd_queue_length", "Requests that wait for a step.", _figure(engine, "waiting")),
            ("cosd_cache_tokens", "Tokens held in the cache.", _figure(target, "cache_used")),
            (
                "cosd_cache_tokens_limit",
                "Most tokens that the cache can hold.",
                _figure(target, "cache_limit"),
            ),
        ]
        for name, text, value in figures:
            if value is not None:
                yield GaugeMetricFamily(name, text, value=value)


def _figure(owner: object, name: str) -> float | None:
    value = getattr(owner, name, None)
    return float(value) if isinstance(value, int | float) else None
