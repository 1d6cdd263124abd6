"""Prompts from a file in the official format of a data set.

GSM8K      jsonl of `question`, `answer`                              (openai/grade-school-math)
HumanEval  jsonl or .jsonl.gz of `task_id`, `prompt`, `entry_point`, `test`  (openai/human-eval)
MT-Bench   jsonl of `turns`; the first one is asked                   (lm-sys/FastChat)

Which one it is shows in the first record. The models here are base models or are asked as
such, so each record becomes a plain text to go on from.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edge_sdk.chat import Message, plain_rendering
from edge_sdk.errors import InvalidRequest

_MOST_BYTES: Final = 256 << 20
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Problem:
    """One record.

    Attributes:
        prompt: text to go on from.
        answer: GSM8K's worked answer, which ends in `#### number`; else empty.
    """

    prompt: str
    answer: str = ""


@dataclass(frozen=True, slots=True)
class PromptFile:
    """A file that was read: the name of its format and its records in order."""

    format: str
    problems: Sequence[Problem]


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    fields: Sequence[str]
    problem: Callable[[Mapping[str, Any]], Problem]


def _gsm8k(record: Mapping[str, Any]) -> Problem:
    return Problem(f"Question: {_text(record, 'question')}\nAnswer:", _text(record, "answer"))


def _human_eval(record: Mapping[str, Any]) -> Problem:
    return Problem(_text(record, "prompt"))


def _mt_bench(record: Mapping[str, Any]) -> Problem:
    turns = record["turns"]
    if not isinstance(turns, list) or not turns or not isinstance(turns[0], str) or not turns[0]:
        raise ValueError("'turns' is no list that begins with a text")
    return Problem(plain_rendering((Message("user", turns[0]),)))


_FORMATS: Final = (
    _Format("GSM8K", ("question", "answer"), _gsm8k),
    _Format("HumanEval", ("task_id", "prompt", "entry_point", "test"), _human_eval),
    _Format("MT-Bench", ("turns",), _mt_bench),
)


def read_prompts(path: Path) -> PromptFile:
    """Read a whole file.

    Raises:
        InvalidRequest: it cannot be read, has no records, is in none of the formats, or a
            line is damaged; the message names the line.
    """
    lines = [
        (number, line)
        for number, line in enumerate(_content(path).splitlines(), start=1)
        if line.strip()
    ]
    if not lines:
        raise _wrong(path, "it is empty; give a file of GSM8K, HumanEval or MT-Bench")
    first = _record(path, *lines[0])
    found = next((form for form in _FORMATS if all(name in first for name in form.fields)), None)
    if found is None:
        wanted = "; ".join(f"{form.name} has {', '.join(form.fields)}" for form in _FORMATS)
        raise _wrong(
            path,
            f"line {lines[0][0]} has the fields {', '.join(first) or 'none'}, which is no format "
            f"known here: {wanted}",
        )
    problems = []
    for number, line in lines:
        record = _record(path, number, line)
        try:
            problems.append(found.problem(record))
        except KeyError as error:
            raise _wrong(path, f"line {number} has no field {error} of {found.name}") from error
        except ValueError as error:
            raise _wrong(path, f"line {number}: {error}") from error
    return PromptFile(found.name, problems)


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if data[:2] == _GZIP:
            with gzip.open(path, "rb") as packed:
                data = packed.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise _wrong(path, f"it has more than {_MOST_BYTES >> 20} MiB")
        return data.decode("utf-8")
    except (EOFError, zlib.error) as error:
        raise _wrong(path, f"its compressed data is damaged ({error})") from error
    except OSError as error:
        raise _wrong(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, f"it is no UTF-8 text ({error.reason} at byte {error.start})") from error


def _record(path: Path, number: int, line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"line {number} is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise _wrong(path, f"line {number} is no JSON object")
    return record


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record[name]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name!r} is no text")
    return value


def _wrong(path: Path, reason: str) -> InvalidRequest:
    return InvalidRequest(f"prompts {path}: {reason}", field="prompts")
