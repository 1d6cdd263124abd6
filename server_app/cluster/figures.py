"""The figures of all replicas on one page for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LABEL = "replica"


class _Merged(Collector):
    def __init__(self, pages: Mapping[str, str]) -> None:
        self._pages = pages

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for replica, page in self._pages.items():
            for family in text_string_to_metric_families(page):
                merged = families.get(family.name)
                if merged is None:
                    merged = Metric(family.name, family.documentation, family.type)
                    families[family.name] = merged
                for sample in family.samples:
                    labels = {**sample.labels, LABEL: replica}
                    merged.add_sample(sample.name, labels, sample.value)
        yield from families.values()


def merged(pages: Mapping[str, str]) -> bytes:
    """One page in the Prometheus text format out of one a replica; each sample gets a label with
    the replica's name."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(pages))
    return generate_latest(registry)
