"""What is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from harness.raw import KEY, Raw, block, in_process, opening
from harness.serving import PROMPT, toy_target, until
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from edge_sdk.errors import CosdError
from edge_sdk.wire import Generate, Verdict, decode
from edge_sdk.wire.limits import MAX_REPLY_BODY
from server_app.app import create_app
from server_app.engine.observer import StepReport
from server_app.methods.registry import SERVER_HALVES
from server_app.observability.metrics import Metrics
from server_app.settings import Settings


async def scrape(raw: Raw) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    reply = await raw.send("GET", "/metrics")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain")
    return samples(reply.text)


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def of(figures: dict[Any, float], name: str, **labels: str) -> float:
    return figures[(name, tuple(sorted(labels.items())))]


async def test_a_session_is_counted() -> None:
    async with in_process() as raw:
        path = await raw.open(method="greedy")
        reply = await raw.send("POST", f"{path}/verify", block(1, 2, 3, q=None))
        verdict = decode(Verdict, reply.content, limit=MAX_REPLY_BODY)
        figures = await scrape(raw)
        assert of(figures, "cosd_drafted_tokens_total", method="greedy") == 3
        examined = min(verdict.accepted + 1, 3)
        assert of(figures, "cosd_examined_tokens_total", method="greedy") == examined
        assert of(figures, "cosd_accepted_tokens_total", method="greedy") == verdict.accepted
        assert of(figures, "cosd_accepted_length_count", method="greedy") == 1
        assert of(figures, "cosd_accepted_length_sum", method="greedy") == verdict.accepted
        assert of(figures, "cosd_works_total", kind="verify") == 1
        assert of(figures, "cosd_step_seconds_count") >= 1
        # Rows after a refusal are not computed.
        assert of(figures, "cosd_step_rows_sum") == min(verdict.accepted + 1, 4)
        assert of(figures, "cosd_step_tokens_sum") == len(raw.target.encode(PROMPT)) + 3
        assert of(figures, "cosd_queue_wait_seconds_count") >= 1
        spent = of(figures, "cosd_forward_seconds_sum")
        outside = of(figures, "cosd_step_outside_forward_seconds_sum")
        assert spent > 0
        assert outside > 0
        assert spent + outside == pytest.approx(of(figures, "cosd_step_seconds_sum"))
        assert of(figures, "cosd_sessions") == 1
        assert of(figures, "cosd_ready") == 1
        assert of(figures, "cosd_cache_tokens") > 0
        assert of(figures, "cosd_cache_tokens_limit") == raw.target.cache_limit
        assert of(figures, "cosd_requests_in_flight") == 1  # the scrape itself
        route = "/v1/sessions/{session_id}/verify"
        assert of(figures, "cosd_requests_total", verb="POST", route=route, status="200") == 1
        assert of(figures, "cosd_request_seconds_count", verb="POST", route=route) == 1


async def test_errors_are_counted_by_code(raw: Raw) -> None:
    lost = f"/v1/sessions/{'1' * 32}/verify"
    assert (await raw.send("POST", lost, block())).status_code == 410
    assert (await raw.send("POST", lost, b"\xc1")).status_code == 422
    assert (await raw.send("GET", "/v1/models", key="wrong")).status_code == 401
    assert (await raw.send("GET", "/no/such/thing")).status_code == 404
    figures = await scrape(raw)
    for code in ("session_lost", "malformed_message", "unauthorized", "not_found"):
        assert of(figures, "cosd_errors_total", code=code) == 1, code


async def test_an_error_inside_a_stream_is_counted() -> None:
    async with in_process(seconds_per_pass=0.001) as raw:
        path = await raw.open(method="autoregressive", max_tokens=4000, pair_id=None)
        task = asyncio.create_task(raw.send("POST", f"{path}/generate", Generate(0)))
        await until(lambda: raw.target.passes > 3)
        raw.host.draining = raw.host.closing = True
        await task
        figures = await scrape(raw)
    assert of(figures, "cosd_errors_total", code="server_away") == 1
    assert of(figures, "cosd_ready") == 0


async def test_evictions_and_shared_prefixes() -> None:
    async with in_process() as raw:
        raw.host._sessions._limit = 2
        first = await raw.open()
        await raw.send("POST", f"{first}/verify", block())
        for _ in range(3):
            await raw.open()
        figures = await scrape(raw)
    assert of(figures, "cosd_sessions_evicted_total", reason="limit") == 2
    assert of(figures, "cosd_prefix_shared_tokens_total") >= 0


async def test_labels_are_bounded(raw: Raw) -> None:
    before = len(await scrape(raw))
    for number in range(30):
        await raw.send("GET", f"/v1/sessions/{number:032x}/verify")
        await raw.send(f"VERB{number}", f"/nowhere/{number}")
        await raw.send("DELETE", f"/v1/sessions/{number:032x}")
        await raw.send("PUT", f"/v1/sessions/{number:032x}", opening(method=f"magic{number}"))
    first = len(await scrape(raw))
    assert first > before
    for number in range(30, 60):
        await raw.send("GET", f"/v1/sessions/{number:032x}/verify")
        await raw.send(f"VERB{number}", f"/nowhere/{number}")
        await raw.send("DELETE", f"/v1/sessions/{number:032x}")
        await raw.send("PUT", f"/v1/sessions/{number:032x}", opening(method=f"magic{number}"))
    figures = await scrape(raw)
    assert len(figures) == first
    assert not any(f"{59:032x}" in value for _, labels in figures for _, value in labels)


def test_names_that_are_not_known_are_one() -> None:
    metrics = Metrics(("greedy",))
    for name in ("magic", "more magic"):
        metrics.verdict(name, 2, 2, 1)
        metrics.stale(name)
        metrics.session_evicted(name)
        metrics.error(name)
    values = {
        (s.name, tuple(s.labels.values())): s.value
        for family in metrics.registry.collect()
        for s in family.samples
    }
    assert values["cosd_accepted_tokens_total", ("other",)] == 2
    assert values["cosd_stale_blocks_total", ("other",)] == 2
    assert values["cosd_sessions_evicted_total", ("other",)] == 2
    assert values["cosd_errors_total", ("other",)] == 2
    assert not any("magic" in label for _, labels in values for label in labels)


def test_every_method_and_code_begins_at_zero() -> None:
    """So that a rate is right from the first event on."""
    metrics = Metrics(SERVER_HALVES)
    seen = {
        (s.name, *s.labels.values())
        for family in metrics.registry.collect()
        for s in family.samples
    }
    assert {("cosd_drafted_tokens_total", name) for name in SERVER_HALVES} <= seen
    codes = {cls.code for cls in CosdError.__subclasses__()}
    assert {("cosd_errors_total", code) for code in codes} <= seen
    assert {("cosd_sessions_evicted_total", reason) for reason in ("ttl", "limit")} <= seen


def test_a_step_that_was_shorter_than_its_pass_counts_as_none_outside() -> None:
    metrics = Metrics(())
    metrics.step(StepReport(1, 2, 30, 4, forward_seconds=0.2, seconds=0.1999, waits=(0.5, 0.25)))
    value = metrics.registry.get_sample_value
    assert value("cosd_step_outside_forward_seconds_sum") == 0
    assert value("cosd_queue_wait_seconds_sum") == 0.75
    assert (value("cosd_step_tokens_sum"), value("cosd_step_rows_sum")) == (30, 4)
    assert value("cosd_works_total", {"kind": "prefill"}) == 1
    assert value("cosd_works_total", {"kind": "verify"}) == 2


@pytest.mark.parametrize(
    ("settings", "key", "status"),
    [
        ({}, None, 200),
        ({"api_keys": KEY}, None, 401),
        ({"api_keys": KEY}, KEY, 200),
        ({"api_keys": KEY, "metrics_open": True}, None, 200),
        ({"api_keys": KEY, "metrics_key": SecretStr("watch")}, KEY, 401),
        ({"api_keys": KEY, "metrics_key": SecretStr("watch")}, "watch", 200),
        ({"metrics_key": SecretStr("watch")}, None, 401),
    ],
)
async def test_who_may_read_metrics(settings: dict[str, Any], key: str | None, status: int) -> None:
    app = create_app(toy_target(), Settings(target="toy:1", **settings))
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://cosd", headers=headers) as client,
    ):
        reply = await client.get("/metrics")
        assert reply.status_code == status
        if key is not None and status == 401:
            assert "COSD_METRICS_KEY" in reply.text
        if key == "watch":
            expected = 401 if settings.get("api_keys") else 200
            assert (await client.get("/v1/models")).status_code == expected
