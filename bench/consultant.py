"""`consultant`, which is lossy, against `hybrid`, which is not.

python -m bench.consultant --prompts gsm8k_test.jsonl

Both are measured alike: the target reads each finished text once more and says how likely it
finds every token (-ln p on its raw law, in nats). `consultant` reports the same sum as it
goes; the two are printed side by side.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import torch
import typer
from rich.console import Console
from rich.table import Table

from bench.models import DRAFT, TARGET, open_draft, prepare_pair
from bench.program import run
from bench.prompt_files import Problem, PromptFile, read_prompts
from bench.prompts import PROMPTS
from bench.scores import is_right, with_examples
from bench.server import ServerProcess
from bench.terminal import steps
from edge_sdk.cli.app import one_line
from edge_sdk.client import EdgeClient
from edge_sdk.decoding.autoregressive import Autoregressive
from edge_sdk.decoding.consultant import CHINCHILLA, Consultant
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.method import Method
from edge_sdk.draft.model import DraftModel
from edge_sdk.sampling import Sampling
from server_app.methods.rows import Rows
from server_app.target.loading import load_target
from server_app.target.model import Chunk, TargetModel

GAMMAS: Final = (6, 20)
# Gemma 3 270M: parameters, and tokens it was trained on (its model card).
_PARAMETERS, _TOKENS = 270e6, 6e12
_EXAMPLES: Final = 2
_WARM_UP_TOKENS: Final = 24

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt, and the problem behind it if its answer can be scored."""

    prompt: str
    problem: Problem | None = None


@dataclass(slots=True)
class Sums:
    """Totals of one method at one gamma.

    Attributes:
        nll: summed -ln p of the texts by the target that reads them again, in nats.
        reported_nll: the same by the method itself, where it reports it.
        right: GSM8K problems answered exactly.
    """

    tokens: int = 0
    target_calls: int = 0
    examined: int = 0
    accepted: int = 0
    nll: float = 0.0
    reported_nll: float = 0.0
    right: int = 0

    def figures(self) -> dict[str, Any]:
        tokens = max(self.tokens, 1)
        return {
            "target_calls_per_token": round(self.target_calls / tokens, 4),
            "acceptance": round(self.accepted / max(self.examined, 1), 4),
            "mean_target_nll": round(self.nll / tokens, 4),
            "reported_target_nll": round(self.reported_nll / tokens, 4),
            "tokens": self.tokens,
            "right": self.right,
        }


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table."""

    name: str
    method: Method
    gamma: int
    sums: Sums = field(default_factory=Sums)


def settings(gammas: Sequence[int] = GAMMAS) -> list[Setting]:
    """The server alone, then each method at each gamma."""
    chinchilla = Consultant(epsilon=CHINCHILLA, parameters=_PARAMETERS, tokens=_TOKENS)
    found = [Setting("autoregressive", Autoregressive(), 1)]
    for gamma in gammas:
        found += [
            Setting("hybrid", Hybrid(), gamma),
            Setting("consultant 2.0", Consultant(epsilon=2.0), gamma),
            Setting(f"consultant {CHINCHILLA} {chinchilla.threshold:.2f}", chinchilla, gamma),
        ]
    return found


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def consultant(
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="File in the format of GSM8K (answers are scored), HumanEval or MT-Bench.",
            show_default="a few built-in texts",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most prompts.")] = 4,
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a text.")] = 96,
    temperature: Annotated[float, typer.Option(help="Of both laws.")] = 0.3,
    target: Annotated[str, typer.Option(help="What `cosd prepare` takes, or toy:SEED.")] = TARGET,
    draft: Annotated[
        str, typer.Option(help="What `cosd prepare --draft` takes, or toy:SEED.")
    ] = DRAFT,
    seed: Annotated[int, typer.Option(help="The same seed repeats the texts.")] = 1,
) -> None:
    """Compare a lossy method with a lossless one; the last line is JSON."""
    sampling = Sampling(temperature=temperature)
    tasks, scored = _tasks(None if prompts is None else read_prompts(prompts), limit)
    console = Console()
    pair = prepare_pair(target, draft, console=console)
    rows = settings()
    with ServerProcess(pair.target) as server:
        with console.status("starting the server") as status:
            server.wait_ready(lambda line: status.update(one_line(line)))
        reader = load_target(pair.target)
        model = open_draft(pair.draft)
        try:
            with steps("texts", len(rows) * len(tasks)) as advance:
                asyncio.run(
                    _measure(server, model, reader, rows, tasks, tokens, sampling, seed, advance)
                )
        finally:
            model.close()
    Console(width=110).print(_table(rows, len(tasks), scored))
    print(_about_scores(rows, len(tasks), scored))
    print(
        json.dumps({"consultant": {f"{s.name}, gamma {s.gamma}": s.sums.figures() for s in rows}})
    )


def _tasks(file: PromptFile | None, limit: int) -> tuple[list[Task], bool]:
    """Prompts, and whether their answers can be scored."""
    if file is None:
        return [Task(prompt) for prompt in PROMPTS[:limit]], False
    if file.format != "GSM8K":
        return [Task(problem.prompt) for problem in file.problems[:limit]], False
    # Solved examples from the end of the file, which is not asked.
    examples = file.problems[limit:][-_EXAMPLES:]
    return [Task(with_examples(each, examples), each) for each in file.problems[:limit]], True


async def _measure(
    server: ServerProcess,
    model: DraftModel,
    reader: TargetModel,
    rows: Sequence[Setting],
    tasks: Sequence[Task],
    tokens: int,
    sampling: Sampling,
    seed: int,
    advance: Callable[[], None],
) -> None:
    async with EdgeClient(server.url, draft=model, api_key=server.api_key) as client:
        for number, task in enumerate(tasks):
            for row in rows:
                stream = client.generate(
                    task.prompt,
                    method=row.method,
                    sampling=sampling,
                    max_tokens=tokens,
                    gamma=row.gamma,
                    seed=seed + number,
                )
                async with stream:
                    async for _ in stream:
                        pass
                _add(row.sums, asdict(stream.stats))
                ids = [token.id for token in stream.tokens]
                row.sums.nll += await asyncio.to_thread(summed_nll, reader, task.prompt, ids)
                if task.problem is not None:
                    row.sums.right += is_right(stream.text, task.problem)
                advance()


def _add(sums: Sums, stats: Mapping[str, Any]) -> None:
    for name in ("tokens", "target_calls", "examined", "accepted"):
        setattr(sums, name, getattr(sums, name) + stats[name])
    sums.reported_nll += stats["target_nll"]


def summed_nll(target: TargetModel, prompt: str, ids: Sequence[int]) -> float:
    """-ln p of the tokens `ids` after a prompt on the target's raw law, in nats; one pass."""
    if not ids:
        return 0.0
    before = target.encode(prompt)
    masked = torch.tensor(target.vocabulary.masked_ids.tolist(), dtype=torch.int64)
    sequence = target.new_sequence()
    try:
        (logits,) = target.forward([Chunk(sequence, [*before, *ids[:-1]], len(ids))])
        rows = Rows(logits, Sampling(), masked.to(target.device))
        return -sum(rows.raw_log_probability(row, token) for row, token in enumerate(ids))
    finally:
        target.release(sequence)


