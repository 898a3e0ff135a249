"""`klsym divergence`: the losses of a divergence, against floats and formulas written by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from klsym.cli import main
from klsym.engine.divergences.f_divergence import NAMED_GENERATORS
from klsym.engine.fields.field import reduce_loss
from klsym.engine.fields.slot_loss import build_slot_loss
from klsym.engine.options.settings import Setting
from klsym.errors import ProofError, UsageError
from klsym.kernel.ring import ZERO
from klsym.language.convert import to_ring
from klsym.language.expressions import rho
from klsym.study.api import divergence as losses_of
from klsym.study.questions import divergence_losses
from support.judges import implied_judge

pytestmark = pytest.mark.usefixtures("without_copies")

ALPHA, BETA = 0.7, 0.3


def kl(a: Any, b: Any) -> Any:
    return (a * np.log(a / b)).sum()


DIVERGENCES = {  # of q and p, from their definitions
    "reverse-kl": lambda q, p: kl(q, p),
    "forward-kl": lambda q, p: kl(p, q),
    "jeffreys": lambda q, p: kl(q, p) + kl(p, q),
    "pearson-chi2": lambda q, p: ((p - q) ** 2 / q).sum(),
    "neyman-chi2": lambda q, p: ((p - q) ** 2 / p).sum(),
    "squared-hellinger": lambda q, p: ((np.sqrt(p) - np.sqrt(q)) ** 2).sum(),
    "alpha=1/3": lambda q, p: ((p ** (1 / 3) * q ** (2 / 3)).sum() - 1) / (-2 / 9),
    "alpha": lambda q, p: (p**ALPHA * q ** (1 - ALPHA)).sum() - 1,
    "jensen-shannon": lambda q, p: (kl(q, (p + q) / 2) + kl(p, (p + q) / 2)) / 2,
    "jensen-shannon=1/5": lambda q, p: 0.2 * kl(p, 0.2 * p + 0.8 * q) + 0.8 * kl(q, 0.2 * p + 0.8 * q),
    "jensen-shannon=beta": lambda q, p: 0.3 * kl(p, 0.3 * p + 0.7 * q) + 0.7 * kl(q, 0.3 * p + 0.7 * q),
    "tsallis=3": lambda q, p: ((q**3 / p**2).sum() - 1) / 2,
    "tsallis=alpha": lambda q, p: ((q**ALPHA * p ** (1 - ALPHA)).sum() - 1) / (ALPHA - 1),
    "2*r*log(r) + r**2": lambda q, p: 2 * kl(p, q) + ((p - q) ** 2 / q).sum(),
}
found_of = cache(losses_of)


class World:
    """q = softmax(theta), p, mu on four outcomes; a loss is read as Python reads it."""

    def __init__(self, seed: int) -> None:
        model = implied_judge.Model(seed)
        self.model, self.p = model, model.p
        self.mu = np.random.default_rng(seed + 100).dirichlet(np.ones(4) * 3)

    def evaluated(self, loss: str, q: Any, mu: Any, fixed: Any) -> Any:
        """The loss at each outcome; what stands in sg(..) is that of the policy before it moves."""
        k1, r = np.log(q / self.p), self.p / q
        names = {
            "k1": k1,
            "r": r,
            "k2": k1**2 / 2,
            "k3": r - 1 + k1,
            "rho": q / mu,
            "rho_0": fixed / mu,
            "r_0": self.p / fixed,
            "log": np.log,
            "sqrt": np.sqrt,
            "exp": np.exp,
            "alpha": ALPHA,
            "beta": BETA,
            "a": 0.4,
        }
        still = re.sub(
            r"sg(\((?:[^()]|\([^()]*\))*\))", lambda m: re.sub(r"\b(r|rho)\b", r"\1_0", m[1]), loss
        )
        return eval(still, {"__builtins__": {}}, names) + 0 * q

    def update(self, loss: str, sampling: str, use: str) -> float:
        """E_m[grad L] along u by differences, or E_m[L s], with samples of m = q or mu."""
        q = self.model.q()
        m = q if sampling == "on-policy" else self.mu
        if use == "reward":
            score = self.model.u - (q * self.model.u).sum()
            return float((m * self.evaluated(loss, q, m, q) * score).sum())
        return self.slope(lambda now: (m * self.evaluated(loss, now, m, q)).sum())

    def slope(self, g: Any) -> float:
        t = 1e-4
        values = [float(g(self.model.q(x * t))) for x in (1, -1, 2, -2)]
        return (8 * (values[0] - values[1]) - values[2] + values[3]) / (12 * t)


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.share(3)
def test_each_loss_descends_the_divergence(name: str) -> None:
    found = found_of(name)
    assert len(found.gradients) == 6 and len(found.values) == 2
    for seed in range(3):
        world = World(seed)
        wanted = world.slope(lambda q, world=world: DIVERGENCES[name](q, world.p))
        for row in found.gradients:
            assert abs(world.update(row.loss, row.sampling, row.use) - wanted) < 1e-8, row
        q = world.model.q()
        for row in found.values:
            m = q if row.sampling == "on-policy" else world.mu
            value = (m * world.evaluated(row.loss, q, m, q)).sum()
            assert abs(value - DIVERGENCES[name](q, world.p)) < 1e-10, row


def test_no_plain_loss_for_jensen_shannon_and_what_stands_in_for_it() -> None:
    found = found_of("jensen-shannon")
    assert found.gradients[0].loss == "k1*sg(log(2)/2 - log(r + 1)/2)"
    assert "Risch" in found.missing[0] and found.missing[0] in found.text(full=True)
    assert not found_of("pearson-chi2").missing  # where there is one, it is shown


@pytest.mark.parametrize("name", sorted(NAMED_GENERATORS))
def test_at_each_sample_all_are_one_vector(name: str) -> None:
    """c s at a sample of q, rho c s at one of mu."""
    parts = divergence_losses._divide_ring_element(NAMED_GENERATORS[name], name).parts
    for row in divergence_losses._list_choices(parts):
        h = reduce_loss(build_slot_loss(row.written, Setting(row.sampling, row.use))).score_coefficients.get(
            "x", ZERO
        )
        off_policy = row.sampling == "off-policy"
        weight, found = (to_ring(rho), h) if off_policy else (to_ring(1), h.substitute({"w": ZERO}))
        assert found == weight * to_ring(parts.c), row


@pytest.mark.parametrize("name", DIVERGENCES)
@pytest.mark.share(3)
def test_what_is_wrong_is_wrong(name: str) -> None:
    """In some model the update is another one; so it is in the model that is shown."""
    found = found_of(name)
    assert len(found.wrong) == 7
    for row in found.wrong:
        assert row.trust == "kernel" and row.witness
        gaps = []
        for seed in range(3):
            world = World(seed)
            wanted = world.slope(lambda q, world=world: DIVERGENCES[name](q, world.p))
            gaps.append(abs(world.update(row.loss, row.sampling, row.use) - wanted))
        assert max(gaps) > 1e-4, row
        left, right = (float(eval(row.witness[side][0])) for side in ("left", "right"))
        assert abs(left - right) > 1e-9


@pytest.mark.parametrize("name", sorted(NAMED_GENERATORS))
def test_wrong_choices_are_refused(name: str) -> None:
    """What is tempting, and a right choice with another number before it, has no proof."""
    parts = divergence_losses._divide_ring_element(NAMED_GENERATORS[name], name).parts
    for row in divergence_losses._list_tempting(parts):
        with pytest.raises(ProofError):
            divergence_losses._prove_row(row, parts)
    for row in divergence_losses._list_choices(parts):
        assert divergence_losses._prove_row(row, parts).trust == "kernel"
        twice = replace(row.written, expression=2 * row.written.expression)
        with pytest.raises(ProofError):
            divergence_losses._prove_row(replace(row, written=twice), parts)


def test_wrong_choices_outside_the_ring_are_refused() -> None:
    typed = divergence_losses.parse("(1 + r)*log(1 + r)")
    parts = divergence_losses._divide_smooth_function(typed, "f").parts
    for row in divergence_losses._list_tempting(parts):
        if (row.part, row.weight) != ("f", "rho"):
            with pytest.raises(ProofError, match="is not shown to descend"):
                divergence_losses._prove_row(replace(row, part="c"), parts)
    for row in divergence_losses._list_choices(parts):
        assert divergence_losses._prove_row(row, parts).trust == "kernel"


SHAPES = {  # holds, where, f''(1)
    "jeffreys": (True, None, "2"),
    "pearson-chi2": (True, None, "2"),
    "jensen-shannon": (True, None, "1/4"),
    "jensen-shannon=1/5": (True, None, "4/25"),
    "jensen-shannon=beta": (True, None, "beta*(1 - beta)"),
    "-log(lam*r + 1 - lam)": (True, None, "lam**2"),
    "log(lam*r + 1 - lam)": (False, None, "-lam**2"),
    "tsallis=3": (True, None, "3"),
    "alpha": (False, "alpha*(alpha - 1) >= 0", "alpha*(alpha - 1)"),
    "alpha=1/3": (True, None, "1"),
    "-log(r)": (True, None, "1"),
    "log(r)**2": (False, "r <= e", "2"),
    "-(r - 1)**2": (False, None, "-2"),
    "log(1 + r)": (False, None, "-1/4"),
}


@pytest.mark.parametrize("f", SHAPES)
@pytest.mark.share(3)
def test_the_shape(f: str) -> None:
    told = (found_of(f) if f in DIVERGENCES else losses_of(f, sampling="on-policy")).to_json()
    holds, where, strength = SHAPES[f]
    assert told["genuine_divergence"] == {"holds": holds, "where": where}
    assert told["fisher_strength"] == strength
    warned = any("no f-divergence" in w for w in told["warnings"])
    assert warned == (not holds and f != "alpha")


NAMES = {
    "-log(r)": ("reverse-kl", "1"), "3*k1": ("reverse-kl", "3"), "r*log(r) + 5": ("forward-kl", "1"),
    "k3 - k1*r": ("jeffreys", "1"), "(r - 1)**2": ("pearson-chi2", "1"), "1/r": ("neyman-chi2", "1"),
    "lam*(1 - sqrt(r))**2": ("squared-hellinger", "lam"), "r**3": ("alpha=3", "6"), "k2": (None, "1"),
}  # fmt: skip


@pytest.mark.parametrize("f", NAMES)
def test_a_name_is_found(f: str) -> None:
    found = losses_of(f, sampling="on-policy")
    assert (found.name, found.multiple) == NAMES[f]


def test_sampling_chooses_and_the_free_number_is_free() -> None:
    found = losses_of("a*r*log(r)", ("a",), "off-policy")
    assert {row.sampling for row in (*found.values, *found.gradients, *found.wrong)} == {"off-policy"}
    assert found.values[0].loss.endswith("+ b*(r - 1))") and found.values[0].trust == "kernel"


REFUSED = {
    "rho*log(r)": "rho at character 1 of 'rho*log(r)': f is a smooth function of r = p/q alone",
    "r + log_q": "log_q at character 5",
    "abs(r - 1)": "abs at character 1",
    "r - 1": "f is a + b*r",
    "7": "f is a + b*r",
    "jefreys": "unknown divergence 'jefreys' (known: reverse-kl, forward-kl, jeffreys,",
    "total-variation": "unknown divergence 'total-variation'",
    "alpha=1": "the number of alpha, tsallis and renyi is not 0 or 1",
    "alpha=x": "the number of alpha, tsallis and renyi is not 0 or 1",
    "tsallis=1": "unknown divergence 'tsallis=1'",
    "jensen-shannon=1": "that of jensen-shannon between them",
    "jensen-shannon=n": "that of jensen-shannon between them",
    "-log(lam*r + 2)": "log of lam*r + 2, which need not be positive",
    "renyi=3": "its gradient is that of D over the mean E_q[r**(-2)]; ask for tsallis=3",
    "r*log(r": "cannot be read",
    "r*x": "unknown name 'x'",
    "": "an empty loss",
}


@pytest.mark.parametrize("f", REFUSED)
@pytest.mark.share(3)
def test_bad_input_is_one_line(f: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["divergence", f]) == 2
    said = capsys.readouterr()
    assert REFUSED[f] in said.err and said.err.count("\n") == 1 and not said.out
    with pytest.raises(UsageError):
        losses_of(f)


def test_json_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["divergence", "jeffreys", "--json", "--sampling", "on-policy"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {
        "divergence", "multiple", "f", "genuine_divergence", "fisher_strength", "latex", "coefficient",
        "values", "gradients", "wrong", "missing", "warnings",
    }  # fmt: skip
    assert [row["loss"] for row in told["gradients"]] == ["k2 + k3", "rho*(k1 - r*k1)", "k1 - r + 1"]
    assert [row["unbiased_value"] for row in told["gradients"]] == [False, True, False]
    assert main(["divergence", "-log(r)"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("losses that minimise reverse-kl, KL(q||p), on-policy and off-policy\n")
    assert (
        "  E_q[f(r)] with f = r - log(r) - 1, convex; f''(1) = 1  " in shown and len(shown.splitlines()) <= 12
    )
    assert "  not      k3 (on-policy as a loss: KL(p||q))\n" in shown
    assert main(["divergence", "-log(r)", "--full"]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith("reverse-kl, KL(q||p): E_q[f(r)] with f = r - log(r) - 1\n")
    assert re.search(r"as a loss +k3 +descends KL\(p\|\|q\)\n", whole)
    assert len(found_of("jensen-shannon").text(width=60).splitlines()) <= 16
