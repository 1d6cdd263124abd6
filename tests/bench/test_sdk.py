"""`python -m bench.sdk` on toys: its JSON line, its parts, and how rounds are taken apart."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.sdk_padded import PaddedTarget, pad_seconds
from bench.sdk_plan import PAD_VARIABLE
from bench.sdk_round import Round, Taken
from bench.sdk_size import base_packages
from bench.sdk_texts import Contest
from edge_sdk.errors import InvalidRequest
from edge_sdk.stats import Stats
from server_app.target.toy import ToyTarget

Program = Callable[..., subprocess.CompletedProcess[str]]
TOYS = ("--target", "toy:1", "--draft", "toy:2", "--same", "toy:2")


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return line


def test_every_part_that_toys_have(program: Program, tmp_path: Path) -> None:
    plot = tmp_path / "sdk.png"
    arguments = ["--quick", "--rtt", "0", "--rtt", "5", "--plot", str(plot)]
    parts = [word for part in ("rounds", "cancel", "speedup", "ahead") for word in ("--only", part)]
    line = figures(program("bench.sdk", *TOYS, *arguments, *parts))
    assert line["overhead_p50_ms"] > 0
    assert set(line["model_ratio"]) == set(line["speedup"]) == {"0", "5"}
    assert set(line["ahead_gain_same"]) == {"5"}
    assert set(line["ahead_gain"]) == {"0", "5"}
    assert set(line["cancel_ms"]) == {"drafting", "in_flight", "prefill"}
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert "simulated_pad_ms" not in line


def test_a_padded_target_is_called_a_simulation(program: Program, tmp_path: Path) -> None:
    arguments = ["--quick", "--rtt", "0", "--plot", str(tmp_path / "p.png"), "--only", "rounds"]
    done = program("bench.sdk", *TOYS, *arguments, "--pad-target", "150")
    assert figures(done)["simulated_pad_ms"] == 150
    assert "SIMULATION" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("│ 0 "))
    server = float(row.split("│")[4])
    assert 150 <= server < 400


def test_a_plot_that_cannot_be_written_is_named(program: Program, tmp_path: Path) -> None:
    done = program("bench.sdk", *TOYS, "--plot", str(tmp_path / "no" / "p.png"))
    assert done.returncode == 1
    assert "the plot cannot be written" in done.stderr


def test_parts_of_a_round_add_up() -> None:
    rounds = [Round(0.1, 0.04, 0.03, 4, tokens, 4, tokens - 1, False) for tokens in (2, 3, 4)]
    taken = Taken(4, rounds, [0.02, 0.021, 0.9])
    assert taken.echo == 0.021
    assert taken.overhead == pytest.approx(0.1 - 0.04 - 0.03 - 0.021)
    assert taken.forward == 0.01
    assert taken.tokens == 3
    assert taken.expected == pytest.approx(sum(0.5**k for k in range(5)))
    assert taken.ratio(round_trip=0.021, overhead=taken.overhead) == pytest.approx(1)
    assert taken.ratio(round_trip=0.001, overhead=taken.overhead) == pytest.approx(0.8)


def test_a_text_is_held_against_those_beside_it() -> None:
    own = Stats(tokens=10, seconds=0.9, open_seconds=0.1, accepted=6, examined=8)
    slow, quick = Stats(tokens=10, seconds=2.0), Stats(tokens=10, seconds=1.0)
    result = Contest([own, own], [(slow, slow), (slow, quick)])
    assert result.gains == pytest.approx([2, 1.5])
    assert result.gain == pytest.approx(1.75)
    assert result.speed == pytest.approx(10)
    assert (result.acceptance, result.drafted_share) == (0.75, 0.6)


def test_a_padded_target_computes_the_same() -> None:
    from server_app.target.model import Chunk

    logits = []
    for target in (ToyTarget.random(1), PaddedTarget(ToyTarget.random(1), 0.001)):
        (rows,) = target.forward([Chunk(target.new_sequence(), [1, 2], 1)])
        logits.append(rows.clone())
    assert (logits[0] == logits[1]).all()


@pytest.mark.parametrize("value", ["", "x", "-1", "inf", "nan"])
def test_a_pad_that_is_no_duration(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv(PAD_VARIABLE, "20")
    assert pad_seconds() == 0.02
    monkeypatch.setenv(PAD_VARIABLE, value)
    with pytest.raises(InvalidRequest, match=PAD_VARIABLE):
        pad_seconds()


def test_what_a_plain_install_brings() -> None:
    packages = base_packages()
    assert {"edge-cosd", "httpx", "tokenizers", "msgpack", "anyio"} <= set(packages)
    assert not {"numpy", "onnxruntime", "torch", "transformers", "rich"} & set(packages)
    assert packages["tokenizers"] > 5e6
    assert sum(packages.values()) < 120e6
