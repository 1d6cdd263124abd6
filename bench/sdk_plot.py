"""The figures of `bench.sdk` over the round-trip time, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edge_sdk.errors import InvalidRequest

CURVES: Final[Mapping[str, str]] = {
    "speedup": "adaptive / server alone, default pair",
    "ahead_gain_same": "ahead / one block at a time, SmolLM2 with itself, T 0",
    "ahead_gain_sampled": "the same, T 0.7",
    "ahead_gain_default": "ahead / one block at a time, default pair",
    "model_ratio": "measured / model, one block at a time",
}


def check_place(path: Path) -> None:
    """Before anything is measured.

    Raises:
        InvalidRequest: there is no such folder.
    """
    if not path.absolute().parent.is_dir():
        raise InvalidRequest(
            f"the plot cannot be written to {path}: there is no folder {path.parent}", field="plot"
        )


def draw(figures: Mapping[str, object], path: Path, *, note: str = "") -> bool:
    """Draw what of `CURVES` was measured; False if nothing was.

    Raises:
        InvalidRequest: the file cannot be written.
    """
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    drawn = False
    for name, label in CURVES.items():
        curve = figures.get(name)
        if not isinstance(curve, Mapping) or not curve:
            continue
        points = sorted((int(rtt), float(value)) for rtt, value in curve.items())
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
        drawn = True
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="round-trip time, ms", ylabel="ratio of speeds", title=note, ylim=(0, None))
    axes.grid(alpha=0.3)
    if drawn:
        axes.legend()
        try:
            figure.savefig(path, dpi=120, bbox_inches="tight")
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"the plot cannot be written to {path} ({error})") from error
    plt.close(figure)
    return drawn
