"""`python -m bench.methods` on a toy pair: every method, and the figures of its texts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.compare import Tally
from bench.method_figures import Figures, chosen, variants
from bench.methods import app
from bench.program import run
from edge_sdk.decoding.registry import METHODS
from edge_sdk.errors import InvalidRequest
from edge_sdk.stats import Stats

KEYS = {
    "acceptance",
    "target_calls_per_token",
    "down_bits_per_token",
    "up_bits_per_token",
    "up_bits_per_drafted_token",
    "wire_down_bits_per_token",
    "wire_up_bits_per_token",
    "lossless",
    "tokens_per_second",
    "asks_per_token",
}


def test_every_method_of_the_registry_is_measured_in_every_form() -> None:
    found = variants()
    assert set(METHODS) <= set(found)
    forms = {name: method.options() for name, method in found.items()}
    assert forms["hybrid"]["form"] == "head_tail"
    assert forms["hybrid_law"]["form"] == forms["hybrid_law_f16"]["form"] == "law"
    assert forms["hybrid_law"]["law_format"] == "f32"
    assert forms["hybrid_law_f16"]["law_format"] == "f16"
    assert forms["candidates"]["k"] == "adaptive"
    assert (forms["candidates_20x10"]["k"], forms["candidates_20x10"]["m"]) == (20, 10)
    assert forms["candidates_20x10"]["growth"] == 1


def test_methods_are_chosen_by_name() -> None:
    assert list(chosen("coupled, hybrid_law")) == ["coupled", "hybrid_law"]
    for names in ("coupled,couple", "", ","):
        with pytest.raises(InvalidRequest, match="hybrid_law") as caught:
            chosen(names)
        assert caught.value.field == "methods"


def test_figures_are_sums_over_sums() -> None:
    one = Stats(tokens=10, examined=4, accepted=4, drafted=4, down_bytes=100, up_bytes=8, asks=1)
    other = Stats(tokens=30, examined=12, accepted=2, drafted=16, down_bytes=20, up_bytes=32)
    other.wire_up_bytes, other.target_calls, other.seconds = 400, 20, 2.0
    figures = Figures.of(variants()["hybrid"], Tally([one, other]))
    assert figures.acceptance == 6 / 16
    assert figures.down_bits_per_token == 8 * 120 / 40
    assert figures.up_bits_per_token == 8 * 40 / 40
    assert figures.up_bits_per_drafted_token == 8 * 40 / 20
    assert figures.wire_up_bits_per_token == 8 * 400 / 40
    assert figures.target_calls_per_token == 20 / 40
    assert figures.asks_per_token == 1 / 40
    assert figures.tokens_per_second == 40 / 2


def test_the_last_line_is_json_for_every_method() -> None:
    command = [sys.executable, "-m", "bench.methods", "--pair", "toy", "--limit", "2"]
    done = subprocess.run(
        [*command, "--tokens", "24"], capture_output=True, text=True, timeout=100, check=True
    )
    lines = done.stdout.splitlines()
    figures = json.loads(lines[-1])["methods"]
    assert set(figures) == set(variants())
    assert any("hybrid_law_f16" in line for line in lines[:-1])
    for name, row in figures.items():
        assert set(row) >= KEYS, name
        assert row["tokens"] > 0
        assert row["down_bits_per_token"] > 0
        assert row["wire_down_bits_per_token"] > row["down_bits_per_token"]
        assert row["lossless"] == variants()[name].lossless
    assert figures["autoregressive"]["target_calls_per_token"] == 1
    assert figures["full"]["down_bits_per_token"] > 2 * figures["hybrid"]["down_bits_per_token"]
    assert figures["coupled"]["up_bits_per_token"] < figures["hybrid"]["up_bits_per_token"]
    assert figures["upload"]["up_bits_per_token"] > 5 * figures["hybrid"]["up_bits_per_token"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pair", "other"], "pair 'other' is not one of default, same, toy"),
        (["--pair", "toy", "--methods", "x"], "methods x; there are hybrid"),
        (["--pair", "toy", "--prompts", "/nowhere.jsonl"], "No such file"),
        (["--pair", "toy", "--temperature", "-1"], "temperature is -1.0"),
        (["--pair", "toy", "--temperature", "nan"], "temperature is nan"),
        (["--pair", "toy", "--seed", "-1"], "seed"),
        (["--pair", "toy", "--seed", str(2**64)], "seed"),
    ],
)
def test_bad_arguments_end_in_a_sentence(
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["methods", *arguments])
    assert run(app, "bench.methods") == 1
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
