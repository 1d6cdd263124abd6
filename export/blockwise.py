"""Block-wise integer weights in the layout of onnxruntime's MatMulNBits operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 1024
# Steps tried for each 4-bit block, as multiples of (largest weight / -8). Clipping the largest
# weight a little, or giving it the short side of [-8, 7], often serves the others better: on
# SmolLM2-135M this brings the relative error of the linear layers from 8.7 % to 7.7 %.
_STEPS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 1.05, 1.1, -1.0, -0.95, -1.05, -1.1, -1.15)


@dataclass(frozen=True, slots=True, eq=False)
class BlockwiseWeights:
    """A [N, K] matrix as unsigned integers with one scale a block of K.

    Attributes:
        packed: uint8 [N, blocks, block * bits / 8]; of two 4-bit values the first is low.
        scales: float32 [N, blocks]; w = (value - 2^(bits-1)) * scale.
        bits: 4 or 8.
        block: weights a scale.
    """

    packed: NDArray[np.uint8]
    scales: NDArray[np.float32]
    bits: int
    block: int


def quantise_blocks(weights: NDArray[np.floating], *, bits: int, block: int) -> BlockwiseWeights:
    """Round a matrix to symmetric block-wise integers.

    Args:
        weights: [N, K], N outputs.
        bits: 4 or 8.
        block: a power of two, at least 16; K is padded with zeros to a multiple.
    """
    outputs, inputs = weights.shape
    blocks = -(-inputs // block)
    packed = np.empty((outputs, blocks, block * bits // 8), dtype=np.uint8)
    scales = np.empty((outputs, blocks), dtype=np.float32)
    for start in range(0, outputs, _ROWS_AT_ONCE):
        rows = np.asarray(weights[start : start + _ROWS_AT_ONCE], dtype=np.float32)
        rows = np.pad(rows, ((0, 0), (0, blocks * block - inputs)))
        values, steps = _round(rows.reshape(-1, blocks, block), bits)
        end = start + len(rows)
        scales[start:end] = steps
        packed[start:end] = values if bits == 8 else values[..., 0::2] | values[..., 1::2] << 4
    return BlockwiseWeights(packed, scales, bits, block)


def dequantise_blocks(weights: BlockwiseWeights, inputs: int) -> NDArray[np.float32]:
    """The [N, K] matrix that the operators compute with, K = `inputs`."""
    values = weights.packed
    if weights.bits == 4:
        values = np.stack([values & 15, values >> 4], axis=-1).reshape(*values.shape[:2], -1)
    zero = 1 << (weights.bits - 1)
    wide = (values.astype(np.float32) - zero) * weights.scales[..., None]
    return wide.reshape(len(wide), -1)[:, :inputs]


def _round(rows: NDArray[np.float32], bits: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Values [N, blocks, block] and scales [N, blocks] of [N, blocks, block] weights."""
    low = -(1 << (bits - 1))
    extreme = np.take_along_axis(rows, np.abs(rows).argmax(axis=-1, keepdims=True), axis=-1)
    best_values = np.zeros(rows.shape, dtype=np.float32)
    best_scale = np.zeros(extreme.shape, dtype=np.float32)
    best_error = np.full(extreme.shape, np.inf, dtype=np.float32)
    for step in _STEPS if bits == 4 else (1.0,):
        scale = extreme * np.float32(step / low)
        values = np.divide(rows, scale, out=np.zeros_like(rows), where=scale != 0.0)
        np.clip(np.rint(values, out=values), low, -low - 1, out=values)
        scale = _least_squares(rows, values)
        error = np.square(values * scale - rows).sum(axis=-1, keepdims=True)
        better = error < best_error
        best_values = np.where(better, values, best_values)
        best_scale = np.where(better, scale, best_scale)
        best_error = np.where(better, error, best_error)
    return (best_values - low).astype(np.uint8), best_scale[..., 0]


def _least_squares(rows: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The scale a block that brings `values * scale` closest to `rows`, [N, blocks, 1]."""
    power = np.square(values).sum(axis=-1, keepdims=True)
    product = (values * rows).sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(product, power, out=np.zeros_like(power), where=power > 0.0))
