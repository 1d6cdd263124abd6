"""The dashboard, the alerts and the documents speak of metrics and settings that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from harness.serving import toy_target

from server_app.app import create_app
from server_app.drain import FINISH_SECONDS
from server_app.process import CUT_OFF_SECONDS
from server_app.settings import Settings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "cosd.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
NAME = re.compile(r"\b(?:cosd|process)_[a-z0-9_]+")


@pytest.fixture(scope="module")
def families() -> dict[str, set[str]]:
    """Names of samples by family, of a server that served nothing yet."""
    registry = create_app(toy_target(), Settings(target="toy:1")).state.metrics.registry
    suffixes = {
        "histogram": ("_bucket", "_sum", "_count"),
        "counter": ("_total",),
    }
    return {
        family.name: {family.name + suffix for suffix in suffixes.get(family.type, ("",))}
        for family in registry.collect()
    }


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    alerts = yaml.safe_load(ALERTS.read_text())["groups"]
    return [
        *(target["expr"] for panel in panels for target in panel.get("targets", ())),
        *(rule["expr"] for group in alerts for rule in group["rules"]),
    ]


def test_every_metric_that_is_asked_for_exists(families: dict[str, set[str]]) -> None:
    samples = set().union(*families.values())
    asked = {name for text in expressions() for name in NAME.findall(text)}
    assert len(asked) > 25
    assert asked - samples == set()


def test_every_metric_is_on_the_dashboard(families: dict[str, set[str]]) -> None:
    text = " ".join(expressions())
    shown = set(NAME.findall(text))
    own = {name: samples for name, samples in families.items() if name.startswith("cosd_")}
    assert {name for name, samples in own.items() if not samples & shown} == set()


def test_every_metric_is_documented(families: dict[str, set[str]]) -> None:
    table = (ROOT / "docs" / "operate.md").read_text().partition("## Metrics")[2]
    documented = set(re.findall(r"`(cosd_[a-z_]+)`", table.partition("## Alerts")[0]))
    own = {name for name in families if name.startswith("cosd_")}
    counters = {name for name, samples in families.items() if name + "_total" in samples}
    expected = {name + "_total" if name in counters else name for name in own}
    assert documented - {"cosd_"} == expected


def test_every_alert_is_documented() -> None:
    named = set(re.findall(r"`(Cosd\w+)`", (ROOT / "docs" / "operate.md").read_text()))
    rules = [r for g in yaml.safe_load(ALERTS.read_text())["groups"] for r in g["rules"]]
    assert named == {rule["alert"] for rule in rules}


def test_braces_and_panels_are_whole() -> None:
    for text in expressions():
        for left, right in ("()", "{}", "[]"):
            assert text.count(left) == text.count(right), text
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)


def test_documents_name_settings_that_exist() -> None:
    text = (ROOT / "docs" / "operate.md").read_text()
    options = {f"--{name.replace('_', '-')}" for name in Settings.model_fields}
    named = set(re.findall(r"--[a-z][a-z-]+", text)) - {"--help", "--no-warm-up"}
    assert named - options == set()
    variables = set(re.findall(r"COSD_[A-Z_]+", text))
    assert variables - {f"COSD_{name.upper()}" for name in Settings.model_fields} == set()


def test_graces_are_longer_than_drains() -> None:
    pod = next(yaml.safe_load_all((DEPLOY / "kubernetes" / "cosd.yml").read_text()))
    spec = pod["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    arguments = container["args"]
    drain = int(arguments[arguments.index("--drain-seconds") + 1])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert spec["terminationGracePeriodSeconds"] > drain + pause + FINISH_SECONDS + CUT_OFF_SECONDS
    unit = (DEPLOY / "systemd" / "cosd.service").read_text()
    found = re.search(r"--drain-seconds (\d+)", unit), re.search(r"TimeoutStopSec=(\d+)", unit)
    assert found[0] is not None
    assert found[1] is not None
    assert int(found[1][1]) > int(found[0][1]) + FINISH_SECONDS + CUT_OFF_SECONDS
