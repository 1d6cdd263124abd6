"""What the SDK costs and gains: `python -m bench.sdk`.

Two real models on this machine, the target in a server process of its own, and a proxy that
makes loopback a link of a given round-trip time. The device has one core and the server the
others, since drafting ahead on the cores that verify slows both, which two machines would not;
`--shared-cores` lets them share. What is compared takes turns, and figures are medians, so a busy
machine blurs more than it shifts. The last line is JSON; figures by round-trip time (ms) have
string keys:

    overhead_p50_ms    a round without draft forward, server and link (gamma 4, `hybrid`)
    model_ratio        tokens a second against E[N] / (gamma t_d + t_v + RTT + overhead)
    decode_ratio_bare  a draft step against a bare onnxruntime loop, 64 tokens of context
    decode_ratio_1024  a draft step after 1,024 tokens against one after 64
    ahead_gain         drafting ahead against one block at a time, both adaptive, over the same
                       texts: at 0 the default pair at temperature 0.7 (`coupled`), above it
                       SmolLM2 drafting for SmolLM2 at temperature 0
    ahead_gain_sampled the latter at temperature 0.7, where fewer drafts are accepted
    speedup            adaptive `hybrid` against `autoregressive`, default pair
    cancel_ms          until a cancelled text is gone, by what it was doing
    import_ms, base_mb time of the import; size of a plain install without onnxruntime and numpy
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from bench.models import DRAFT, TARGET, Pair, open_draft, prepare_pair
from bench.program import run
from bench.prompts import FOUR_PROMPTS, PROMPTS
from bench.sdk_cancel import cancel_seconds
from bench.sdk_compared import ahead_gains, speedup
from bench.sdk_decode import decode_times
from bench.sdk_draft import TimedDraft
from bench.sdk_plan import PAD_VARIABLE, SAMPLING, Plan, over
from bench.sdk_plot import check_place, draw
from bench.sdk_round import rounds_of
from bench.sdk_size import base_packages, import_seconds
from bench.server import ServerProcess
from bench.terminal import steps
from edge_sdk.cli.app import one_line

GAMMA: Final = 4
SAME: Final = "smollm2-135m"  # a target of the draft's own kind
_ROUND_TRIPS: Final = (0, 20, 50, 100)
_QUICK_ROUND_TRIPS: Final = (0, 50)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Part(StrEnum):
    """What can be measured by itself."""

    SIZE = "size"
    DECODE = "decode"
    ROUNDS = "rounds"
    CANCEL = "cancel"
    SPEEDUP = "speedup"
    AHEAD = "ahead"


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def sdk(
    quick: Annotated[
        bool, typer.Option("--quick", help="Under three minutes: less of everything.")
    ] = False,
    only: Annotated[
        list[Part] | None, typer.Option(help="Measure this part only; may be given again.")
    ] = None,
    rtt: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Round-trip times in ms.", show_default="0, 20, 50 and 100"),
    ] = None,
    pad_target: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="SIMULATION: every pass of the target takes so many ms more, as a bigger one's "
            "would. The figures say so.",
        ),
    ] = 0.0,
    target: Annotated[str, typer.Option(help="What `cosd prepare` takes, or toy:SEED.")] = TARGET,
    draft: Annotated[
        str, typer.Option(help="What `cosd prepare --draft` takes, or toy:SEED.")
    ] = DRAFT,
    same: Annotated[str, typer.Option(help="The target of the draft's own kind.")] = SAME,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of the draft.", show_default="the faster of 1 and all"),
    ] = None,
    shared_cores: Annotated[
        bool, typer.Option(help="Device and server share all cores of this machine.")
    ] = False,
    plot: Annotated[Path, typer.Option(help="Where the plot goes.")] = Path("sdk.png"),
) -> None:
    """Measure what the SDK costs and gains over links of several round-trip times."""
    check_place(plot)
    plan = Plan(
        round_trips=sorted(set(rtt or (_QUICK_ROUND_TRIPS if quick else _ROUND_TRIPS))),
        prompts=FOUR_PROMPTS[:2] if quick else FOUR_PROMPTS,
        more_prompts=PROMPTS[::4] if quick else PROMPTS[::2],
        text_seconds=14.0 if quick else 60.0,
        round_tokens=48 if quick else 96,
        turns=12 if quick else 40,
        threads=threads,
        pad=pad_target,
        shared=shared_cores or len(_cores()) < 2,
    )
    parts = set(only or Part)
    console = Console()
    pair = prepare_pair(target, draft, console=console)
    figures: dict[str, Any] = {"cores": "shared" if plan.shared else "split"}
    if pad_target:
        figures["simulated_pad_ms"] = pad_target
        console.print(f"SIMULATION: every pass of the target takes {pad_target:g} ms more.")
    if Part.SIZE in parts:
        figures |= _size(console, runs=3 if quick else 7)
    if Part.DECODE in parts and not pair.draft.startswith("toy"):
        figures |= _decode(console, Path(pair.draft), plan)
    if parts & {Part.ROUNDS, Part.CANCEL, Part.SPEEDUP, Part.AHEAD}:
        with _serving(pair.target, plan, console) as server, _drafting(pair, plan) as model:
            figures |= asyncio.run(_with_pair(server, model, console, plan, parts))
    if Part.AHEAD in parts:
        like = prepare_pair(same, draft, console=console)
        with _serving(like.target, plan, console) as server, _drafting(pair, plan) as model:
            wanted = [rtt for rtt in plan.round_trips if rtt] or [100]
            if quick and rtt is None:
                wanted = [100]
            for greedy, name in ((True, "ahead_gain_same"), (False, "ahead_gain_sampled")):
                figures[name] = asyncio.run(
                    ahead_gains(server, model, console, plan, wanted, greedy=greedy)
                )
        figures["ahead_gain"] = figures["ahead_gain_same"] | figures["ahead_gain_default"]
    note = f"SIMULATION: target padded by {pad_target:g} ms" if pad_target else ""
    if draw(figures, plot, note=note):
        figures["plot"] = str(plot)
    print(json.dumps(figures), flush=True)


@contextlib.contextmanager
def _serving(target: str, plan: Plan, console: Console) -> Iterator[ServerProcess]:
    cores = _cores()
    environment = {PAD_VARIABLE: f"{plan.pad:g}"}
    if not plan.shared:
        environment["COSD_THREADS"] = str(len(cores) - 1)
        # What is started takes this over.
        os.sched_setaffinity(0, cores[1:])
    module = "bench.sdk_padded" if plan.pad else "bench.guarded"
    try:
        with ServerProcess(target, module=module, environment=environment) as server:
            if not plan.shared:
                os.sched_setaffinity(0, cores[:1])
            with console.status("starting the server") as status:
                server.wait_ready(lambda line: status.update(one_line(line)))
            yield server
    finally:
        if not plan.shared:
            os.sched_setaffinity(0, cores)


def _cores() -> list[int]:
    """Cores that this process may use; none where the system does not tell."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextlib.contextmanager
