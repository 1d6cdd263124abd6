"""What is wrong with a target that can be known before torch is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from edge_sdk.draft.manifest import MANIFEST_NAME
from edge_sdk.errors import InvalidRequest, ModelFolderInvalid

TOY: Final = "toy"
LEAST_CACHE: Final = 64  # tokens that a cache must hold at least


def check_target(
    source: str | Path, *, device: str, dtype: str, pack_weights: bool, cache_tokens: int
) -> None:
    """Refuse what loading would refuse, but later.

    Args:
        source: as `load_target` takes it.
        device, dtype, pack_weights, cache_tokens: settings; 0 tokens are as many as fit.

    Raises:
        InvalidRequest: the target cannot be had with these settings.
        ModelFolderInvalid: no Hugging Face folder.
    """
    if is_toy(source):
        toy_seed(source, device=device, dtype=dtype, pack_weights=pack_weights)
    else:
        _check_folder(Path(source).expanduser())
        other = f"--dtype {dtype}" if dtype == "float32" else f"--device {device}"
        if pack_weights and (dtype == "float32" or device.startswith("cuda")):
            raise InvalidRequest(
                f"--pack-weights is for a CPU with bfloat16 or float16, not for {other}; leave one "
                f"of them out",
                field="pack_weights",
            )
    if 0 < cache_tokens < LEAST_CACHE:
        raise InvalidRequest(
            f"--cache-tokens is {cache_tokens}, too small for any text; give at least "
            f"{LEAST_CACHE}, or 0 for as many as fit",
            field="cache_tokens",
        )


def is_toy(source: str | Path) -> bool:
    """`toy` or `toy:...`; a folder called `toy` is reached as `./toy`."""
    return not isinstance(source, Path) and source.partition(":")[0] == TOY


def toy_seed(source: str | Path, *, device: str, dtype: str, pack_weights: bool) -> int:
    """The seed of `toy:SEED`.

    Raises:
        InvalidRequest: it is no number, or a toy cannot be had so.
    """
    _, separator, seed = str(source).partition(":")
    if separator and not (seed.isascii() and seed.isdigit()):
        raise InvalidRequest(
            f"{str(source)[:80]!r} is not a toy model: write toy:SEED with a whole number",
            field="target",
        )
    if device not in ("auto", "cpu") or dtype not in ("auto", "float32"):
        raise InvalidRequest(
            f"a toy model runs on the CPU in float32, not on {device} in {dtype}",
            field="device" if device not in ("auto", "cpu") else "dtype",
        )
    if pack_weights:
        raise InvalidRequest(
            "a toy model has no weights to pack; leave --pack-weights out", field="pack_weights"
        )
    return int(seed or 0)


def _check_folder(folder: Path) -> None:
    wanted = "a target is a Hugging Face folder"
    try:
        if not folder.is_dir():
            raise ModelFolderInvalid(f"{folder} is not a folder; {wanted}")
        if (folder / "config.json").exists():
            return
        draft = (folder / MANIFEST_NAME).exists()
    except OSError as error:
        raise ModelFolderInvalid(f"{folder} cannot be read ({error.strerror})") from error
    raise ModelFolderInvalid(
        f"{folder} {'is a draft folder' if draft else 'has no config.json'}; {wanted}"
    )
