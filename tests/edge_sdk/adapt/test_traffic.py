"""What methods send, expected and measured."""

from __future__ import annotations

import pytest

from edge_sdk.adapt.traffic import EXPECTED, Traffic
from edge_sdk.decoding.registry import METHODS


def test_expected_methods_exist_and_are_lossless() -> None:
    for name in EXPECTED:
        assert METHODS[name].lossless
        assert METHODS[name].drafts


def test_what_is_measured_replaces_what_was_expected() -> None:
    traffic = Traffic("hybrid")
    for tokens in (1, 2, 4, 8) * 10:
        traffic.note(up_bytes=100 + 12 * tokens, down_bytes=60, tokens=tokens)
    assert traffic.up == pytest.approx((100, 12), rel=0.02)
    assert traffic.down == pytest.approx(60)


def test_framing_is_taken_over_and_bodies_are_not() -> None:
    hybrid = Traffic("hybrid")
    for _ in range(30):
        hybrid.note(up_bytes=133, down_bytes=49, tokens=4)
    coupled = Traffic("coupled", like=hybrid)
    assert coupled.up[0] == pytest.approx(100, abs=5)
    assert coupled.down == pytest.approx(30 + EXPECTED["coupled"].reply_bytes)
    for _ in range(30):
        hybrid.note(up_bytes=133, down_bytes=20_000, tokens=4)
    assert Traffic("coupled", like=hybrid).down < 200
