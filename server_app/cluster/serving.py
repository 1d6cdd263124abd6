"""A cluster from its first replica to the end."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import time
from collections.abc import Iterator
from typing import Final

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatus, ApplicationStatusOverview

from edge_sdk import errors
from edge_sdk.errors import CosdError, InvalidRequest, ServerFault, ServerUnavailable
from server_app.cluster.application import QUIET, application
from server_app.cluster.ending import Ending
from server_app.cluster.routes import NAME
from server_app.cluster.settings import STARTED_HERE, ClusterSettings
from server_app.drain import FINISH_SECONDS
from server_app.settings import Settings

log = logging.getLogger("server_app")

_SLACK_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.2
_LOOK_AT_ALL_SECONDS: Final = 5.0
_FAILED: Final = (ApplicationStatus.DEPLOY_FAILED, ApplicationStatus.UNHEALTHY)
# As Python writes the last line of a traceback.
_FAILURE: Final = re.compile(
    r"^(?:ray\.exceptions\.\w+: )?edge_sdk\.errors\.(\w+): (.+)$", re.MULTILINE
)


def serve_cluster(settings: Settings, cluster: ClusterSettings, ended: Ending) -> None:
    """Run replicas until a signal came, then drain them and take the application away.

    Raises:
        ServerUnavailable: no such Ray cluster, or it lost the application.
        InvalidRequest: this machine is too small for the replicas.
        CosdError: what the replicas could not be started for.
    """
    # Signals are taken over once Ray is there, which takes them over as well.
    with _joined(cluster), ended.by_signals():
        _check_room(cluster)
        serve.start(
            proxy_location="HeadOnly" if cluster.proxies == "head" else "EveryNode",
            http_options={
                "host": settings.host,
                "port": settings.port,
                "keep_alive_timeout_s": settings.keep_alive,
            },
            logging_config=QUIET,
        )
        try:
            _deploy(settings, cluster)
            if _until_ready(cluster.replicas, ended):
                log.info("listening on http://%s:%d", settings.host, settings.port)
                _until_ended(ended)
                _drain(ended.seconds(settings.drain_seconds))
        finally:
            serve.delete(NAME)


@contextlib.contextmanager
def _joined(cluster: ClusterSettings) -> Iterator[None]:
    address = cluster.address
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    local = {"include_dashboard": False} if address == STARTED_HERE else {}
    try:
        host, colon, port = address.rpartition(":")
        if colon and port.isdigit() and "/" not in address:
            # Ray itself would try for minutes.
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
        ray.init(address=address, log_to_driver=True, **local)
    except (OSError, OverflowError, ValueError, RuntimeError, RayError) as error:
        raise ServerUnavailable(
            f"no Ray cluster at {address!r} ({str(error).splitlines()[0]}); start one with "
            f"`ray start --head`, or leave --address away"
        ) from error
    try:
        yield
    finally:
        if address == STARTED_HERE:
            serve.shutdown()
        ray.shutdown()


def _check_room(cluster: ClusterSettings) -> None:
    """A replica that fits nowhere would be waited for without end."""
    has = ray.cluster_resources()
    for name, each in (("CPU", cluster.cpus_per_replica), ("GPU", cluster.gpus_per_replica)):
        needed, there = cluster.replicas * each, has.get(name, 0.0)
        if needed <= there + 1e-9:
            continue
        said = f"{cluster.replicas} replicas need {needed:g} {name}s and the cluster has {there:g}"
        if cluster.address == STARTED_HERE:
            raise InvalidRequest(
                f"{said}; give fewer --replicas, or less with --{name.lower()}s-per-replica",
                field=f"{name.lower()}s_per_replica",
            )
        log.warning("%s; they start when machines join it", said)


def _deploy(settings: Settings, cluster: ClusterSettings) -> None:
    target = serve.RunTarget(application(settings, cluster), name=NAME, route_prefix="/")
    serve.run_many([target], wait_for_applications_running=False)


def _until_ready(replicas: int, ended: Ending) -> bool:
    """False if it was to end before."""
    loaded = -1
    while not ended:
        now = _status()
        if now.status in _FAILED:
            raise _reason(_message(now))
        running = _running(now)
        if running != loaded:
            loaded = running
            log.info("%d of %d replicas are loaded", loaded, replicas)
        if now.status == ApplicationStatus.RUNNING:
            return True
        time.sleep(_LOOK_SECONDS)
    return False


def _until_ended(ended: Ending) -> None:
    looked = time.monotonic()
    while not ended:
        time.sleep(_LOOK_SECONDS)
        if time.monotonic() - looked > _LOOK_AT_ALL_SECONDS:
            _status()
            looked = time.monotonic()


def _status() -> ApplicationStatusOverview:
    """Raises:
    ServerUnavailable: somebody else ended the application, or Ray.
    """
    try:
        found = serve.status().applications.get(NAME)
    except (RayError, RayServeException) as error:
        raise ServerUnavailable(f"the Ray cluster is gone ({error})") from error
    if found is None:
        raise ServerUnavailable(f"the application {NAME!r} was taken away from the Ray cluster")
    return found


def _running(now: ApplicationStatusOverview) -> int:
    deployment = now.deployments.get(NAME)
    states = {} if deployment is None else deployment.replica_states
    return sum(number for state, number in states.items() if state == "RUNNING")


def _message(now: ApplicationStatusOverview) -> str:
    deployment = now.deployments.get(NAME)
    return (deployment.message if deployment is not None else "") or now.message


def _reason(message: str) -> CosdError:
    """What a replica raised, which Ray hands on as the text of a traceback."""
    found = _FAILURE.search(message)
    cls = getattr(errors, found[1], None) if found else None
    if found and isinstance(cls, type) and issubclass(cls, CosdError):
        return cls(found[2])
    last = message.strip().splitlines()[-1] if message.strip() else "Ray does not say why"
    return ServerFault(f"the replicas did not start: {last}")


def _drain(seconds: float) -> None:
    log.info("draining: sessions in use are served for up to %g s", seconds)
    try:
        handle = serve.get_app_handle(NAME)
        handle.broadcast("drain", seconds).results(
            timeout_s=seconds + FINISH_SECONDS + _SLACK_SECONDS, return_exceptions=True
        )
    except (TimeoutError, RuntimeError, RayError) as error:
        log.warning("not every replica was drained: %s", error)
