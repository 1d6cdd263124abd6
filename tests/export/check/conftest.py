"""Drafts exported from tiny models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from export import export_draft


@pytest.fixture(scope="session")
def source(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama whose logits are far enough apart to tell laws apart."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("checked") / "source"
    shutil.copytree(tiny_checkpoint, folder)
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(tiny_checkpoint, head_dim=16, initializer_range=0.2)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def drafts(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Folders by bits a weight."""
    root = tmp_path_factory.mktemp("drafts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSD_HOME", str(root / "home"))
        for bits in (4, 32):
            export_draft(source, root / f"{bits}bit", bits=bits)
    return {bits: root / f"{bits}bit" for bits in (4, 32)}
