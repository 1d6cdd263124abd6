"""What an export gains and what it costs: `python -m bench.export`.

SmolLM2-135M, 2 threads. Graphs take turns in one process, so that their ratios hold on a busy
machine too. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from bench.graph_timing import Times, take_turns
from bench.models import DRAFT, TARGET
from bench.program import run
from bench.prompts import PROMPTS
from bench.terminal import steps as bar
from edge_sdk.draft.manifest import Manifest
from edge_sdk.draft.onnx import OnnxDraft
from export.check.parity import Parity, measure_parity
from export.check.speed import measure_speed
from export.check.texts import TEXT
from export.console import TerminalProgress
from export.pipeline import export_draft, prepare_draft
from export.progress import Progress
from export.sources import resolve_source

THREADS: Final = 2
PROMPT_TOKENS: Final = 512
_MEGABYTE: Final = 1e6

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        steps: decode steps of each graph.
        prompts: prompts of 512 tokens of each graph.
        text: tokens over which laws are compared.
        texts: texts that the target writes.
        tokens: tokens of each.
    """

    steps: int
    prompts: int
    text: int
    texts: int
    tokens: int


FULL: Final = Size(steps=96, prompts=5, text=256, texts=len(PROMPTS), tokens=32)
QUICK: Final = Size(steps=24, prompts=2, text=64, texts=3, tokens=12)


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
    with TerminalProgress(Console(stderr=True)) as progress:
        folders = {
            "default": prepare_draft(draft, bits=4, progress=progress),
            "unfused4": prepare_draft(draft, bits=4, backend="optimum", progress=progress),
            "fp32": prepare_draft(draft, bits=32, backend="optimum", progress=progress),
        }
    line: dict[str, Any] = {"draft": draft, "threads": threads, "quick": quick}
    line |= speed(folders, threads, size)
    with TerminalProgress(Console(stderr=True)) as progress:
        line |= footprint(folders["default"], threads, progress)
        line |= _laws("", parity(draft, folders["default"], size, progress))
        line |= _laws("random_", random_checkpoint(draft, size, progress))
        if target:
            line |= acceptance(target, folders["default"], folders["fp32"], size, progress)
    Console().print(_table(line))
    print(json.dumps(line), flush=True)


def speed(folders: dict[str, Path], threads: int, size: Size) -> dict[str, Any]:
    """Ratios of the default graph's times to those of the two others, and all times."""
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
    return {
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
        "folder_mb": round(size, 1),
        "load_s": round(found.load_s, 2),
        "rss_mb": round(found.resident_mb, 1),
        "rss_program_mb": round(found.program_mb, 1),
        "rss_ratio": round(found.resident_mb / size, 2),
    }


def parity(source: str, folder: Path, size: Size, progress: Progress) -> Parity:
    """The exported draft beside the fp32 model over a text."""
    found = resolve_source(source, progress=progress)
    with OnnxDraft.open(folder) as draft:
        ids = draft.text.prompt(TEXT)[: size.text]
        return measure_parity(found, draft, ids, progress=progress)


def random_checkpoint(draft: str, size: Size, progress: Progress) -> Parity:
    """4 bits of weights that never were in few bits: a Llama with the tokenizer of `draft`.

    Its weights are normal with standard deviation 0.04, so that its laws are about as sharp as
    a trained model's.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    found = resolve_source(draft, progress=progress)
    with TemporaryDirectory() as temporary:
        source = Path(temporary) / "random"
        source.mkdir()
        for path in found.path.glob("tokenizer*.json"):
            shutil.copy(path, source)
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=2,
            vocab_size=found.checkpoint.logits_width,
            max_position_embeddings=1024,
            initializer_range=0.04,
            tie_word_embeddings=True,
        )
        with progress.stage("make a random model"):
            LlamaForCausalLM(config).save_pretrained(source)
        folder = Path(temporary) / "draft"
        export_draft(source, folder, bits=4, progress=progress)
        return parity(str(source), folder, size, progress)


def acceptance(
    target: str, default: Path, fp32: Path, size: Size, progress: Progress
) -> dict[str, Any]:
    """How often a target accepts the draft, in 4 bits and in fp32, on the same texts."""
    from bench.remembered import Remembered
    from export.check.expected import Acceptance, expected_acceptance, standard_error
    from export.check.local_target import LocalTarget

    model = LocalTarget(
        resolve_source(target, progress=progress).path,
        dtype="bfloat16",
        trust_remote_code=False,
        progress=progress,
    )
    laws = Remembered(model)

    def of(folder: Path) -> Acceptance:
        with OnnxDraft.open(folder) as draft:
            return expected_acceptance(
                laws, draft, PROMPTS[: size.texts], tokens=size.tokens, progress=progress
            )

    few, many = of(default), of(fp32)
    pairs = zip(few.by_prompt, many.by_prompt, strict=True)
    error = standard_error([a - b for a, b in pairs])
    difference = few.by_method["hybrid"] - many.by_method["hybrid"]
    return {
        "acceptance": round(few.by_method["hybrid"], 4),
        "acceptance_fp32": round(many.by_method["hybrid"], 4),
        "acceptance_difference": round(difference, 4),
        "acceptance_difference_standard_error": None if error is None else round(error, 4),
        "acceptance_positions": few.positions,
    }


def _laws(prefix: str, found: Parity) -> dict[str, Any]:
    return {
        f"{prefix}kl": round(found.kl, 4),
        f"{prefix}top1": round(found.top1, 4),
        f"{prefix}max_logit_difference": round(found.max_logit_difference, 3),
    }


_BARS: Final[Sequence[tuple[str, str]]] = (
    ("decode_ratio_unfused4", "<= 0.70"),
    ("decode_ratio_fp32", "<= 0.35"),
    ("prefill_ratio_unfused4", "<= 1"),
    ("folder_mb", "<= 95"),
    ("load_s", "<= 1"),
    ("rss_ratio", "<= 2.0"),
    ("kl", ""),
    ("top1", ""),
    ("random_kl", ""),
    ("random_top1", ""),
    ("acceptance", ""),
    ("acceptance_fp32", ""),
    ("acceptance_difference", ">= -0.03"),
)


def _table(line: dict[str, Any]) -> Table:
    table = Table(title=f"{line['draft']} in 4 bits, {line['threads']} threads")
    for name in ("figure", "measured", "bar"):
        table.add_column(name, justify="left" if name == "figure" else "right")
    for name, limit in _BARS:
        if name in line:
            table.add_row(name, f"{line[name]:g}", limit)
    return table


if __name__ == "__main__":
    sys.exit(run(app, "bench.export"))
