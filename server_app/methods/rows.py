"""Laws of the rows of a pass, on the server."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.sampling import Sampling
from server_app.methods.plain_weights import plain_weights
from server_app.methods.row_logits import RowLogits, check_number, largest_of
from server_app.methods.truncation import cut_law
from server_app.methods.weights import ListedWeights, RowWeights, Weights


class Rows:
    """Target laws p_i of one verify.

    Args:
        logits: [rows, V], any floating dtype; row i follows prompt + text + x_<i.
        sampling: transforms, applied in the order of its fields.
        masked: int64 [m] ids that no law contains.
        seen: ids of prompt and text, for the penalty.
        drafted: x_0 ... of the block; row i has also seen x_<i.

    Rows are float32, or float64 if the logits are. They are worked on in memory that a
    thread has once (`server_app.methods.scratch`): what `weights` returns is good until the
    next pass, and longer only as its `kept()`. Every method raises ServerFault where the
    logits are not numbers.
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
        self.logits = logits
        self.sampling = sampling
        self.masked = masked
        self.drafted = drafted
        self._seen = seen
        self._seen_ids: NDArray[np.int64] | None = None
        self._cached: tuple[int, Weights] | None = None
        self._best: NDArray[np.float64] | None = None
        self._sums: NDArray[np.float64] | None = None
        self._drafted_weights: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return self.logits.shape[0]

    @property
    def size(self) -> int:
        """|V|."""
        return self.logits.shape[1]

    @property
    def plain(self) -> bool:
        """Only temperature and masks shape the laws."""
        return not self.sampling.truncates and self.sampling.repetition_penalty == 1

    def argmax(self, row: int) -> int:
        """Most likely id, the lowest among equals."""
        if self._best is not None:
            check_number(float(self._best[row]))
            return int(self._best[row])
        array = self._logits(row).spread().array
        best = int(array.argmax())
        check_number(float(array[best]))
        return best

    def probability(self, row: int, token: int) -> float:
        """p_row(token)."""
        # Accept test, residual and bonus must see the same p, so all ask the same object.
        weights = self.weights(row)
        known = self._drafted_weights
        if known is not None and row < len(self.drafted) and self.drafted[row] == token:
            return float(known[row]) / weights.normaliser
        return float(weights.p(np.array([token]))[0])

    def raw_log_probability(self, row: int, token: int) -> float:
        """ln p_row(token) at temperature 1 without any transform but the masks."""
        array = RowLogits(self.logits[row], self.masked).spread().array
        array -= largest_of(array)
        own = float(array[token])
        np.exp(array, out=array)
        return own - math.log(float(array.sum(dtype=np.float64)))

    def weights(self, row: int) -> Weights:
        """p_row after every transform, times a constant. The last one asked for is kept."""
        if self._cached is None or self._cached[0] != row:
            self._cached = (row, self._weights(row))
        return self._cached[1]

    def law(self, row: int) -> torch.Tensor:
        """p_row [V] after every transform, beside the logits."""
        if self.logits.is_cuda and self.plain and not self.sampling.greedy:
            weights = plain_weights(self.logits[row : row + 1], self.masked, self.sampling)[0]
            return (weights / weights.sum(dtype=torch.float64)).to(weights.dtype)
        return torch.from_numpy(self.law_array(row)).to(self.logits.device)

    def law_array(self, row: int) -> NDArray[np.floating]:
        """`law` as an array on the host."""
        weights = self.weights(row)
        array = weights.array()
        law: NDArray[np.floating] = array / array.dtype.type(weights.normaliser)
        wide = np.float64 if self.logits.dtype == torch.float64 else np.float32
        return law.astype(wide, copy=False)

    def take_sums(self, sums: NDArray[np.float64], drafted: NDArray[np.float64]) -> None:
        """What was computed ahead: the weights' sums over blocks of ids [rows, blocks], and
        the weights of the drafted tokens [rows]."""
        self._sums, self._drafted_weights = sums, drafted

    def take_best(self, best: NDArray[np.float64]) -> None:
        """What was computed ahead: the most likely ids [rows], NaN where there is none."""
        self._best = best

    def _weights(self, row: int) -> Weights:
        sampling = self.sampling
        if sampling.greedy:
            return ListedWeights(np.array([self.argmax(row)]), np.ones(1), size=self.size)
        logits = self._logits(row)
        if sampling.truncates:
            return cut_law(logits, sampling)
        sums = None if self._sums is None else self._sums[row]
        return RowWeights(logits, sampling.temperature, sums=sums)

    def _logits(self, row: int) -> RowLogits:
        logits, penalty = self.logits[row], self.sampling.repetition_penalty
        if penalty == 1:
            return RowLogits(logits, self.masked)
        if self._seen_ids is None:
            self._seen_ids = np.array(self._seen, dtype=np.int64)
        drafted = np.array(self.drafted[:row], dtype=np.int64)
        seen = np.concatenate([self._seen_ids, drafted])
        return RowLogits(logits, self.masked, penalty, seen)
