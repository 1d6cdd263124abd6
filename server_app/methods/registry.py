"""Server halves by method name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_sdk.decoding.coins import Coins
from edge_sdk.decoding.registry import METHODS, method_named
from edge_sdk.errors import UnknownMethod
from edge_sdk.wire import Generation
from server_app.methods.base import ServerHalf
from server_app.methods.candidates import CandidatesServer
from server_app.methods.consultant import ConsultantServer
from server_app.methods.coupled import CoupledServer
from server_app.methods.full import FullServer
from server_app.methods.greedy import GreedyServer
from server_app.methods.hybrid import HeadTailServer, HybridServer
from server_app.methods.mentored import MentoredServer
from server_app.methods.noise import SharedNoise
from server_app.methods.speculative import GreedyResampleServer, TargetResampleServer
from server_app.methods.upload import UploadServer


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What a server half is made from.

    Attributes:
        generation: what the client asked for.
        coins: the server's coins of this generation.
        noise: the noise of `coupled`, of all generations alike.
    """

    generation: Generation
    coins: Coins
    noise: SharedNoise


def _hybrid(method: Any, context: ServerContext) -> ServerHalf:
    form = HybridServer if method.form == "law" else HeadTailServer
    return form(context.coins, method.law_format)


def _coupled(method: Any, context: ServerContext) -> ServerHalf:
    generation = context.generation
    return CoupledServer(generation.sampling, generation.seed, context.noise)


SERVER_HALVES: dict[str, Callable[[Any, ServerContext], ServerHalf]] = {
    "hybrid": _hybrid,
    "candidates": lambda method, context: CandidatesServer(method, context.coins),
    "coupled": _coupled,
    "greedy": lambda method, context: GreedyServer(),
    "consultant": lambda method, context: ConsultantServer(
        method, context.generation.sampling, context.coins
    ),
    "mentored": lambda method, context: MentoredServer(method, context.coins),
    "upload": lambda method, context: UploadServer(context.coins),
    "full": lambda method, context: FullServer(context.coins, method.law_format),
    "greedy_resample": lambda method, context: GreedyResampleServer(context.coins),
    "target_resample": lambda method, context: TargetResampleServer(context.coins),
    "uncertain": lambda method, context: UploadServer(context.coins),
    "autoregressive": _coupled,
}


def server_half(
    generation: Generation, noise: SharedNoise | NDArray[np.uint64], coins: Coins
) -> ServerHalf:
    """The server half that a client asked for.

    Args:
        noise: one for all sessions of a host, or the noise keys [V] to make one from.

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
    shared = noise if isinstance(noise, SharedNoise) else SharedNoise(noise)
    half = SERVER_HALVES[generation.method](method, ServerContext(generation, coins, shared))
    half.allows_kept = METHODS[generation.method].keeps_sure
    return half
