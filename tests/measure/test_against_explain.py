"""What is measured of losses as code, against what `explain` proves of them as formulas."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from klsym.errors import UsageError
from support.golden import stored
from support.golden.pairs import Pair
from support.measured.typed_losses import as_code, compare
from support.scale import scaled

DEFAULTS = {"sampling": "on-policy", "use": "loss", "level": "sample", "batch": "none"}


def settings(pair: Pair) -> dict[str, str] | None:
    """The options of a loss of the ring at tokens or whole sequences; None for others."""
    options = {**DEFAULTS, **dict(pair.options)}
    if options["level"] not in ("token", "sequence") or options["sampling"] == "truncated":
        return None
    if options["batch"] != "none" or options.get("aggregate") == "batch":
        return None
    try:
        as_code(pair.text, options)
    except (NotImplementedError, UsageError):
        return None
    return {name: value for name, value in options.items() if name != "batch"}


PAIRS = [(pair, options) for pair, _ in stored.read() if (options := settings(pair))]


@pytest.mark.parametrize(("pair", "options"), PAIRS[:: scaled(1, 8)], ids=lambda x: getattr(x, "key", ""))
def test_what_is_measured_is_what_is_proved(pair: Pair, options: dict[str, str]) -> None:
    try:
        disagreement = compare(pair.text, options)
    except UsageError:  # explain refuses the options
        return
    assert not disagreement, pair


def test_the_comparison_notices_another_loss() -> None:
    from klsym.api import explain
    from klsym.measure.measuring import measure
    from support.measured.typed_losses import find_disagreement

    options = {"sampling": "off-policy", "use": "loss", "level": "sequence"}
    wrong = {
        "rho*k1": "rho*k1 + k1/100",
        "rho*k3": "-rho*k3",
        "sg(rho)*k2": "sg(rho)*k3",
        "rho": "rho + k2/100",
    }
    for formula, code in wrong.items():
        verdict = explain(formula, **options)
        right, other = (measure(as_code(text, options), sampling="off-policy") for text in (formula, code))
        assert find_disagreement(formula, options, right, verdict) == ""
        assert find_disagreement(formula, options, other, verdict)
