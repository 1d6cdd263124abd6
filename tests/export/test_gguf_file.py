from __future__ import annotations

from pathlib import Path

import pytest

from edge_sdk.errors import ModelFolderInvalid, UnsupportedModel
from export.gguf_file import GgufFile


def test_metadata_and_tensors(tiny_gguf: Path) -> None:
    file = GgufFile.read(tiny_gguf)
    assert file.text("general.architecture") == "llama"
    assert file.number("llama.context_length") == 128
    assert file.list("tokenizer.ggml.tokens")[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    by_name = {tensor.name: tensor for tensor in file.tensors}
    assert by_name["blk.1.ffn_up.weight"].shape == (32, 64)
    assert by_name["blk.1.ffn_up.weight"].items == 2048


def test_agrees_with_the_reference_reader(tiny_gguf: Path) -> None:
    import gguf

    reference = gguf.GGUFReader(tiny_gguf)
    file = GgufFile.read(tiny_gguf)
    expected = {
        key: field.contents()
        for key, field in reference.fields.items()
        if not key.startswith("GGUF.")
    }
    assert dict(file.metadata) == expected
    assert [t.name for t in file.tensors] == [t.name for t in reference.tensors]


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.03, 0.06, 0.5, 0.9999])
def test_truncation_is_noticed_wherever_it_is(
    tiny_gguf: Path, tmp_path: Path, share: float
) -> None:
    data = tiny_gguf.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(data[: max(int(len(data) * share), 5)])
    with pytest.raises(ModelFolderInvalid, match="truncated"):
        GgufFile.read(cut)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no model", b"GGUF", b"GGUF" + b"\xff" * 64])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises((ModelFolderInvalid, UnsupportedModel), match=r"model\.gguf"):
        GgufFile.read(path)


def test_missing_file_and_missing_metadata(tiny_gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderInvalid, match="does not exist"):
        GgufFile.read(tmp_path / "nowhere.gguf")
    with pytest.raises(ModelFolderInvalid, match=r"no str under 'tokenizer\.chat'"):
        GgufFile.read(tiny_gguf).text("tokenizer.chat")
