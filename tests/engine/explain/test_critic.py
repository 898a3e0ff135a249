"""A critic V of the prefix, generalised advantages, and exact means times what is drawn at a token."""

from __future__ import annotations

import random

import mpmath
import pytest

from klsym.api import explain
from klsym.errors import UsageError
from klsym.language.parser import parse
from klsym.numeric.checks.field_check import enumerate_model
from klsym.numeric.models import random_tree
from klsym.study.claims import claim
from klsym.worlds.world import Place
from support.judges.loss_judge import examine
from support.losses.random_losses import Case
from support.scale import scaled

FACTORS = (
    "V",
    "togo(R) - V",
    "R + 0.9*V_next - V",
    "gae(1)",
    "gae(0.9)",
    "gae(0.5, 0.9)",
    "V_next",
    "R",
    "k1",
)
LOSSES = ("-sg({a})*log_q", "-rho*({a})", "-min(rho*({a}), clip(rho, 0.8, 1.2)*({a}))", "({a})*k2", "{a}")
MEANS = ("full(k1)", "full(M*k1)", "full(-log_q)", "full(r*k1)", "full((1 + r)*log((1 + r)/2))")
DRAWN = (
    "R",
    "A",
    "M",
    "k1",
    "rho",
    "sg(k1)",
    "togo(R)",
    "V*R",
    "min(rho, 2)*A",
    "exp(past(log_q - log_mu))*M",
)


def drawn(number: int) -> Case:
    """Loss `number` of tokens, with a critic or an exact mean times what is drawn."""
    stream = random.Random(f"critic {number}")
    text = stream.choice(LOSSES).format(a=stream.choice(FACTORS))
    if number % 2:
        text = f"{stream.choice(DRAWN)}*{stream.choice(MEANS)}"
    if stream.random() < 0.3:
        text += f" + {stream.choice(('beta*k3', '0.1*k2', 'rho*k3'))}"
    sampling = stream.choice(("on-policy", "off-policy"))
    return Case(text, sampling, "loss", level="token", weights=stream.choice(("token", "prefix")))


def test_random_losses_agree_with_the_oracle() -> None:
    outcomes = [examine(drawn(number)) for number in range(scaled(300, 24))]
    assert not [outcome for outcome in outcomes if outcome.complaints]
    assert not [outcome for outcome in outcomes if outcome.target == "refused"]


def test_a_critic_beside_an_exact_mean_is_no_parameter() -> None:
    """Where weights are written out, the loss is read again: V is still the critic, kappa a parameter."""
    for critic in ("V", "V_next"):
        text = f"kappa*{critic}*R*full(-log_q) + rho*k3"
        answer = explain(text, parameters=["kappa"], level="token", weights="prefix").to_json()
        assert f"{critic}*R_now*kappa*full(" in answer["gradient"]["per_sample"]


@pytest.mark.parametrize("factor", ["togo(R) - V", "gae(1)", "gae(1, 1)", "whole(R) - V", "togo(R) + V*V"])
@pytest.mark.parametrize("loss", ["-sg({a})*log_q", "-({a})*log_q", "-rho*({a})"])
def test_a_critic_of_the_prefix_leaves_the_policy_gradient(loss: str, factor: str) -> None:
    found = explain(loss.format(a=factor), level="token")
    assert (found.target, found.trust) == ("combination", "kernel")
    assert "maximises E_q[R]" in str(found)
    assert "V is any function of t and of the tokens before t, independent of theta" in found.hypotheses
    assert ("V is 0 after the last token" in found.hypotheses) == ("gae" in factor)


@pytest.mark.parametrize("factor, trust", [
    ("R + V_next - V", "kernel"), ("R - V", "kernel"), ("gae(0)", "kernel"),
    ("gae(0.95)", "numeric"), ("gae(1, 0.99)", "numeric"),
])  # fmt: skip
def test_other_advantages_have_no_objective(factor: str, trust: str) -> None:
    found = explain(f"-sg({factor})*log_q", level="token")
    assert (found.target, found.trust) == ("no-objective", trust) and found.counterexample.model is not None


@pytest.mark.parametrize("loss, target", [
    ("V*k1", "zero"), ("V*log_q", "zero"), ("V_next*log_q", None), ("V*k2", "no-objective"),
    ("V*full_kl(q, p)", "no-objective"),
])  # fmt: skip
def test_a_critic_that_multiplies_a_penalty(loss: str, target: str | None) -> None:
    assert explain(loss, level="token").target == target


