"""On which device and in which number format a model runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from edge_sdk.errors import InvalidRequest

DTYPES: dict[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
}
_PROBE_ROWS = 4  # a verify pass of a short block
_PROBE_WIDTH = (16384, 1024)  # 64 MB in float32: beyond any cache, as real weights are


@dataclass(frozen=True, slots=True)
class Precision:
    """A choice and its reason, a few words for the log."""

    device: torch.device
    dtype: torch.dtype
    reason: str


def choose_precision(*, device: str = "auto", dtype: str = "auto") -> Precision:
    """Settle device and number format.

    `auto` takes CUDA where there is one, with bfloat16 (float16 on GPUs without it). On a CPU
    it times one matrix product in bfloat16 and float32, about a fifth of a second, and takes
    the faster: without hardware for bfloat16 it can be several times slower.

    Args:
        device: `auto`, or a torch device such as `cpu`, `cuda` or `cuda:1`.
        dtype: `auto`, `bfloat16`, `float16` or `float32`.

    Raises:
        InvalidRequest: an unknown name, or a device that this machine does not have.
    """
    where = _device(device)
    if dtype != "auto":
        if dtype not in DTYPES:
            raise InvalidRequest(
                f"dtype {dtype!r} is not one of auto, {', '.join(DTYPES)}", field="dtype"
            )
        return Precision(where, DTYPES[dtype], "as configured")
    if where.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return Precision(where, torch.bfloat16, "the GPU has bfloat16")
        return Precision(where, torch.float16, "the GPU has no bfloat16")
    if where.type != "cpu":
        return Precision(where, torch.float32, f"the safe choice on {where.type}")
    brain, single = product_seconds(torch.bfloat16), product_seconds(torch.float32)
    chosen = torch.bfloat16 if brain < single else torch.float32
    return Precision(
        where,
        chosen,
        f"a product of {_PROBE_ROWS} rows takes {brain * 1e3:.1f} ms in bfloat16 "
        f"and {single * 1e3:.1f} ms in float32 on this CPU",
    )


def product_seconds(dtype: torch.dtype, *, tries: int = 5) -> float:
    """Best time in seconds of a memory-bound matrix product on the CPU, as a verify pass
    of a few rows is made of."""
    weight = torch.zeros(_PROBE_WIDTH, dtype=dtype)
    rows = torch.zeros((_PROBE_ROWS, _PROBE_WIDTH[1]), dtype=dtype)
    best = float("inf")
    with torch.inference_mode():
        for _ in range(tries + 1):  # the first one also pays for starting threads
            begin = time.perf_counter()
            torch.nn.functional.linear(rows, weight)
            best = min(best, time.perf_counter() - begin)
    return best


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidRequest(
            f"device {name!r} is not usable on this machine ({str(error).splitlines()[0]}); "
            "use auto or cpu",
            field="device",
        ) from error
    return device
