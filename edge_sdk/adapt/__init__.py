"""Adaptive control of a text's rounds (`docs/adapt.md`)."""

from __future__ import annotations

from edge_sdk.adapt.controller import Controller
from edge_sdk.adapt.plan import Plan

__all__ = ["Controller", "Plan"]
