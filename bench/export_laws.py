"""The laws of exported drafts beside those of the model, of a target, and of each other."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from bench.prompts import PROMPTS
from edge_sdk.decoding.laws import shaped
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.onnx import OnnxDraft
from edge_sdk.sampling import Sampling
from edge_sdk.vocab import Alignment
from export.check.parity import Parity, measure_parity
from export.check.texts import TEXT
from export.pipeline import export_draft
from export.progress import Progress
from export.sources import resolve_source
from export.target_vocabulary import read_target


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        steps: decode steps of each graph.
        prompts: prompts of 512 tokens of each graph.
        text: tokens over which laws are compared.
        texts: texts that the target writes.
        tokens: tokens of each.
    """

    steps: int
    prompts: int
    text: int
    texts: int
    tokens: int


FULL: Final = Size(steps=96, prompts=5, text=256, texts=len(PROMPTS), tokens=32)
QUICK: Final = Size(steps=24, prompts=2, text=64, texts=3, tokens=12)


def pruned_law(whole: Path, pruned: Path, target: str, progress: Progress) -> dict[str, Any]:
    """Largest difference of a probability on V_C between the two fp32 heads."""
    vocabulary = read_target(target, progress=progress).vocabulary
    worst = 0.0
    with OnnxDraft.open(whole) as one, OnnxDraft.open(pruned) as other:
        pair = Alignment.between(target=vocabulary, draft=one.vocabulary)
        drafts = [Follower(draft, pair, vocabulary) for draft in (one, other)]
        for prompt in PROMPTS[:6]:
            laws = []
            for follower in drafts:
                follower.begin(follower.model.text.prompt(prompt))
                laws.append(shaped(follower.logits(), Sampling()))
            worst = max(worst, float(np.abs(laws[0] - laws[1]).max()))
    return {"common_vocabulary": len(pair), "pruned_law_difference": worst}


def parity(source: str, folder: Path, size: Size, progress: Progress) -> Parity:
    """The exported draft beside the fp32 model over a text."""
    found = resolve_source(source, progress=progress)
    with OnnxDraft.open(folder) as draft:
        ids = draft.text.prompt(TEXT)[: size.text]
        return measure_parity(found, draft, ids, progress=progress)


def random_checkpoint(draft: str, size: Size, progress: Progress) -> Parity:
    """4 bits of weights that never were in few bits: a Llama with the tokenizer of `draft`.

    Weights are normal with standard deviation 0.04, and the last norm widens the logits to a
    standard deviation of 4, at which 49,152 normal logits have an entropy of about ln(49,152) -
    4^2 / 2 = 2.8 nats: as sharp as the laws of a trained model.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    found = resolve_source(draft, progress=progress)
    with TemporaryDirectory() as temporary:
        source = Path(temporary) / "random"
        source.mkdir()
        for path in found.path.glob("tokenizer*.json"):
            shutil.copy(path, source)
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=2,
            vocab_size=found.checkpoint.logits_width,
            max_position_embeddings=1024,
            initializer_range=0.04,
            tie_word_embeddings=True,
        )
        with progress.stage("make a random model"):
            model = LlamaForCausalLM(config)
            torch.nn.init.constant_(model.model.norm.weight, 4 / (0.04 * 512**0.5))
            model.save_pretrained(source)
        folder = Path(temporary) / "draft"
        export_draft(source, folder, bits=4, progress=progress)
        return parity(str(source), folder, size, progress)


def acceptance(
    target: str, default: Path, fp32: Path, size: Size, progress: Progress
) -> dict[str, Any]:
    """How often a target accepts the draft, in 4 bits and in fp32, on the same texts."""
    from bench.remembered import Remembered
    from export.check.expected import Acceptance, expected_acceptance, standard_error
    from export.check.local_target import LocalTarget

    model = LocalTarget(
        resolve_source(target, progress=progress).path,
        dtype="bfloat16",
        trust_remote_code=False,
        progress=progress,
    )
    laws = Remembered(model)

    def of(folder: Path) -> Acceptance:
        with OnnxDraft.open(folder) as draft:
            return expected_acceptance(
                laws, draft, PROMPTS[: size.texts], tokens=size.tokens, progress=progress
            )

    few, many = of(default), of(fp32)
    pairs = zip(few.by_prompt, many.by_prompt, strict=True)
    error = standard_error([a - b for a, b in pairs])
    difference = few.by_method["hybrid"] - many.by_method["hybrid"]
    return {
        "acceptance": round(few.by_method["hybrid"], 4),
        "acceptance_fp32": round(many.by_method["hybrid"], 4),
        "acceptance_difference": round(difference, 4),
        "acceptance_difference_standard_error": None if error is None else round(error, 4),
        "acceptance_positions": few.positions,
    }
