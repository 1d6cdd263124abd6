"""Which attention a model runs with on a device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from edge_sdk.errors import UnsupportedModel
from server_app.target.attention import PassAttention, Segment
from server_app.target.grouped_attention import GroupedAttention
from server_app.target.paged_cache import PagedCache
from server_app.target.staging import Staging
from server_app.target.varlen_attention import VarlenAttention

logger = logging.getLogger(__name__)

MakeAttention = Callable[[PagedCache, Sequence[Segment], Staging], PassAttention]


@dataclass(frozen=True, slots=True)
class AttentionKind:
    """A way to attend.

    Attributes:
        name: a few words for the log.
        make: the attention of a pass.
    """

    name: str
    make: MakeAttention


GROUPED = AttentionKind("padded batches", GroupedAttention)


def attention_kinds(device: torch.device, dtype: torch.dtype) -> list[AttentionKind]:
    """What can be tried, the fastest first; the last one runs everywhere."""
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return [GROUPED]
    return [
        AttentionKind("ragged batches over page tables", partial(VarlenAttention, paged=True)),
        AttentionKind("ragged batches, gathered", partial(VarlenAttention, paged=False)),
        GROUPED,
    ]


def choose_attention(
    device: torch.device, dtype: torch.dtype, check: Callable[[AttentionKind], None]
) -> AttentionKind:
    """The fastest kind that passes.

    Args:
        check: raises `UnsupportedModel` where a model does not run with a kind, or gives
            other logits than by itself.

    Raises:
        UnsupportedModel: of the last kind, if none passes.
    """
    *others, last = attention_kinds(device, dtype)
    for kind in others:
        try:
            check(kind)
        except UnsupportedModel as error:
            logger.info("attention by %s does not work here: %s", kind.name, error)
        else:
            return kind
    check(last)
    return last
