"""What the server's engine makes of many sessions at once: `python -m bench.engine`.

Ratios within one run, on the machine it runs on: 16 sessions together against the same
requests one by one; one session against the plain Hugging Face model with its own cache; time
of a step outside its forward pass; a request over HTTP with a target that costs nothing; and
memory over 10,000 sessions. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import copy
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.engine_load import GAMMA, Load, Steps, load
from bench.engine_service import request_milliseconds, sessions_come_and_go
from bench.models import TARGET
from bench.program import run
from bench.prompts import PROMPTS
from bench.sdk_plot import check_place
from edge_sdk.decoding.noise import token_keys
from edge_sdk.errors import InvalidRequest
from export.console import TerminalProgress
from export.pipeline import prepare_target
from server_app.engine.engine import Engine
from server_app.engine.scheduler import Policy
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.model import Chunk, TargetModel
from server_app.target.toy import ToyTarget

_SESSIONS: Final = 16
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)
_TOY_PASS: Final = 0.02  # seconds a pass of the toy target takes in the plot
_PROMPT: Final = 64  # tokens

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def engine(
    quick: Annotated[bool, typer.Option(help="Fewer repetitions, no plot.")] = False,
    target: Annotated[
        Path | None, typer.Option(help="Folder of the target; by default Gemma 3 270M.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="bfloat16, float16 or float32.")] = "bfloat16",
    pack_weights: Annotated[bool, typer.Option(help="As `cosd serve --pack-weights`.")] = False,
    repetitions: Annotated[int, typer.Option(min=1, help="Of every timing.")] = 15,
    plot: Annotated[Path, typer.Option(help="Where the plot goes.")] = Path("engine.png"),
) -> None:
    """Measure batching, overhead, requests and memory."""
    if not quick:
        check_place(plot)
    repetitions = min(repetitions, 6) if quick else repetitions
    console = Console(stderr=True)
    with TerminalProgress(console) as progress:
        folder = target or prepare_target(TARGET, progress=progress)
    model = _loaded(folder, dtype, console, pack_weights=pack_weights)
    figures: dict[str, Any] = {"pack_weights": pack_weights}
    figures |= asyncio.run(_batching(model, repetitions, console))
    with ThreadPoolExecutor(1) as thread:
        against = thread.submit(_against_stock, model, folder, repetitions, console)
    figures |= against.result()
    figures["request_p50_ms"] = round(asyncio.run(request_milliseconds(400 if quick else 2000)), 3)
    figures |= sessions_come_and_go(10_000, console)
    if not quick:
        curves = {
            model.name: asyncio.run(_throughput(model, 3, console)),
            f"toy, {1e3 * _TOY_PASS:.0f} ms a pass": asyncio.run(
                _throughput(ToyTarget.random(1, seconds_per_pass=_TOY_PASS), 5, console)
            ),
        }
        _print_curves(curves)
        _plot(curves, plot)
        figures["plot"] = str(plot)
    print(json.dumps(figures))


def _loaded(folder: Path, dtype: str, console: Console, *, pack_weights: bool) -> HuggingFaceTarget:
    """The model, loaded by a thread that ends, as the server does it.

    NOTE: OpenMP lets its threads sleep between products as soon as all threads that ever
    computed are more than the cores, which costs half of a pass. So only the engine's may.
    """
    with ThreadPoolExecutor(1) as loader:

        def load_and_warm_up() -> HuggingFaceTarget:
            model = HuggingFaceTarget.load(
                folder, dtype=dtype, pack_weights=pack_weights, progress=console.print
            )
            model.warm_up()
            return model

        return loader.submit(load_and_warm_up).result()


async def _batching(model: TargetModel, repetitions: int, console: Console) -> dict[str, float]:
    async with _Loaded(model, _SESSIONS) as loaded:
        pairs = []
        await loaded.together(_SESSIONS)
        outside = []
        for _ in track(range(repetitions), "16 sessions", console=console):
            alone = await loaded.one_by_one(_SESSIONS)
            loaded.steps.reports.clear()
            pairs.append((alone, await loaded.together(_SESSIONS)))
            reports = loaded.steps.reports
            forward = sum(report.forward_seconds for report in reports)
            outside.append((sum(report.seconds for report in reports) - forward) / forward)
        together = statistics.median(together for _, together in pairs)
        alone = statistics.median(alone for alone, _ in pairs)
        table = Table("16 sessions, 4 drafts each", "one by one", "together", "ratio")
        ratio = statistics.median(one / all_ for one, all_ in pairs)
        table.add_row("ms", f"{1e3 * alone:.0f}", f"{1e3 * together:.0f}", f"{ratio:.2f}")
        Console().print(table)
        return {
            "batch16_speedup": round(ratio, 3),
            "batch16_ms": round(1e3 * together, 2),
            "one_ms": round(1e3 * alone / _SESSIONS, 2),
            "overhead_share": round(statistics.median(outside), 4),
        }


class _Loaded:
    """An engine that runs, with sessions; stopped at the end."""

    def __init__(self, model: TargetModel, count: int) -> None:
        self._model = model
        self._count = count

    async def __aenter__(self) -> Load:
        steps = Steps()
        self._engine = Engine(self._model, Policy(), observer=steps)
        self._engine.start()
        keys = token_keys(self._model.vocabulary)
        prompts = _prompts(self._model, self._count)
        self._load = await load(self._engine, steps, prompts, keys=keys)
        return self._load

    async def __aexit__(self, *_: object) -> None:
        for session in self._load.sessions:
            self._engine.close(session)
        await self._engine.call(lambda: None)
        await asyncio.to_thread(self._engine.stop)


def _prompts(model: TargetModel, count: int) -> list[list[int]]:
    """Different prompts of `_PROMPT` tokens."""
    ids = [token for text in PROMPTS for token in model.encode(text)[1:]]
    first = model.encode(PROMPTS[0])[:1]
    rng = np.random.default_rng(2)
    return [
        [*first, *(ids[(start + n) % len(ids)] for n in range(_PROMPT - 1))]
        for start in rng.integers(0, len(ids), count)
    ]


def _against_stock(
    model: HuggingFaceTarget, folder: Path, repetitions: int, console: Console
) -> dict[str, float]:
    """Cost of a pass of one session against the stock model with its own cache."""
    stock = _Stock(folder, model)
    ids = _prompts(model, 1)[0]
    block = ids[1 : GAMMA + 2]
    sequence = model.new_sequence()
    model.forward([Chunk(sequence, ids, 1)])
    pairs = []
    for _ in track(range(3 * repetitions), "1 session", console=console):
        begin = time.perf_counter()
        model.forward([Chunk(sequence, block, len(block))])
        ours = time.perf_counter() - begin
        model.rollback(sequence, len(ids))
        pairs.append((ours, stock.seconds(ids, block)))
    model.release(sequence)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    mine, theirs = (1e3 * statistics.median(side) for side in zip(*pairs, strict=True))
    table = Table("1 session, 5 rows", "stock", "here", "ratio")
    table.add_row("ms", f"{theirs:.1f}", f"{mine:.1f}", f"{ratio:.3f}")
    Console().print(table)
    return {"batch1_cost_ratio": round(ratio, 3)}


class _Stock:
    """The model as transformers runs it, with its own cache and attention."""

    def __init__(self, folder: Path, like: HuggingFaceTarget) -> None:
        from transformers import AutoModelForCausalLM, DynamicCache

        self._make_cache: Any = DynamicCache
        self._held: Any = None
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=like.dtype, attn_implementation="sdpa"
        )
        self._model = model.to(like.device)

    @torch.inference_mode()
    def seconds(self, ids: Sequence[int], block: Sequence[int]) -> float:
        """Of a pass over `block` after `ids`."""
        if self._held is None:
            self._held = self._make_cache(config=self._model.config)
            # NOTE: rows by number: a count falls off a cliff in bfloat16 on CPUs.
            last = torch.tensor([len(ids) - 1])
            self._model(
                input_ids=torch.tensor([ids]), past_key_values=self._held, logits_to_keep=last
            )
        cache = copy.deepcopy(self._held)
        begin = time.perf_counter()
        self._model(input_ids=torch.tensor([block]), past_key_values=cache)
        return time.perf_counter() - begin


async def _throughput(
    model: TargetModel, repetitions: int, console: Console
) -> list[tuple[int, float]]:
    """Verifies a second by number of sessions."""
    curve = []
    async with _Loaded(model, max(_COUNTS)) as loaded:
        for count in track(_COUNTS, f"{model.name} by sessions", console=console):
            await loaded.together(count)
            seconds = [await loaded.together(count) for _ in range(repetitions)]
            curve.append((count, count / statistics.median(seconds)))
    return curve


def _print_curves(curves: dict[str, list[tuple[int, float]]]) -> None:
    table = Table("sessions", *curves, title="verifies of 4 drafts a second")
    for index, count in enumerate(_COUNTS):
        table.add_row(str(count), *(f"{curve[index][1]:.0f}" for curve in curves.values()))
    Console().print(table)


def _plot(curves: dict[str, list[tuple[int, float]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    for name, curve in curves.items():
        axes.plot(*zip(*curve, strict=True), marker="o", label=name)
    axes.set(xlabel="sessions", ylabel="verifies of 4 drafts a second", xscale="log", yscale="log")
    axes.set_xticks(_COUNTS, [str(count) for count in _COUNTS])
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, dpi=120, bbox_inches="tight")
    except OSError as error:
        raise InvalidRequest(f"the plot cannot be written to {path} ({error})") from error


if __name__ == "__main__":
    sys.exit(run(app, "bench.engine"))
