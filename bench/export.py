"""What an export gains and what it costs: `python -m bench.export`.

SmolLM2-135M, 2 threads. Graphs take turns in one process, so that their ratios hold on a busy
machine too. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from bench.export_laws import (
    FULL,
    QUICK,
    Size,
    acceptance,
    parity,
    pruned_law,
    random_checkpoint,
)
from bench.graph_timing import Times, take_turns
from bench.models import DRAFT, TARGET
from bench.program import run
from bench.terminal import steps as bar
from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx import OnnxDraft
from export.check.parity import Parity
from export.check.speed import measure_speed
from export.console import TerminalProgress
from export.pipeline import export_draft, prepare_draft
from export.progress import Progress

THREADS: Final = 2
PROMPT_TOKENS: Final = 512
_MEGABYTE: Final = 1e6

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def export(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer steps, texts and tokens; rougher figures.")
    ] = False,
    draft: Annotated[str, typer.Option(help="What `cosd export` takes.")] = DRAFT,
    target: Annotated[
        str, typer.Option(help="What `cosd prepare` takes; empty: no acceptance.")
    ] = TARGET,
    threads: Annotated[int, typer.Option(min=1, help="Threads of a pass.")] = THREADS,
) -> None:
    """Measure the default export of a model against the unfused graph, with the same weights and
    in fp32, and against the model itself."""
    # Before torch starts its threads, for the reason given in `server_app.command`.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    size = QUICK if quick else FULL
    line: dict[str, Any] = {"draft": draft, "threads": threads, "quick": quick}
    with ExitStack() as stack:
        with TerminalProgress(Console(stderr=True)) as progress:
            folders = {
                "default": prepare_draft(draft, bits=4, progress=progress),
                "unfused4": prepare_draft(draft, bits=4, backend="optimum", progress=progress),
                "fp32": prepare_draft(draft, bits=32, backend="optimum", progress=progress),
            }
            if target:
                temporary = Path(stack.enter_context(TemporaryDirectory()))
                whole, pruned = (temporary / name for name in ("whole", "pruned32"))
                folders["pruned"] = temporary / "pruned"
                _export_pruned(draft, folders["pruned"], target, 4, progress)
                _export_pruned(draft, pruned, target, 32, progress)
                export_draft(draft, whole, bits=32, progress=progress)
                line |= pruned_law(whole, pruned, target, progress)
        line |= speed(folders, threads, size)
    with TerminalProgress(Console(stderr=True)) as progress:
        line |= footprint(folders["default"], threads, progress)
        line |= _laws("", parity(draft, folders["default"], size, progress))
        line |= _laws("random_", random_checkpoint(draft, size, progress))
        if target:
            line |= acceptance(target, folders["default"], folders["fp32"], size, progress)
    Console().print(table_of(line))
    print(json.dumps(line), flush=True)


def _export_pruned(draft: str, out: Path, target: str, bits: int, progress: Progress) -> None:
    export_draft(draft, out, bits=bits, target=target, prune=True, progress=progress)


def speed(folders: dict[str, Path], threads: int, size: Size) -> dict[str, Any]:
    """Ratios of the default graph's times to those of the others, and all times."""
    with ExitStack() as stack:
        drafts = {
            name: stack.enter_context(OnnxDraft.open(folder, threads=threads))
            for name, folder in folders.items()
        }
        with bar("decode and prefill, in turns", size.steps // 4 + size.prompts) as advance:
            times = take_turns(
                drafts,
                steps=size.steps,
                prompt=PROMPT_TOKENS,
                prompts=size.prompts,
                advance=advance,
            )
    return ratios(times)


def ratios(times: dict[str, Times]) -> dict[str, Any]:
    """The keys of the JSON line that are about time."""
    default, unfused, fp32 = (times[name] for name in ("default", "unfused4", "fp32"))
    pruned = times.get("pruned")
    gain = {} if pruned is None else {"pruned_decode_ratio": pruned.decode / default.decode}
    return {
        **{name: round(value, 3) for name, value in gain.items()},
        "decode_ratio_unfused4": round(default.decode / unfused.decode, 3),
        "decode_ratio_fp32": round(default.decode / fp32.decode, 3),
        "prefill_ratio_unfused4": round(default.prefill / unfused.prefill, 3),
        "milliseconds": {
            name: {key: round(1e3 * value, 2) for key, value in asdict(found).items()}
            for name, found in times.items()
        },
    }


def footprint(folder: Path, threads: int, progress: Progress) -> dict[str, Any]:
    """Size of the folder, and load time and memory of a fresh process."""
    (found,) = measure_speed(folder, (threads,), progress=progress)
    size = sum(entry.bytes for entry in Manifest.read(folder).files.values()) / _MEGABYTE
    return {
        "folder_mb": round(size, 2),
        "load_s": round(found.load_s, 3),
        "rss_mb": round(found.resident_mb, 1),
        "rss_program_mb": round(found.program_mb, 1),
        "rss_ratio": round(found.resident_mb / size, 3),
        "rss_ratio_without_program": round((found.resident_mb - found.program_mb) / size, 2),
    }


def _laws(prefix: str, found: Parity) -> dict[str, Any]:
    return {
        f"{prefix}kl": round(found.kl, 4),
        f"{prefix}top1": round(found.top1, 4),
        f"{prefix}max_logit_difference": round(found.max_logit_difference, 3),
    }


_BARS: Final[Sequence[tuple[str, float | None]]] = (
    ("decode_ratio_unfused4", 0.70),
    ("decode_ratio_fp32", 0.35),
    ("prefill_ratio_unfused4", 1.0),
    ("folder_mb", 95.0),
    ("load_s", 1.0),
    ("rss_ratio", 2.0),
    ("kl", None),
    ("top1", None),
    ("random_kl", None),
    ("random_top1", None),
    ("pruned_decode_ratio", None),
    ("pruned_law_difference", 1e-4),
    ("acceptance", None),
    ("acceptance_fp32", None),
    ("acceptance_difference", -0.03),
)
_AT_LEAST: Final = frozenset({"acceptance_difference"})  # the others are at most


def table_of(line: dict[str, Any]) -> Table:
    """Every figure that was measured beside its bar, and whether it is within it."""
    table = Table(title=f"{line['draft']} in 4 bits, {line['threads']} threads")
    for name in ("figure", "measured", "bar", "met"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, bound in _BARS:
        if name not in line:
            continue
        value = line[name]
        if bound is None:
            table.add_row(name, f"{value:g}", "", "")
            continue
        least = name in _AT_LEAST
        met = value >= bound if least else value <= bound
        sign = ">=" if least else "<="
        table.add_row(name, f"{value:g}", f"{sign} {bound:g}", "yes" if met else "NO")
    return table


if __name__ == "__main__":
    sys.exit(run(app, "bench.export"))
