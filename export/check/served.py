"""What a server says of a draft: its vocabulary, and what it accepts while texts are written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from edge_sdk.client import EdgeClient
from edge_sdk.draft.model import DraftModel
from edge_sdk.sampling import Sampling
from edge_sdk.stats import Stats
from export.check.expected import Acceptance, standard_error
from export.progress import Progress
from export.target_vocabulary import run

_METHODS: Final = ("hybrid", "coupled")
_ECHOES: Final = 5


@dataclass(frozen=True, slots=True)
class Served:
    """Texts that a server wrote with a draft, and alone.

    Attributes:
        acceptance: accepted / examined drafts, by method.
        rtt_s: seconds of an empty request and its reply, median.
        round_s: seconds of the server for a verify of `gamma` drafts, by what it reports.
        alone_s: seconds a token where the server writes alone.
        draft_s: seconds of a drafted token on this machine, sampling included.
        gamma: drafts a round.
    """

    acceptance: Acceptance
    rtt_s: float
    round_s: float
    alone_s: float
    draft_s: float
    gamma: int


def measure_served(
    address: str,
    draft: DraftModel,
    prompts: Sequence[str],
    *,
    api_key: str | None,
    temperature: float,
    tokens: int,
    gamma: int,
    seed: int,
    progress: Progress,
) -> Served:
    """Write a text a prompt with each method, and with the server alone, and read what it cost.

    Raises:
        TransportError, Unauthorized, VocabularyMismatch: as `EdgeClient`.
    """

    async def write(client: EdgeClient, prompt: str, method: str, number: int) -> Stats:
        stream = client.generate(
            prompt,
            method=method,
            sampling=Sampling(temperature=temperature),
            max_tokens=tokens,
            seed=seed + number,
            gamma=gamma,
        )
        async with stream:
            async for _ in stream:
                pass
        return stream.stats

    async def measure() -> Served:
        async with EdgeClient(address, draft=draft, api_key=api_key) as client:
            wanted = [m for m in (*_METHODS, "autoregressive") if m in client.card.methods]
            found: dict[str, list[Stats]] = {method: [] for method in wanted}
            rtt = await _echo(client)
            with progress.stage("write texts with the server", len(prompts) * len(wanted)) as stage:
                for number, prompt in enumerate(prompts):
                    for method in wanted:
                        found[method].append(await write(client, prompt, method, number))
                        stage.advance()
        return _served(found, temperature, rtt, gamma)

    return run(measure())


async def _echo(client: EdgeClient) -> float:
    taken = []
    for _ in range(_ECHOES):
        begin = time.perf_counter()
        await client.transport.card()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def _served(found: dict[str, list[Stats]], temperature: float, rtt: float, gamma: int) -> Served:
    drafted = {name: texts for name, texts in found.items() if name != "autoregressive"}
    shares = {name: _share(texts) for name, texts in drafted.items()}
    first = next(iter(drafted.values()))
    by_prompt = tuple(stats.acceptance for stats in first)
    every = [stats for texts in drafted.values() for stats in texts]
    alone = found.get("autoregressive", [])
    return Served(
        acceptance=Acceptance(
            how="served",
            temperature=temperature,
            by_method=shares,
            error=standard_error(by_prompt),
            by_prompt=by_prompt,
            other_mass=None,
            positions=sum(stats.examined for stats in first),
        ),
        rtt_s=rtt,
        round_s=_ratio(sum(s.server_seconds for s in every), sum(s.rounds for s in every)),
        alone_s=_ratio(sum(s.seconds for s in alone), sum(s.tokens for s in alone)),
        draft_s=_ratio(sum(s.draft_seconds for s in every), sum(s.drafted for s in every)),
        gamma=gamma,
    )


def _share(texts: Sequence[Stats]) -> float:
    return _ratio(sum(s.accepted for s in texts), sum(s.examined for s in texts))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
