"""Rows that only temperature and masks shape, on the device that holds the logits. Nothing is
moved to the host and nothing waits for the device."""

from __future__ import annotations

import torch

from edge_sdk.sampling import Sampling


def plain_weights(logits: torch.Tensor, masked: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """exp((l - top) / T) [rows, V] of logits [rows, V], float32 or as wide as they are."""
    wide = _masked(logits, masked)
    wide -= wide.amax(1, keepdim=True)
    return wide.mul_(1 / sampling.temperature).exp_()


def plain_best(logits: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    """Most likely ids [rows] in float64, the lowest among equals; NaN where the logits are
    not numbers."""
    wide = _masked(logits, masked)
    top = wide.amax(1, keepdim=True)
    places = torch.arange(wide.shape[1], dtype=torch.float64, device=wide.device)
    best = torch.where(wide == top, places, torch.inf).amin(1)
    return torch.where(top[:, 0].isfinite(), best, torch.nan)


def _masked(logits: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    wide[:, masked] = -torch.inf
    return wide
