"""Shared noise on the device that holds the law: the same id as
`edge_sdk.decoding.noise.gumbel_argmax`, without moving the law."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.decoding.noise import full_argmax, gumbel_argmax, largest_ratio
from server_app.methods.rows import Rows
from server_app.methods.weights import ListedWeights

_LAST: Final = (1 << 53) - 1
_FACTORS: Final = (0xFF51AFD7ED558CCD - (1 << 64), 0xC4CEB9FE1A85EC53 - (1 << 64))
_SMALL: Final = 1e-37
_MARGIN: Final = 0.999  # for the rounding of float32
_WORTH: Final = 4  # taking ids out of a row costs about a quarter of the hash


class SharedNoise:
    """Token keys, on the host and on whichever devices laws came from. One for all sessions.

    Args:
        keys: uint64 [V], see `edge_sdk.decoding.noise.token_keys`.
    """

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self._keys = keys
        self._on_device: dict[torch.device, torch.Tensor] = {}

    def argmax(self, law: torch.Tensor, row: np.uint64) -> int:
        """argmax of ln law + g over weights [V], the lowest id among equals."""
        if law.device.type == "cpu":
            return self._on_host(law.numpy(), row)
        keys = self._on_device.get(law.device)
        if keys is None:
            keys = torch.from_numpy(self._keys.view(np.int64)).to(law.device)
            self._on_device[law.device] = keys
        return argmax_on_device(law, keys, self._keys, row)

    def choose(self, rows: Rows, index: int, row: np.uint64) -> int:
        """`argmax` of p_index."""
        if rows.plain and rows.logits.device.type != "cpu":
            return self.argmax(rows.law(index), row)
        weights = rows.weights(index)
        if isinstance(weights, ListedWeights):
            ids = weights.ids
            return int(ids[gumbel_argmax(weights.weights, self._keys[ids], row)])
        return self._on_host(weights.array(), row)

    def _on_host(self, law: NDArray[np.floating], row: np.uint64) -> int:
        best = int(law.argmax())
        # No u is nearer to 1 than one step of 2**-53, so -ln u / p of an id is at least 1 / p
        # steps; what is above the likeliest id's cannot win and needs no hash.
        least = 1 / largest_ratio(float(law[best]), self._keys[best], row)
        possible = law >= law.dtype.type(least * _MARGIN)
        if int(np.count_nonzero(possible)) > len(law) // _WORTH:
            return gumbel_argmax(law, self._keys, row)
        ids = np.flatnonzero(possible)
        return int(ids[gumbel_argmax(law[ids], self._keys[ids], row)])


def argmax_on_device(
    law: torch.Tensor, keys: torch.Tensor, host_keys: NDArray[np.uint64], row: np.uint64
) -> int:
    """`gumbel_argmax` with the pass over all ids in torch. The few that can win are compared
    in float64 on the host, by the same code as everywhere, so the id is the same.

    Args:
        law: probabilities [V], not all zero.
        keys: token keys as int64 bits [V], beside the law.
        host_keys: the same as uint64.
        row: key of the row.
    """
    weights = law.float()
    ratio = (_LAST - _steps(keys, row)).float() / weights.clamp(min=_SMALL)
    first = int(ratio.argmin())
    if float(law[first]) <= 0:
        first = int(weights.argmax())
    bound = largest_ratio(float(law[first]), host_keys[first], row)
    alive = ((ratio <= float(bound)) & (law > 0)).nonzero()[:, 0]
    ids = alive.cpu().numpy()
    return int(ids[full_argmax(law[alive].cpu().numpy(), host_keys[ids], row)])


def _steps(keys: torch.Tensor, row: np.uint64) -> torch.Tensor:
    """k [V]; torch has no unsigned 64-bit arithmetic, but signed products wrap alike and a
    mask makes the shifts logical."""
    x = keys ^ int(row.astype(np.int64))
    for factor in _FACTORS:
        x = (x ^ _shifted(x, 33)) * factor
    return _shifted(x ^ _shifted(x, 33), 11)


def _shifted(x: torch.Tensor, bits: int) -> torch.Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)
