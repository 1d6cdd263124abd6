"""What judging drafts costs beside the forward pass: `python -m bench.judging`.

Rows are random, peaked as those of Gemma 3 (logits with a standard deviation of 5). One
thread; time is that which the thread had a core, so other work on the machine matters little.
The last line is JSON: microseconds a row or settlement, milliseconds a step.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import numpy as np
import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.program import run
from edge_sdk.decoding.candidates import Candidates
from edge_sdk.decoding.coins import PrfCoins, Side
from edge_sdk.decoding.grid import GRID
from edge_sdk.sampling import Sampling
from server_app.methods.base import Pair, Proposal, ServerHalf
from server_app.methods.candidates import CandidatesServer
from server_app.methods.coupled import CoupledServer
from server_app.methods.full import FullServer
from server_app.methods.greedy import GreedyServer
from server_app.methods.hybrid import HeadTailServer, HybridServer
from server_app.methods.noise import SharedNoise
from server_app.methods.prepare import prepare
from server_app.methods.rows import Rows

_SPREAD: Final = 5.0  # standard deviation of Gemma 3's logits on plain text
_ACCEPTANCE: Final = 0.65
_COMMON: Final = 46_147  # ids that SmolLM2 and Gemma 3 have in common
_MASKED: Final = 6_200  # unused ids of Gemma 3
_SEEN: Final = 1_000  # ids of prompt and text, for the penalty

SAMPLINGS: Final = {
    "temperature": Sampling(temperature=0.7),
    "top_k": Sampling(temperature=0.7, top_k=50),
    "top_p": Sampling(temperature=0.7, top_p=0.9),
    "min_p": Sampling(temperature=0.7, min_p=0.05),
    "penalty": Sampling(temperature=0.7, repetition_penalty=1.1),
    "greedy": Sampling(temperature=0),
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Material:
    """Logits [sessions, gamma + 1, V], and what the sessions drafted."""

    logits: torch.Tensor
    masked: torch.Tensor
    drafts: list[Proposal]
    pair: Pair
    keys: np.ndarray

    def rows(self, session: int, sampling: Sampling) -> Rows:
        seen = list(range(7_000, 7_000 + _SEEN)) if sampling.repetition_penalty != 1 else []
        drafted = self.drafts[session].tokens
        return Rows(self.logits[session], sampling, self.masked, seen=seen, drafted=drafted)

    def halves(self, seed: int) -> dict[str, ServerHalf]:
        coins = PrfCoins(seed=seed, side=Side.SERVER)
        shaped = SAMPLINGS["temperature"]
        return {
            "head_tail": HeadTailServer(coins, "f32"),
            "law": HybridServer(coins, "f32"),
            "candidates": CandidatesServer(Candidates(), coins),
            "coupled": CoupledServer(shaped, seed, SharedNoise(self.keys)),
            "full": FullServer(coins, "f32"),
            "greedy": GreedyServer(),
        }


def material(sessions: int, gamma: int, size: int) -> Material:
    """Drafts that are accepted with the usual probability."""
    draw = torch.Generator().manual_seed(1)
    shape = (sessions, gamma + 1, size)
    logits = (torch.randn(shape, generator=draw) * _SPREAD).bfloat16()
    rng = np.random.default_rng(2)
    usual = np.arange(size)[size // 8 :]
    masked = torch.arange(min(_MASKED, size // 16)) + size // 40
    drafts = []
    for session in logits:
        laws = [torch.softmax(row.float() / 0.7, 0) for row in session[:gamma]]
        tokens = [int(law.multinomial(1, generator=draw)) for law in laws]
        q = [float(law[token]) / _ACCEPTANCE for law, token in zip(laws, tokens, strict=True)]
        drafts.append(Proposal(tokens, [min(GRID, max(1, round(each * GRID))) for each in q]))
    common = np.sort(rng.choice(usual, min(_COMMON, len(usual)), replace=False))
    keys = rng.integers(0, 2**64, size, dtype=np.uint64)
    return Material(logits, masked, drafts, Pair("pair", common), keys)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def judging(
    sessions: Annotated[int, typer.Option(min=1, help="Sessions of a step.")] = 16,
    gamma: Annotated[int, typer.Option(min=1, help="Drafted tokens of each.")] = 4,
    size: Annotated[int, typer.Option(min=1024, help="Ids of a row.")] = 262_144,
    quick: Annotated[bool, typer.Option(help="Fewer repetitions.")] = False,
) -> None:
    """Time accept tests, settlements and whole steps."""
    torch.set_num_threads(1)
    given = material(sessions, gamma, size)
    times = 12 if quick else 60
    figures: dict[str, Any] = {
        "size": size,
        "accept_us": _rounded(_accepts(given, times)),
        "settle_us": _rounded(_settlements(given, times)),
        "step_ms": {name: _step(given, name, quick=quick) for name in given.halves(1)},
        "step_prepared_ms": _step(given, "head_tail", quick=quick, on_host=True),
        "step_wall_ms": _in_threads(given, quick=quick),
    }
    table = Table("what", "cost", title=f"judging, {size:,} ids")
    for group, unit in (("accept_us", "us a row"), ("settle_us", "us"), ("step_ms", "ms")):
        for name, value in figures[group].items():
            table.add_row(f"{group.split('_')[0]} {name}", f"{value:,} {unit}")
    Console().print(table)
    print(json.dumps({**figures, "sessions": sessions, "gamma": gamma}))


def _accepts(given: Material, times: int) -> dict[str, float]:
    """Median of one accept test on a row that was not looked at before."""
    costs = {}
    for name, sampling in SAMPLINGS.items():
        half = given.halves(1)["greedy" if sampling.greedy else "head_tail"]

        costs[name] = _median(
            partial(half.accepts, rows, index, given.drafts[session], position=index)
            for session, index in _places(given, times)
            for rows in (given.rows(session, sampling),)
        )
    return costs


def _settlements(given: Material, times: int) -> dict[str, float]:
    """Median of settling a row right after its accept test, and of a bonus."""
    costs = {}
    for name in given.halves(1):
        sampling = SAMPLINGS["greedy" if name == "greedy" else "temperature"]

        def refused(session: int, index: int, name: str, sampling: Sampling) -> Callable[[], Any]:
            half, rows = given.halves(session)[name], given.rows(session, sampling)
            draft = given.drafts[session]
            half.accepts(rows, index, draft, position=index)
            return partial(half.reject, rows, index, draft, given.pair, position=index)

        costs[name] = _median(refused(*place, name, sampling) for place in _places(given, times))

    def bonus(session: int, index: int) -> Callable[[], Any]:
        half, rows = given.halves(session)["head_tail"], given.rows(session, sampling)
        return partial(half.settle, rows, index, position=index)

    sampling = SAMPLINGS["temperature"]
    costs["bonus"] = _median(bonus(*place) for place in _places(given, times))
    return costs


def _step(given: Material, name: str, *, quick: bool, on_host: bool = False) -> float:
    """Median milliseconds of judging all sessions, as the engine does after a pass."""
    sampling = SAMPLINGS["greedy" if name == "greedy" else "temperature"]
    count = given.logits.shape[0]
    taken = []
    for time_ in range(3 if quick else 10):
        halves = [given.halves(100 * time_ + session)[name] for session in range(count)]
        begin = time.thread_time()
        rows = [given.rows(session, sampling) for session in range(count)]
        prepare(rows, on_host=on_host)
        for session, half in enumerate(halves):
            _judge(half, rows[session], given.drafts[session], given.pair)
        taken.append(time.thread_time() - begin)
    return round(1e3 * float(np.median(taken)), 2)


def _in_threads(given: Material, *, quick: bool) -> dict[str, float]:
    """Least milliseconds, by the clock, of a step of `head_tail` in one thread and in two,
    taken in turns."""
    count = given.logits.shape[0]
    best = {"one": math.inf, "two": math.inf}
    with ThreadPoolExecutor(2) as pool:
        for time_ in range(6 if quick else 30):
            for name in best:
                halves = [given.halves(100 * time_ + each)["head_tail"] for each in range(count)]
                rows = [given.rows(each, SAMPLINGS["temperature"]) for each in range(count)]
                todo = zip(halves, rows, given.drafts, [given.pair] * count, strict=True)
                begin = time.perf_counter()
                if name == "one":
                    for each in todo:
                        _judge(*each)
                else:
                    list(pool.map(_judge, *zip(*todo, strict=True)))
                best[name] = min(best[name], 1e3 * (time.perf_counter() - begin))
    return {name: round(value, 2) for name, value in best.items()}


def _judge(half: ServerHalf, rows: Rows, draft: Proposal, pair: Pair) -> None:
    for index in range(len(draft.tokens)):
        if not half.accepts(rows, index, draft, position=index):
            half.reject(rows, index, draft, pair, position=index)
            return
    half.settle(rows, len(draft.tokens), position=len(draft.tokens))


def _places(given: Material, times: int) -> Iterator[tuple[int, int]]:
    sessions, gamma = given.logits.shape[0], given.logits.shape[1] - 1
    for number in range(times):
        yield number % sessions, number // sessions % gamma


def _median(actions: Iterator[Callable[[], Any]]) -> float:
    """Microseconds."""
    taken = []
    for action in actions:
        begin = time.thread_time()
        action()
        taken.append(time.thread_time() - begin)
    return 1e6 * float(np.median(taken))


def _rounded(costs: dict[str, float]) -> dict[str, float]:
    return {name: round(cost, 1) for name, cost in costs.items()}


if __name__ == "__main__":
    sys.exit(run(app, "bench.judging"))
