"""How the weights of a decoder are rounded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from export.linear_layers import Linear


@dataclass(frozen=True, slots=True)
class Rounding:
    """Bits of a weight, and how many weights share a scale.

    Attributes:
        bits: 4 or 8.
        blocks: weights a scale: the first size that divides the width of the layer's input,
            else the last.
    """

    bits: int
    blocks: tuple[int, ...]

    def block(self, inputs: int) -> int:
        """Weights a scale in a layer of K = `inputs`."""
        return next((size for size in self.blocks if inputs % size == 0), self.blocks[-1])


@dataclass(frozen=True, slots=True)
class Recipe:
    """How weights are rounded.

    Attributes:
        head: of head and embedding.
        narrowing: of layers from another width back to that of the head's input, the second of
            a gated pair.
        widening: of layers with at least twice as many outputs as inputs.
        other: of all others.
        accuracy_level: of MatMulNBits; 4 rounds activations to 8 bits, 0 does not.
    """

    head: Rounding
    narrowing: Rounding
    widening: Rounding
    other: Rounding
    accuracy_level: int

    def of(self, linear: Linear, states: Collection[int]) -> Rounding:
        """Rounding of a layer that is no head.

        Args:
            states: widths of what enters the heads.
        """
        if linear.outputs in states and linear.inputs not in states:
            return self.narrowing
        return self.widening if linear.outputs >= 2 * linear.inputs else self.other


_EIGHT = Rounding(8, (128, 64, 32))
# Chosen on SmolLM2-135M, by the divergence KL(fp32, rounded) of next-token laws in nats over
# 1,536 positions (GSM8K and MT-Bench texts), weights rounded and activations not:
#   0.270  all layers in 4 bits, 32 weights a scale, every error counting alike; head in 8 bits
#   0.158  the same with narrowing layers in 8 bits
#   0.137  all layers in 4 bits, errors counting by `export.activation_power`; head in 8 bits
#   0.099  the same with narrowing layers in 8 bits
#   0.150  below: a head in 4 bits adds 0.04 (0.08 if all errors counted alike), 64 weights a
#          scale in widening layers 0.02; both make the folder smaller and a step faster
# 8 bits need no small blocks: 64 and 128 weights a scale come out as 32 do. The overlap
# sum min(p, q) with Gemma 3 270M at temperature 0.7 is 0.588 in fp32 and 0.571 as below (432
# positions, standard error of the difference 0.008). With activations in fp32 (accuracy level 0)
# a step takes more than ten times as long.
RECIPES = {
    4: Recipe(
        head=Rounding(4, (32,)),
        narrowing=_EIGHT,
        widening=Rounding(4, (64, 32)),
        other=Rounding(4, (32,)),
        accuracy_level=4,
    ),
    8: Recipe(head=_EIGHT, narrowing=_EIGHT, widening=_EIGHT, other=_EIGHT, accuracy_level=4),
}
