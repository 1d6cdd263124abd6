from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_sdk.chat import Message
from edge_sdk.errors import InvalidRequest, ModelFolderInvalid, NoChatTemplate
from server_app.target.hugging_face import HuggingFaceTarget
from server_app.target.prompts import PromptText

HELLO = [Message("user", "Hello"), Message("assistant", "Hi"), Message("user", "Go")]


def decoded(prompts: PromptText, ids: list[int]) -> str:
    return str(prompts._tokenizer.decode(ids, skip_special_tokens=False))


def test_the_beginning_token_comes_once(tokenizer_folder: Callable[..., Path]) -> None:
    prompts = PromptText(tokenizer_folder(), name="m")
    ids = prompts.encode("ab")
    assert ids[0] == 256
    assert len(ids) == 3
    assert prompts.encode("<bos>ab") == ids
    assert prompts.encode("") == [256]


def test_a_model_without_a_beginning_token_gets_none(
    tokenizer_folder: Callable[..., Path],
) -> None:
    prompts = PromptText(tokenizer_folder(begin=False), name="m")
    assert prompts.prefix == ()
    assert len(prompts.encode("ab")) == 2


def test_a_beginning_token_that_only_the_config_asks_for(
    tokenizer_folder: Callable[..., Path],
) -> None:
    folder = tokenizer_folder(begin=False)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"add_bos_token": True}))
    assert PromptText(folder, name="m").encode("a")[0] == 256


def test_settings_for_training_do_not_cut_a_prompt(tokenizer_folder: Callable[..., Path]) -> None:
    folder = tokenizer_folder()
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    path.write_text(json.dumps(content))
    assert len(PromptText(folder, name="m").encode("a" * 50)) == 51


def test_a_chat_is_rendered_by_the_models_template(tiny_folder: Callable[[str], Path]) -> None:
    prompts = PromptText(tiny_folder("llama"), name="m")
    assert prompts.has_chat_template
    ids = prompts.render(HELLO)
    assert decoded(prompts, ids) == "<bos>[user]Hello\n[assistant]Hi\n[user]Go\n[assistant]"
    assert ids.count(256) == 1


def test_what_a_template_refuses_is_the_callers_mistake(
    tiny_folder: Callable[[str], Path],
) -> None:
    prompts = PromptText(tiny_folder("llama"), name="m")
    with pytest.raises(InvalidRequest, match="System role not supported") as caught:
        prompts.render([Message("system", "Be kind")])
    assert caught.value.field == "messages"


def test_a_model_without_a_template(tiny_folder: Callable[[str], Path]) -> None:
    folder = tiny_folder("gemma3")
    prompts = PromptText(folder, name="m")
    assert not prompts.has_chat_template
    with pytest.raises(NoChatTemplate, match=r"m has no chat template.*--chat-template plain"):
        prompts.render(HELLO)
    plain = PromptText(folder, name="m", chat_template="plain")
    assert plain.has_chat_template
    assert decoded(plain, plain.render(HELLO)) == (
        "<bos>User: Hello\n\nAssistant: Hi\n\nUser: Go\n\nAssistant:"
    )


def test_damaged_files_and_unknown_options_are_refused(
    tokenizer_folder: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(ModelFolderInvalid, match=r"has no tokenizer\.json"):
        PromptText(tmp_path / "none", name="m")
    folder = tokenizer_folder()
    with pytest.raises(InvalidRequest, match="chat template 'fancy' is not known"):
        PromptText(folder, name="m", chat_template="fancy")
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ModelFolderInvalid, match="cannot be read"):
        PromptText(folder, name="m")


def test_ids_follow_the_vocabulary(tiny_folder: Callable[[str], Path]) -> None:
    target = HuggingFaceTarget.load(tiny_folder("llama"), device="cpu", dtype="float32")
    text = "Zürich, 12 °C\n"
    pieces = [target.vocabulary.pieces[token] for token in target.encode(text)]
    assert b"".join(pieces) == text.encode()
    assert target.has_chat_template
    assert target.render(HELLO)[0] == 256
