"""Laws of the rows of a pass, on the server."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.sampling import Sampling

# Candidates that usually hold all of top-p; a full sort of 262,144 ids costs 15 ms.
_HEAD = 2048


class Rows:
    """Target laws p_i of one verify.

    Args:
        logits: [rows, V], any floating dtype; row i follows prompt + text + x_<i.
        sampling: transforms, applied in the order of its fields.
        masked: int64 [m] ids that no law contains.
        seen: ids of prompt and text, for the penalty.
        drafted: x_0 ... of the block; row i has also seen x_<i.

    Rows are float32, or float64 if the logits are.
    """

    def __init__(
        self,
        logits: torch.Tensor,
        sampling: Sampling,
        masked: torch.Tensor,
        *,
        seen: Sequence[int] = (),
        drafted: Sequence[int] = (),
    ) -> None:
        self._logits = logits
        self._sampling = sampling
        self._masked = masked
        self._seen = seen
        self._drafted = drafted
        self._cached: tuple[int, torch.Tensor] | None = None

    def __len__(self) -> int:
        return self._logits.shape[0]

    def raw(self, row: int) -> torch.Tensor:
        """Logits [V] of a row with masked ids and the penalty, before the temperature."""
        wide = torch.promote_types(self._logits.dtype, torch.float32)
        logits = self._logits[row].to(wide, copy=True)
        penalty = self._sampling.repetition_penalty
        if penalty != 1:
            ids = torch.tensor(
                sorted({*self._seen, *self._drafted[:row]}), dtype=torch.int64, device=logits.device
            )
            values = logits[ids]
            logits[ids] = torch.where(values > 0, values / penalty, values * penalty)
        logits[self._masked] = -torch.inf
        return logits

    def argmax(self, row: int) -> int:
        """Most likely id, the lowest among equals."""
        return int(self.raw(row).argmax())

    def probability(self, row: int, token: int) -> float:
        """p_row(token), without the full law where the transforms allow it."""
        if self._sampling.greedy:
            return float(self.argmax(row) == token)
        if self._sampling.truncates:
            return float(self.law(row)[token])
        # As in `law`: relative to the top and summed in float64. A float32 logsumexp would lose
        # an ulp of the largest logit, and accept test and residual must see the same p.
        scaled = self.raw(row).div_(self._sampling.temperature)
        scaled -= scaled.max()
        own = float(scaled[token])
        return math.exp(own) / float(scaled.exp_().sum(dtype=torch.float64))

    def raw_log_probability(self, row: int, token: int) -> float:
        """ln p_row(token) at temperature 1 without any transform but the masks."""
        wide = torch.promote_types(self._logits.dtype, torch.float32)
        logits = self._logits[row].to(wide, copy=True)
        logits[self._masked] = -torch.inf
        logits -= logits.max()
        own = float(logits[token])
        return own - math.log(float(logits.exp_().sum(dtype=torch.float64)))

    def law(self, row: int) -> torch.Tensor:
        """p_row [V] after every transform. The last one asked for is kept."""
        if self._cached is None or self._cached[0] != row:
            self._cached = (row, self._shaped(self.raw(row)))
        return self._cached[1]

    def law_array(self, row: int) -> NDArray[np.floating]:
        """`law` as an array on the host."""
        array: NDArray[np.floating] = self.law(row).cpu().numpy()
        return array

    def _shaped(self, logits: torch.Tensor) -> torch.Tensor:
        sampling = self._sampling
        if sampling.greedy:
            law = torch.zeros_like(logits)
            law[logits.argmax()] = 1
            return law
        logits = logits.div_(sampling.temperature)
        if 0 < sampling.top_k < logits.shape[0]:
            kth = logits.topk(sampling.top_k).values[-1]
            logits = logits.masked_fill_(logits < kth, -torch.inf)
        law = _normalised(logits.softmax(0))
        if sampling.top_p < 1:
            law = _nucleus(law, sampling.top_p)
        if sampling.min_p > 0:
            law = law.masked_fill(law < sampling.min_p * law.max(), 0)
            law = _normalised(law)
        return law


def _normalised(law: torch.Tensor) -> torch.Tensor:
    """NOTE: a float32 softmax of 262,144 ids sums to 1 within 1e-5 only, since its own sum is
    in float32."""
    return law / law.sum(dtype=torch.float64).to(law.dtype)


def _nucleus(law: torch.Tensor, mass: float) -> torch.Tensor:
    values, ids = law.topk(min(_HEAD, law.shape[0]))
    sums = values.double().cumsum(0)
    if float(sums[-1]) < mass and len(values) < len(law):
        values, ids = law.sort(descending=True, stable=True)
        sums = values.double().cumsum(0)
    count = int((sums < mass).sum()) + 1
    cut = torch.zeros_like(law)
    cut[ids[:count]] = values[:count]
    return _normalised(cut)