@pytest.mark.parametrize("weight", ["1/2", "0", "1", "9/10"])
@pytest.mark.parametrize("g", ["1", "9/10"])
def test_gae_is_the_discounted_sum_of_the_differences(weight: str, g: str) -> None:
    """sum_{u>=t} (g x)^(u-t) (R_u + g V_{u+1} - V_u), term by term on a tree of tokens."""
    with mpmath.workdps(40):
        world = enumerate_model(random_tree(3), {}, on_policy=True)
        decay = mpmath.mpf(eval_fraction(weight)) * eval_fraction(g)
        estimate, step = parse(f"gae({weight}, {g})"), parse(f"R + {g}*V_next - V")
        for batch, _ in world.enumerate_batches(1, "q"):
            size = len(world.paths[batch[0]])
            values = [world.evaluate_at(step, Place(batch, t=t)).value for t in range(size)]
            for t in range(size):
                told = mpmath.fsum(decay ** (u - t) * values[u] for u in range(t, size))
                assert abs(world.evaluate_at(estimate, Place(batch, t=t)).value - told) < 1e-35


def eval_fraction(text: str) -> mpmath.mpf:
    over, _, under = text.partition("/")
    return mpmath.mpf(over) / mpmath.mpf(under or 1)


@pytest.mark.parametrize("loss, options, words", [
    ("V*k1", {}, "choose level token"),
    ("V*k1", {"level": "sequence"}, "choose level token"),
    ("gae(1)*log_q", {}, "choose level token"),
    ("gae(2)*log_q", {"level": "token"}, "numbers from 0 to 1"),
    ("gae(lam)*log_q", {"level": "token"}, "numbers from 0 to 1"),
    ("gae(1, 2)*log_q", {"level": "token"}, "numbers from 0 to 1"),
    ("gae()*log_q", {"level": "token"}, "gae takes 1 or more arguments"),
    ("future(full_kl(q, p))*k1", {"level": "token"}, "put sg"),
    ("future(k2)*full_kl(q, p)*R", {"level": "token"}, "put sg"),
])  # fmt: skip
def test_what_is_refused(loss: str, options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        explain(loss, **options)


@pytest.mark.parametrize("drawn_factor", DRAWN)
def test_exact_means_times_what_is_drawn(drawn_factor: str) -> None:
    """Under mu, where nothing is detached, sum_t L_t is a function of theta at each sequence."""
    loss = f"{drawn_factor}*full_kl(q, p)"
    under, on_policy = (explain(loss, level="token", sampling=f"{x}-policy") for x in ("off", "on"))
    attached, known = "sg(" not in loss, drawn_factor == "rho"  # the token's own ratio has the mean 1
    trust = ("kernel" if known else "sympy") if attached else "open"
    assert (under.target, under.trust) == ("own-mean" if attached else None, trust)
    assert ("minimises E_mu" in under.summary) == (attached and not known)
    curl = "kernel" if known else "numeric"
    is_open = "V" in drawn_factor  # no tree of numbers has a critic
    assert (on_policy.target, on_policy.trust) == ((None, "open") if is_open else ("no-objective", curl))


def test_a_mass_that_does_not_move_has_no_gradient() -> None:
    found = explain("log(full(M*r))*M", level="token")
    assert found.target == "zero" and "has zero gradient at every sample" in found.summary


@pytest.mark.parametrize(
    ("loss", "weight"),
    [
        ("-sg(gae(0.95))*log_q", "0.05"),
        ("-sg(gae(0.5))*log_q", "0.5"),
        ("beta*k3 - sg(gae(0.9))*log_q", "0.1"),
    ],
)
def test_the_bias_of_lambda_below_1_is_said_with_the_trust_of_its_claim(loss: str, weight: str) -> None:
    text = " ".join(explain(loss, level="token").text(full=True).split())
    assert f"ascends grad E_q[R] + {weight}*E_q[sum_t s_t*sum_(u>=t)" in text
    assert "by SymPy on three tokens, klsym claims beyond.gae-bias" in text
    assert claim("beyond.gae-bias").trust == "sympy"


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("-sg(gae(1))*log_q", {}), ("-sg(gae(0.95, 0.99))*log_q", {}), ("sg(gae(0.95))*log_q", {}),
        ("-2*sg(gae(0.95))*log_q", {}), ("-sg(gae(0.95))*log_q", {"sampling": "off-policy"}),
        ("-sg(gae(0.95))*log_q", {"aggregate": "mean"}), ("-sg(disc(0.95, R) - V)*log_q", {}),
    ],
)  # fmt: skip
def test_the_bias_is_not_said_of_other_losses(loss: str, options: dict[str, str]) -> None:
    assert "gae-bias" not in explain(loss, level="token", **options).text(full=True)
