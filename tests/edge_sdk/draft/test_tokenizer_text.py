from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from edge_sdk.chat import Message, plain_rendering
from edge_sdk.draft.manifest import ChatFormat
from edge_sdk.draft.tokenizer_text import TokenizerText, render
from edge_sdk.vocab import Vocabulary, read_tokenizer

END = 260  # "<|endoftext|>", which stands in for a beginning token here
ROLES = ("user", "assistant")
CHAT = ChatFormat(
    start="<|endoftext|>",
    start_with_system="",
    prefix={role: f"[{role}]" for role in ROLES},
    suffix=dict.fromkeys(ROLES, "/"),
    generation="[assistant]",
)


@pytest.fixture
def tokenizer(tmp_path: Path, remake_tokenizer: Callable[..., None]) -> Tokenizer:
    remake_tokenizer(tmp_path)
    found: Tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    return found


@pytest.fixture
def vocabulary(tmp_path: Path, tokenizer: Tokenizer) -> Vocabulary:
    return read_tokenizer(tmp_path / "tokenizer.json")


def make(
    tokenizer: Tokenizer,
    vocabulary: Vocabulary,
    *,
    prefix_ids: tuple[int, ...] = (),
    chat: ChatFormat | None = None,
) -> TokenizerText:
    return TokenizerText(tokenizer, vocabulary=vocabulary, prefix_ids=prefix_ids, chat=chat)


def spelled(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    return b"".join(vocabulary.pieces[i] for i in ids)


def test_a_prompt_begins_with_the_prefix_once(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", END)]
    )
    plain = make(tokenizer, vocabulary).prompt("the 12")
    begun = make(tokenizer, vocabulary, prefix_ids=(END,)).prompt("the 12")
    assert END not in plain
    assert begun == [END, *plain]
    assert spelled(vocabulary, plain) == b"the 12"
    assert len(plain) == 3


def test_a_chat_in_the_format_of_the_draft(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    text = make(tokenizer, vocabulary, prefix_ids=(1,), chat=CHAT)
    ids = text.chat([Message("user", "hi"), Message("assistant", "ho"), Message("user", "?")])
    assert ids[0] == END  # spelled by the format
    assert spelled(vocabulary, ids[1:]) == b"[user]hi/[assistant]ho/[user]?/[assistant]"


def test_a_chat_without_a_format_is_rendered_plainly(
    tokenizer: Tokenizer, vocabulary: Vocabulary
) -> None:
    text = make(tokenizer, vocabulary)
    messages = [Message("system", "be brief"), Message("user", "hi")]
    assert text.chat(messages) == text.prompt(plain_rendering(messages))


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([("system", "S"), ("user", "U")], "[user]S\n\nU/[assistant]"),
        ([("system", "S")], "[user]S/[assistant]"),
        ([("user", "U"), ("system", "S")], "<|endoftext|>[user]U/[user]S/[assistant]"),
        (
            [("system", "S"), ("assistant", "A"), ("user", "U")],
            "[assistant]A/[user]S\n\nU/[assistant]",
        ),
    ],
)
def test_a_role_the_format_lacks_joins_the_next_user_turn(
    turns: list[tuple[str, str]], expected: str
) -> None:
    assert render(CHAT, [Message(*turn) for turn in turns]) == expected


def test_a_role_the_format_has_stays_apart() -> None:
    chat = ChatFormat(
        start="<s>[system]default.",
        start_with_system="<s>",
        prefix={**CHAT.prefix, "system": "[system]"},
        suffix={**CHAT.suffix, "system": "."},
        generation=">",
    )
    user = Message("user", "U")
    assert render(chat, [Message("system", "S"), user]) == "<s>[system]S.[user]U/>"
    assert render(chat, [user]) == "<s>[system]default.[user]U/>"


def test_bytes_in_mid_text(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    text = make(tokenizer, vocabulary, prefix_ids=(END,))
    for data in (b"", b" the", b"\xc3", "é<|endoftext|>".encode(), b"12\xff\xfethe"):
        ids = text.tail(data)
        assert spelled(vocabulary, ids) == data
        assert END not in ids
