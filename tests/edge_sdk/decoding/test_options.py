"""Options of the methods: what is refused, and how it is told."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import METHODS, method_named
from edge_sdk.errors import InvalidRequest, UnknownMethod
from edge_sdk.sampling import Sampling

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("consultant", {"epsilon": 0}),
        ("consultant", {"epsilon": -1.0}),
        ("consultant", {"epsilon": NAN}),
        ("consultant", {"epsilon": INF}),
        ("consultant", {"epsilon": "chinchila"}),
        ("consultant", {"epsilon": "2.0"}),
        ("consultant", {"epsilon": None}),
        ("consultant", {"epsilon": True}),
        ("consultant", {"beta": 1.0}),
        ("consultant", {"beta": -0.1}),
        ("consultant", {"beta": NAN}),
        ("consultant", {"beta": "0.2"}),
        ("candidates", {"k": 0}),
        ("candidates", {"k": 256}),
        ("candidates", {"k": 2.0}),
        ("candidates", {"k": True}),
        ("candidates", {"m": 0}),
        ("candidates", {"m": -3}),
        ("candidates", {"m": 65}),
        ("candidates", {"growth": 0.5}),
        ("candidates", {"growth": NAN}),
        ("candidates", {"trip": -1}),
        ("candidates", {"law_format": "f8"}),
        ("mentored", {"d": -0.1}),
        ("mentored", {"d": NAN}),
        ("mentored", {"d": INF}),
        ("mentored", {"tolerance": 0.0}),
        ("mentored", {"tolerance": NAN}),
        ("uncertain", {"u_th": -0.1}),
        ("uncertain", {"u_th": 1.1}),
        ("uncertain", {"u_th": NAN}),
        ("hybrid", {"form": "dense"}),
        ("hybrid", {"law_format": "bf16"}),
        ("hybrid", {"law_format": ["f32"]}),
        ("full", {"law_format": ""}),
    ],
)
def test_values_out_of_range_name_their_option(method: str, options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidRequest) as caught:
        method_named(method, options)
    assert caught.value.field == name
    assert name in caught.value.message


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({}, "parameters"),
        ({"parameters": 270e6}, "tokens"),
        ({"parameters": 0, "tokens": 6e12}, "parameters"),
        ({"parameters": 270e6, "tokens": -1}, "tokens"),
        ({"parameters": NAN, "tokens": 6e12}, "parameters"),
        ({"parameters": "270M", "tokens": 6e12}, "parameters"),
    ],
)
def test_chinchilla_needs_both_counts(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        method_named("consultant", {"epsilon": "chinchilla", **options})
    assert caught.value.field == field


@pytest.mark.parametrize("name", METHODS)
def test_unknown_options_are_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(InvalidRequest, match="no option 'speed'") as caught:
        method_named(name, {"speed": 1})
    assert caught.value.field == "options.speed"


def test_unknown_methods_are_refused_with_the_list() -> None:
    with pytest.raises(UnknownMethod, match="hybrid, candidates, coupled") as caught:
        method_named("hybird")
    assert caught.value.field == "method"


@pytest.mark.parametrize("name", METHODS)
def test_options_survive_the_wire(name: str) -> None:
    method: Method = METHODS[name]()
    assert method_named(name, method.options()) == method


def test_greedy_is_temperature_0_only() -> None:
    METHODS["greedy"]().check(Sampling(temperature=0))
    with pytest.raises(InvalidRequest, match="temperature"):
        METHODS["greedy"]().check(Sampling(temperature=0.3))
