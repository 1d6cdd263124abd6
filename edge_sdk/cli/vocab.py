"""`cosd vocab A B`: what two models' vocabularies have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from edge_sdk.draft.manifest import MANIFEST_NAME, Manifest
from edge_sdk.draft.tokenizer_text import load_tokenizer
from edge_sdk.errors import (
    InvalidRequest,
    ManifestMismatch,
    ModelFolderInvalid,
    TokenizerUnsupported,
)
from edge_sdk.vocab import Alignment, Kind, TokenRole, Vocabulary, read_tokenizer
from edge_sdk.vocab.tokenizer_json import TOKENIZER_NAME

_MAX_TEXT_BYTES = 64 << 20
_MAX_PIPE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two: its name, tokens, and how it cuts a text."""

    name: str
    vocabulary: Vocabulary
    file: Path

    def encode(self, text: str) -> NDArray[np.int64]:
        """Ids [T] of a text, without special tokens."""
        tokenizer = load_tokenizer(self.file)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int64)


def vocab(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="The target: a model folder or tokenizer.json.")
    ],
    b: Annotated[
        Path,
        typer.Argument(metavar="B", help="The draft: an exported or model folder, or a file."),
    ],
    text: Annotated[
        Path | None,
        typer.Option("--text", metavar="FILE", help="Also count the tokens of this UTF-8 text."),
    ] = None,
    samples: Annotated[
        int, typer.Option(min=0, max=200, help="How many tokens that only one has are shown.")
    ] = 12,
) -> None:
    """Compare two vocabularies by the bytes their tokens stand for.

    Shows their sizes, the overlap in tokens and, with --text, in share of a text's tokens,
    and samples of what only one side has.
    """
    try:
        with _at_rest(a) as at_a, _at_rest(b) as at_b:
            _report(_side("A", at_a), _side("B", at_b), _text(text), samples)
    except BrokenPipeError:  # typer ends the program for it without a word
        raise
    except OSError as error:
        raise ModelFolderInvalid(
            f"{error.filename or 'a file'} cannot be read or written: {error.strerror or error}"
        ) from error


def _report(a: _Side, b: _Side, text: str | None, samples: int) -> None:
    console = Console()
    aligned = Alignment.between(target=a.vocabulary, draft=b.vocabulary, minimum=0)
    for side in (a, b):
        console.print(f"{side.name}  {_plain(str(side.file))}", highlight=False, soft_wrap=True)
    console.print(_sizes(a, b))
    console.print(_overlap(a, b, aligned))
    if text is not None:
        console.print(_text_shares(a, b, aligned, text))
    if samples:
        console.print(_missing(a, b, aligned, samples))
    # The default minimum is what a session would ask for.
    Alignment.between(target=a.vocabulary, draft=b.vocabulary)


@contextmanager
def _at_rest(path: Path) -> Iterator[Path]:
    """`path`, or a copy of what a pipe gives, which can be read once only."""
    if not path.exists() or path.is_dir() or path.is_file():
        yield path
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / TOKENIZER_NAME
        with path.open("rb") as pipe:
            data = pipe.read(_MAX_PIPE_BYTES + 1)
        if len(data) > _MAX_PIPE_BYTES:
            raise InvalidRequest(f"{path} gives more than {_MAX_PIPE_BYTES} bytes")
        copy.write_bytes(data)
        yield copy


def _side(name: str, path: Path) -> _Side:
    if path.is_dir() and (path / MANIFEST_NAME).is_file():
        manifest = Manifest.read(path)
        vocabulary = read_tokenizer(
            path,
            width=manifest.logits_width,
            roles={role: manifest.roles.get(role, ()) for role in TokenRole},
        )
        if vocabulary.fingerprint != manifest.vocabulary_fingerprint:
            raise ManifestMismatch(
                f"the tokenizer in {path} is not the one that its manifest describes; export the "
                "model again"
            )
    else:
        vocabulary = read_tokenizer(path)
    return _Side(name, vocabulary, path / TOKENIZER_NAME if path.is_dir() else path)


