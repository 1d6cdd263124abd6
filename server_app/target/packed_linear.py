"""Linear layers whose weights lie as the CPU's product wants them.

In 16 bits oneDNN, torch's library for CPUs, rearranges a weight in every product, which costs a
pass of a few tokens as much again as reading it. Here that is done once, when the model is loaded.
A weight that is also the embedding is kept as it was as well.
"""

from __future__ import annotations

from typing import Any

import torch

from edge_sdk.errors import InvalidRequest, UnsupportedModel

_ROWS = 16  # of the products that the layout is chosen for; it serves 1 to 256 equally well
_TOLERANCE = 0.02  # of the largest value; rounding to 16 bits gives 0.008


class PackedLinear(torch.nn.Module):
    """Takes the place of a `torch.nn.Linear`.

    Args:
        linear: on the CPU, in 16 bits.
        keep: keep its weight too, for others that use it.

    Raises:
        UnsupportedModel: its products are not those of the layer.
    """

    @torch.inference_mode()
    def __init__(self, linear: torch.nn.Linear, *, keep: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.weight = linear.weight if keep else None
        operations: Any = torch.ops.mkldnn
        self._packed = operations._reorder_linear_weight(linear.weight, _ROWS)
        self._product = operations._linear_pointwise
        draw = torch.Generator().manual_seed(0)
        rows = torch.randn((2, self.in_features), generator=draw).to(linear.weight.dtype)
        mine, theirs = self(rows).float(), linear(rows).float()
        # NOTE: written so that NaN fails too.
        if not float((mine - theirs).abs().max()) <= _TOLERANCE * float(theirs.abs().max()):
            raise UnsupportedModel("packed weights give other products on this CPU")

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if not rows.numel():
            return rows.new_empty((*rows.shape[:-1], self.out_features))
        out: torch.Tensor = self._product(rows, self._packed, self.bias, "none", [], "")
        return out


def check_packable(device: torch.device, dtype: torch.dtype) -> None:
    """Whether weights can be packed here.

    Raises:
        InvalidRequest: they cannot; the message says why.
    """
    operations: Any = torch.ops.mkldnn
    known = torch.backends.mkldnn.is_available() and all(
        hasattr(operations, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
    native = {
        torch.bfloat16: known and operations._is_mkldnn_bf16_supported(),
        torch.float16: known and operations._is_mkldnn_fp16_supported(),
    }
    if device.type != "cpu" or not native.get(dtype):
        raise InvalidRequest(
            f"weights can be packed on a CPU with products in bfloat16 or float16, not on {device} "
            f"in {str(dtype).removeprefix('torch.')}; load the model without packing",
            field="pack_weights",
        )


@torch.inference_mode()
def pack_linear_layers(model: torch.nn.Module) -> int:
    """Replace every linear layer of a model that `check_packable` allows.

    Returns:
        bytes that this takes more than before: of the weights that others use as well.

    Raises:
        UnsupportedModel: the products of a layer change.
    """
    owners: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    more = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear:
                shared = owners[id(child.weight)] > 1
                setattr(module, name, PackedLinear(child, keep=shared))
                more += child.weight.nbytes if shared else 0
    return more
