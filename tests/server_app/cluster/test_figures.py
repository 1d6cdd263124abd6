"""Pages of several replicas as one."""

from __future__ import annotations

from harness.serving import toy_target
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from server_app.app import create_app
from server_app.cluster.figures import merged
from server_app.settings import Settings


def samples(page: str) -> list[tuple[str, tuple[tuple[str, str], ...], float]]:
    return [
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]


def test_each_sample_of_each_page_is_there_under_its_replica() -> None:
    pages = {}
    for number, name in enumerate(("one", "two")):
        metrics = create_app(toy_target(), Settings(target="toy:1")).state.metrics
        for _ in range(number + 1):
            metrics.session_evicted("ttl")
        pages[name] = generate_latest(metrics.registry).decode()
    together = merged(pages).decode()
    expected = [
        (name, (*sorted((*labels, ("replica", replica))),), value)
        for replica, page in pages.items()
        for name, labels, value in samples(page)
    ]
    assert sorted(samples(together)) == sorted(expected)
    assert 'cosd_sessions_evicted_total{reason="ttl",replica="two"} 2.0' in together
    assert together.count("# TYPE cosd_sessions_evicted_total counter") == 1


def test_no_replica_is_an_empty_page() -> None:
    assert merged({}) == b""
