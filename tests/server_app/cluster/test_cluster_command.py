"""What `cosd cluster` refuses before it needs Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edge_sdk.errors import InvalidRequest
from server_app.cluster.command import cluster
from server_app.cluster.settings import ClusterSettings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"port": 0}, "--port 0 cannot be had here"),
        ({"device": "cuda"}, "--device cuda needs --gpus-per-replica"),
        ({"replicas": 0}, "--replicas is 0; it must be within [1, 4096]"),
        ({"replicas": 4, "max_replicas": 2}, "max_replicas 2 is below replicas 4"),
        ({"gpus_per_replica": 1.5}, "gpus_per_replica 1.5 is neither a share of one"),
        ({"target_ongoing_requests": 0.0}, "--target-ongoing-requests is 0.0; it must be above 0"),
        ({"proxies": "some"}, "--proxies is 'some'; it must be every or head"),
        ({"session_ttl": -1.0}, "--session-ttl is -1.0; it must be above 0"),
        ({"host": "nowhere.invalid"}, "'nowhere.invalid' is not an address of this machine"),
        ({"shared_prompts": Path("/nowhere.json")}, "/nowhere.json"),
    ],
)
def test_what_cannot_be_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        cluster(target="toy:1", **given)
    assert said in caught.value.message


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSD_CLUSTER_REPLICAS", "3")
    monkeypatch.setenv("COSD_CLUSTER_HAPROXY", "1")
    chosen = ClusterSettings()
    assert chosen.replicas == 3
    assert chosen.haproxy
    monkeypatch.setenv("COSD_CLUSTER_REPLICAS", "many")
    with pytest.raises(ValidationError, match="replicas"):
        ClusterSettings()
