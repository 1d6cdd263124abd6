"""What every test may use: the two real models, prepared once in `COSD_HOME`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the real models run only when the `-m` expression asks for them."""
    if "models" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip(reason="needs the real models; run `pytest -m models`")
    for item in items:
        if item.get_closest_marker("models") is not None:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """SmolLM2 135M Instruct as a Hugging Face folder."""
    from export.pipeline import prepare_target

    return prepare_target("smollm2-135m")


@pytest.fixture(scope="session")
def gemma_folder() -> Path:
    """Gemma 3 270M as a Hugging Face folder."""
    from export.pipeline import prepare_target

    return prepare_target("gemma3-270m")


@pytest.fixture(scope="session")
def smollm2_draft_folder() -> Path:
    """SmolLM2 135M Instruct exported with 4-bit weights."""
    from export.pipeline import prepare_draft

    return prepare_draft("smollm2-135m", bits=4)
