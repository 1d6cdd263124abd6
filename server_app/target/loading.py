"""From a name or a folder to a target model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from server_app.before_loading import is_toy, toy_seed
from server_app.target.model import TargetModel
from server_app.target.toy import ToyTarget

logger = logging.getLogger(__name__)


def load_target(
    source: str | Path,
    *,
    name: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    chat_template: str | None = None,
    cache_bytes: int | None = None,
    cache_tokens: int | None = None,
    pack_weights: bool = False,
    seconds_per_pass: float = 0.0,
    progress: Callable[[str], None] = logger.info,
) -> TargetModel:
    """Load the target that a server is to run.

    Args:
        source: a Hugging Face checkpoint folder, or `toy` or `toy:SEED` for a small random
            model without weights. A folder called `toy` is reached as `./toy`.
        name: short name of the model; by default that of the folder or of the toy.
        device, dtype, chat_template, cache_bytes, pack_weights, progress: see
            `HuggingFaceTarget.load`; a toy is for the CPU in float32, packs nothing and takes
            no notice of the others.
        cache_tokens: most tokens whose keys and values are held; by default `cache_bytes` says.
        seconds_per_pass: how long a pass of a toy takes at least.

    Raises:
        ModelFolderInvalid, UnsupportedModel, TokenizerUnsupported, InvalidRequest: see
            `HuggingFaceTarget.load` and `toy_seed`.
    """
    if is_toy(source):
        seed = toy_seed(source, device=device, dtype=dtype, pack_weights=pack_weights)
        toy = ToyTarget.random(seed, name=name, seconds_per_pass=seconds_per_pass)
        return _limited(toy, cache_tokens)
    # Imported here: a server with a toy target starts without transformers.
    from server_app.target.hugging_face import HuggingFaceTarget

    target = HuggingFaceTarget.load(
        Path(source).expanduser(),
        name=name,
        device=device,
        dtype=dtype,
        chat_template=chat_template,
        cache_bytes=cache_bytes,
        pack_weights=pack_weights,
        progress=progress,
    )
    return _limited(target, cache_tokens)


def _limited(target: TargetModel, cache_tokens: int | None) -> TargetModel:
    if cache_tokens is not None:
        target.limit_cache(cache_tokens)
    return target
