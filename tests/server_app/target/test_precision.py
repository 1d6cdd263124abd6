from __future__ import annotations

import pytest
import torch

from edge_sdk.errors import InvalidRequest
from server_app.target import precision
from server_app.target.precision import choose_precision


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32"])
def test_an_explicit_dtype_is_taken(name: str) -> None:
    chosen = choose_precision(device="cpu", dtype=name)
    assert chosen.dtype == getattr(torch, name)
    assert chosen.device == torch.device("cpu")
    assert chosen.reason == "as configured"


@pytest.mark.parametrize(
    ("brain", "single", "expected"),
    [(0.004, 0.008, torch.bfloat16), (0.030, 0.008, torch.float32)],
)
def test_a_cpu_takes_what_it_is_faster_in_and_says_so(
    monkeypatch: pytest.MonkeyPatch, brain: float, single: float, expected: torch.dtype
) -> None:
    times = {torch.bfloat16: brain, torch.float32: single}
    monkeypatch.setattr(precision, "product_seconds", times.__getitem__)
    chosen = choose_precision(device="cpu")
    assert chosen.dtype == expected
    assert f"{brain * 1e3:.1f} ms in bfloat16" in chosen.reason
    assert f"{single * 1e3:.1f} ms in float32" in chosen.reason


def test_the_measurement_is_a_time() -> None:
    assert 0.0 < precision.product_seconds(torch.float32, tries=1) < 5.0


@pytest.mark.parametrize(("brain", "expected"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_is_taken_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, brain: bool, expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: brain)
    chosen = choose_precision()
    assert (chosen.device.type, chosen.dtype) == ("cuda", expected)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"dtype 'int8' is not one of auto, bfloat16"):
        choose_precision(dtype="int8")
    with pytest.raises(InvalidRequest, match="device 'gpu' is not usable"):
        choose_precision(device="gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="device 'cuda' is not usable"):
        choose_precision(device="cuda")
