"""Which tokens are special, and what for: spellings and the configuration beside a tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_sdk.errors import ModelFolderInvalid
from edge_sdk.vocab.vocabulary import END_ROLES, TokenRole

_RESERVED = re.compile(
    r"[<\[]\|?_*(unused|reserved|reserved_special_token|dummy|placeholder|special|extra)"
    r"[_-]*\d+_*\|?[>\]]",
    re.IGNORECASE,
)

# A spelling is enough where no text would contain it.
_PLAIN_ROLES: Mapping[str, TokenRole] = {
    "<|endoftext|>": TokenRole.END_OF_TEXT,
    "<|end_of_text|>": TokenRole.END_OF_TEXT,
    "<|endofsentence|>": TokenRole.END_OF_TEXT,
    "<｜end▁of▁sentence｜>": TokenRole.END_OF_TEXT,
    "<|im_end|>": TokenRole.END_OF_TURN,
    "<|eot_id|>": TokenRole.END_OF_TURN,
    "<|eom_id|>": TokenRole.END_OF_TURN,
    "<|eot|>": TokenRole.END_OF_TURN,
    "<|end|>": TokenRole.END_OF_TURN,
    "<|return|>": TokenRole.END_OF_TURN,
    "<|end_of_turn|>": TokenRole.END_OF_TURN,
    "<end_of_turn>": TokenRole.END_OF_TURN,
    "<|END_OF_TURN_TOKEN|>": TokenRole.END_OF_TURN,
    "<|begin_of_text|>": TokenRole.BEGIN,
    "<|startoftext|>": TokenRole.BEGIN,
    "<｜begin▁of▁sentence｜>": TokenRole.BEGIN,
    "<|finetune_right_pad_id|>": TokenRole.PADDING,
}
# These are also words of a text ("</s>" closes a tag in Gemma), so the file must call them special.
_DECLARED_ROLES: Mapping[str, TokenRole] = {
    "<eos>": TokenRole.END_OF_TEXT,
    "</s>": TokenRole.END_OF_TEXT,
    "[EOS]": TokenRole.END_OF_TEXT,
    "<bos>": TokenRole.BEGIN,
    "<s>": TokenRole.BEGIN,
    "[BOS]": TokenRole.BEGIN,
    "<pad>": TokenRole.PADDING,
    "[PAD]": TokenRole.PADDING,
    "<|pad|>": TokenRole.PADDING,
    "<unk>": TokenRole.UNKNOWN,
    "[UNK]": TokenRole.UNKNOWN,
}
# Special without a role, where a converted file forgot to say so.
_PLAIN_CONTROLS = frozenset(
    {
        "<|im_start|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<start_of_turn>",
        "<start_of_image>",
        "<end_of_image>",
        "<image_soft_token>",
        "[multimodal]",
        "<mask>",
    }
)

_NAMED = (
    ("eos_token", TokenRole.END_OF_TEXT),
    ("bos_token", TokenRole.BEGIN),
    ("pad_token", TokenRole.PADDING),
    ("unk_token", TokenRole.UNKNOWN),
)
_FILES = (
    "generation_config.json",
    "config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
_MAX_CONFIG_BYTES = 32 << 20


def is_reserved(spelling: str) -> bool:
    """Whether a token is a place kept free, such as `<unused12>` or `<|reserved_3|>`."""
    return _RESERVED.fullmatch(spelling) is not None


def is_control(spelling: str) -> bool:
    """Whether a token is special by its spelling alone."""
    return spelling in _PLAIN_ROLES or spelling in _PLAIN_CONTROLS


def role_of(spelling: str) -> TokenRole | None:
    """Role by spelling of a token that is known to be special."""
    return _PLAIN_ROLES.get(spelling) or _DECLARED_ROLES.get(spelling)


@dataclass(frozen=True, slots=True)
class Claim:
    """A configuration file names a token for a role.

    Attributes:
        token: its id or its spelling.
        role: what for; an end token is `END_OF_TEXT` until its spelling says otherwise.
        where: file and field.
    """

    token: int | str
    role: TokenRole
    where: str

    @property
    def ends(self) -> bool:
        return self.role in END_ROLES


def read_claims(folder: Path) -> list[Claim]:
    """What the configuration files of a model folder say of special tokens, the most
    authoritative file first: `generation_config.json` is what its own library stops at.

    Raises:
        ModelFolderInvalid: a file is not JSON, or a field has another type.
    """
    return [
        claim for name in _FILES if (folder / name).is_file() for claim in _claims(folder / name)
    ]


def _claims(path: Path) -> Iterator[Claim]:
    content = read_json(path)
    # Multimodal models keep the language model's settings one level down.
    inner = content.get("text_config")
    for part in (content, inner if isinstance(inner, Mapping) else {}):
        for name, role in _NAMED:
            for field in (f"{name}_id", name):
                for token in _tokens(part.get(field), f"{path}: {field}"):
                    yield Claim(token, role, f"{path}: {field}")


def _tokens(value: Any, where: str) -> Sequence[int | str]:
    if isinstance(value, list):
        return [token for item in value for token in _token(item, where)]
    return _token(value, where)


def _token(value: Any, where: str) -> Sequence[int | str]:
    if isinstance(value, Mapping):
        value = value.get("content")
    if value is None:
        return ()
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ModelFolderInvalid(f"{where} is neither a token nor an id; repair the file")
    # -1 is how older configurations say "none".
    return () if value == -1 or value == "" else (value,)


def read_json(path: Path, *, limit: int = _MAX_CONFIG_BYTES) -> Mapping[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelFolderInvalid: the file cannot be read, is larger than `limit` bytes, or holds
            anything else.
    """
    try:
        size = path.stat().st_size
        if size > limit:
            raise ModelFolderInvalid(f"{path} is {size} bytes, the limit is {limit}")
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFolderInvalid(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ModelFolderInvalid(
            f"{path} is not valid JSON ({error}); it may be cut short, so fetch it again"
        ) from error
    if not isinstance(content, Mapping):
        raise ModelFolderInvalid(f"{path} holds no JSON object; it is not a model's file")
    return content
