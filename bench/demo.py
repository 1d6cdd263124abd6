"""`make demo`: two real models of different vendors write one text.

python -m bench.demo --prompt "The sea is"
python -m bench.demo --json
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Final

import typer
from rich.console import Console

from bench.compare import (
    DEFAULT_GAMMA,
    GAMMAS,
    TEMPERATURE,
    Comparison,
    compare,
    tokens_that_fit,
    warm_up,
)
from bench.models import DRAFT, TARGET, open_draft, prepare_pair
from bench.program import run
from bench.prompts import FOUR_PROMPTS
from bench.server import ServerProcess
from bench.terminal import legend, show, steps
from edge_sdk.cli.app import one_line
from edge_sdk.cli.figures import figures
from edge_sdk.client import EdgeClient
from edge_sdk.decoding.registry import METHODS
from edge_sdk.draft.model import DraftModel
from edge_sdk.errors import EmptyPrompt
from edge_sdk.sampling import Sampling
from edge_sdk.wire.limits import MAX_DRAFT

PROMPT: Final = "The lighthouse keeper climbed the stairs one last time. From the top he could see"
_SIGTERM_STATUS: Final = 128 + signal.SIGTERM

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def demo(
    prompt: Annotated[str, typer.Option(help="Text to go on from.")] = PROMPT,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Measure over several prompts, every gamma and temperatures 0.7 and 0; the "
            "last line is JSON. --prompt, --gamma, --temperature and --tokens are not used.",
        ),
    ] = False,
    gamma: Annotated[
        int, typer.Option(min=1, max=MAX_DRAFT, help="Tokens drafted a round.")
    ] = DEFAULT_GAMMA,
    temperature: Annotated[float, typer.Option(help="0 takes the likeliest token.")] = TEMPERATURE,
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a text.")] = 80,
    seed: Annotated[int | None, typer.Option(help="The same seed repeats the texts.")] = None,
    target: Annotated[str, typer.Option(help="What `cosd prepare` takes, or toy:SEED.")] = TARGET,
    draft: Annotated[
        str, typer.Option(help="What `cosd prepare --draft` takes, or toy:SEED.")
    ] = DRAFT,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of the draft.", show_default="the faster of 1 and all"),
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0.01, help="With --json: about how long to measure.")
    ] = 4.0,
) -> None:
    """Prepare two models, serve one, draft with the other, and show what that gains."""
    if not prompt:
        raise EmptyPrompt("the prompt is empty; give at least one character", field="prompt")
    sampling = Sampling(temperature=temperature)
    console = Console()
    pair = prepare_pair(target, draft, console=console)
    with _sigterm_unwinds(), ServerProcess(pair.target) as server:
        with console.status("starting the server") as status:
            server.wait_ready(lambda line: status.update(one_line(line)))
        console.print(f"The server is ready at {server.url}", highlight=False)
        model = open_draft(pair.draft, threads=threads)
        try:
            if as_json:
                result = asyncio.run(_measure(server, model, console, minutes=minutes))
            else:
                asyncio.run(
                    _write(
                        server,
                        model,
                        console,
                        prompt=prompt,
                        sampling=sampling,
                        tokens=tokens,
                        gamma=gamma,
                        seed=seed,
                    )
                )
        finally:
            model.close()
    if as_json:
        print(json.dumps(result), flush=True)


async def _write(
    server: ServerProcess,
    model: DraftModel,
    console: Console,
    *,
    prompt: str,
    sampling: Sampling,
    tokens: int,
    gamma: int,
    seed: int | None,
) -> None:
    runs = []
    async with EdgeClient(server.url, draft=model, api_key=server.api_key) as client:
        # The first pass of each shape compiles it, whoever asks for it.
        await warm_up(client, prompt, gammas=(gamma,))
        for method in ("hybrid", "autoregressive"):
            console.rule(method, style="dim")
            if METHODS[method].drafts:
                console.print(legend())
            console.print(
                prompt, style="dim", end="", markup=False, highlight=False, soft_wrap=True
            )
            stream = client.generate(
                prompt, method=method, sampling=sampling, max_tokens=tokens, seed=seed, gamma=gamma
            )
            await show(stream, console)
            runs.append(stream.stats)
    console.rule(style="dim")
    console.print(figures(runs))


async def _measure(
    server: ServerProcess, model: DraftModel, console: Console, *, minutes: float
) -> dict[str, float]:
    runs_each = len(FOUR_PROMPTS) * (2 * len(GAMMAS) + 1)
    async with EdgeClient(server.url, draft=model, api_key=server.api_key) as client:
        with console.status("warming up"):
            await warm_up(client, FOUR_PROMPTS[0])
            tokens = await tokens_that_fit(
                client, FOUR_PROMPTS[0], seconds=60 * minutes, runs=2 * runs_each
            )
        console.print(
            f"{len(FOUR_PROMPTS)} prompts, at most {tokens} tokens each, in turns with the "
            "server alone",
            highlight=False,
        )
        comparisons = []
        for method, temperature in (("hybrid", TEMPERATURE), ("greedy", 0.0)):
            with steps(f"{method}, temperature {temperature:g}", runs_each) as advance:
                comparisons.append(
                    await compare(
                        client,
                        method,
                        temperature=temperature,
                        prompts=FOUR_PROMPTS,
                        tokens=tokens,
                        advance=advance,
                    )
                )
            console.print(comparisons[-1].table())
        return report(*comparisons, common_vocabulary=len(client.alignment))


def report(sampling: Comparison, greedy: Comparison, *, common_vocabulary: int) -> dict[str, float]:
    """The JSON line. Speed-ups at the best gamma of each; the rest at temperature 0.7 with the
    default gamma, by the glossary of `edge_sdk.stats`."""
    default = sampling.drafted[DEFAULT_GAMMA]
    return {
        "speedup_sampling": round(sampling.speedup(sampling.best_gamma), 4),
        "speedup_greedy": round(greedy.speedup(greedy.best_gamma), 4),
        "best_gamma_sampling": sampling.best_gamma,
        "best_gamma_greedy": greedy.best_gamma,
        "gamma": DEFAULT_GAMMA,
        "acceptance": round(default.acceptance, 4),
        "common_vocabulary": common_vocabulary,
        "down_bits_per_token": round(8 * default.per_token("down_bytes"), 1),
        "up_bits_per_token": round(8 * default.per_token("up_bytes"), 1),
        "target_calls_per_token": round(default.per_token("target_calls"), 4),
    }


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """SIGTERM leaves blocks as Ctrl-C does, so that the server is stopped."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(_SIGTERM_STATUS)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(run(app, "bench.demo"))
