"""The target's law and the law of its texts, written down once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from harness.case import Case
from numpy.typing import NDArray

from edge_sdk.sampling import Sampling
from server_app.target.model import Chunk
from server_app.target.toy import ToyTarget


def reference_law(
    logits: NDArray[np.float64], sampling: Sampling, masked: Sequence[int], seen: Sequence[int]
) -> NDArray[np.float64]:
    """The target's law written down once more, from design and not from the code."""
    z = np.array(logits, dtype=np.float64)
    for token in set(seen):
        z[token] = (
            z[token] / sampling.repetition_penalty
            if z[token] > 0
            else z[token] * sampling.repetition_penalty
        )
    z[list(masked)] = -np.inf
    if sampling.temperature == 0:
        return np.eye(len(z))[int(np.argmax(z))]
    z = z / sampling.temperature
    if sampling.top_k:
        z[z < np.sort(z)[-min(sampling.top_k, len(z))]] = -np.inf
    p = np.exp(z - z.max())
    p /= p.sum()
    if sampling.top_p < 1:
        order = np.argsort(-p, kind="stable")
        total = 0.0
        kept = np.zeros_like(p)
        for token in order:
            kept[token] = p[token]
            total += p[token]
            if total >= sampling.top_p:
                break
        p = kept / kept.sum()
    p[p < sampling.min_p * p.max()] = 0.0
    return p / p.sum()


def reference_texts(case: Case, target: ToyTarget) -> Counter[tuple[int, ...]]:
    """Exact law of the target's own texts."""
    vocabulary = target.vocabulary
    masked = vocabulary.masked_ids.tolist()
    done: Counter[tuple[int, ...]] = Counter()
    open_texts = {(): 1.0}
    for _ in range(min(case.tokens, case.context - len(case.prompt))):
        longer: dict[tuple[int, ...], float] = {}
        for text, weight in open_texts.items():
            ids = [*case.prompt, *text]
            sequence = target.new_sequence()
            (logits,) = target.forward([Chunk(sequence, ids, 1)])
            target.release(sequence)
            law = reference_law(logits[0].numpy(), case.sampling, masked, ids)
            for token in np.flatnonzero(law):
                grown = (*text, int(token))
                value = weight * float(law[token])
                if int(token) in vocabulary.end_ids:
                    done[grown] += value
                else:
                    longer[grown] = longer.get(grown, 0.0) + value
        open_texts = longer
    done.update(open_texts)
    return done
