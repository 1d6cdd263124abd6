"""A real draft folder for the toy targets: a graph for onnxruntime, a tokenizer, a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edge_sdk.draft.manifest import FileEntry, Manifest
from edge_sdk.vocab import Vocabulary, read_tokenizer

WIDTH = 272  # 256 bytes, ten words, one special token, padding
CONTEXT = 2048
_WORDS = (" the", " a", " of", " and", " to", " in", "ing", "er", ". ", ", ")


def write_draft(
    folder: Path, target: Any | None = None, *, agreement: float = 0.8, **facts: Any
) -> Path:
    """Write a draft of one matrix: the logits after a token are its row.

    Args:
        target: a `ToyTarget` of order 1 whose law the draft follows; None: a random one.
        agreement: how much of its logits are the target's; the rest is noise.
        facts: fields of the manifest that should be otherwise.

    Returns:
        The folder.
    """
    folder.mkdir(parents=True)
    _write_tokenizer(folder / "tokenizer.json")
    vocabulary = read_tokenizer(folder / "tokenizer.json", width=WIDTH)
    noise = np.random.default_rng(9).normal(size=(WIDTH, WIDTH)).astype(np.float32) * 2.0
    rows = noise if target is None else _rows(vocabulary, target, noise, agreement)
    _write_graph(folder / "model.onnx", rows)
    fields: dict[str, Any] = {
        "name": "tiny",
        "source": "made for tests",
        "revision": "",
        "architecture": "LlamaForCausalLM",
        "graph": "model.onnx",
        "bits": 32,
        "context": CONTEXT,
        "logits_width": WIDTH,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "roles": {role.value: tuple(ids) for role, ids in vocabulary.roles.items()},
        "prefix_ids": (),
        "chat": None,
        "files": {path.name: FileEntry.of(path) for path in folder.iterdir()},
        "backend": "test",
    }
    Manifest(**{**fields, **facts}).write(folder)
    return folder


def _write_tokenizer(path: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges: list[tuple[str, str]] = []
    for word in _WORDS:
        pieces = list(word.replace(" ", "Ġ"))
        for end in range(2, len(pieces) + 1):
            left, whole = "".join(pieces[: end - 1]), "".join(pieces[:end])
            if whole not in tokens:
                tokens.append(whole)
                merges.append((left, pieces[end - 1]))
    tokens = tokens[: WIDTH - 2]
    known = set(tokens)
    merges = [(left, right) for left, right in merges if left + right in known]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    tokenizer.save(str(path))


def _rows(vocabulary: Vocabulary, target: Any, noise: np.ndarray, agreement: float) -> np.ndarray:
    """The target's logits after each token of the draft, over the draft's tokens."""
    ids = target.vocabulary.ids_by_bytes
    ours = [ids.get(piece, -1) if piece else -1 for piece in vocabulary.pieces]
    columns = np.array([max(i, 0) for i in ours])
    missing = np.array([i < 0 for i in ours])
    rows = np.full((WIDTH, WIDTH), -20.0, dtype=np.float32)
    for token, theirs in enumerate(ours):
        if theirs < 0:
            rows[token] = noise[token]
            continue
        rows[token] = target._logits([theirs])[columns] + (1 - agreement) * noise[token]
    rows[:, missing] = -20.0
    return rows


def _write_graph(path: Path, rows: np.ndarray) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, kind: int, shape: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    # A cache that nothing reads, since a draft without one is refused.
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["logits"]),
        helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["floats", "row"], ["rows"]),
    ]
    inputs = [value("input_ids", TensorProto.INT64, [1, "n"])]
    outputs = [value("logits", TensorProto.FLOAT, [1, "n", WIDTH])]
    for kind in ("key", "value"):
        before, after = f"past_key_values.0.{kind}", f"present.0.{kind}"
        nodes.append(helper.make_node("Concat", [before, "rows"], [after], axis=2))
        inputs.append(value(before, TensorProto.FLOAT, [1, 1, "past", 1]))
        outputs.append(value(after, TensorProto.FLOAT, [1, 1, "all", 1]))
    constants = [
        numpy_helper.from_array(rows, "table"),
        numpy_helper.from_array(np.array([1, 1, -1, 1], dtype=np.int64), "row"),
    ]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(
        model,
        str(path),
        save_as_external_data=True,
        location=f"{path.name}.data",
        size_threshold=4096,
    )
