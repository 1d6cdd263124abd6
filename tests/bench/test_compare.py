from __future__ import annotations

import pytest

from bench.compare import Comparison, Tally, compare
from bench.demo import report
from bench.models import open_draft
from bench.server import ServerProcess
from edge_sdk.client import EdgeClient
from edge_sdk.stats import Stats


def run(tokens: int, seconds: float, **more: float) -> Stats:
    return Stats(tokens=tokens, seconds=seconds, **more)  # type: ignore[arg-type]


def test_times_are_held_against_each_other_a_token() -> None:
    comparison = Comparison("hybrid", 0.7)
    comparison.drafted[2] = Tally([run(10, 0.5, open_seconds=0.5), run(30, 3.0)])
    comparison.alone[2] = Tally([run(20, 4.0)])
    comparison.drafted[3] = Tally([run(10, 4.0)])
    comparison.alone[3] = Tally([run(10, 2.0)])
    assert comparison.speedup(2) == pytest.approx((4.0 / 20) / (4.0 / 40))
    assert comparison.speedup(3) == pytest.approx(0.5)
    assert comparison.best_gamma == 2


def test_a_text_without_tokens_counts_nothing() -> None:
    tally = Tally([run(0, 0.0)])
    assert tally.seconds_per_token == 0.0
    assert tally.acceptance == 0.0


def test_the_report_takes_the_rest_from_the_default_gamma() -> None:
    sampling, greedy = Comparison("hybrid", 0.7), Comparison("greedy", 0.0)
    for gamma in (1, 3):
        for comparison in (sampling, greedy):
            comparison.alone[gamma] = Tally([run(10, 1.0)])
            comparison.drafted[gamma] = Tally(
                [
                    run(
                        10,
                        0.5 * gamma,
                        up_bytes=10 * gamma,
                        down_bytes=100 * gamma,
                        accepted=gamma,
                        examined=4,
                        target_calls=2 * gamma,
                    )
                ]
            )
    line = report(sampling, greedy, common_vocabulary=7)
    assert line["speedup_sampling"] == 2.0
    assert line["speedup_greedy"] == 2.0
    assert line["best_gamma_sampling"] == 1
    assert line["acceptance"] == 0.75
    assert line["up_bits_per_token"] == 24.0
    assert line["down_bits_per_token"] == 240.0
    assert line["target_calls_per_token"] == 0.6
    assert line["common_vocabulary"] == 7


async def test_the_runs_take_turns() -> None:
    order: list[str] = []
    with ServerProcess("toy:1") as server:
        server.wait_ready()
        draft = open_draft("toy:1")
        async with EdgeClient(server.url, draft=draft, api_key=server.api_key) as client:
            generate = client.generate

            def noted(*arguments: object, **options: object) -> object:
                order.append(f"{str(options['method'])[0]}{options['gamma']}")
                return generate(*arguments, **options)  # type: ignore[arg-type]

            client.generate = noted  # type: ignore[assignment, method-assign]
            result = await compare(
                client, "hybrid", temperature=1.0, prompts=["a", "b"], tokens=4, gammas=(1, 2)
            )
    assert order == 2 * ["a1", "h1", "a1", "h2", "a1"]
    assert [len(result.alone[g].runs) for g in (1, 2)] == [4, 4]
    assert [len(result.drafted[g].runs) for g in (1, 2)] == [2, 2]
    assert {stats.method for stats in result.drafted[1].runs} == {"hybrid"}
