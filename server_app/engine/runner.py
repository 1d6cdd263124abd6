"""One step: a forward pass over the chunks of many works, and what becomes of each."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Final

import torch

from edge_sdk.errors import CosdError, ServerFault
from server_app.engine.caches import Caches
from server_app.engine.observer import Observer, StepReport
from server_app.engine.work import VerifyWork, Work
from server_app.methods.prepare import prepare
from server_app.methods.rows import Rows
from server_app.target.model import Chunk, PoolFull, TargetModel

log = logging.getLogger(__name__)

_Fed = tuple[Work, Chunk]
_FAULT: Final = "the server failed on this request; its log says why"


class Runner:
    """Carries out steps on the engine thread.

    What goes wrong with one work is that work's alone: the others of the step are carried out.
    """

    def __init__(self, target: TargetModel, observer: Observer | None = None) -> None:
        self.target = target
        self._observer = observer or Observer()
        self.caches = Caches(target, self._observer)
        self._forward_seconds = 0.0
        self._rows = 0  # of logits, in this step

    def step(self, granted: Sequence[tuple[Work, int]], waits: Sequence[float] = ()) -> None:
        """Feed each work so many tokens and judge what comes out. Afterwards a work is done,
        has failed, or goes on in a later step.

        Args:
            waits: seconds that the works which begin now have waited.
        """
        begin = time.perf_counter()
        self._forward_seconds, self._rows = 0.0, 0
        fed: list[_Fed] = []
        for work, budget in granted:
            try:
                self.caches.use(work.session)
                chunk = work.chunk(self.target, budget)
            except CosdError as error:
                self._fail(work, error)
                continue
            if chunk is None:
                self._judge(work, None)
            else:
                fed.append((work, chunk))
        passed = self._pass(fed) if fed else []
        for work, _ in granted:
            self._settle(work)
        verifies = sum(isinstance(work, VerifyWork) for work, _ in granted)
        self._observer.step(
            StepReport(
                prefills=len(granted) - verifies,
                verifies=verifies,
                tokens=sum(len(chunk.token_ids) for _, chunk in passed),
                rows=self._rows,
                forward_seconds=self._forward_seconds,
                seconds=time.perf_counter() - begin,
                waits=waits,
            )
        )

    def drop(self, work: Work, error: CosdError) -> None:
        """Give a work up between two steps."""
        self._fail(work, error)

    def _pass(self, fed: Sequence[_Fed], later: Sequence[_Fed] = ()) -> list[_Fed]:
        """One forward pass; parts of it where it cannot be one. Returns what was carried out.

        Args:
            later: passed afterwards; these keep their caches, on which their chunks stand.
        """
        begin = time.perf_counter()
        try:
            logits = self._forward(fed, later)
        except PoolFull as error:
            if len(fed) > 1:
                # The rest waits for a later step.
                return self._pass(fed[: len(fed) // 2], later)
            self._fail(fed[0][0], error)
            return []
        except CosdError as error:
            return self._halves(fed, later, error)
        except Exception:
            log.exception("a pass over %d works failed", len(fed))
            return self._halves(fed, later, ServerFault(_FAULT))
        finally:
            self._forward_seconds += time.perf_counter() - begin
        self._rows += sum(map(len, logits))
        self._judge_all(fed, logits)
        return list(fed)

    def _halves(self, fed: Sequence[_Fed], later: Sequence[_Fed], error: CosdError) -> list[_Fed]:
        """Find the work that a pass failed on, so that the others go on."""
        if len(fed) > 1:
            middle = len(fed) // 2
            first, second = fed[:middle], fed[middle:]
            return [*self._pass(first, [*second, *later]), *self._pass(second, later)]
        self._observer.fault()
        self._fail(fed[0][0], error)
        return []

    def _forward(self, fed: Sequence[_Fed], later: Sequence[_Fed]) -> list[torch.Tensor]:
        """Raises:
        PoolFull: although every session outside of this pass gave its cache up.
        """
        chunks = [chunk for _, chunk in fed]
        while True:
            try:
                return self.target.forward(chunks)
            except PoolFull:
                if not self.caches.make_room({work.session for work, _ in [*fed, *later]}):
                    raise

    def _judge_all(self, fed: Sequence[_Fed], logits: Sequence[torch.Tensor]) -> None:
        with torch.inference_mode():
            pairs = zip(fed, logits, strict=True)
            rows = [work.rows(self.target, part) for (work, _), part in pairs]
            prepare([some for some in rows if some is not None])
            for (work, _), some in zip(fed, rows, strict=True):
                self._judge(work, some)

    def _judge(self, work: Work, rows: Rows | None) -> None:
        try:
            work.judge(self.target, rows)
        except CosdError as error:
            self._fail(work, error)
        except Exception:
            log.exception("judging a request failed")
            self._observer.fault()
            self._fail(work, ServerFault(_FAULT))

    def _settle(self, work: Work) -> None:
        """After a step: tell what happened."""
        if work.error is not None:
            return
        work.settle(self.target)
        self.caches.filled(work.session)
        if work.done and isinstance(work, VerifyWork) and work.verdict is not None:
            self._observer.verdict(
                work.session.generation.method,
                work.drafted,
                work.examined,
                work.verdict.accepted,
            )

    def _fail(self, work: Work, error: CosdError) -> None:
        work.undo(self.target)
        work.fail(error)
