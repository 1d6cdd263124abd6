"""The server as an application of Ray Serve."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError
from ray import serve

from edge_sdk.errors import InvalidRequest
from server_app.cluster.replica import Replica
from server_app.cluster.routes import NAME
from server_app.cluster.settings import ClusterSettings
from server_app.field_words import wrong
from server_app.settings import Settings

ROUTER: Final = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
_HEALTH_SECONDS: Final = 5.0
# The server's own limits refuse what is too much, each with a sentence and a time to come back;
# Ray would send a session's request to another replica instead, where the session is not.
_MOST_ONGOING: Final = 1 << 16
_FINISH_SECONDS: Final = 15.0
_LOADS: Final = 2
# The server's own log tells of requests.
QUIET: Final[dict[str, Any]] = {"enable_access_log": False, "log_level": "WARNING"}


def application(settings: Settings, cluster: ClusterSettings) -> Any:
    """An application for `ray.serve.run`."""
    replicas: dict[str, Any] = {"num_replicas": cluster.replicas}
    if cluster.max_replicas > cluster.replicas:
        replicas = {
            "autoscaling_config": {
                "min_replicas": cluster.replicas,
                "max_replicas": cluster.max_replicas,
                "target_ongoing_requests": cluster.target_ongoing_requests,
                "upscale_delay_s": cluster.upscale_delay,
                "downscale_delay_s": cluster.downscale_delay,
            }
        }
    if not cluster.haproxy:
        # HAProxy has its own way, which the environment names (`haproxy.py`).
        replicas["request_router_config"] = {"request_router_class": ROUTER}
    deployment = serve.deployment(
        serve.ingress()(Replica),
        name=NAME,
        max_ongoing_requests=_MOST_ONGOING,
        ray_actor_options={
            "num_cpus": cluster.cpus_per_replica,
            "num_gpus": cluster.gpus_per_replica,
        },
        health_check_period_s=_HEALTH_SECONDS,
        graceful_shutdown_timeout_s=_FINISH_SECONDS,
        # What fails to load once fails again; a taken GPU may be free by then.
        max_constructor_retry_count=_LOADS,
        logging_config=QUIET,
        **replicas,
    )
    return deployment.bind(settings)


def build(arguments: dict[str, Any]) -> Any:
    """The application of `serve run`, `serve deploy` and KubeRay, which name it as
    `server_app.cluster.application:build`.

    Args:
        arguments: settings of the server and of the cluster by name, over those of the
            environment. Of the cluster's, those that are about Ray itself are left to it.

    Raises:
        InvalidRequest: one of them does not exist or cannot be.
    """
    unknown = set(arguments) - set(Settings.model_fields) - set(ClusterSettings.model_fields)
    if unknown:
        raise InvalidRequest(f"there is no setting {min(unknown)!r}; see `cosd cluster --help`")
    try:
        return application(
            Settings(**{k: v for k, v in arguments.items() if k in Settings.model_fields}),
            ClusterSettings(
                **{k: v for k, v in arguments.items() if k in ClusterSettings.model_fields}
            ),
        )
    except ValidationError as error:
        first = error.errors()[0]
        if not first["loc"]:
            raise InvalidRequest(first["msg"].removeprefix("Value error, ")) from error
        name = str(first["loc"][0])
        fields = {**Settings.model_fields, **ClusterSettings.model_fields}
        raise InvalidRequest(wrong(name, first, fields[name]), field=name) from error
