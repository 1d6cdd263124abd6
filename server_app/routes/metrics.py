"""`/metrics` in the Prometheus text format.

It shares the port, so that what scrapes it goes through the same address and proxy, and
wants a key, since it tells how much everybody uses.
"""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from server_app.auth import Keyring
from server_app.observability.metrics import Metrics

router = APIRouter()


@router.get("/metrics", summary="Figures for Prometheus", response_class=Response)
async def metrics(request: Request) -> Response:
    keyring: Keyring = request.app.state.metrics_keyring
    keyring.owner(request.headers.get("authorization"))
    shown: Metrics = request.app.state.metrics
    return Response(generate_latest(shown.registry), media_type=CONTENT_TYPE_LATEST)
