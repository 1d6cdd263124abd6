"""The application as Ray Serve gets it."""

from __future__ import annotations

import pytest

from edge_sdk.errors import InvalidRequest, ServerFault, ServerUnavailable
from server_app.cluster.settings import ClusterSettings
from server_app.settings import Settings

pytest.importorskip("ray", reason="`make test-cluster` has Ray")

from server_app.cluster.application import ROUTER, application, build
from server_app.cluster.ending import Ending
from server_app.cluster.serving import _reason, serve_cluster


def test_replicas_are_sticky_and_follow_the_load() -> None:
    cluster = ClusterSettings(
        replicas=2, max_replicas=5, target_ongoing_requests=7, gpus_per_replica=0.5
    )
    deployment = application(Settings(target="toy:1"), cluster)._bound_deployment
    scaling = deployment._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (2, 5)
    assert scaling.target_ongoing_requests == 7
    assert deployment.ray_actor_options["num_gpus"] == 0.5
    assert deployment._deployment_config.request_router_config.request_router_class == ROUTER


def test_haproxy_has_a_way_of_its_own() -> None:
    cluster = ClusterSettings(replicas=3, haproxy=True)
    deployment = application(Settings(target="toy:1"), cluster)._bound_deployment
    assert deployment.num_replicas == 3
    assert deployment._deployment_config.request_router_config.request_router_class != ROUTER


def test_arguments_of_a_serve_config() -> None:
    deployment = build({"target": "toy:1", "replicas": 4, "max_sessions": 9})._bound_deployment
    assert deployment.num_replicas == 4
    assert deployment.init_args[0].max_sessions == 9
    with pytest.raises(InvalidRequest, match="there is no setting 'replica'"):
        build({"target": "toy:1", "replica": 4})
    with pytest.raises(InvalidRequest, match=r"replicas is 0; it must be within \[1, 4096\]"):
        build({"target": "toy:1", "replicas": 0})


def test_what_a_replica_raised_is_told_as_it_was() -> None:
    said = (
        'Traceback (most recent call last):\n  File "replica.py", line 1, in __init__\n'
        "edge_sdk.errors.InvalidRequest: 'toy:x' is not a toy model\n\n"
        "The above exception was the direct cause"
    )
    error = _reason(said)
    assert type(error) is InvalidRequest
    assert error.message == "'toy:x' is not a toy model"
    other = _reason("Traceback\nMemoryError: no room\n")
    assert type(other) is ServerFault
    assert "no room" in other.message
    assert "does not say why" in _reason("").message


def test_a_ray_cluster_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(ServerUnavailable, match=r"no Ray cluster at '127\.0\.0\.1:1' .*ray start"):
        serve_cluster(Settings(target="toy:1"), ClusterSettings(address="127.0.0.1:1"), Ending())
