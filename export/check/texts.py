"""Texts that a draft is measured on: ours, or the user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from edge_sdk.errors import InvalidRequest

_MOST_BYTES: Final = 64 << 20
_FIELDS: Final = ("prompt", "question", "text", "instruction")

TEXT: Final = """\
The harbour was quiet in the early morning. Three boats had left before sunrise, and the others \
lay side by side along the stone wall, their ropes stiff with salt. On the pier an old man was \
mending a net. He worked without looking at his hands, as he had done for forty years, and \
watched the gulls instead.

"You are late," he said when the girl came down the steps with the bread.

"The oven was cold," she answered. "Mother says that there will be a storm before the evening, so \
you should bring the nets in."

Weather is hard to predict in this part of the coast. Cold water from the north meets warm air \
from the land, and the difference in temperature drives winds that can change within minutes. In \
1987 a gale of 130 kilometres per hour destroyed 14 houses and most of the fleet; since then the \
village keeps a small station that measures pressure, humidity and wind speed every 10 minutes.

The rule is simple: if the pressure falls by more than 2 hectopascals in an hour, a flag is \
raised. A short program does the arithmetic:

def falling(values, limit=2.0):
    return values[0] - values[-1] > limit

It is not much, but nobody has been lost at sea since the flag was first used.
"""

PROMPTS: Final[tuple[str, ...]] = (
    "The village lies at the end of a narrow valley. In winter the road is often closed, and",
    "In 2015 the company sold 1,200 bicycles; by 2020 this had grown to",
    'def count_words(path):\n    """Return how often each word occurs in a text file."""\n',
    "Water boils at a lower temperature on a mountain because",
    '"Did you lock the door?" she whispered. He shook his head and',
    "To repair a flat tyre you need three things. First,",
    "Dear Dr. Lang,\n\nThank you for your offer of 12 May. After some thought we have decided to",
    "Q: How many minutes are there in two and a half hours?\nA:",
)


def read_prompts(path: Path) -> tuple[str, ...]:
    """Prompts of a file: a JSON line each (a text, or an object with the field `prompt`,
    `question`, `text` or `instruction`) where its name ends in `.jsonl`, else a line of text
    each, `\\n` in it standing for a line end. Empty lines are skipped.

    Raises:
        InvalidRequest: it cannot be read, has no prompts, or a line is none; the line is named.
    """
    lines = [
        (n, line)
        for n, line in enumerate(read_text(path, option="--prompts").splitlines(), 1)
        if line.strip()
    ]
    if not lines:
        raise _wrong("--prompts", path, "it has no prompts; write one a line")
    if path.suffix == ".jsonl":
        return tuple(_record(path, number, line) for number, line in lines)
    return tuple(line.replace("\\n", "\n") for _, line in lines)


def read_text(path: Path, *, option: str) -> str:
    """A UTF-8 text.

    Args:
        path: the file.
        option: what names it on the command line.

    Raises:
        InvalidRequest: it cannot be read, is empty or too long.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _wrong(option, path, f"it has more than {_MOST_BYTES >> 20} MiB")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _wrong(option, path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _wrong(
            option, path, f"it is no UTF-8 text ({error.reason} at byte {error.start})"
        ) from error
    if not text.strip():
        raise _wrong(option, path, "it is empty; give a file with text")
    return text


def _record(path: Path, number: int, line: str) -> str:
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong("--prompts", path, f"line {number} is no JSON ({error})") from error
    if isinstance(value, dict):
        value = next((value[name] for name in _FIELDS if name in value), None)
    if not isinstance(value, str) or not value.strip():
        raise _wrong("--prompts", path, f"line {number} has no text under {', '.join(_FIELDS)}")
    return value


def _wrong(option: str, path: Path, reason: str) -> InvalidRequest:
    return InvalidRequest(f"{option} {path}: {reason}", field=option.lstrip("-"))
