"""Every decoding method on a real pair of models: what crosses the link, a token.

python -m bench.methods --prompts gsm8k_test.jsonl --limit 6
python -m bench.methods --quick
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from bench.compare import tokens_that_fit
from bench.method_figures import Figures, chosen, measure, show
from bench.models import DRAFT, TARGET, open_draft, prepare_pair
from bench.program import run
from bench.prompt_files import read_prompts
from bench.prompts import PROMPTS
from bench.server import ServerProcess
from bench.terminal import steps
from edge_sdk.cli.app import one_line
from edge_sdk.client import EdgeClient
from edge_sdk.decoding.method import Method
from edge_sdk.draft.model import DraftModel
from edge_sdk.errors import InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.wire.limits import MAX_DRAFT

# Target and draft. `same` has one vocabulary, so V_O is empty and `hybrid` is plain
# speculative sampling.
PAIRS: Final = {
    "default": (TARGET, DRAFT),
    "same": (DRAFT, DRAFT),
    "toy": ("toy:1", "toy:2"),
}
_QUICK_SECONDS: Final = 95.0  # of the two minutes, start of the server included
_QUICK_PROMPTS: Final = 2
_WARM_UP_TOKENS: Final = 6
# Methods whose texts cost about as much as one of the server alone, at most.
_PACE: Final = 1.3

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def methods(
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="File in the official format of GSM8K, HumanEval or MT-Bench.",
            show_default="a few built-in texts",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most prompts.")] = 6,
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a text.")] = 128,
    temperature: Annotated[float, typer.Option(help="Of both laws; `greedy` has 0.")] = 0.3,
    gamma: Annotated[int, typer.Option(min=1, max=MAX_DRAFT, help="Tokens drafted a round.")] = 2,
    pair: Annotated[
        str,
        typer.Option(
            help="default: SmolLM2 drafts for Gemma. same: SmolLM2 in 4 bits drafts for SmolLM2. "
            "toy: small random models without weights."
        ),
    ] = "default",
    methods: Annotated[
        str | None,
        typer.Option(help="Comma-separated.", show_default="all, with both forms of hybrid"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Short texts: done within two minutes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Only the last line, JSON.")] = False,
    seed: Annotated[int, typer.Option(help="The same seed repeats the texts.")] = 1,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of the draft.", show_default="the faster of 1 and all"),
    ] = None,
) -> None:
    """Measure every method; the last line is JSON."""
    begin = time.monotonic()
    if pair not in PAIRS:
        raise InvalidRequest(f"pair {pair!r} is not one of {', '.join(PAIRS)}", field="pair")
    wanted = chosen(methods)
    sampling = Sampling(temperature=temperature)
    texts = PROMPTS if prompts is None else [each.prompt for each in read_prompts(prompts).problems]
    texts = texts[: min(limit, _QUICK_PROMPTS) if quick else limit]
    console = Console(stderr=as_json)
    models = prepare_pair(*PAIRS[pair], console=console)
    if quick:
        begin = max(begin, time.monotonic() - 5.0)  # preparing models is apart
    with ServerProcess(models.target) as server:
        with console.status("starting the server") as status:
            server.wait_ready(lambda line: status.update(one_line(line)))
        model = open_draft(models.draft, threads=threads)
        try:
            figures = asyncio.run(
                _measure(
                    server,
                    model,
                    wanted,
                    prompts=texts,
                    tokens=tokens,
                    sampling=sampling,
                    gamma=gamma,
                    seed=seed,
                    end=begin + _QUICK_SECONDS if quick else None,
                )
            )
        finally:
            model.close()
    if not as_json:
        title = f"{len(texts)} prompts, temperature {temperature:g}, gamma {gamma}, pair {pair}"
        show(figures, title)
    print(json.dumps({"methods": {name: row.rounded() for name, row in figures.items()}}))


async def _measure(
    server: ServerProcess,
    model: DraftModel,
    methods: Mapping[str, Method],
    *,
    prompts: Sequence[str],
    tokens: int,
    sampling: Sampling,
    gamma: int,
    seed: int,
    end: float | None,
) -> dict[str, Figures]:
    async with EdgeClient(server.url, draft=model, api_key=server.api_key) as client:
        # Every method once: the first pass of each shape compiles it.
        await measure(
            client,
            methods,
            prompts=prompts[:1],
            tokens=_WARM_UP_TOKENS,
            sampling=sampling,
            gamma=gamma,
            seed=seed,
        )
        runs = len(prompts) * len(methods)
        if end is not None:
            seconds = max(end - time.monotonic(), 1.0) / _PACE
            tokens = min(
                tokens, await tokens_that_fit(client, prompts[0], seconds=seconds, runs=runs)
            )
        with steps("methods", runs) as advance:
            return await measure(
                client,
                methods,
                prompts=prompts,
                tokens=tokens,
                sampling=sampling,
                gamma=gamma,
                seed=seed,
                advance=advance,
            )


if __name__ == "__main__":
    sys.exit(run(app, "bench.methods"))
