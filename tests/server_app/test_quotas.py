"""What one key may use."""

from __future__ import annotations

import pytest

from edge_sdk.errors import RateLimited
from server_app.quotas import KeyLimits, Quotas


def test_requests_a_second() -> None:
    quotas = Quotas(KeyLimits(requests_per_second=5))
    for _ in range(10):  # two seconds' worth may come at once
        quotas.request("a", 100.0)
    with pytest.raises(RateLimited, match="5 requests a second") as error:
        quotas.request("a", 100.0)
    assert error.value.retry_after == pytest.approx(0.2)
    quotas.request("b", 100.0)
    quotas.request("a", 100.21)
    with pytest.raises(RateLimited):
        quotas.request("a", 100.21)


def test_a_slow_rate_lets_one_request_of_many_texts_through() -> None:
    quotas = Quotas(KeyLimits(requests_per_second=0.01))
    for _ in range(8):
        quotas.request("a", 0.0)
    with pytest.raises(RateLimited) as error:
        quotas.request("a", 0.0)
    assert error.value.retry_after == pytest.approx(100)
    tiny = Quotas(KeyLimits(requests_per_second=1e-300))
    for _ in range(8):
        tiny.request("a", 0.0)
    with pytest.raises(RateLimited) as error:
        tiny.request("a", 0.0)
    assert error.value.retry_after == 3600


def test_tokens_in_flight() -> None:
    quotas = Quotas(KeyLimits(tokens_in_flight=100))
    with quotas.in_flight("a", 500):  # alone, even a large one may run
        with pytest.raises(RateLimited, match="in flight"), quotas.in_flight("a", 1):
            pass
        with quotas.in_flight("b", 60), quotas.in_flight("b", 40):
            pass
    with quotas.in_flight("a", 1):
        pass
    assert not quotas._tokens


def test_sessions() -> None:
    quotas = Quotas(KeyLimits(sessions=2))
    quotas.session(1)
    with pytest.raises(RateLimited, match="2 sessions open"):
        quotas.session(2)


def test_no_limits_by_default() -> None:
    quotas = Quotas()
    quotas.session(10**6)
    for _ in range(1000):
        quotas.request("a", 0.0)
    with quotas.in_flight("a", 10**9), quotas.in_flight("a", 10**9):
        pass
