"""What a round costs at given servers of a toy target: `python -m bench.rounds URL [URL ...]`.

For instance a lone server against a cluster, both serving toy:1. The key comes from
COSD_API_KEY. The servers take turns. The last line is JSON, median milliseconds of a round by
address and transport.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
from typing import Annotated, Final, Literal

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.program import run
from edge_sdk.client import EdgeClient
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.errors import CosdError
from edge_sdk.text.round import Round
from server_app.target.toy import ToyTarget

_TRANSPORTS: Final[tuple[Literal["http", "websocket"], ...]] = ("http", "websocket")
_TOKENS: Final = 40  # of a text

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def rounds(
    addresses: Annotated[list[str], typer.Argument(help="Servers of toy:1.")],
    texts: Annotated[int, typer.Option(min=1, help="Texts of each, one not counted.")] = 8,
) -> None:
    """Time the rounds of texts of `coupled` with two drafts each."""
    taken = asyncio.run(_measured(addresses, texts))
    table = Table("server", *_TRANSPORTS, title="ms a round, median")
    figures = {
        address: {
            transport: round(1e3 * statistics.median(taken[address, transport]), 3)
            for transport in _TRANSPORTS
        }
        for address in addresses
    }
    for address, by_transport in figures.items():
        table.add_row(address, *(f"{by_transport[transport]:.2f}" for transport in _TRANSPORTS))
    Console().print(table)
    print(json.dumps({"rounds": min(map(len, taken.values())), "milliseconds": figures}))


async def _measured(addresses: list[str], texts: int) -> dict[tuple[str, str], list[float]]:
    keys = [(address, transport) for address in addresses for transport in _TRANSPORTS]
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in keys}
    vocabulary = ToyTarget.random(1).vocabulary
    for seed in track(range(texts + 1), "texts", console=Console(stderr=True)):
        for address, transport in keys:
            draft = ToyDraft.random(7, vocabulary)
            times = await _text(address, transport, draft, seed)
            if seed:
                taken[address, transport] += times
    return taken


async def _text(
    address: str, transport: Literal["http", "websocket"], draft: ToyDraft, seed: int
) -> list[float]:
    """Seconds of every round of a text.

    Raises:
        CosdError: the server cannot be talked to, or serves another target.
    """
    times: list[float] = []

    def note(one: Round) -> None:
        if one.sent is not None and one.received is not None:
            times.append(one.received - one.sent)

    key = os.environ.get("COSD_API_KEY") or None
    async with EdgeClient(
        address, draft=draft, api_key=key, transport=transport, offline="fail"
    ) as client:
        if client.vocabulary.fingerprint != draft.vocabulary.fingerprint:
            raise CosdError(f"{address} serves {client.card.model}, not toy:1")
        await client.complete(
            "the sea and", method="coupled", seed=seed, max_tokens=_TOKENS, gamma=2, on_round=note
        )
    return times


if __name__ == "__main__":
    sys.exit(run(app, "bench.rounds"))
