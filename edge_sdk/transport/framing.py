"""Bytes of HTTP/1.1 messages on the wire, counted from what the client sent and got."""

from __future__ import annotations

import httpx


def request_bytes(request: httpx.Request) -> int:
    """Request line, headers and body."""
    line = len(request.method) + 1 + len(request.url.raw_path) + len(" HTTP/1.1\r\n")
    return line + _headers(request.headers) + len(request.content)


def response_bytes(response: httpx.Response, body: int) -> int:
    """Status line, headers and a body of `body` bytes."""
    line = len(f"HTTP/1.1 {response.status_code} {response.reason_phrase}\r\n")
    return line + _headers(response.headers) + body


def _headers(headers: httpx.Headers) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers.raw) + 2