def _drafting(pair: Pair, plan: Plan) -> Iterator[TimedDraft]:
    model = open_draft(pair.draft, threads=plan.threads)
    try:
        yield TimedDraft(model)
    finally:
        model.close()


async def _with_pair(
    server: ServerProcess, draft: TimedDraft, console: Console, plan: Plan, parts: set[Part]
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if Part.ROUNDS in parts:
        figures |= await _rounds(server, draft, console, plan)
    if Part.CANCEL in parts:
        async with over(server, draft, 0) as client:
            taken = await cancel_seconds(client, draft, plan.prompts[0])
        figures["cancel_ms"] = {place: round(1e3 * value, 1) for place, value in taken.items()}
        _print(console, "until a cancelled text is gone, ms", figures["cancel_ms"])
    if Part.SPEEDUP in parts:
        figures |= await speedup(server, draft, console, plan)
    if Part.AHEAD in parts:
        figures["ahead_gain_default"] = await ahead_gains(
            server, draft, console, plan, [0], greedy=False
        )
    return figures


def _size(console: Console, *, runs: int) -> dict[str, Any]:
    packages = base_packages()
    figures = {
        "import_ms": round(1e3 * import_seconds(runs=runs), 1),
        "base_mb": round(sum(packages.values()) / 1e6, 1),
    }
    _print(console, "the SDK itself", figures)
    return figures


def _decode(console: Console, folder: Path, plan: Plan) -> dict[str, Any]:
    with steps("decode steps", plan.turns) as advance:
        times = decode_times(folder, threads=plan.threads or 1, turns=plan.turns, advance=advance)
    table = Table("decode step", "ms", title="draft, one thread unless told otherwise")
    table.add_row("bare onnxruntime, 64 tokens", f"{1e3 * times.bare:.2f}")
    table.add_row("OnnxDraft, 64 tokens", f"{1e3 * times.short:.2f}")
    table.add_row("OnnxDraft, 1,024 tokens", f"{1e3 * times.long:.2f}")
    console.print(table)
    return {
        "decode_ratio_bare": round(times.bare_ratio, 3),
        "decode_ratio_1024": round(times.long_ratio, 3),
        "decode_ms": round(1e3 * times.short, 2),
    }


async def _rounds(
    server: ServerProcess, draft: TimedDraft, console: Console, plan: Plan
) -> dict[str, Any]:
    """The overhead comes from the link without delay, whatever round-trip times are asked for."""
    table = Table(
        "RTT", "round", "draft", "server", "echo", "rest", "E[N]", "even", "ratio",
        title=f"rounds of one block of {GAMMA}: medians in ms; E[N] as counted, and of an even "
        "text;\nspeed against the model of its parts",
    )  # fmt: skip
    ratios: dict[str, float] = {}
    overhead = common = 0.0
    for rtt in sorted({0, *plan.round_trips}):
        async with over(server, draft, rtt) as client:
            taken = await rounds_of(
                client,
                draft,
                plan.prompts,
                gamma=GAMMA,
                tokens=plan.round_tokens,
                sampling=SAMPLING,
                echo_every=1 if rtt == 0 else 4,
            )
            common = len(client.alignment)
        if rtt == 0:
            overhead = taken.overhead
        # Without a link in between an echo is what is left of one.
        link = rtt / 1e3 if rtt else taken.echo
        ratios[str(rtt)] = round(taken.ratio(round_trip=link, overhead=overhead), 3)
        cells = (taken.seconds, GAMMA * taken.forward, taken.server, taken.echo, taken.overhead)
        table.add_row(
            str(rtt),
            *(f"{1e3 * cell:.2f}" for cell in cells),
            f"{taken.tokens:.2f}",
            f"{taken.expected:.2f}",
            f"{ratios[str(rtt)]:.3f}",
        )
    console.print(table)
    return {
        "overhead_p50_ms": round(1e3 * overhead, 3),
        "model_ratio": ratios,
        "common_vocabulary": int(common),
    }


def _print(console: Console, title: str, figures: dict[str, Any]) -> None:
    table = Table("what", "figure", title=title)
    for name, value in figures.items():
        table.add_row(name, f"{value:g}")
    console.print(table)


if __name__ == "__main__":
    sys.exit(run(app, "bench.sdk"))
