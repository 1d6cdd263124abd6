"""What the shared noise of `coupled` costs for one row: `python -m bench.noise`.

One thread. The last line is JSON, milliseconds a row.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from bench.program import run
from edge_sdk.decoding.noise import full_argmax, gumbel_argmax, row_key
from server_app.methods.noise import argmax_on_device

_ROWS: Final = 30

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def noise(
    size: Annotated[int, typer.Option(min=1, help="Ids of a row.")] = 262_144,
) -> None:
    """Time the choice of one token from a flat and from a peaked row."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**64, size, dtype=np.uint64)
    in_torch = torch.from_numpy(keys.view(np.int64))
    peaked = np.exp(-25 * rng.random(size))
    laws = {"flat": np.full(size, 1 / size), "peaked": peaked / peaked.sum()}
    table = Table("row", "shortcut, numpy", "shortcut, torch", "full float64", title="ms a row")
    figures = {}
    for name, law in laws.items():
        row = law.astype(np.float32)
        tensor = torch.from_numpy(row)
        ways: dict[str, Callable[[np.uint64], int]] = {
            "numpy": partial(gumbel_argmax, row, keys),
            "torch": partial(argmax_on_device, tensor, in_torch, keys),
            "full": partial(_full, row, keys),
        }
        cost = {way: _milliseconds(choose) for way, choose in ways.items()}
        figures[name] = {way: round(value, 3) for way, value in cost.items()}
        table.add_row(name, *(f"{value:.2f}" for value in cost.values()))
    Console().print(table)
    print(json.dumps({"size": size, "milliseconds": figures}))


def _full(law: NDArray[np.float32], keys: NDArray[np.uint64], key: np.uint64) -> int:
    held = np.flatnonzero(law > 0)
    return int(held[full_argmax(law[held], keys[held], key)])


def _milliseconds(choose: Callable[[np.uint64], int]) -> float:
    """Median over rows."""
    taken = []
    for position in range(_ROWS):
        key = row_key(1, position)
        begin = time.perf_counter()
        choose(key)
        taken.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(taken))


if __name__ == "__main__":
    sys.exit(run(app, "bench.noise"))
