from __future__ import annotations

import pytest
import torch

from edge_sdk.sampling import Sampling
from server_app.methods.rows import Rows

NOTHING = torch.empty(0, dtype=torch.int64)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.7),
        Sampling(top_p=0.999),
        Sampling(min_p=1e-6),
        Sampling(top_k=200000),
    ],
)
def test_a_wide_law_has_mass_one(sampling: Sampling) -> None:
    # torch's own softmax misses 1 by 1e-6 to 1e-5 on rows like these.
    for seed in range(4):
        draw = torch.Generator().manual_seed(seed)
        logits = (torch.randn((1, 262_144), generator=draw) * 2).bfloat16()
        mass = float(Rows(logits, sampling, NOTHING).law(0).double().sum())
        assert mass == pytest.approx(1.0, abs=5e-7)
