"""Rows that nobody will look at, found before most of their logits are computed.

Whether a drafted token x is kept depends on p(x) and on a coin that is known before the pass, so
there is a probability up to which it is refused for sure (`Screen`). Part of the logits bounds
p(x) from above, since a sum of weights over part of the ids is no more than that over all:

    p(x) = exp(l(x) / T) / Z <= exp(l(x) / T) / Z_part

Where that is too little already, x is refused whatever the other logits are, and the rows after
it in its block judge nothing. No decision is changed, only found earlier; it is made again from
the whole row. With the low ids, which byte-pair vocabularies give to what is frequent, as the
part, most refusals are found: of a batch that accepts two of three tokens about half of the rows
need no more than a sixteenth of the output layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import torch

from server_app.target.model import Chunk

# Of a logit that is computed apart from the others: units in the last place of what a layer
# rounds, its products and the sum with the bias, and what is below all of this.
_ULPS: Final = 1.0
_LEAST_SLACK: Final = 1e-2
_STEP: Final = torch.finfo(torch.float32).eps / 2  # of a sum in float32
_SLACK: Final = 1e-3  # of sums and exponentials, in nats


class Screening:
    """The screens of one pass.

    Args:
        chunks: of the pass, in order.

    Attributes:
        counts: rows of each chunk that are computed; all of them until `wanted` was asked.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self.counts = [chunk.rows for chunk in chunks]
        self._firsts = list(accumulate(self.counts[:-1], initial=0))
        self._screens = [
            (number, first, chunk.screen)
            for number, (first, chunk) in enumerate(zip(self._firsts, chunks, strict=True))
            if chunk.screen is not None
        ]

    @property
    def judging(self) -> int:
        """Rows that judge a token."""
        return sum(len(screen.tokens) for _, _, screen in self._screens)

    def wanted(
        self,
        part: torch.Tensor,
        masked: torch.Tensor,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
    ) -> list[int]:
        """Numbers of the rows whose other logits are wanted, ascending.

        Args:
            part: logits of the first ids [rows, n].
            masked: ids below n that no law contains.
            hidden: [rows, size].
            weight: of the output layer [V, size].
            bias: [V].
        """
        rows = [first + at for _, first, s in self._screens for at in range(len(s.tokens))]
        tokens = torch.tensor([token for _, _, s in self._screens for token in s.tokens])
        temperatures = torch.tensor(
            [s.temperature for _, _, s in self._screens for _ in s.tokens], dtype=torch.float32
        )
        bounds = torch.tensor(
            [bound for _, _, s in self._screens for bound in s.refused_up_to], dtype=torch.float64
        )
        at = torch.tensor(rows)
        weights = part.index_select(0, at)
        weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
        weights[:, masked] = -torch.inf
        top = weights.amax(1)
        own, slack = _own(weights, tokens, hidden.index_select(0, at), weight, bias)
        greedy = temperatures == 0
        inverse = torch.where(greedy, 1.0, 1 / temperatures)
        total = weights.sub_(top[:, None]).mul_(inverse[:, None]).exp_().sum(1)
        # ln of exp((l - top) / T) / Z_part against ln of the bound; NaN refuses nothing.
        most = ((own + slack - top) * inverse - total.log()).double() + _SLACK
        refused = torch.where(greedy, own + slack < top, most < bounds.log()).tolist()
        begin = 0
        for number, _, screen in self._screens:
            mine = refused[begin : begin + len(screen.tokens)]
            begin += len(screen.tokens)
            if True in mine:
                self.counts[number] = mine.index(True) + 1
        return [
            first + at
            for first, count in zip(self._firsts, self.counts, strict=True)
            for at in range(count)
        ]


def _own(
    part: torch.Tensor,
    tokens: torch.Tensor,
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of tokens [n], one a row, and how far they may be from those of the whole row.

    The layer's float32 sums of `size` products are off by at most size * 2**-24 times the sum
    of their magnitudes, in whatever order they are formed (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1). Products that cancel make that much more than the logit.
    """
    inside = tokens < part.shape[1]
    own = part.gather(1, tokens.clamp(max=part.shape[1] - 1)[:, None])[:, 0]
    own = own.to(torch.promote_types(own.dtype, torch.float32))
    slack = torch.zeros_like(own)
    if not bool(inside.all()):
        products = hidden.double() * weight.index_select(0, tokens).double()
        apart = products.sum(1)
        rounded = apart.abs()
        if bias is not None:
            added = bias.index_select(0, tokens).double()
            apart += added
            # Rounded before the bias was added and afterwards.
            rounded += apart.abs()
        off = products.abs_().sum(1) * (products.shape[1] * _STEP)
        off += rounded * (_ULPS * torch.finfo(weight.dtype).eps) + _LEAST_SLACK
        own = torch.where(inside, own, apart.to(own.dtype))
        slack = torch.where(inside, slack, off.to(own.dtype))
    return own, slack
