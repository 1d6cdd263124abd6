"""`autoregressive`: the server alone, streamed; the reference. No device half."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edge_sdk.decoding.method import Method


@dataclass(frozen=True, slots=True)
class Autoregressive(Method):
    """The target alone, one token a pass (the reference law)."""

    name: ClassVar[str] = "autoregressive"
    lossless: ClassVar[bool] = True
    drafts: ClassVar[bool] = False
