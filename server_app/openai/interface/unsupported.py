"""Fields of OpenAI's interface that this server does not have.

A field that would change the text is refused, unless it holds the value that changes nothing.
One that cannot change the text is taken and has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from edge_sdk.arguments import shown
from edge_sdk.errors import InvalidRequest

# Field: the values, besides null, that ask for nothing.
Neutral = Mapping[str, tuple[object, ...]]

EVERY_TEXT: Final[Neutral] = MappingProxyType(
    {
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logit_bias": ({},),
    }
)
COMPLETION: Final[Neutral] = MappingProxyType(
    {
        **EVERY_TEXT,
        "best_of": (1,),
        "echo": (False,),
        "logprobs": (),
        "suffix": ("",),
    }
)
CHAT: Final[Neutral] = MappingProxyType(
    {
        **EVERY_TEXT,
        "audio": (),
        "function_call": ("none", "auto"),
        "functions": ([],),
        "logprobs": (False,),
        "modalities": (["text"],),
        "reasoning_effort": ("none",),
        "response_format": ({"type": "text"},),
        "store": (False,),
        "tool_choice": ("none", "auto"),
        "tools": ([],),
        "top_logprobs": (0,),
        "verbosity": (),
        "web_search_options": (),
    }
)
TURN: Final[Neutral] = MappingProxyType(
    {
        "annotations": ([],),
        "audio": (),
        "function_call": (),
        "name": (),
        "refusal": (),
        "tool_call_id": (),
        "tool_calls": ([],),
    }
)
_WITHOUT_EFFECT: Final = frozenset(
    {
        "metadata",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "user",
    }
)


def supported(data: Mapping[str, Any], unsupported: Neutral, where: str = "") -> dict[str, Any]:
    """The fields that are left to be read.

    Args:
        where: path of `data` in the request, with a dot at its end.

    Raises:
        InvalidRequest: an unsupported field would change the text.
    """
    for name, values in unsupported.items():
        value = data.get(name)
        if value is not None and not any(_same(value, neutral) for neutral in values):
            raise InvalidRequest(
                f"{where}{name} is {shown(value)}, which this server does not support; leave it "
                f"out (docs/openai.md)",
                field=f"{where}{name}",
            )
    left_out = unsupported.keys() if where else unsupported.keys() | _WITHOUT_EFFECT
    return {name: value for name, value in data.items() if name not in left_out}


def _same(value: object, neutral: object) -> bool:
    # False is no 0 here.
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)
