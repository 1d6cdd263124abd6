"""What a client learns of its link, and what `candidates` makes of it."""

from __future__ import annotations

import pytest

from edge_sdk.decoding.candidates import Candidates
from edge_sdk.link import Link, LinkMeter


def test_the_best_exchange_counts() -> None:
    meter = LinkMeter()
    assert meter.link == Link()
    for seconds in (0.05, 0.02, 0.3):
        meter.note(seconds, 500)
    meter.note(1.02, 1_000_000)
    meter.note(2.02, 1_000_000)
    assert meter.link.round_trip == 0.02
    assert meter.link.bits_per_second == pytest.approx(8e6)


def test_candidates_weigh_a_trip_by_the_link() -> None:
    near, far = Link(0.001, 100e6), Link(0.1, 1e6)
    assert Candidates().over(near) == Candidates(trip=1024)
    assert Candidates().over(far) == Candidates(trip=1024)
    assert Candidates().over(Link(0.001, 1e6)) == Candidates(trip=18)
    assert Candidates().over(Link()) == Candidates(trip=4)
    assert Candidates(trip=7).over(far) == Candidates(trip=7)
