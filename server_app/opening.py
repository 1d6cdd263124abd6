"""From the message that opens a session to the session."""

from __future__ import annotations

from collections.abc import Callable

from edge_sdk.decoding.coins import Coins, PrfCoins, Side
from edge_sdk.decoding.noise import token_keys
from edge_sdk.errors import InvalidRequest
from edge_sdk.sampling import Sampling
from edge_sdk.wire import PROTOCOL_VERSION, Generation, Open, Prompt
from server_app.engine.admission import check_tokens
from server_app.engine.session import Session
from server_app.methods.base import Pair, ServerHalf
from server_app.methods.noise import SharedNoise
from server_app.methods.registry import server_half
from server_app.prompt_ids import PromptReader, too_long
from server_app.target.model import TargetModel


class Opening:
    """Makes sessions for one target.

    Args:
        coins: the server's coins of a seed; tests put enumerating ones here.

    Attributes:
        prompts: reads prompts.
    """

    def __init__(self, target: TargetModel, *, coins: Callable[[int], Coins] | None = None) -> None:
        self.prompts = PromptReader(target)
        self._target = target
        self._coins = coins or _prf_coins
        self._noise = SharedNoise(token_keys(target.vocabulary))

    def half(self, generation: Generation) -> ServerHalf:
        """The server half of a generation.

        Raises:
            UnknownMethod, InvalidRequest: see `server_half`.
        """
        return server_half(generation, self._noise, self._coins(generation.seed))

    async def session(self, owner: str, message: Open, pair: Pair | None) -> Session:
        """The session that a client asks for.

        Raises:
            InvalidRequest, UnknownMethod, EmptyPrompt, PromptTooLong, NoChatTemplate: see the
                message.
        """
        if message.protocol != PROTOCOL_VERSION:
            raise InvalidRequest(
                f"protocol {message.protocol} is not spoken here; this server speaks "
                f"{PROTOCOL_VERSION}",
                field="protocol",
            )
        half = self.half(message.generation)
        check_tokens(message.generated, self._target, "generated")
        ids = await self.prompts.ids(message.prompt, owner)
        if message.state is not None:
            half.resume(message.state)
        session = Session(
            prompt_ids=ids,
            generation=message.generation,
            half=half,
            pair=pair,
            generated=message.generated,
            owner=owner,
        )
        if session.length > self._target.context:
            raise too_long(session.length, self._target, "generated")
        if len(message.generated) >= message.generation.max_tokens:
            raise InvalidRequest(
                f"generated has {len(message.generated)} tokens, which is all that max_tokens "
                f"{message.generation.max_tokens} allows; the text is complete",
                field="generated",
            )
        return session

    async def declared(self, prompt: Prompt) -> Session:
        """A session of the server's own that only holds a prompt.

        Raises:
            EmptyPrompt, PromptTooLong, NoChatTemplate: see the message.
        """
        ids = await self.prompts.ids(prompt, "")
        generation = Generation("autoregressive", Sampling(), max_tokens=1, seed=0)
        # One token more, since the last one of a prompt is not computed in advance.
        half = self.half(generation)
        return Session(prompt_ids=[*ids, ids[-1]], generation=generation, half=half, pair=None)


def _prf_coins(seed: int) -> Coins:
    return PrfCoins(seed=seed, side=Side.SERVER)
