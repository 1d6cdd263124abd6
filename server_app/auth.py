"""Bearer keys."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from fastapi import Request
from pydantic import SecretStr

from edge_sdk.errors import Unauthorized
from server_app.observability.facts import current_facts

ANYBODY = "anybody"


class Keyring:
    """Accepted keys. Without any, the server is open and every client is one owner.

    Args:
        refusal: what is said of a key that is none of them.
    """

    def __init__(
        self,
        keys: Sequence[SecretStr],
        *,
        refusal: str = "the API key is not accepted by this server",
    ) -> None:
        self._refusal = refusal
        self._keys = [key.get_secret_value().encode() for key in keys]
        self._owners = [hashlib.sha256(key).hexdigest()[:16] for key in self._keys]

    @property
    def open(self) -> bool:
        return not self._keys

    def owner(self, authorization: str | None) -> str:
        """Owner of sessions opened with this `Authorization` header.

        Every key is compared in constant time, and all of them always.

        Raises:
            Unauthorized: no key, or one that is not accepted.
        """
        if self.open:
            return ANYBODY
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise Unauthorized("this server wants a key; send it as 'Authorization: Bearer KEY'")
        data = given.strip().encode()
        owner = None
        for key, name in zip(self._keys, self._owners, strict=True):
            if hmac.compare_digest(key, data):
                owner = name
        if owner is None:
            raise Unauthorized(self._refusal)
        return owner


async def owner_of(request: Request) -> str:
    """FastAPI dependency: the owner of the request's sessions."""
    keyring: Keyring = request.app.state.keyring
    owner = keyring.owner(request.headers.get("authorization"))
    current_facts().owner = owner
    return owner
