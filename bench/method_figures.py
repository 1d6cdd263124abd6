"""Every method over the same prompts, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.compare import Tally
from edge_sdk.client import EdgeClient
from edge_sdk.decoding.candidates import Candidates
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import METHODS
from edge_sdk.errors import InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.stats import Stats

_TABLE_WIDTH: Final = 136
# Other forms of a method, beside the method with its default options.
_FORMS: Final[dict[str, tuple[Method, ...]]] = {
    "hybrid": (Hybrid(form="law"), Hybrid(form="law", law_format="f16")),
    "candidates": (Candidates(k=20, growth=1.0, m=10),),
}
_FORM_NAMES: Final = {
    "hybrid": ("hybrid_law", "hybrid_law_f16"),
    "candidates": ("candidates_20x10",),
}


def variants() -> dict[str, Method]:
    """Every method by name, and its other forms: `hybrid` and `candidates` are the compact and
    adaptive defaults, `hybrid_law` and `candidates_20x10` (K = 20, M = 10) the published ones."""
    found: dict[str, Method] = {}
    for name, method in METHODS.items():
        found[name] = method()
        found |= zip(_FORM_NAMES.get(name, ()), _FORMS.get(name, ()), strict=True)
    return found


def chosen(names: str | None) -> dict[str, Method]:
    """The variants in a comma-separated list, all of them for None.

    Raises:
        InvalidRequest: a name is unknown or the list is empty.
    """
    known = variants()
    if names is None:
        return known
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise InvalidRequest(
            f"methods {', '.join(unknown) or 'is empty'}; there are {', '.join(known)}",
            field="methods",
        )
    return {name: known[name] for name in wanted}


@dataclass(frozen=True, slots=True)
class Figures:
    """What a method cost, sums over all texts divided by sums (docs/glossary.md).

    Attributes:
        asks_per_token: further trips to settle a rejected position / emitted tokens.
    """

    acceptance: float
    target_calls_per_token: float
    down_bits_per_token: float
    up_bits_per_token: float
    up_bits_per_drafted_token: float
    wire_down_bits_per_token: float
    wire_up_bits_per_token: float
    lossless: bool
    tokens_per_second: float
    asks_per_token: float
    tokens: int

    @classmethod
    def of(cls, method: Method, tally: Tally) -> Figures:
        """Figures of all texts of a method."""
        drafted, seconds = tally.total("drafted"), tally.total("seconds")
        return cls(
            acceptance=tally.acceptance,
            target_calls_per_token=tally.per_token("target_calls"),
            down_bits_per_token=8 * tally.per_token("down_bytes"),
            up_bits_per_token=8 * tally.per_token("up_bytes"),
            up_bits_per_drafted_token=8 * tally.total("up_bytes") / drafted if drafted else 0.0,
            wire_down_bits_per_token=8 * tally.per_token("wire_down_bytes"),
            wire_up_bits_per_token=8 * tally.per_token("wire_up_bytes"),
            lossless=method.lossless,
            tokens_per_second=tally.total("tokens") / seconds if seconds > 0 else 0.0,
            asks_per_token=tally.per_token("asks"),
            tokens=int(tally.total("tokens")),
        )

    def rounded(self) -> dict[str, Any]:
        """For JSON."""
        return {
            name: round(value, 4) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


async def measure(
    client: EdgeClient,
    methods: Mapping[str, Method],
    *,
    prompts: Sequence[str],
    tokens: int,
    sampling: Sampling,
    gamma: int,
    seed: int,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Figures]:
    """Let every method go on from every prompt.

    Args:
        tokens: most tokens of a text.
        sampling: transforms; `greedy` has temperature 0 instead.
        seed: of the first prompt; every method has the same one.
        advance: called after each text.
    """
    tallies = {name: Tally() for name in methods}
    for number, prompt in enumerate(prompts):
        for name, method in methods.items():
            stats = await _text(client, method, prompt, tokens, sampling, gamma, seed + number)
            tallies[name].runs.append(stats)
            advance()
    return {name: Figures.of(methods[name], tally) for name, tally in tallies.items()}


async def _text(
    client: EdgeClient,
    method: Method,
    prompt: str,
    tokens: int,
    sampling: Sampling,
    gamma: int,
    seed: int,
) -> Stats:
    if method.name == "greedy":
        sampling = Sampling(temperature=0)
    stream = client.generate(
        prompt, method=method, sampling=sampling, max_tokens=tokens, gamma=gamma, seed=seed
    )
    async with stream:
        async for _ in stream:
            pass
    return stream.stats


def show(figures: Mapping[str, Figures], title: str) -> None:
    """Print one row a method. Wider than a narrow terminal, since a table of figures cut short
    says nothing."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("method", no_wrap=True)
    names: tuple[str, ...] = (
        "lossless",
        "accept-\nance",
        "calls\n/token",
        "down bits\n/token",
        "up bits\n/token",
    )
    names += ("up bits\n/drafted", "wire down\n/token", "wire up\n/token", "asks\n/token")
    for name in (*names, "tokens\n/s", "tokens"):
        shown.add_column(name, justify="right", no_wrap=True)
    for name, row in figures.items():
        drafts = row.up_bits_per_drafted_token > 0
        shown.add_row(
            name,
            "yes" if row.lossless else "LOSSY",
            f"{row.acceptance:.3f}" if drafts else "-",
            f"{row.target_calls_per_token:.3f}",
            f"{row.down_bits_per_token:,.0f}",
            f"{row.up_bits_per_token:,.0f}",
            f"{row.up_bits_per_drafted_token:,.0f}" if drafts else "-",
            f"{row.wire_down_bits_per_token:,.0f}",
            f"{row.wire_up_bits_per_token:,.0f}",
            f"{row.asks_per_token:.3f}",
            f"{row.tokens_per_second:.1f}",
            f"{row.tokens}",
        )
    Console(width=_TABLE_WIDTH).print(shown)
