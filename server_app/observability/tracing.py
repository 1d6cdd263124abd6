"""OpenTelemetry spans, where they are asked for.

Nothing here is imported by a server that does not ask. Spans hold route templates, sizes and
times; FastAPI's own spans would hold session ids and are switched off.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from edge_sdk.errors import InvalidRequest
from server_app.engine.observer import Observer, StepReport

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
except ModuleNotFoundError as missing:
    raise InvalidRequest(
        "telemetry needs packages that are not installed; install them with: pip install "
        "'edge-cosd[telemetry]', or leave --telemetry out",
        field="telemetry",
    ) from missing

log = logging.getLogger("server_app")

_NAME = "cosd"
_DESTINATIONS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_USER: Final = re.compile(r"(?<=://)[^/]*@")
_DEFAULT_DESTINATION: Final = "http://localhost:4318"


class Tracing(Observer):
    """Makes spans of requests, of engine steps, and, inside a step, of the wait of each work
    that began in it.

    Args:
        provider: where spans go; by default the global one of the process.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=provider)

    @contextmanager
    def request(self, verb: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """The span of a request, a child of the one its client names in `traceparent`."""
        with self._tracer.start_as_current_span(
            verb,
            context=propagate.extract(headers),
            kind=SpanKind.SERVER,
            # Exceptions may quote a request.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    def answered(
        self, span: Span, verb: str, route: str, status: int, facts: Mapping[str, str | int]
    ) -> None:
        """Complete a request's span."""
        span.update_name(f"{verb} {route}")
        span.set_attribute("http.request.method", verb)
        span.set_attribute("http.route", route)
        span.set_attribute("http.response.status_code", status)
        for name, value in facts.items():
            span.set_attribute(f"cosd.{name}", value)
        if status >= 500 or not status:
            span.set_status(StatusCode.ERROR)

    def step(self, report: StepReport) -> None:
        end = time.time_ns()
        begin = end - int(report.seconds * 1e9)
        span = self._tracer.start_span(
            "step",
            start_time=begin,
            attributes={
                "cosd.prefills": report.prefills,
                "cosd.verifies": report.verifies,
                "cosd.tokens": report.tokens,
                "cosd.rows": report.rows,
                "cosd.forward_seconds": report.forward_seconds,
            },
        )
        inside = trace.set_span_in_context(span)
        for wait in report.waits:
            waited = self._tracer.start_span(
                "queue wait", context=inside, start_time=begin - int(wait * 1e9)
            )
            waited.end(begin)
        span.end(end)


def export_spans() -> None:
    """Send spans to where the environment says (`OTEL_EXPORTER_OTLP_ENDPOINT`, by default
    http://localhost:4318), unless the process has a provider already, and log where they go.

    Raises:
        InvalidRequest: the packages are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as SdkProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as missing:
        raise InvalidRequest(
            "sending spans needs packages that are not installed; install them with: "
            "pip install 'edge-cosd[telemetry]', or leave --telemetry out",
            field="telemetry",
        ) from missing
    if isinstance(trace.get_tracer_provider(), SdkProvider):
        log.info("spans go where this process sends its own")
        return
    # A name in OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES wins.
    provider = SdkProvider(resource=Resource({"service.name": _NAME}).merge(Resource.create()))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    log.info("spans go to %s", _destination())


def _destination() -> str:
    """Where OpenTelemetry's exporter sends to, in words: it reads the environment itself."""
    for name in _DESTINATIONS:
        if given := os.environ.get(name, "").strip():
            # An address may carry a password.
            return f"{_USER.sub('', given)} ({name})"
    return f"{_DEFAULT_DESTINATION}, since {_DESTINATIONS[-1]} is not set"