def _text(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        if path.stat().st_size > _MAX_TEXT_BYTES:
            raise InvalidRequest(f"{path} is larger than {_MAX_TEXT_BYTES} bytes", field="text")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelFolderInvalid(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8 text ({error})", field="text") from error
    if not text:
        raise InvalidRequest(f"{path} is empty; give a text to count", field="text")
    return text


def _sizes(a: _Side, b: _Side) -> Table:
    table = Table(title="Vocabularies", title_justify="left")
    table.add_column("")
    for side in (a, b):
        table.add_column(side.name, justify="right")
    table.add_row("ids", *(f"{len(side.vocabulary):,}" for side in (a, b)))
    for kind in Kind:
        counts = [int(np.count_nonzero(side.vocabulary.kinds == kind)) for side in (a, b)]
        table.add_row(kind.name.lower(), *(f"{count:,}" for count in counts))
    table.add_row(
        "different byte strings",
        *(f"{len(side.vocabulary.ids_by_bytes):,}" for side in (a, b)),
    )
    for role in TokenRole:
        ids = [side.vocabulary.roles.get(role, ()) for side in (a, b)]
        if any(ids):
            table.add_row(role.replace("_", " "), *(", ".join(map(str, i)) or "-" for i in ids))
    table.add_row("fingerprint", *(side.vocabulary.fingerprint[:16] for side in (a, b)))
    return table


def _overlap(a: _Side, b: _Side, aligned: Alignment) -> Table:
    table = Table(title="In common", title_justify="left")
    table.add_column("")
    table.add_column("tokens", justify="right")
    for side in (a, b):
        table.add_column(f"of {side.name}", justify="right")
    strings = [len(side.vocabulary.ids_by_bytes) for side in (a, b)]
    table.add_row(
        "text, by bytes",
        f"{aligned.text_tokens:,}",
        *(_share(aligned.text_tokens, count) for count in strings),
    )
    ends = len(aligned) - aligned.text_tokens
    table.add_row(
        "ends, by role",
        f"{ends:,}",
        *(_share(ends, len(side.vocabulary.end_ids)) for side in (a, b)),
    )
    return table


def _text_shares(a: _Side, b: _Side, aligned: Alignment, text: str) -> Table:
    table = Table(title=f"In a text of {len(text):,} characters", title_justify="left")
    table.add_column("cut by")
    table.add_column("tokens", justify="right")
    table.add_column("in common", justify="right")
    for side, ranks in ((a, aligned.rank_of_target), (b, aligned.rank_of_draft)):
        ids = side.encode(text)
        if ids.size and int(ids.max()) >= len(ranks):
            raise TokenizerUnsupported(
                f"{side.file} gives id {int(ids.max())}, its model has {len(ranks)}; the two "
                "belong to different models"
            )
        common = int(np.count_nonzero(ranks[ids] >= 0))
        table.add_row(side.name, f"{ids.size:,}", _share(common, ids.size))
    return table


def _missing(a: _Side, b: _Side, aligned: Alignment, samples: int) -> Table:
    table = Table(title="Only on one side", title_justify="left")
    for side in (a, b):
        table.add_column(f"only {side.name}", overflow="fold")
    sides = ((a, aligned.rank_of_target), (b, aligned.rank_of_draft))
    columns = [_spread(_only(side.vocabulary, ranks), samples) for side, ranks in sides]
    for row in range(max(map(len, columns))):
        cells = (column[row] if row < len(column) else "" for column in columns)
        table.add_row(*map(_plain, cells))
    return table


def _only(vocabulary: Vocabulary, ranks: NDArray[np.int64]) -> list[str]:
    ids: Iterable[int] = np.sort(list(vocabulary.ids_by_bytes.values())).tolist()
    return [_shown(vocabulary.pieces[token]) for token in ids if ranks[token] < 0]


def _spread(items: list[str], count: int) -> list[str]:
    if len(items) <= count:
        return items
    return [items[(2 * place + 1) * len(items) // (2 * count)] for place in range(count)]


def _shown(piece: bytes) -> str:
    try:
        return repr(piece.decode("utf-8"))
    except UnicodeDecodeError:
        return repr(piece)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _plain(text: str) -> str:
    """Text that rich must not read as markup."""
    return text.replace("[", "\\[")
