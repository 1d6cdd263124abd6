"""Arguments of the wrong type: a sentence that names the argument, before anything is sent."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness.serving import Serving, related_draft

from edge_sdk import EdgeClient, Message, Retry, Sampling, Timeouts
from edge_sdk.decoding.consultant import Consultant
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import EmptyPrompt, InvalidRequest, UnknownMethod

HELLO = Message("user", "hello")
HALF = "a\ud800b"


def client() -> EdgeClient:
    return EdgeClient("http://127.0.0.1:9", draft=related_draft(), cache=None)


@pytest.mark.parametrize(
    ("changes", "field", "say"),
    [
        ({"sampling": "hot"}, "sampling", "give Sampling"),
        ({"sampling": 0.7}, "sampling", "float"),
        ({"sampling": {"temperature": 1}}, "sampling", "dict"),
        ({"sampling": Sampling}, "sampling", "class Sampling"),
        ({"method": None}, "method", "NoneType"),
        ({"method": 5}, "method", "int"),
        ({"method": object()}, "method", "object"),
        ({"method": {}}, "method", "dict"),
        ({"method": Hybrid}, "method", r"give an instance, Hybrid\(\)"),
        ({"method": "x" * 100_000}, "method", "does not exist"),
        ({"stop": 5}, "stop", "list of strings"),
        ({"stop": b"end"}, "stop", "bytes"),
        ({"stop": "end"}, "stop", "one string"),
        ({"stop": [5]}, "stop", "not 5"),
        ({"stop": (str(i) for i in range(10**12))}, "stop", "limit is 64"),
        ({"prompt": 5}, "prompt", "int"),
        ({"prompt": b"hi"}, "prompt", "bytes"),
        ({"prompt": HALF}, "prompt", r"U\+D800\) at character 1"),
        ({"messages": HELLO}, "messages", "list of"),
        ({"messages": "hello"}, "messages", "str"),
        ({"messages": (HELLO for _ in range(2))}, "messages", "generator"),
        ({"messages": [{"role": "user"}]}, "messages", "dict"),
        ({"messages": [Message("user", HALF)]}, "messages", "surrogate"),
        ({"prompt_ids": 5}, "prompt_ids", "list of integers"),
        ({"prompt_ids": "hi"}, "prompt_ids", "str"),
        ({"prompt_ids": b"hi"}, "prompt_ids", "bytes"),
        ({"prompt_ids": [True]}, "prompt_ids", "True"),
        ({"prompt_ids": ["1"]}, "prompt_ids", "integer"),
        ({"prompt_ids": [2**63]}, "prompt_ids", "from 0"),
        ({"prompt_ids": [-1]}, "prompt_ids", "from 0"),
        ({"prompt_ids": [10**5000]}, "prompt_ids", "from 0"),
        ({"seed": True}, "seed", "integer"),
        ({"gamma": True}, "gamma", "integer"),
        ({"gamma": 10**5000}, "gamma", "within"),
        ({"max_tokens": True}, "max_tokens", "integer"),
        ({"max_tokens": 1.5}, "max_tokens", "float"),
        ({"max_tokens": 10**5000}, "max_tokens", "within"),
    ],
)
def test_generate_names_the_argument(changes: dict[str, Any], field: str, say: str) -> None:
    arguments = (
        changes if {"messages", "prompt_ids"} & set(changes) else {"prompt": "hi", **changes}
    )
    with pytest.raises(InvalidRequest, match=say) as caught:
        client().generate(**arguments)
    assert caught.value.field == field
    assert len(str(caught.value)) < 400


async def test_what_generate_takes() -> None:
    edge = client()
    for empty in ("", {"messages": []}, {"prompt_ids": np.array([], dtype=np.int64)}):
        with pytest.raises(EmptyPrompt):
            edge.generate(**(empty if isinstance(empty, dict) else {"prompt": empty}))
    edge.generate("hi", stop=None)
    edge.generate("hi", stop=(word for word in ("a", "b")), seed=np.int64(3))
    stream = edge.generate(prompt_ids=np.array([1, 2]), stop={"x"})
    assert stream._request.prompt.ids == (1, 2)
    assert stream._request.stop == ("x",)


NOT_NUMBERS = ["1", None, [1.0], 1j, True, np.True_, Decimal(1), Fraction(1), float("nan")]


@pytest.mark.parametrize("name", ["repetition_penalty", "temperature", "top_k", "top_p", "min_p"])
@pytest.mark.parametrize(
    "value", [*NOT_NUMBERS, float("inf"), 10**400, 10**5000], ids=map(str, range(12))
)
def test_sampling_takes_numbers_only(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=f"^{name} is ") as caught:
        Sampling(**{name: value})  # type: ignore[arg-type]
    assert caught.value.field == name


def test_sampling_takes_numbers_of_numpy() -> None:
    sampling = Sampling(temperature=np.float32(0.5), top_k=np.int64(4), top_p=np.float64(0.5))
    assert sampling == Sampling(temperature=0.5, top_k=4, top_p=0.5)
    assert (type(sampling.temperature), type(sampling.top_k)) == (float, int)
    with pytest.raises(InvalidRequest, match=r"up to 2\*\*31"):
        Sampling(top_k=2**31 + 1)


@pytest.mark.parametrize("message", [("user", 5), ("user", None), (5, "x"), ([], "x")])
def test_a_message_is_made_of_strings(message: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidRequest, match="chat") as caught:
        Message(*message)
    assert caught.value.field == "messages"


def test_options_and_names_of_any_size() -> None:
    with pytest.raises(InvalidRequest, match=r"^epsilon is"):
        Consultant(epsilon=10**400)
    with pytest.raises(InvalidRequest, match=r"^d is"):
        method_named("mentored", {"d": 10**400})
    with pytest.raises(UnknownMethod) as caught:
        method_named("x" * 100_000)
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidRequest, match="no option") as no_option:
        method_named("hybrid", {"x" * 100_000: 1})
    assert len(str(no_option.value)) < 300
    for name in ([], None):
        with pytest.raises(UnknownMethod, match="does not exist"):
            method_named(name)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="give a dict"):
        method_named("hybrid", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "field", "say"),
    [
        ({"base_url": "http://h:99999"}, "base_url", "port 99999"),
        ({"base_url": "http://h:0"}, "base_url", "port 0"),
        ({"base_url": 5}, "base_url", "not a URL"),
        ({"api_key": 5}, "api_key", "give a string"),
        ({"api_key": b"k"}, "api_key", "bytes"),
        ({"timeouts": 5}, "timeouts", "give Timeouts"),
        ({"retry": 3}, "retry", "give Retry"),
        ({"http_client": "x"}, "http_client", "AsyncClient"),
        ({"verify": "ca.pem"}, "verify", "SSLContext"),
        ({"draft": 5}, "draft", "folder"),
        ({"cache": 5}, "cache", "folder"),
    ],
)
def test_a_client_names_its_argument(changes: dict[str, Any], field: str, say: str) -> None:
    with pytest.raises(InvalidRequest, match=say) as caught:
        EdgeClient(**{"base_url": "http://127.0.0.1:9", **changes})
    assert caught.value.field == field


@pytest.mark.parametrize("value", [None, "5", True, 0, -1, float("nan")])
def test_times_are_numbers(value: Any) -> None:
    for name in ("connect", "reply", "setup"):
        with pytest.raises(InvalidRequest, match=f"^{name} is"):
            Timeouts(**{name: value})
    with pytest.raises(InvalidRequest):
        Retry(attempts=value)


async def test_a_cache_may_be_given_as_a_string(server: Serving, tmp_path: Path) -> None:
    async with EdgeClient(server.url, cache=str(tmp_path / "tables")) as edge:
        await edge.connect()
    assert len(list((tmp_path / "tables").iterdir())) == 1
