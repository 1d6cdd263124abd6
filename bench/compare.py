"""Drafting against the server alone, in turns, so that what else the machine does cancels.

For each prompt and temperature the runs are A g1 A g2 A ... A with A = `autoregressive` and
g = a gamma of the drafting method; a gamma is held against the two A beside it. Compared is
the whole time of a text from its request to its last token (opening the session and both
prefills included) a token, since a text of a base model may end early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.table import Table

from edge_sdk.client import EdgeClient
from edge_sdk.sampling import Sampling
from edge_sdk.stats import Stats

GAMMAS: Final = (1, 2, 3, 4, 5)
TEMPERATURE: Final = 0.7
DEFAULT_GAMMA: Final = 3  # of `EdgeClient.generate`
LEAST_TOKENS, MOST_TOKENS = 16, 64
_WARM_UP_TOKENS: Final = 8
_REFERENCE = "autoregressive"


@dataclass(slots=True)
class Tally:
    """Sums of several generations."""

    runs: list[Stats] = field(default_factory=list)

    def total(self, name: str) -> float:
        """Sum of a field of `Stats`."""
        return float(sum(getattr(run, name) for run in self.runs))

    def per_token(self, name: str) -> float:
        tokens = self.total("tokens")
        return self.total(name) / tokens if tokens else 0.0

    @property
    def seconds_per_token(self) -> float:
        return self.per_token("seconds") + self.per_token("open_seconds")

    @property
    def acceptance(self) -> float:
        examined = self.total("examined")
        return self.total("accepted") / examined if examined else 0.0


@dataclass(slots=True)
class Comparison:
    """One method at one temperature.

    Attributes:
        drafted: runs of the method by gamma.
        alone: runs of `autoregressive` beside them, by gamma; inner ones count for two.
    """

    method: str
    temperature: float
    drafted: dict[int, Tally] = field(default_factory=dict)
    alone: dict[int, Tally] = field(default_factory=dict)

    def speedup(self, gamma: int) -> float:
        """Time a token of the server alone / of the method."""
        own = self.drafted[gamma].seconds_per_token
        return self.alone[gamma].seconds_per_token / own if own > 0 else 0.0

    @property
    def best_gamma(self) -> int:
        return max(self.drafted, key=self.speedup)

    def table(self) -> Table:
        """A row a gamma. Milliseconds a token with the method and alone beside it, then
        milliseconds a round: all, drafting, server, and the rest."""
        table = Table(
            title=f"{self.method}, temperature {self.temperature:g}; speed against the server "
            f"alone\nms a token, per-token traffic in bits, ms a round",
            box=None,
            padding=(0, 1),
            collapse_padding=True,
            pad_edge=False,
        )
        names = ["gamma", "ms", "alone", "speed", "accept", "calls", "up", "down"]
        for name in [*names, "round", "draft", "server", "rest"]:
            table.add_column(name, justify="right", no_wrap=True)
        for gamma, tally in self.drafted.items():
            rounds = max(tally.total("rounds"), 1.0) / 1e3
            draft, server = tally.total("draft_seconds"), tally.total("server_seconds")
            seconds = tally.total("seconds")
            table.add_row(
                f"{gamma}",
                f"{1e3 * tally.seconds_per_token:.1f}",
                f"{1e3 * self.alone[gamma].seconds_per_token:.1f}",
                f"{self.speedup(gamma):.2f}",
                f"{tally.acceptance:.2f}",
                f"{tally.per_token('target_calls'):.2f}",
                f"{8 * tally.per_token('up_bytes'):,.0f}",
                f"{8 * tally.per_token('down_bytes'):,.0f}",
                f"{seconds / rounds:.1f}",
                f"{draft / rounds:.1f}",
                f"{server / rounds:.1f}",
                f"{(seconds - draft - server) / rounds:.1f}",
                style="bold" if gamma == self.best_gamma else None,
            )
        return table


async def compare(
    client: EdgeClient,
    method: str,
    *,
    temperature: float,
    prompts: Sequence[str],
    tokens: int,
    gammas: Sequence[int] = GAMMAS,
    seed: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> Comparison:
    """Run a method at every gamma and the server alone beside it.

    Args:
        tokens: most tokens of a text.
        advance: called after each run, `len(prompts) * (2 * len(gammas) + 1)` times.
    """
    result = Comparison(method, temperature)

    async def run(name: str, prompt: str, number: int, gamma: int = 1) -> Stats:
        sampling = Sampling(temperature=temperature)
        stats = await generated(
            client, name, prompt, sampling, tokens=tokens, seed=seed + number, gamma=gamma
        )
        advance()
        return stats

    for index, prompt in enumerate(prompts):
        number = 1000 * index
        before = await run(_REFERENCE, prompt, number)
        for gamma in gammas:
            number += 1
            own = await run(method, prompt, number, gamma)
            after = await run(_REFERENCE, prompt, number)
            result.drafted.setdefault(gamma, Tally()).runs.append(own)
            result.alone.setdefault(gamma, Tally()).runs += [before, after]
            before = after
    return result


async def generated(
    client: EdgeClient,
    method: str,
    prompt: str,
    sampling: Sampling,
    *,
    tokens: int,
    seed: int,
    gamma: int,
) -> Stats:
    """What one text cost."""
    stream = client.generate(
        prompt, method=method, sampling=sampling, max_tokens=tokens, seed=seed, gamma=gamma
    )
    async with stream:
        async for _ in stream:
            pass
    return stream.stats


async def warm_up(client: EdgeClient, prompt: str, *, gammas: Sequence[int] = GAMMAS) -> None:
    """Let both models see every shape of a pass once."""
    sampling = Sampling(temperature=TEMPERATURE)
    for gamma in gammas:
        await generated(
            client, "hybrid", prompt, sampling, tokens=_WARM_UP_TOKENS, seed=0, gamma=gamma
        )


async def tokens_that_fit(client: EdgeClient, prompt: str, *, seconds: float, runs: int) -> int:
    """Tokens a text so that so many runs take about so many seconds."""
    stats = await generated(
        client,
        _REFERENCE,
        prompt,
        Sampling(temperature=TEMPERATURE),
        tokens=LEAST_TOKENS,
        seed=0,
        gamma=1,
    )
    each = (stats.seconds + stats.open_seconds) / max(stats.tokens, 1)
    return int(min(max(seconds / runs / each, LEAST_TOKENS), MOST_TOKENS))