def _table(rows: Sequence[Setting], count: int, scored: bool) -> Table:
    table = Table(title=f"{count} prompts", title_justify="left")
    table.add_column("method", no_wrap=True)
    names = (
        "gamma",
        "lossless",
        "calls\n/token",
        "accept-\nance",
        "mean target\nnll",
        "reported\nnll",
    )
    for name in (*names, "tokens", *(("GSM8K",) if scored else ())):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        figures = row.sums.figures()
        drafts = row.method.drafts
        table.add_row(
            row.name,
            f"{row.gamma}" if drafts else "-",
            "yes" if row.method.lossless else "LOSSY",
            f"{figures['target_calls_per_token']:.3f}",
            f"{figures['acceptance']:.3f}" if drafts else "-",
            f"{figures['mean_target_nll']:.3f}",
            f"{figures['reported_target_nll']:.3f}" if row.sums.reported_nll else "-",
            f"{row.sums.tokens}",
            *((f"{row.sums.right}/{count}",) if scored else ()),
        )
    return table


def _about_scores(rows: Sequence[Setting], count: int, scored: bool) -> str:
    if not scored:
        return "No answers were scored: only GSM8K files are (code that a model wrote is not run)."
    best = max(row.sums.right for row in rows)
    alone = rows[0].sums.right
    if alone == 0:
        return (
            f"The target alone answers 0 of {count} problems (the best line {best}): it is not "
            "able to do this task, so these scores cannot tell the methods apart."
        )
    return (
        f"The target alone answers {alone} of {count} problems; few problems are a rough measure."
    )


if __name__ == "__main__":
    sys.exit(run(app, "bench.consultant"))
