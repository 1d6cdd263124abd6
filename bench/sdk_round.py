"""Rounds of one block at a time, taken apart.

A round is the time from one piece of a text to the next. Of it the forward passes of the draft
are timed inside, the server reports its own time, and the link is an echo through the same
client: the last verify sent again, which the server answers from its memory. `overhead` is the
rest: laws and draws of the draft, threads, messages, the verdict taken in.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from bench.sdk_draft import TimedDraft
from bench.sdk_transport import EchoTransport
from edge_sdk.client import EdgeClient
from edge_sdk.sampling import Sampling

_BEGINNING: Final = 3  # rounds that a text begins with, WebSocket and caches not being there yet


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds, but for the counts.

    Attributes:
        seconds: all of it.
        forward: in the draft's forward passes.
        server: as the server reports.
        drafted, tokens, examined, accepted: of the block and of the text.
        asked: the replacement needed a further trip.
    """

    seconds: float
    forward: float
    server: float
    drafted: int
    tokens: int
    examined: int
    accepted: int
    asked: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """Rounds with one gamma over one link.

    Attributes:
        echoes: seconds of each echo, the server's own time taken off.
    """

    gamma: int
    rounds: Sequence[Round]
    echoes: Sequence[float]

    @property
    def echo(self) -> float:
        """Median seconds."""
        return median(self.echoes)

    @property
    def overhead(self) -> float:
        """Median seconds."""
        echo = self.echo
        return median(r.seconds - r.forward - r.server - echo for r in self.rounds)

    @property
    def forward(self) -> float:
        """Median seconds a drafted token."""
        return median(r.forward / r.drafted for r in self.rounds)

    @property
    def server(self) -> float:
        """Median seconds of a verify."""
        return median(r.server for r in self.rounds)

    @property
    def tokens(self) -> float:
        """E[N]: mean tokens a round."""
        return fmean(r.tokens for r in self.rounds)

    @property
    def expected(self) -> float:
        """E[N] of an even text with the measured acceptance a, (1 - a^(gamma+1)) / (1 - a)
        (Leviathan et al. 2023, eq. 1)."""
        a = sum(r.accepted for r in self.rounds) / max(1, sum(r.examined for r in self.rounds))
        return self.gamma + 1.0 if a >= 1 else (1 - a ** (self.gamma + 1)) / (1 - a)

    @property
    def seconds(self) -> float:
        """Median of a round."""
        return median(r.seconds for r in self.rounds)

    def ratio(self, *, round_trip: float, overhead: float) -> float:
        """Tokens a second against E[N] / (gamma t_d + t_v + RTT + overhead).

        Args:
            round_trip: seconds that the link takes by itself.
            overhead: seconds of a round, measured without a link.
        """
        model = self.gamma * self.forward + self.server + round_trip + overhead
        return model / self.seconds


async def rounds_of(
    client: EdgeClient,
    draft: TimedDraft,
    prompts: Sequence[str],
    *,
    gamma: int,
    tokens: int,
    sampling: Sampling,
    echo_every: int = 2,
) -> Taken:
    """Write a text a prompt by `hybrid`, one block of `gamma` at a time.

    Args:
        draft: the client's.
        tokens: most tokens of a text.
        echo_every: rounds between two echoes, which are not in the rounds' time.
    """
    rounds: list[Round] = []
    echoes: list[float] = []
    transport = EchoTransport(client.transport)
    client.transport = transport
    try:
        for number, prompt in enumerate(prompts):
            stream = client.generate(
                prompt,
                method="hybrid",
                sampling=sampling,
                max_tokens=tokens,
                seed=number + 1,
                gamma=gamma,
                window=1,
            )
            async with stream:
                pieces, stats, count = aiter(stream), stream.stats, 0
                while stream.finish is None:
                    forward, server, drafted = draft.seconds, stats.server_seconds, stats.drafted
                    written, asks = stats.tokens, stats.asks
                    examined, accepted = stats.examined, stats.accepted
                    begin = time.perf_counter()
                    if await anext(pieces, None) is None:
                        break
                    taken = Round(
                        time.perf_counter() - begin,
                        draft.seconds - forward,
                        stats.server_seconds - server,
                        stats.drafted - drafted,
                        stats.tokens - written,
                        stats.examined - examined,
                        stats.accepted - accepted,
                        stats.asks > asks,
                    )
                    count += 1
                    # A last block may be short, and a second piece of a round is none.
                    if count > _BEGINNING and taken.drafted == gamma and not taken.asked:
                        rounds.append(taken)
                    if count > _BEGINNING and count % echo_every == 0 and stream.finish is None:
                        echoes.append(await transport.echo())
    finally:
        client.transport = transport.inner
    return Taken(gamma, rounds, echoes)
