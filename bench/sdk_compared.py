"""Texts of a client against those it is compared with, by round-trip time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.sdk_draft import TimedDraft
from bench.sdk_plan import SAMPLING, Plan, over
from bench.sdk_texts import Contest, Writer, contest, same_texts, warm_up
from bench.server import ServerProcess
from bench.terminal import steps
from edge_sdk.adapt import Controller
from edge_sdk.client import EdgeClient
from edge_sdk.sampling import Sampling

_LEAST_TOKENS, _MOST_TOKENS = 40, 128


async def speedup(
    server: ServerProcess, draft: TimedDraft, console: Console, plan: Plan
) -> dict[str, Any]:
    """Adaptive `hybrid` against the server alone, as figures of the JSON line."""
    speedups: dict[str, float] = {}
    table = _contest_table("adaptive hybrid against the server alone", "alone")
    for rtt in plan.round_trips:
        async with over(server, draft, rtt) as client:
            tokens = await _tokens_that_fit(client, plan)
            own = Writer(client, sampling=SAMPLING, tokens=tokens)
            alone = Writer(client, method="autoregressive", sampling=SAMPLING, tokens=tokens)
            with steps(f"speed-up, RTT {rtt}", 2 * len(plan.prompts) + 3) as advance:
                result = await contest(own, alone, plan.prompts, whole=True, advance=advance)
        speedups[str(rtt)] = round(result.gain, 3)
        _contest_row(table, rtt, tokens, result, result.gain)
    console.print(table)
    return {"speedup": speedups}


async def ahead_gains(
    server: ServerProcess,
    draft: TimedDraft,
    console: Console,
    plan: Plan,
    round_trips: Sequence[int],
    *,
    greedy: bool,
) -> dict[str, float]:
    """Drafting ahead against one block at a time, both adaptive and over the same texts: ratios by
    round-trip time (ms).

    Args:
        greedy: at temperature 0, by `greedy`; otherwise as the other figures, by `coupled`,
            whose texts do not depend on how they are drafted either.
    """
    gains: dict[str, float] = {}
    method = "greedy" if greedy else "coupled"
    sampling = Sampling(temperature=0) if greedy else SAMPLING
    title = f"adaptive {method}, ahead against one block at a time"
    table = _contest_table(title, "one at a time")
    prompts = plan.more_prompts
    for rtt in round_trips:
        async with over(server, draft, rtt) as client:
            tokens = await _tokens_that_fit(client, plan)
            ahead, single = (
                Writer(
                    client,
                    method=method,
                    sampling=sampling,
                    tokens=tokens,
                    controller=Controller(ahead=ahead, plain=False),
                )
                for ahead in (True, False)
            )
            with steps(f"{method} ahead, RTT {rtt}", 2 * len(prompts) + 2) as advance:
                result = await same_texts(ahead, single, prompts, advance=advance)
        gains[str(rtt)] = round(result.pooled_gain, 3)
        _contest_row(table, rtt, tokens, result, result.pooled_gain)
    console.print(table)
    return gains


async def _tokens_that_fit(client: EdgeClient, plan: Plan) -> int:
    each = await warm_up(client, plan.prompts[0], SAMPLING)
    fitting = plan.text_seconds / (2 * len(plan.prompts) + 3) / each
    return int(min(max(fitting, _LEAST_TOKENS), _MOST_TOKENS))


def _contest_table(title: str, other: str) -> Table:
    return Table(
        "RTT", "length", "tokens/s", other, "ratio", "by text", "accept", "drafted",
        title=f"{title}\n(length of a text in tokens; share of its tokens that were drafted)",
    )  # fmt: skip


def _contest_row(table: Table, rtt: int, tokens: int, result: Contest, gain: float) -> None:
    table.add_row(
        str(rtt),
        str(tokens),
        f"{result.speed:.2f}",
        f"{result.other_speed:.2f}",
        f"{gain:.3f}",
        " ".join(f"{gain:.2f}" for gain in result.gains),
        f"{result.acceptance:.2f}",
        f"{result.drafted_share:.0%}",
    )
