"""Settings of a server, from the environment (`COSD_...`) or the command line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


class Settings(BaseSettings):
    """What `cosd serve` can be told; every field is also an environment variable."""

    model_config = SettingsConfigDict(env_prefix="COSD_", extra="ignore")

    target: str = Field(default="gemma3-270m", description="packaged name, folder, or toy:SEED")
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8077, ge=0, le=65535, description="port; 0 takes a free one")
    api_keys: Annotated[tuple[SecretStr, ...], NoDecode] = Field(
        default=(), description="accepted bearer keys, separated by commas; none: open to all"
    )
    device: str = Field(default="auto", description="auto, cpu or cuda")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    threads: int = Field(
        default=0, ge=0, le=1024, description="CPU threads of the model; 0: all cores"
    )
    chat_template: Literal["model", "plain"] = Field(
        default="model", description="plain: render chats as text for a model without a template"
    )
    max_sessions: int = Field(default=256, ge=1, description="most sessions held")
    session_ttl: float = Field(default=1800.0, gt=0, description="seconds an idle session is kept")
    keep_alive: int = Field(default=75, ge=1, description="seconds an idle connection is kept")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("api_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            keys = tuple(key.strip() for key in value.split(",") if key.strip())
            if value and not keys:
                raise ValueError("names no key; leave it empty to serve everybody")
            if not all(key.isascii() and key.isprintable() for key in keys):
                raise ValueError("has a key that an HTTP header cannot carry; use printable ASCII")
            return keys
        return value
