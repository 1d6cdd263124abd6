"""Whether a text answers a GSM8K question, and a prompt that shows how to answer.

HumanEval is not scored: that would run code that a model wrote, and there is no sandbox here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from bench.prompt_files import Problem

_NEXT: Final = "\nQuestion:"
_NUMBER = re.compile(r"-?\$?\d[\d,]*(?:\.\d+)?")
_MARK = "####"


def with_examples(problem: Problem, examples: Sequence[Problem]) -> str:
    """The problem's prompt after solved ones, whose answers end in `#### number`."""
    solved = "".join(f"{each.prompt} {each.answer}\n\n" for each in examples)
    return solved + problem.prompt


def answer_of(text: str) -> float | None:
    """The number that a text ends up with: the one after `####`, else the last one before the
    next question, else None."""
    text = text.split(_NEXT)[0]
    before, mark, after = text.partition(_MARK)
    found = _NUMBER.findall(after)[:1] if mark else []
    found = found or _NUMBER.findall(before)[-1:]
    return float(found[0].replace(",", "").replace("$", "")) if found else None


def is_right(text: str, problem: Problem) -> bool:
    """Whether a text arrives at the number of the official answer."""
    wanted = answer_of(problem.answer)
    return wanted is not None and answer_of(text) == wanted
