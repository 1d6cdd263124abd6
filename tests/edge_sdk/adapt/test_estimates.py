"""What things take, learnt from noisy samples."""

from __future__ import annotations

import numpy as np
import pytest

from edge_sdk.adapt.estimates import Line, Mean
from edge_sdk.adapt.times import Times
from edge_sdk.adapt.traffic import Traffic


def link() -> Line:
    return Line((0.05, 8e-7), (1.0, 1e-4), floor=3e-4)


def test_the_first_value_of_a_mean_counts_whole() -> None:
    mean = Mean(5.0, memory=10)
    assert not mean.known
    mean.note(1.0)
    assert mean.value == 1.0
    for _ in range(100):
        mean.note(2.0)
    assert mean.value == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_changes_nothing(value: float) -> None:
    mean, line = Mean(5.0), link()
    mean.note(value)
    before = line.values
    line.note((1.0, 300.0), value)
    line.note((1.0, 300.0), -1.0)
    assert mean.value == 5.0
    assert line.values == before


def test_a_line_finds_round_trip_and_rate_in_jitter() -> None:
    rng, line = np.random.default_rng(1), link()
    for _ in range(200):
        size = float(rng.integers(200, 900))
        line.note((1.0, size), 0.02 + size * 8e-5 + float(rng.normal(0, 5e-4)))
    constant, slope = line.values
    assert constant == pytest.approx(0.02, rel=0.1)
    assert slope == pytest.approx(8e-5, rel=0.05)


def test_without_variety_a_line_still_foretells() -> None:
    line = link()
    for _ in range(30):
        line.note((1.0, 300.0), 0.1)
    assert line.at(1.0, 300.0) == pytest.approx(0.1, rel=0.01)
    assert min(line.values) >= 0


def test_one_far_value_is_not_believed_and_two_are() -> None:
    line = link()
    for _ in range(40):
        line.note((1.0, 300.0), 0.02)
    assert not line.note((1.0, 300.0), 1.0)
    assert line.at(1.0, 300.0) < 0.03
    assert not line.note((1.0, 300.0), 0.02)
    assert not line.note((1.0, 300.0), 0.4)
    assert line.note((1.0, 300.0), 0.4)
    for _ in range(5):
        line.note((1.0, 300.0), 0.4)
    assert line.at(1.0, 300.0) == pytest.approx(0.4, rel=0.02)


def test_what_queued_counts_only_if_it_was_fast() -> None:
    times, traffic = Times(), Traffic("hybrid")
    for _ in range(20):
        times.exchange(seconds=0.05, up_bytes=300, down_bytes=170)
    before = times.costs(traffic)
    times.queued(seconds=0.2, up_bytes=300, down_bytes=170)
    assert times.costs(traffic) == before
    for _ in range(20):
        times.queued(seconds=0.01, up_bytes=300, down_bytes=170)
    assert times.costs(traffic).round_trip < 0.02


def test_plain_decoding_follows_the_target_until_it_is_measured_again() -> None:
    times, traffic = Times(), Traffic("hybrid")
    for _ in range(30):
        times.verified(seconds=0.04, tokens=0)
    assert times.costs(traffic).alone == pytest.approx(0.04, rel=0.02)
    times.streamed(tokens=101, seconds=3.1, first_seconds=0.1)
    assert times.costs(traffic).alone == pytest.approx(0.03)
    for _ in range(100):
        times.verified(seconds=0.08, tokens=0)
    assert times.costs(traffic).alone == pytest.approx(0.06, rel=0.05)
