"""The controller in virtual time, against the best fixed setting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from bench.adapt import Cell, best_fixed, controlled, even_text
from bench.simulation import Fixed, Text, World
from edge_sdk.adapt import Controller, Plan
from edge_sdk.errors import InvalidRequest

SLACK = 0.05
GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 32)
WINDOWS = (1, 2, 3, 4, 6, 8)
FEW = (1, 2, 3, 4, 6, 8)
TOKENS = 2000
FAST = World(round_trip=0.02, up_rate=10e6, down_rate=10e6, draft=0.005, verify=0.06)
FAR = replace(FAST, round_trip=0.4)

# Round trip, rate, draft, target, acceptance: the corners of the grid of `bench.adapt`, ties
# between speculation and plain decoding. A few cells of its 960 are known to be beyond the bound
# (docs/adapt.md): there the two ways are close and one text is too short to tell them apart.
CELLS = [
    (0.001, 0.1e6, 0.002, 0.025, 0.95),
    (0.001, 300e6, 0.002, 0.06, 0.95),
    (0.001, 300e6, 0.04, 0.025, 0.2),
    (0.001, 300e6, 0.015, 0.06, 0.8),
    (0.005, 10e6, 0.005, 0.06, 0.6),
    (0.005, 10e6, 0.015, 0.025, 0.8),
    (0.005, 1e6, 0.002, 0.06, 0.4),
    (0.02, 1e6, 0.005, 0.06, 0.8),
    (0.02, 0.1e6, 0.015, 0.06, 0.95),
    (0.05, 300e6, 0.005, 0.025, 0.8),
    (0.05, 10e6, 0.002, 0.06, 0.6),
    (0.1, 300e6, 0.015, 0.025, 0.95),
    (0.1, 0.1e6, 0.005, 0.06, 0.8),
    (0.3, 1e6, 0.005, 0.06, 0.2),
    (0.3, 0.1e6, 0.005, 0.06, 0.95),
    (0.3, 300e6, 0.002, 0.025, 0.95),
]

# Where drafting pays and a short run of refusals at the start once ended it for the whole text:
# cell and seed of the text.
UNLUCKY = [
    ((0.3, 300e6, 0.005, 0.025, 0.95), 0),
    ((0.3, 10e6, 0.005, 0.025, 0.95), 0),
    ((0.1, 0.1e6, 0.015, 0.025, 0.95), 0),
    ((0.3, 300e6, 0.002, 0.025, 0.95), 1),
    ((0.3, 300e6, 0.005, 0.025, 0.95), 2),
]


def cell_of(values: tuple[float, float, float, float, float]) -> Cell:
    round_trip, rate, draft, target, acceptance = values
    return Cell(round_trip=round_trip, rate=rate, draft=draft, target=target, acceptance=acceptance)


@pytest.fixture(scope="module")
def best() -> Callable[[Cell], float]:
    known: dict[Cell, float] = {}

    def seconds(cell: Cell) -> float:
        if cell not in known:
            text = even_text(cell.acceptance)
            known[cell] = best_fixed(cell.world, text, gammas=GAMMAS, windows=WINDOWS)[1]
        return known[cell]

    return seconds


@pytest.mark.parametrize("values", CELLS)
def test_within_five_percent_of_the_best_fixed_setting(
    values: tuple[float, float, float, float, float], best: Callable[[Cell], float]
) -> None:
    cell = cell_of(values)
    taken = controlled(cell.world, even_text(cell.acceptance)).seconds
    assert taken <= (1 + SLACK) * best(cell)


@pytest.mark.parametrize(("values", "seed"), UNLUCKY)
def test_bad_luck_at_the_start_does_not_end_what_pays(
    values: tuple[float, float, float, float, float], seed: int
) -> None:
    cell = cell_of(values)
    text = even_text(cell.acceptance, seed=seed)
    best = best_fixed(cell.world, text, gammas=GAMMAS, windows=(*WINDOWS, 12))[1]
    assert controlled(cell.world, text).seconds <= (1 + SLACK) * best


@pytest.mark.parametrize("gamma", [2, 4, 8])
def test_a_controller_that_does_not_adapt_is_caught(
    gamma: int, best: Callable[[Cell], float]
) -> None:
    pilot = Fixed(Plan(speculate=True, gamma=gamma))
    behind = 0
    for cell in map(cell_of, CELLS):
        taken = controlled(cell.world, even_text(cell.acceptance), pilot=pilot).seconds
        behind += taken > (1 + SLACK) * best(cell)
    assert behind >= 12


def hard_then_easy(chances: list[float], *, seed: int = 0) -> Text:
    """A text whose stretches of equal length have these chances of acceptance."""
    rng = np.random.default_rng(seed)
    size = TOKENS + 64
    chance = np.array(chances)[
        np.minimum(np.arange(size) * len(chances) // TOKENS, len(chances) - 1)
    ]
    return Text((rng.random(size) < chance).tolist(), rng.random(size).tolist())


def test_it_leaves_speculation_for_hard_text_and_comes_back() -> None:
    text = hard_then_easy([0.9, 0.1, 0.9])
    world = replace(FAST, round_trip=0.05, verify=0.03)
    run = controlled(world, text)
    third = TOKENS / 3
    assert 0.5 * third < run.streamed < 1.7 * third
    assert run.seconds < best_fixed(world, text, gammas=FEW, windows=FEW, heats=())[1]


def test_it_leaves_a_link_that_got_slow_and_comes_back_when_it_recovers() -> None:
    text = even_text(0.8)
    worlds = [(0, FAST), (600, FAR), (1400, FAST)]
    run = controlled(worlds, text)
    assert 400 < run.streamed < 1000
    assert run.seconds < best_fixed(worlds, text, gammas=FEW, windows=FEW, heats=())[1]


def test_where_speculation_never_pays_trying_it_is_cheap() -> None:
    slow = replace(FAST, draft=0.08)
    run = controlled(slow, even_text(0.9))
    alone = best_fixed(slow, even_text(0.9))[1]
    assert run.streamed > 0.98 * TOKENS
    assert run.seconds < 1.02 * alone


def test_what_was_learnt_serves_the_next_text() -> None:
    controller, text = Controller(), even_text(0.95, tokens=300)
    seconds = []
    for _ in range(2):
        controller.begin(method="hybrid", temperature=0.7)
        seconds.append(controlled(FAST, text, tokens=300, pilot=controller).seconds)
    assert seconds[1] < seconds[0]
    assert seconds[1] < 1.02 * best_fixed(FAST, text, tokens=300)[1]


@pytest.mark.parametrize("acceptance", [0.4, 0.9])
def test_jitter_does_not_mislead_it(acceptance: float) -> None:
    world, text = replace(FAST, jitter=0.3), even_text(acceptance)
    run = controlled(world, text)
    assert (
        run.seconds
        <= (1 + 1.4 * SLACK) * best_fixed(world, text, gammas=GAMMAS, windows=WINDOWS)[1]
    )


def told(*, seed: int = 0, boast: float = 3.0) -> Text:
    """Mostly easy tokens and some hard ones; the draft knows which, and boasts."""
    rng = np.random.default_rng(seed)
    size = TOKENS + 64
    easy = rng.random(size) < 0.7
    chance = np.where(easy, rng.beta(30, 1, size), rng.beta(2, 3, size))
    belief = chance ** (1 / boast)
    return Text((rng.random(size) < chance).tolist(), belief.tolist())


class Deaf(Controller):
    """Never ends a block early."""

    def enough(self, confidences: object) -> bool:
        return False

    def _roomy(self, plan: Plan) -> Plan:
        return plan

    def _gain(self, rate: float) -> float:
        return 1.0


@pytest.mark.parametrize("ahead", [False, True])
def test_ending_blocks_where_the_draft_is_unsure_pays(ahead: bool) -> None:
    texts = [told(seed=seed) for seed in range(6)]
    stops = [controlled(FAST, text, pilot=Controller(ahead=ahead)) for text in texts]
    fixed = [controlled(FAST, text, pilot=Deaf(ahead=ahead)) for text in texts]
    seconds = sum(run.seconds for run in stops) / sum(run.seconds for run in fixed)
    drafted = sum(run.drafted for run in stops) / sum(run.drafted for run in fixed)
    assert seconds < (0.98 if ahead else 0.95)
    assert drafted < (0.7 if ahead else 0.97)


def test_an_unsure_token_ends_a_block_and_a_sure_one_does_not() -> None:
    controller = Controller(ahead=False)
    controlled(FAST, told(), pilot=controller)
    assert controller.plan(remaining=100).speculate
    assert controller.enough([0.99, 0.6, 0.6])
    assert not controller.enough([0.999])
    assert not controller.enough([])


def test_a_draft_that_is_sure_of_everything_is_not_believed() -> None:
    text = even_text(0.4)
    sure = Text(text.accepted, [0.999] * len(text.accepted))
    assert controlled(FAST, sure).seconds == pytest.approx(
        controlled(FAST, Text(text.accepted, [])).seconds, rel=0.02
    )


def test_asking_twice_gives_the_same_plan() -> None:
    controller = Controller()
    text = even_text(0.3, tokens=400)
    controlled(FAR, text, tokens=400, pilot=controller)
    assert controller.plan(remaining=50) == controller.plan(remaining=50)
    assert controller.plan(remaining=50).tokens <= 50


def test_ways_that_are_not_allowed_are_not_taken() -> None:
    run = controlled(FAR, even_text(0.5), pilot=Controller(ahead=False, plain=False))
    assert run.streamed == 0
    assert run.peak == 1


def test_the_first_block_is_short_and_measures() -> None:
    plan = Controller().plan(remaining=1)
    assert plan.speculate
    assert plan.probe
    assert not plan.more


def test_the_method_follows_temperature_offer_and_link() -> None:
    offered = {"hybrid", "candidates", "coupled", "greedy", "autoregressive"}
    controller = Controller()
    assert controller.method(temperature=0.0, offered=offered) == "greedy"
    assert controller.method(temperature=0.0, offered={"hybrid"}) == "autoregressive"
    assert controller.method(temperature=0.7, offered=offered) == "hybrid"
    assert controller.method(temperature=0.7, offered={"coupled", "candidates"}) == "candidates"
    assert controller.method(temperature=0.7, offered={"consultant"}) == "autoregressive"
    # Where every byte counts and hardly anything is refused, fewer bytes win.
    slow = replace(FAST, up_rate=3e4, down_rate=3e4, draft=0.001, request_bytes=60, reply_bytes=60)
    controller.begin(method="hybrid", temperature=0.1)
    controlled(slow, even_text(0.97), pilot=controller)
    assert controller.method(temperature=0.1, offered=offered) == "coupled"


def test_bytes_that_were_measured_count_more_than_expected_ones() -> None:
    offered, controller = {"hybrid", "coupled"}, Controller()
    controller.begin(method="hybrid", temperature=0.7)
    heavy = replace(FAST, up_rate=1e5, down_rate=1e5, reply_bytes=20_000)
    controlled(heavy, even_text(0.8), pilot=controller)
    assert controller.method(temperature=0.7, offered=offered) == "coupled"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gammas", ()),
        ("gammas", (2, 1)),
        ("gammas", (1, 65)),
        ("gammas", (1, 2.5)),
        ("windows", (2, 4)),
        ("windows", (1, 1)),
        ("windows", (0, 1)),
    ],
)
def test_settings_that_cannot_be_are_named(name: str, values: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match=name):
        Controller(**{name: values})


def test_blocks_without_drafts_do_not_prolong_a_probe() -> None:
    controller = Controller()
    controlled(FAR, even_text(0.3, tokens=400), tokens=400, pilot=controller)
    controller.streamed(tokens=50, seconds=3.0, first_seconds=0.5)
    for _ in range(40):
        controller.verdict(examined=0, accepted=0, settled=True, seconds=0.001)
    assert not controller.plan(remaining=100).speculate


def test_a_server_that_does_not_say_what_it_spent_is_no_infinitely_fast_one() -> None:
    controller = Controller()
    for _ in range(10):
        controller.drafted(seconds=0.02, tokens=4)
        controller.round_trip(
            seconds=0.1, server_seconds=0.0, up_bytes=310, down_bytes=170, tokens=4, alone=True
        )
        controller.verdict(examined=4, accepted=4, settled=True, seconds=0.001)
    assert controller.plan(remaining=1000).speculate
