from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from harness.random_models import CONTEXT, WIDTH, write_model

from export.activation_power import activation_power
from export.backend_registry import make_graph
from export.blockwise import dequantise_blocks, quantise_blocks
from export.linear_layers import find_linears
from export.progress import NoProgress
from export.quantise import quantise_weights

IDS = np.random.default_rng(5).integers(0, WIDTH, 23).tolist()


def inputs_of(model: Any, parts: list[list[int]]) -> dict[str, np.ndarray]:
    """Mean squares of what enters the linear layers of a transformers model."""
    import torch

    sums: dict[str, Any] = {}

    def note(name: str) -> Any:
        def hook(module: Any, inputs: tuple[Any], output: Any) -> None:
            sums[name] = sums.get(name, 0.0) + inputs[0][0].square().sum(dim=0)

        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(note(name))
    with torch.no_grad():
        for part in parts:
            model(torch.tensor([part]))
    count = sum(map(len, parts))
    return {name: (total / count).numpy() for name, total in sums.items()}


@pytest.mark.parametrize("backend", ["fused", "optimum"])
def test_mean_squares_are_those_of_the_model_in_every_row(
    tmp_path: Path, recorder: Any, backend: str
) -> None:
    model = write_model(tmp_path / "source", "Llama", tie_word_embeddings=True)
    graph, _ = make_graph(
        backend, tmp_path / "source", tmp_path, context=CONTEXT, progress=NoProgress()
    )
    before = sorted(tmp_path.iterdir())
    texts = [IDS[:9], IDS[9:18], IDS[18:]]
    found = activation_power(graph, texts, progress=recorder)
    expected = inputs_of(model, texts)
    linears = find_linears(onnx.load(str(graph), load_external_data=False))
    assert set(found) == {linear.output for linear in linears}
    wanted = [expected[f"model.layers.{layer}.{name}"] for layer in range(3) for name in LAYERS]
    wanted.append(expected["lm_head"])
    for values in wanted:
        assert any(
            power.shape == values.shape and np.allclose(power, values, rtol=1e-3, atol=1e-5)
            for power in found.values()
        )
    assert sorted(tmp_path.iterdir()) == before
    assert recorder.stages == [("measure which weights matter", len(IDS))]
    assert recorder.amounts == [len(IDS)]


LAYERS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")


def test_weights_that_large_inputs_meet_are_rounded_better() -> None:
    random = np.random.default_rng(3)
    weights = random.normal(size=(200, 96)).astype(np.float32)
    power = np.exp(2 * random.normal(size=96)).astype(np.float32)
    power[40:70] = 0.0
    errors = []
    for chosen in (None, power):
        blocks = quantise_blocks(weights, bits=4, block=32, power=chosen)
        errors.append(np.square(dequantise_blocks(blocks, 96) - weights))
    plain, weighed = (float((error * power).sum()) for error in errors)
    assert weighed < 0.7 * plain
    assert errors[0].sum() < errors[1].sum() < 2.0 * errors[0].sum()


def test_a_sample_changes_what_is_written_in_4_bits_alone(tmp_path: Path) -> None:
    write_model(tmp_path / "source", "Llama", tie_word_embeddings=True)
    graph, _ = make_graph(
        "fused", tmp_path / "source", tmp_path, context=CONTEXT, progress=NoProgress()
    )
    for bits, alike in ((4, False), (8, True)):
        data = []
        for name, sample in (("plain", []), ("weighed", [IDS])):
            out = tmp_path / f"{name}.onnx"
            quantise_weights(graph, out, bits=bits, progress=NoProgress(), sample=sample)
            data.append((tmp_path / f"{name}.onnx.data").read_bytes())
        assert (data[0] == data[1]) is alike
