"""Rotary positions as a fused graph computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_sdk.errors import UnsupportedModel

# Scalings whose angles do not depend on the length of the text.
_STATIC = ("default", "linear", "llama3", "yarn")
_MOST = 1e-5  # difference of a cosine or sine to the model's own; float32 has 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """Angles are position * frequency; cosines and sines are multiplied by a factor.

    Attributes:
        frequencies: float32 [head / 2].
        factor: 1 but for some scalings.
    """

    frequencies: NDArray[np.float32]
    factor: float

    def tables(self, context: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Cosines and sines of every position, float32 [context, head / 2]."""
        angles = np.arange(context, dtype=np.float32)[:, None] * self.frequencies
        factor = np.float32(self.factor)
        return np.cos(angles) * factor, np.sin(angles) * factor


def read_rotation(rotary: Any, *, head: int, context: int, kind: str | None = None) -> Rotation:
    """The rotation of a rotary embedding of transformers.

    Args:
        rotary: the module.
        head: width of a head.
        context: positions that are compared.
        kind: type of attention, for a module that turns each by other angles.

    Raises:
        UnsupportedModel: it turns part of a head, or by angles that are not of the form above.
    """
    import torch

    scaling = rotary.rope_type if kind is None else rotary.rope_type[kind]
    if scaling not in _STATIC:
        raise _unsupported(f"rotary positions of type {scaling!r}")
    prefix, which = ("", ()) if kind is None else (f"{kind}_", (kind,))
    with torch.no_grad():
        like = torch.zeros(1, dtype=torch.float32)
        cosines, sines = rotary(like, torch.arange(context)[None], *which)
    if cosines.shape[-1] != head:
        raise _unsupported(f"rotary positions on {cosines.shape[-1]} of {head} dimensions")
    frequencies = getattr(rotary, f"{prefix}inv_freq").detach().to(torch.float32).numpy().copy()
    rotation = Rotation(frequencies, float(getattr(rotary, f"{prefix}attention_scaling")))
    # transformers repeats the angles for both halves of a head.
    for ours, theirs in zip(rotation.tables(context), (cosines, sines), strict=True):
        both = theirs[0].numpy().reshape(context, 2, head // 2)
        if not np.abs(both - ours[:, None]).max() <= _MOST:
            raise _unsupported("rotary positions at angles that do not grow with the position")
    return rotation


def _unsupported(what: str) -> UnsupportedModel:
    return UnsupportedModel(f"the model has {what}, which the fused export does not offer")
