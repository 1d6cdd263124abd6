"""`cosd cluster`: run replicas of the server on Ray Serve."""

from __future__ import annotations

import logging
import os
from typing import Any, Final

from edge_sdk.errors import InvalidRequest
from server_app.cluster.ending import Ending
from server_app.cluster.settings import STARTED_HERE, ClusterSettings
from server_app.command import checked, settings_from
from server_app.listening import bound
from server_app.observability import logs
from server_app.options import takes_settings
from server_app.settings import Settings
from server_app.shared_prompts import read_shared_prompts

log = logging.getLogger("server_app")

# Consistent, so that a replica that comes or goes moves its own share of the sessions alone.
_BALANCE: Final = "hdr(x-session-id)\n    hash-type consistent"


@takes_settings(Settings, ClusterSettings)
def cluster(**given: Any) -> None:
    """Serve a target model with several replicas, on one machine or on many.

    Every option is also an environment variable: COSD_... as of `cosd serve`, and
    COSD_CLUSTER_... for those of the panel Cluster. Keys come only from there.

    The command stays, and takes the replicas down when it ends: SIGTERM drains, Ctrl-C does not
    wait for sessions, a second signal ends at once. docs/cluster.md tells more.

    Example: `COSD_API_KEYS=secret cosd cluster gemma3-270m --replicas 2 --port 8077`
    """
    given = {name: value for name, value in given.items() if value is not None}
    chosen = checked(ClusterSettings, {k: given.pop(k) for k in set(given) & _NAMES})
    settings = settings_from(given)
    logs.configure(settings.log_level, settings.log_format)
    read_shared_prompts(settings.shared_prompts)
    if settings.port == 0:
        raise InvalidRequest(
            "--port 0 cannot be had here: every machine of a cluster listens on the same port",
            field="port",
        )
    if settings.device.startswith("cuda") and not chosen.gpus_per_replica:
        raise InvalidRequest(
            "--device cuda needs --gpus-per-replica, since Ray shows a replica only the GPUs that "
            "it reserves",
            field="gpus_per_replica",
        )
    if chosen.address == STARTED_HERE:
        bound(settings.host, settings.port).close()
    _environment(chosen)
    # Imported after the environment is set, which Ray reads as it is imported.
    from server_app.cluster.serving import serve_cluster

    ended = Ending()
    serve_cluster(settings, chosen, ended)
    log.info("ended")
    if ended.interrupted:
        raise KeyboardInterrupt


_NAMES: Final = frozenset(ClusterSettings.model_fields)


def _environment(chosen: ClusterSettings) -> None:
    # Ray tells its makers how it is used unless it is told otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if chosen.haproxy:
        os.environ["RAY_SERVE_ENABLE_HA_PROXY"] = "1"
        os.environ.setdefault("RAY_SERVE_HAPROXY_BALANCE_ALGORITHM", _BALANCE)
