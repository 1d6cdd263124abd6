"""Texts two ways over the same link, in turns, so that what else the machine does cancels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Final

from edge_sdk.adapt import Controller
from edge_sdk.client import EdgeClient
from edge_sdk.sampling import Sampling
from edge_sdk.stats import Stats
from edge_sdk.stream import Stream

_WARM_UP_TOKENS: Final = 8


@dataclass(slots=True)
class Contest:
    """Texts of a candidate, and those that each is held against.

    Attributes:
        own: stats by text.
        others: those of the texts beside it.
        whole: a text's time begins with its request; otherwise with its first round.
    """

    own: list[Stats] = field(default_factory=list)
    others: list[Sequence[Stats]] = field(default_factory=list)
    whole: bool = True

    @property
    def gains(self) -> list[float]:
        """Speed of each text over that of those beside it."""
        return [
            fmean(map(self._each, others)) / self._each(own)
            for own, others in zip(self.own, self.others, strict=True)
        ]

    @property
    def gain(self) -> float:
        """Their median."""
        return median(self.gains)

    @property
    def pooled_gain(self) -> float:
        """Seconds a token of all texts beside over those of the candidate's: a longer text counts
        for more."""
        others = [stats for beside in self.others for stats in beside]
        return self._pooled(others) / self._pooled(self.own)

    @property
    def speed(self) -> float:
        """Tokens a second of the candidate, median."""
        return median(1 / self._each(own) for own in self.own)

    @property
    def other_speed(self) -> float:
        return median(1 / self._each(stats) for both in self.others for stats in both)

    @property
    def drafted_share(self) -> float:
        """Of the candidate's tokens, those that were drafted."""
        return sum(own.accepted for own in self.own) / max(1, sum(own.tokens for own in self.own))

    @property
    def acceptance(self) -> float:
        examined = sum(own.examined for own in self.own)
        return sum(own.accepted for own in self.own) / examined if examined else 0.0

    def _each(self, stats: Stats) -> float:
        """Seconds a token."""
        return self._seconds(stats) / max(stats.tokens, 1)

    def _pooled(self, texts: Sequence[Stats]) -> float:
        return sum(map(self._seconds, texts)) / max(sum(stats.tokens for stats in texts), 1)

    def _seconds(self, stats: Stats) -> float:
        """The opening of session and draft counts in a whole text."""
        return stats.seconds + (stats.open_seconds if self.whole else 0.0)


async def contest(
    own: Callable[[str, int], Awaitable[Stats]],
    other: Callable[[str, int], Awaitable[Stats]],
    prompts: Sequence[str],
    *,
    whole: bool,
    advance: Callable[[], None] = lambda: None,
) -> Contest:
    """Texts other, own, other, own, ..., other, after one of each that is not counted: what
    adapts learns of pair and link from it, as from every earlier text of a client.

    Args:
        own, other: write a text from a prompt with a seed.
        prompts: one for each pair of texts.
        whole: see `Contest`.
        advance: called after each text, `2 * len(prompts) + 3` times.
    """
    result = Contest(whole=whole)
    for first in (other, own):
        await first(prompts[-1], len(prompts) + 1)
        advance()
    before = await other(prompts[0], 0)
    advance()
    for number, prompt in enumerate(prompts):
        result.own.append(await own(prompt, number))
        advance()
        after = await other(prompts[(number + 1) % len(prompts)], number + 1)
        advance()
        result.others.append((before, after))
        before = after
    return result


async def same_texts(
    own: Callable[[str, int], Awaitable[Stats]],
    other: Callable[[str, int], Awaitable[Stats]],
    prompts: Sequence[str],
    *,
    advance: Callable[[], None] = lambda: None,
) -> Contest:
    """The same texts both ways, the one and then the other first, after one of each that is not
    counted. For writers whose texts are a function of prompt and seed, up to what a target's
    rounding makes of ties: little but the speed differs then.

    Args: see `contest`.
    """
    result = Contest(whole=False)
    for first in (other, own):
        await first(prompts[-1], len(prompts) + 1)
        advance()
    for number, prompt in enumerate(prompts):
        stats: dict[bool, Stats] = {}
        for ours in (bool(number % 2), not number % 2):
            stats[ours] = await (own if ours else other)(prompt, number)
            advance()
        result.own.append(stats[True])
        result.others.append((stats[False],))
    return result


class Writer:
    """Writes texts that adapt to link, text and pair.

    Args:
        client: of the link.
        method: the decoding method.
        controller: what adapts; by default the client's own.
    """

    def __init__(
        self,
        client: EdgeClient,
        *,
        method: str = "hybrid",
        sampling: Sampling,
        tokens: int,
        controller: Controller | None = None,
    ) -> None:
        self._client = client
        self._method = method
        self._sampling = sampling
        self._tokens = tokens
        self._controller = controller

    async def __call__(self, prompt: str, seed: int) -> Stats:
        if self._controller is not None:
            self._client._controllers[self._method] = self._controller
        return await written(
            self._client.generate(
                prompt,
                method=self._method,
                sampling=self._sampling,
                max_tokens=self._tokens,
                seed=seed,
            )
        )


async def written(stream: Stream) -> Stats:
    """What a text cost, once it is complete."""
    async with stream:
        async for _ in stream:
            pass
    return stream.stats


async def warm_up(client: EdgeClient, prompt: str, sampling: Sampling) -> float:
    """Let both models run once, by fixed settings, from which no controller learns.

    Returns:
        seconds a token of the server alone.
    """
    for gamma in (2, 6):
        await written(
            client.generate(
                prompt, sampling=sampling, max_tokens=_WARM_UP_TOKENS, seed=0, gamma=gamma, window=2
            )
        )
    alone = Writer(client, method="autoregressive", sampling=sampling, tokens=3 * _WARM_UP_TOKENS)
    stats = await alone(prompt, 0)
    return stats.seconds / max(stats.tokens, 1)
