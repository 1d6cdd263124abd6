"""Where the time of a draft's decode step goes: `python -m bench.kernels [FOLDER]`.

Medians over steps of the time in each kind of operator, as onnxruntime measures it, which makes
a step a little slower. The last line is JSON, microseconds a step.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from bench.models import DRAFT
from bench.program import run
from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx_decoder import Decoder
from edge_sdk.draft.onnx_graph import DecoderGraph
from edge_sdk.draft.onnx_session import open_session

_BEGIN: Final = 64  # tokens held before the first step
# Layers of a fused graph by what their names hold.
_LAYERS: Final = {
    "logits": "head",
    "qkv": "query, key, value",
    "attention_out": "attention output",
    "gate_up": "gate and up",
    "down": "down",
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def kernels(
    folder: Annotated[
        Path | None, typer.Argument(help="A draft folder; default: the packaged draft.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of a pass.")] = 2,
    steps: Annotated[int, typer.Option(min=2, help="Decode steps.")] = 100,
) -> None:
    """Time the operators of one decode step."""
    if folder is None:
        from export.pipeline import prepare_draft

        folder = prepare_draft(DRAFT)
    console = Console()
    with console.status("decoding"):
        found = measure(folder, threads=threads, steps=steps)
    table = Table(title=f"a decode step on {threads} threads")
    for name in ("operator", "calls", "\u00b5s", "share"):
        table.add_column(name, justify="left" if name == "operator" else "right")
    total = sum(time for _, time in found.values())
    for name, (calls, time) in sorted(found.items(), key=lambda item: -item[1][1]):
        table.add_row(name, str(calls), f"{time:.0f}", f"{time / total:.1%}")
    console.print(table)
    print(json.dumps({name: round(time, 1) for name, (_, time) in found.items()}), flush=True)


def measure(folder: Path, *, threads: int, steps: int) -> dict[str, tuple[int, float]]:
    """Calls and median microseconds a step by kind of operator.

    Raises:
        ModelError: the folder cannot be used.
    """
    manifest = Manifest.read(folder)
    with TemporaryDirectory() as place:
        session = open_session(
            folder / manifest.graph, threads=threads, spin=True, profile=Path(place) / "steps"
        )
        graph = DecoderGraph.read(session.get_inputs(), session.get_outputs())
        width = graph.width or manifest.logits_width
        decoder = Decoder(session, graph, width=width, context=manifest.context)
        ids = np.random.default_rng(0).integers(0, width, _BEGIN + steps).tolist()
        decoder.extend(ids[:_BEGIN])
        for token in ids[_BEGIN:]:
            decoder.extend([token])
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        decoder.close()
    return _by_kind(events)


def _by_kind(events: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, float]]:
    passes = sorted(e["ts"] for e in events if e["name"] == "model_run")[1:]
    times: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(passes))
    calls: dict[str, int] = defaultdict(int)
    for event in events:
        index = bisect(passes, event["ts"]) - 1
        if index < 0 or not event["name"].endswith("_kernel_time"):
            continue
        name = _kind(event)
        times[name][index] += event["dur"]
        calls[name] += 1
    return {name: (calls[name] // len(passes), median(values)) for name, values in times.items()}


def _kind(event: Mapping[str, Any]) -> str:
    operator = str(event["args"]["op_name"])
    if operator == "MatMulNBits":
        for part, layer in _LAYERS.items():
            if part in event["name"]:
                return f"{operator}, {layer}"
    return operator


if __name__ == "__main__":
    sys.exit(run(app, "bench.kernels"))
