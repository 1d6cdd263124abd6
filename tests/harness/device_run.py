"""One generation of device and server, whose coins take the path of a fork."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence

from harness.case import Case
from harness.fork import Fork, ForkCoins
from harness.inline_engine import InlineEngine

from edge_sdk.decoding.coins import Side
from edge_sdk.decoding.method import DeviceContext
from edge_sdk.decoding.noise import token_keys
from edge_sdk.draft.follower import Follower
from edge_sdk.draft.toy import ToyDraft
from edge_sdk.errors import SessionLost
from edge_sdk.text.blocks import Block
from edge_sdk.text.rounds import Rounds
from edge_sdk.vocab import Alignment
from edge_sdk.wire import (
    PROTOCOL_VERSION,
    Answer,
    Ask,
    Finish,
    Generate,
    Generation,
    Open,
    Prompt,
    RegisterPair,
    Verdict,
    Verify,
    decode,
    encode,
)
from edge_sdk.wire.limits import MAX_REPLY_BODY, MAX_ROUND_BODY
from server_app.host import Host
from server_app.target.toy import ToyTarget

SEED = 11


async def one_run(
    case: Case, fork: Fork, target: ToyTarget, draft: ToyDraft, alignment: Alignment
) -> tuple[int, ...]:
    """The text that device and server write on this path."""
    plan = case.plan
    host = _host(fork, target, alignment)
    generation = Generation(
        method=case.method.name,
        sampling=case.sampling,
        max_tokens=case.tokens,
        seed=SEED,
        options=case.method.options(),
    )
    follower = Follower(draft, alignment, case.target_vocabulary)
    rank = alignment.rank_of_target[list(case.prompt)]
    follower.begin([int(alignment.draft_ids[r]) if r >= 0 else 0 for r in rank])
    half = case.method.device_half(
        DeviceContext(
            target_ids=alignment.target_ids,
            target_size=len(case.target_vocabulary),
            sampling=case.sampling,
            coins=ForkCoins(fork, Side.DEVICE),
            seed=SEED,
            token_keys=lambda: token_keys(case.target_vocabulary, alignment.target_ids),
        )
    )
    rounds = Rounds(
        half=half,
        follower=follower,
        alignment=alignment,
        target=case.target_vocabulary,
        max_tokens=case.tokens,
        keeps_sure=case.method.keeps_sure,
    )
    sessions = 0

    async def open_session(generated: Sequence[int], next_sequence: int) -> None:
        nonlocal sessions
        sessions += 1
        message = Open(
            PROTOCOL_VERSION,
            alignment.pair_id,
            Prompt(ids=case.prompt),
            generation,
            tuple(generated),
            next_sequence,
        )
        body = encode(message)
        await host.open("me", str(sessions), decode(Open, body, limit=1 << 20), body)

    async def send(block: Block) -> Verdict:
        body = encode(block.verify)
        for _ in range(2 if plan.lose_replies else 1):
            message = decode(Verify, body, limit=MAX_ROUND_BODY)
            reply, _ = await host.verify("me", str(sessions), message, body)
        return decode(Verdict, reply, limit=MAX_REPLY_BODY)

    async def ask(message: Ask) -> Answer:
        body = encode(message)
        for _ in range(2 if plan.lose_replies else 1):
            reply = await host.ask("me", str(sessions), message, body)
        return decode(Answer, reply, limit=MAX_REPLY_BODY)

    await open_session((), 0)
    rounds.room = case.context - len(case.prompt)

    async def deliver(block: Block) -> Verdict | None:
        """The verdict; None if it, or the session, was lost."""
        if number in plan.forget:
            with contextlib.suppress(SessionLost):
                await send(block)
        if number in plan.reopen | plan.forget:
            await host.close("me", str(sessions))
        try:
            verdict = await send(block)
        except SessionLost:
            return None
        assert number not in plan.reopen | plan.forget, "a closed session answered"
        return verdict

    async def again() -> list[Verdict | None]:
        """Open the session once more and send again what may still be accepted."""
        blocks = rounds.renewed()
        first = blocks[0].verify.sequence if blocks else rounds.next_sequence
        await open_session(rounds.generated, first)
        return [await send(block) for block in blocks]

    async def stretch(count: int) -> Finish:
        settled = rounds.unsent
        message = Generate(len(rounds.generated), count, settled)
        stream = host.generate("me", str(sessions), message)
        finish = Finish.NONE
        async with contextlib.aclosing(stream) as tokens:
            async for token in tokens:
                assert token.token is not None
                finish = rounds.streamed(token.token).finish
                assert finish == token.finish
        return finish

    # The server answers at once; the device reads the answers one by one, as late as it may.
    unread: list[Verdict | None] = []
    number = asked = 0
    stretches = dict(plan.alone)
    finish = Finish.NONE
    while finish == Finish.NONE:
        if not unread and (sure := rounds.keep_sure()) is not None:
            finish = sure.finish
            continue
        if not unread and number in stretches:
            finish = await stretch(stretches.pop(number))
            continue
        if (not unread or plan.ahead or plan.at_once) and rounds.may_follow:
            known = unread[0] if unread else None
            oldest = rounds.oldest
            refused = known is not None and oldest is not None and oldest.refused_by(known)
            give_up = plan.interrupt if refused else None
            gamma = plan.gammas[min(number, len(plan.gammas) - 1)]
            if unread and plan.stop_after_ahead:
                gamma = 0
            asks = itertools.count()
            wanted = rounds.live <= plan.ahead and (plan.at_once or not unread or rounds.live)
            block = None
            if wanted and rounds.left > 0:
                block = rounds.next_block(
                    gamma,
                    more=rounds.live < plan.ahead,
                    enough=lambda drafted: drafted[-1].rank == plan.stop_at,
                    cancelled=lambda at=give_up, asks=asks: at is not None and next(asks) >= at,
                )
            if block is not None:
                verdict = await deliver(block)
                for _ in range(plan.offline.get(number, 0)):
                    rounds.draw_ahead()
                number += 1
                unread.append(verdict)
                continue
        verdict = unread.pop(0)
        if verdict is None:
            unread = await again()
            continue
        outcome = rounds.receive(verdict)
        while outcome.asking:
            asked += 1
            request = rounds.ask()
            if asked not in plan.reopen_asks:
                outcome = rounds.answer(await ask(request))
                continue
            await host.close("me", str(sessions))
            rest = rounds.rejected_again()
            await open_session(rounds.generated, rest.verify.sequence)
            unread.clear()
            outcome = rounds.receive(await send(rest))
        finish = outcome.finish
    await host.close("me", str(sessions))
    return tuple(rounds.generated)


def _host(fork: Fork, target: ToyTarget, alignment: Alignment) -> Host:
    host = Host(
        InlineEngine(target),
        coins=lambda seed: ForkCoins(fork, Side.SERVER),
    )
    host.register_pair(
        RegisterPair(alignment.target_fingerprint, alignment.bitmap),
    )
    return host
