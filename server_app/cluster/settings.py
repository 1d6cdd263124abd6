"""Settings of a cluster, beside those of the server (`COSD_CLUSTER_...`, `cosd cluster`)."""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

CLUSTER: Final = "Cluster"
STARTED_HERE: Final = "local"  # Ray's word for a cluster of one machine that ends with its maker


def _knob(default: Any, description: str, **bounds: Any) -> Any:
    return Field(
        default=default, description=description, json_schema_extra={"panel": CLUSTER}, **bounds
    )


class ClusterSettings(BaseSettings):
    """What `cosd cluster` can be told about its replicas."""

    model_config = SettingsConfigDict(
        env_prefix="COSD_CLUSTER_", extra="ignore", allow_inf_nan=False
    )

    address: str = _knob(
        STARTED_HERE,
        "Ray cluster to run on: local starts one on this machine, which ends with the command; "
        "auto is the one that this machine belongs to (`ray start`), HOST:6379 another one.",
    )
    replicas: int = _knob(1, "Replicas, each a process with the whole model.", ge=1, le=4096)
    max_replicas: int = _knob(
        0,
        "Most replicas under load: their number then moves between --replicas and this. 0 keeps "
        "it at --replicas.",
        ge=0,
        le=4096,
    )
    target_ongoing_requests: float = _knob(
        16.0,
        "Requests in progress or waiting that one replica is meant to have; replicas are added "
        "above it and taken away below it.",
        gt=0,
    )
    upscale_delay: float = _knob(30.0, "Seconds of more load before replicas are added.", ge=0)
    downscale_delay: float = _knob(
        600.0,
        "Seconds of less load before replicas are taken away; their sessions are opened again "
        "elsewhere, so it should not happen often.",
        ge=0,
    )
    gpus_per_replica: float = _knob(
        0.0,
        "GPUs of each replica; 0.5 puts two replicas on one. 0 leaves the model on the CPU.",
        ge=0,
    )
    cpus_per_replica: float = _knob(1.0, "CPU cores that each replica reserves.", ge=0)
    proxies: Literal["every", "head"] = _knob(
        "every",
        "Where requests come in: on every machine of the cluster, or on the head alone.",
    )
    haproxy: bool = _knob(
        False,
        "Let HAProxy take the requests instead of Ray's own proxy: faster. On a cluster that "
        "runs already, its machines must have been started with RAY_SERVE_ENABLE_HA_PROXY=1.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max_replicas and self.max_replicas < self.replicas:
            raise ValueError(
                f"max_replicas {self.max_replicas} is below replicas {self.replicas}; raise it, "
                f"or leave it at 0 for a fixed number"
            )
        whole = self.gpus_per_replica
        if whole > 1 and whole != int(whole):
            raise ValueError(f"gpus_per_replica {whole:g} is neither a share of one nor a number")
        return self
