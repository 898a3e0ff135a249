"""Random piecewise losses with masks and a third policy, in every room: no wrong answer, none refused."""

from __future__ import annotations

from dataclasses import replace

from klsym import explain
from support.losses import clamped_losses
from support.losses.clamped_losses import OF_SEQUENCES, generate, judge, on_the_bounds
from support.losses.loss_judge import examine
from support.losses.random_losses import Case

SEED, COUNT = 1, 4  # a share of the 3,000 of `make random-losses`


def test_verdicts_on_clamped_losses() -> None:
    for number in range(COUNT):
        outcome = judge(SEED, number)
        assert not outcome.complaints, outcome
        assert outcome.target not in ("refused", "crashed"), outcome


def test_sequences_with_their_length_under_a_clamp() -> None:
    """The ratio of GSPO and its kin, on trees whose sequences differ in length."""
    cases = [case for case in map(generate, [SEED] * 400, range(400)) if case.text in OF_SEQUENCES]
    assert {case.text for case in cases} == {*OF_SEQUENCES}
    for text in OF_SEQUENCES[:2]:
        outcome = examine(Case(text, "off-policy", "loss", ring=False, level="sequence"))
        assert not outcome.complaints and outcome.target == "separable", outcome


def test_the_mixture_holds_every_room_and_the_third_policy() -> None:
    cases = [generate(SEED, number) for number in range(400)]
    for has in ("rho_old", "M*", "clip(", "min(", "max(", "abs(", "log_old"):
        assert sum(has in case.text for case in cases) > 10, has
    rooms = {(case.level, case.batch, case.aggregate) for case in cases}
    assert len(rooms) == 6


def test_a_wrong_slope_at_a_bound_is_noticed() -> None:
    """clip passes the slope on at its bounds: a loss that does not is another one there, and only there."""
    case = Case("clip(rho_old, 1, 2)*A", "off-policy", "loss", ring=False)
    answer = explain(case.text, sampling=case.sampling).to_json()
    assert not list(on_the_bounds(case, answer))
    original = clamped_losses.evaluate

    def other(text: str, names: object) -> object:
        return original(text.replace("clip(rho_old, 1, 2)", "max(rho_old, 1)"), names)

    clamped_losses.evaluate = other  # type: ignore[assignment]
    try:
        assert list(on_the_bounds(replace(case), answer))
    finally:
        clamped_losses.evaluate = original
