from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import jinja2
import pytest

from edge_sdk.draft.manifest import ChatFormat
from export.chat_format import Render, measure_chat_format, read_chat_format

CHATML = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<end>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
OWN_SYSTEM = "{% if messages[0].role != 'system' %}{{ '<|system|>\nBe kind.<end>\n' }}{% endif %}"
LLAMA2 = (
    "{{ '<s>' }}{% for m in messages %}"
    "{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% elif m.role == 'assistant' %}{{ ' ' + m.content + '</s>' }}"
    "{% else %}{{ raise_exception('no system message') }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ '<bos>' }}{% if messages[0].role == 'system' %}"
    "{% set first = messages[0].content + '\n\n' %}{% set rest = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}{{ '<start>' + ('model' if m.role == 'assistant' else m.role) + '\n'"
    " + (first if loop.first else '') + m.content | trim + '<stop>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start>model\n' }}{% endif %}"
)


def renderer(template: str) -> Render:
    environment = jinja2.Environment()

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    compiled = environment.from_string(template, globals={"raise_exception": raise_exception})

    def render(messages: list[dict[str, str]], generation: bool) -> str:
        return compiled.render(messages=messages, add_generation_prompt=generation)

    return render


def assembled(chat: ChatFormat, messages: Sequence[dict[str, str]]) -> str:
    """A chat by the words of `ChatFormat`."""
    start = chat.start_with_system if messages[0]["role"] == "system" else chat.start
    turns = [chat.prefix[m["role"]] + m["content"] + chat.suffix[m["role"]] for m in messages]
    return "".join([start, *turns, chat.generation])


def chats(roles: Sequence[str]) -> list[list[dict[str, str]]]:
    texts = itertools.cycle(["Hello there!", "42 <x>", "ä\nb", "ok"])
    shapes = [["user"], ["user", "assistant", "user"], ["user", "assistant"] * 2 + ["user"]]
    if "system" in roles:
        shapes += [["system", *shape] for shape in shapes]
    return [[{"role": role, "content": next(texts)} for role in shape] for shape in shapes]


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        OWN_SYSTEM + CHATML,
        "{{ '<s>' }}" + CHATML,
        "{{ '<s>' }}" + OWN_SYSTEM + CHATML,
        LLAMA2,
        GEMMA,
    ],
    ids=["chatml", "own system", "bos", "bos and own system", "llama 2", "gemma"],
)
def test_the_format_renders_what_the_template_renders(template: str) -> None:
    render = renderer(template)
    chat = measure_chat_format(render)
    assert chat is not None
    for messages in chats(list(chat.prefix)):
        assert assembled(chat, messages) == render(messages, True)


def test_parts_are_cut_at_the_turns() -> None:
    chat = measure_chat_format(renderer(OWN_SYSTEM + CHATML))
    assert chat == ChatFormat(
        start="<|system|>\nBe kind.<end>\n",
        start_with_system="",
        prefix={r: f"<|{r}|>\n" for r in ("user", "assistant", "system")},
        suffix=dict.fromkeys(("user", "assistant", "system"), "<end>\n"),
        generation="<|assistant|>\n",
    )


def test_a_template_without_system_has_no_such_role() -> None:
    for template in (LLAMA2, GEMMA):
        chat = measure_chat_format(renderer(template))
        assert chat is not None
        assert set(chat.prefix) == {"user", "assistant"}


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('never') }}",
        "{{ messages[-1].content }}",
        "{% for m in messages %}{{ loop.index ~ m.content }}{% endfor %}",
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
    ],
    ids=["fails", "last turn only", "numbers its turns", "changes contents"],
)
def test_what_is_no_sequence_of_turns_has_no_format(template: str) -> None:
    assert measure_chat_format(renderer(template)) is None


def test_of_a_folder(tiny_checkpoint: Path) -> None:
    chat = read_chat_format(tiny_checkpoint)
    assert chat is not None
    assert chat.start == "<|im_start|>system\nBe kind.<|im_end|>\n"
    assert chat.generation == "<|im_start|>assistant\n"


@pytest.mark.models
def test_of_the_real_pair(smollm2_folder: Path, gemma_folder: Path) -> None:
    from transformers import AutoTokenizer

    chat = read_chat_format(smollm2_folder)
    assert chat is not None
    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder)
    for messages in chats(list(chat.prefix)):
        expected = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        assert assembled(chat, messages) == expected
    assert read_chat_format(gemma_folder) is None
