"""What a cluster tells about its replicas, whichever of them is asked. The key is that of
`/metrics`."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from ray import serve

from server_app.auth import Keyring
from server_app.cluster.figures import merged

NAME: Final = "cosd"  # of the application and of its only deployment
_SECONDS: Final = 5.0  # for a replica's answer; one that hangs is left out


def add_routes(app: FastAPI, name: str) -> None:
    """Add the routes to the app of the replica `name`."""

    async def replica(request: Request) -> JSONResponse:
        _check(request)
        return JSONResponse({"replica": name})

    app.add_api_route("/cluster", cluster, summary="All replicas")
    app.add_api_route("/cluster/replica", replica, summary="Which replica answers")
    app.add_api_route("/cluster/metrics", metrics, summary="Figures of all replicas")


async def cluster(request: Request) -> JSONResponse:
    """Their names, machines, processes and sessions."""
    _check(request)
    return JSONResponse({"replicas": await from_all("state")})


async def metrics(request: Request) -> Response:
    """For Prometheus, with a label that names the replica."""
    _check(request)
    return Response(merged(dict(await from_all("figures"))), media_type=CONTENT_TYPE_LATEST)


async def from_all(method: str) -> list[Any]:
    """What the replicas that answer in time return."""
    handle = serve.get_deployment_handle(NAME, NAME)
    answers = await handle.broadcast(method).results_async(
        timeout_s=_SECONDS, return_exceptions=True
    )
    return [answer for answer in answers if not isinstance(answer, BaseException)]


def _check(request: Request) -> None:
    keyring: Keyring = request.app.state.metrics_keyring
    keyring.owner(request.headers.get("authorization"))
