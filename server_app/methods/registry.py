"""Server halves by method name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.autoregressive import Autoregressive
from edge_sdk.decoding.coins import Coins
from edge_sdk.decoding.greedy import Greedy
from edge_sdk.decoding.hybrid import Hybrid
from edge_sdk.decoding.method import Method
from edge_sdk.decoding.registry import method_named
from edge_sdk.errors import UnknownMethod
from edge_sdk.wire import Generation
from server_app.methods.autoregressive import AutoregressiveServer
from server_app.methods.base import ServerHalf
from server_app.methods.greedy import GreedyServer
from server_app.methods.hybrid import HybridServer


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What a server half is made from.

    Attributes:
        generation: what the client asked for.
        coins: the server's coins of this generation.
        token_keys: noise keys of the target's ids [V].
    """

    generation: Generation
    coins: Coins
    token_keys: NDArray[np.uint64]


def _hybrid(method: Method, context: ServerContext) -> ServerHalf:
    assert isinstance(method, Hybrid)
    return HybridServer(method, context.coins)


def _greedy(method: Method, context: ServerContext) -> ServerHalf:
    return GreedyServer()


def _autoregressive(method: Method, context: ServerContext) -> ServerHalf:
    generation = context.generation
    return AutoregressiveServer(generation.sampling, generation.seed, context.token_keys)


SERVER_HALVES: dict[str, Callable[[Method, ServerContext], ServerHalf]] = {
    Hybrid.name: _hybrid,
    Greedy.name: _greedy,
    Autoregressive.name: _autoregressive,
}


def server_half(
    generation: Generation, token_keys: NDArray[np.uint64], coins: Coins
) -> ServerHalf:
    """The server half that a client asked for.

    Raises:
        UnknownMethod: this server does not offer it; the message lists what it offers.
        InvalidRequest: an option or the sampling does not fit the method.
    """
    if generation.method not in SERVER_HALVES:
        raise UnknownMethod(
            f"this server does not offer method {generation.method!r}; "
            f"it offers {', '.join(SERVER_HALVES)}",
            field="generation.method",
        )
    method = method_named(generation.method, generation.options)
    method.check(generation.sampling)
    return SERVER_HALVES[generation.method](method, ServerContext(generation, coins, token_keys))
