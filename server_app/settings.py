"""Settings of a server, from the environment (`COSD_...`) or the command line.

A setting is one field here: `cosd serve` makes its options, their help and their panels from
these fields.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MODEL: Final = "Model"
NETWORK: Final = "Network"
BATCHING: Final = "Batching"
SESSIONS: Final = "Sessions and memory"
LIMITS: Final = "Limits"
OBSERVABILITY: Final = "Observability"

_BATCH_TOKENS: Final = {"cuda": 2048}
_BATCH_TOKENS_CPU: Final = 512
# Those of torch that a model may be on; which of them the machine has is seen when it loads.
_DEVICE: Final = re.compile(r"auto|(cpu|cuda|mps|xpu)(:\d{1,3})?")
_DRAFT_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _knob(panel: str, default: Any, description: str, **bounds: Any) -> Any:
    return Field(
        default=default, description=description, json_schema_extra={"panel": panel}, **bounds
    )


class Settings(BaseSettings):
    """What `cosd serve` can be told; every field is also an environment variable."""

    model_config = SettingsConfigDict(env_prefix="COSD_", extra="ignore", allow_inf_nan=False)

    target: str = _knob(
        MODEL,
        "gemma3-270m",
        "Model that verifies: a Hugging Face folder, a name prepared with `cosd prepare`, or "
        "toy:SEED for a small random model without weights.",
    )
    device: str = _knob(
        MODEL, "auto", "Where the model runs: auto (a GPU if there is one), cpu or cuda."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _knob(
        MODEL,
        "auto",
        "Numbers the model computes with: auto, float32, bfloat16 or float16. float32 makes "
        "texts independent of how many tokens a pass verifies; the others are faster.",
    )
    threads: int = _knob(MODEL, 0, "CPU threads of the model; 0 takes all cores.", ge=0, le=1024)
    chat_template: Literal["model", "plain"] = _knob(
        MODEL,
        "model",
        "How chats become text: model takes the model's own template, plain writes them as "
        "'User: ...' paragraphs for a model that has none.",
    )
    pack_weights: bool = _knob(
        MODEL,
        False,
        "On a CPU with bfloat16 or float16: lay the weights out once for its products, which makes "
        "a pass of one device about a quarter shorter. Takes as much more memory as the embedding "
        "if the output layer shares it.",
    )
    warm_up: bool = _knob(
        MODEL,
        True,
        "Run a few passes before the first request, so that it is not slower than the others.",
    )

    host: str = _knob(
        NETWORK,
        "127.0.0.1",
        "Address to listen on; 0.0.0.0 lets other machines in (set keys then).",
    )
    port: int = _knob(NETWORK, 8077, "Port to listen on; 0 takes a free one.", ge=0, le=65535)
    keep_alive: int = _knob(
        NETWORK,
        75,
        "Seconds an idle connection stays open; keep it above what clients and proxies keep "
        "theirs, or they meet closed connections.",
        ge=1,
    )
    drain_seconds: float = _knob(
        NETWORK,
        10.0,
        "After SIGTERM, seconds for which sessions already open are still served; new ones are "
        "refused at once. It ends earlier when no session is in use.",
        ge=0,
        le=86400,
    )
    model_aliases: Annotated[tuple[str, ...], NoDecode] = _knob(
        NETWORK,
        (),
        "Further names of the model, separated by commas, for clients of OpenAI's API.",
    )
    drafts: Annotated[tuple[tuple[str, Path], ...], NoDecode] = _knob(
        NETWORK,
        (),
        "Exported draft folders that devices may download, as NAME=FOLDER separated by commas; "
        "whoever has a key gets every file that their manifests list.",
    )
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), description="accepted bearer keys, separated by commas; none: open to all"
    )

    max_batch_tokens: int = _knob(
        BATCHING,
        0,
        "Most tokens of one forward pass, over all sessions: more serve more devices at once, "
        "fewer make each pass shorter. 0 takes 2048 on a GPU and 512 on a CPU.",
        ge=0,
    )
    prefill_chunk: int = _knob(
        BATCHING,
        512,
        "Most prompt tokens that one session adds to a pass; a long prompt takes several, so "
        "that others are verified between them.",
        ge=1,
    )
    batch_wait_ms: float = _knob(
        BATCHING,
        2.0,
        "Milliseconds a pass may wait for more requests to join it; 0 never waits.",
        ge=0,
        le=1000,
    )
    queue_limit: int = _knob(
        BATCHING,
        1024,
        "Most requests waiting for a pass; further ones are refused with 503.",
        ge=1,
    )
    queue_seconds: float = _knob(
        BATCHING,
        30.0,
        "Seconds a request may wait for its pass before it is refused with 503.",
        gt=0,
    )

    max_sessions: int = _knob(
        SESSIONS, 256, "Most sessions held; the least recently used goes first.", ge=1
    )
    session_ttl: float = _knob(
        SESSIONS, 1800.0, "Seconds a session is kept that nobody uses.", gt=0
    )
    cache_tokens: int = _knob(
        SESSIONS,
        0,
        "Most tokens whose keys and values are held, over all sessions; 0 takes what fits into "
        "a quarter of the free memory.",
        ge=0,
    )
    shared_prompts: Path | None = _knob(
        SESSIONS,
        None,
        "File of prompts whose computed beginning every key may reuse, such as a system prompt: "
        "a text file is one prompt, a .json file a list of texts or chats. Prompts of one key "
        "are otherwise never reused for another, since the speed would tell that they exist.",
    )

    max_sessions_per_key: int = _knob(
        LIMITS, 64, "Most sessions one key may hold; further ones get 429.", ge=1
    )
    max_tokens_in_flight_per_key: int = _knob(
        LIMITS,
        65536,
        "Most tokens that one key's requests under way may hold; further ones get 429.",
        ge=1,
    )
    requests_per_second_per_key: float = _knob(
        LIMITS, 0.0, "Most requests a second of one key; more get 429. 0 sets no limit.", ge=0
    )

    log_level: Literal["debug", "info", "warning", "error"] = _knob(
        OBSERVABILITY,
        "info",
        "Least important lines logged: debug (also every round of every device), info, warning "
        "or error.",
    )
    log_format: Literal["text", "json"] = _knob(
        OBSERVABILITY,
        "text",
        "text for people, json for log collectors (one object a line).",
    )
    stall_seconds: float = _knob(
        OBSERVABILITY,
        120.0,
        "Seconds that one forward pass may take before /health says that the engine is stalled.",
        gt=0,
    )
    metrics_open: bool = _knob(
        OBSERVABILITY,
        False,
        "Let anybody read /metrics. Otherwise it wants the key COSD_METRICS_KEY, or any API key "
        "if that is not set.",
    )
    metrics_key: SecretStr | None = Field(
        default=None, description="bearer key that opens /metrics and nothing else"
    )
    telemetry: bool = _knob(
        OBSERVABILITY,
        False,
        "Send OpenTelemetry spans of requests and passes to OTEL_EXPORTER_OTLP_ENDPOINT; needs "
        "`pip install 'edge-cosd[telemetry]'`.",
    )

    @field_validator("device", mode="after")
    @classmethod
    def _is_device(cls, value: str) -> str:
        if not _DEVICE.fullmatch(value):
            raise ValueError(
                f"{value[:80]!r} is no device; give auto, cpu, cuda, or cuda:1 for the second GPU"
            )
        return value

    @field_validator("model_aliases", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("drafts", mode="before")
    @classmethod
    def _split_drafts(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = []
        for item in filter(None, map(str.strip, value.split(","))):
            name, _, folder = item.partition("=")
            if not _DRAFT_NAME.fullmatch(name) or not folder.strip():
                raise ValueError(
                    f"{item[:80]!r} is not NAME=FOLDER; a name has letters, digits, '.', '_' and "
                    f"'-', at most 64"
                )
            pairs.append((name, Path(folder.strip()).expanduser()))
        return tuple(pairs)

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            keys = tuple(key.strip() for key in value.split(",") if key.strip())
            if value and not keys:
                raise ValueError("names no key; leave it empty to serve everybody")
            if not all(map(_sendable, keys)):
                raise ValueError("has a key that an HTTP header cannot carry; use printable ASCII")
            return keys
        return value

    @field_validator("metrics_key", mode="after")
    @classmethod
    def _not_empty(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None or not value.get_secret_value().strip():
            return None
        if not _sendable(value.get_secret_value()):
            raise ValueError("is a key that an HTTP header cannot carry; use printable ASCII")
        return SecretStr(value.get_secret_value().strip())

    def batch_tokens(self, device_type: str) -> int:
        """Tokens of a pass on a device of that type ("cpu", "cuda")."""
        return self.max_batch_tokens or _BATCH_TOKENS.get(device_type, _BATCH_TOKENS_CPU)


def _sendable(key: str) -> bool:
    return key.isascii() and key.isprintable()
