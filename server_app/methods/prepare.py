"""What all rows of a step need, computed on the device at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from server_app.methods.plain_weights import plain_best, plain_weights
from server_app.methods.rows import Rows
from server_app.methods.scratch import BLOCK


def prepare(rows: Sequence[Rows], *, on_host: bool = False) -> None:
    """Compute ahead what the accept tests of a step ask for, with one copy to the host.

    For rows that only temperature and masks shape: the sums of weights over blocks of ids
    and the drafted tokens' weights, or the most likely ids at temperature 0. Judging then
    waits for the device once a step and not once a row. Other rows, and all rows on the CPU,
    where those after the first refusal would be computed for nothing, are left to be
    computed when they are asked for.

    The device's exponential rounds differently from the host's: probabilities are the same
    within 1e-6 of themselves.

    Args:
        rows: of every verify of the step.
        on_host: do it on the CPU too.
    """
    ready = [each for each in rows if each.plain and (on_host or each.logits.is_cuda)]
    if not ready:
        return
    packed = torch.cat([_of_one(each).flatten() for each in ready]).cpu().numpy()
    begin = 0
    for each in ready:
        count = len(each)
        if each.sampling.greedy:
            each.take_best(packed[begin : begin + count])
            begin += count
            continue
        width = -(-each.size // BLOCK) + 1
        table = packed[begin : begin + count * width].reshape(count, width)
        each.take_sums(table[:, :-1], table[:, -1])
        begin += count * width


def _of_one(rows: Rows) -> torch.Tensor:
    """Most likely ids [rows] at temperature 0; else sums over blocks of ids and the weight of
    the drafted token, 0 if there is none [rows, blocks + 1]. In float64."""
    if rows.sampling.greedy:
        return plain_best(rows.logits, rows.masked)
    weights = plain_weights(rows.logits, rows.masked, rows.sampling)
    count, size = weights.shape
    missing = -size % BLOCK
    blocks = torch.nn.functional.pad(weights, (0, missing)) if missing else weights
    sums = blocks.view(count, -1, BLOCK).sum(2, dtype=torch.float64)
    own = torch.zeros((count, 1), dtype=torch.float64, device=weights.device)
    drafted = list(rows.drafted[:count])
    if drafted:
        ids = torch.tensor(drafted, dtype=torch.int64).to(weights.device, non_blocking=True)
        own[: len(drafted), 0] = weights[: len(drafted)].gather(1, ids[:, None])[:, 0].double()
    return torch.cat([sums, own], dim=1)
