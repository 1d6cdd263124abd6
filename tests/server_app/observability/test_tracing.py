"""Spans of requests and steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import httpx
import pytest
from harness.raw import KEY, block, opening
from harness.serving import toy_target
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import SecretStr

from edge_sdk.wire import Prompt, encode
from server_app import app as app_module
from server_app.app import create_app
from server_app.observability.tracing import Tracing, _destination
from server_app.settings import Settings

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def spans_of_a_round(monkeypatch: pytest.MonkeyPatch) -> Sequence[ReadableSpan]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(app_module, "_tracing", lambda: Tracing(provider))
    settings = Settings(target="toy:1", telemetry=True, api_keys=(SecretStr(KEY),))
    app = create_app(toy_target(), settings)
    transport = httpx.ASGITransport(app=app)
    headers = {"authorization": f"Bearer {KEY}", "traceparent": PARENT}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client,
    ):
        path = f"/v1/sessions/{'7' * 32}"
        message = opening(method="greedy", pair_id=None, prompt=Prompt(text="secret words"))
        assert (await client.put(path, content=encode(message))).status_code == 200
        body = encode(block(q=None))
        assert (await client.post(f"{path}/verify", content=body)).status_code == 200
        assert (await client.get("/v1/vocabularies/none")).status_code == 404
    return exporter.get_finished_spans()


async def test_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = await spans_of_a_round(monkeypatch)
    by_name = {span.name: span for span in spans}
    verify = by_name["POST /v1/sessions/{session_id}/verify"]
    assert verify.context is not None
    assert f"{verify.context.trace_id:032x}" == PARENT.split("-")[1]
    assert verify.parent is not None
    assert f"{verify.parent.span_id:016x}" == PARENT.split("-")[2]
    assert verify.attributes is not None
    assert verify.attributes["http.response.status_code"] == 200
    assert verify.attributes["cosd.tokens"] == 1
    assert verify.attributes["cosd.session"] == "7" * 8
    step = by_name["step"]
    assert step.attributes is not None
    assert step.attributes["cosd.tokens"] > 0
    assert step.start_time is not None
    assert step.end_time is not None
    assert step.end_time - step.start_time >= step.attributes["cosd.forward_seconds"] * 1e9 - 1
    wait = by_name["queue wait"]
    assert wait.parent is not None
    steps = {span.context.span_id: span for span in spans if span.name == "step" and span.context}
    assert wait.end_time == steps[wait.parent.span_id].start_time
    assert "GET /v1/vocabularies/{fingerprint}" in by_name


async def test_spans_hold_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "".join(span.to_json() for span in await spans_of_a_round(monkeypatch))
    for secret in ("secret", "words", KEY, "7" * 9):
        assert secret not in told


RUN = "from edge_sdk.cli.main import main; raise SystemExit(main())"


@pytest.mark.parametrize("absent", ["opentelemetry.exporter", "opentelemetry.sdk"])
def test_without_the_extra_it_is_one_sentence(absent: str) -> None:
    code = f"import sys; sys.modules[{absent!r}] = None; {RUN}"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "toy:1", "--telemetry", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "pip install 'edge-cosd[telemetry]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_without_it_does_not_even_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "server_app.observability.tracing", None)
    create_app(toy_target(), Settings(target="toy:1"))
    with pytest.raises(ModuleNotFoundError):
        create_app(toy_target(), Settings(target="toy:1", telemetry=True))


def test_where_spans_go_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    general, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    for name in (general, traces):
        monkeypatch.delenv(name, raising=False)
    assert _destination() == f"http://localhost:4318, since {general} is not set"
    monkeypatch.setenv(general, "https://me:secret@otel.example:4318")
    assert _destination() == f"https://otel.example:4318 ({general})"
    monkeypatch.setenv(traces, "http://other/v1/traces")
    assert _destination() == f"http://other/v1/traces ({traces})"
