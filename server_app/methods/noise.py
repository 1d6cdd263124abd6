"""Shared noise on the device that holds the law: the same id as
`edge_sdk.decoding.noise.gumbel_argmax`, without moving the law."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from edge_sdk.decoding.noise import full_argmax, gumbel_argmax, largest_ratio

_LAST: Final = (1 << 53) - 1
_FACTORS: Final = (0xFF51AFD7ED558CCD - (1 << 64), 0xC4CEB9FE1A85EC53 - (1 << 64))
_SMALL: Final = 1e-37


class SharedNoise:
    """Token keys, on the host and on whichever devices laws came from.

    Args:
        keys: uint64 [V], see `edge_sdk.decoding.noise.token_keys`.
    """

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self._keys = keys
        self._on_device: dict[torch.device, torch.Tensor] = {}

    def argmax(self, law: torch.Tensor, row: np.uint64) -> int:
        """argmax of ln law + g over probabilities [V], the lowest id among equals."""
        if law.device.type == "cpu":
            return gumbel_argmax(law.numpy(), self._keys, row)
        keys = self._on_device.get(law.device)
        if keys is None:
            keys = torch.from_numpy(self._keys.view(np.int64)).to(law.device)
            self._on_device[law.device] = keys
        return argmax_on_device(law, keys, self._keys, row)


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
