"""What is offered for a wrong sign has the right one: it is explained again, whole, as a reader would."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import sympy

import klsym
from klsym.language.expressions import unfold
from klsym.render.questions.fixes import list_fixes

OFF = {"sampling": "off-policy"}
# A loss, its options, and whether a fix puts the sign right.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("A*log_q", {}, "-A*log_q"),
    ("A*log_q - beta*k3", {}, "-(A*log_q - beta*k3)"),
    ("A*log_q + 0.04*k3", {}, "-A*log_q + 0.04*k3"),
    ("rho*A", OFF, "-rho*A"),
    ("min(rho*A, clip(rho, 0.8, 1.2)*A)", OFF, "-min(rho*A, clip(rho, 0.8, 1.2)*A)"),
    ("-A*log_q + 0.01*H(q)", {}, "-A*log_q - 0.01*H(q)"),
    ("-A*log_q + 0.01*entropy", {"level": "token"}, "-A*log_q - 0.01*(H(q))"),
    ("H(q)", {}, "-H(q)"),
]
RIGHT = [("-A*log_q", {}), ("-A*log_q + 0.04*k2", {}), ("-A*log_q - 0.01*H(q)", {}), ("-rho*A", OFF)]
SIGN = re.compile(r"^  fix +(.*?): (?:maximises|without|an entropy|A policy|a policy)", re.MULTILINE)


def list_sign_fixes(verdict: Any) -> list[str]:
    return SIGN.findall(verdict.text())


def describe(verdict: Any) -> str:
    return " ".join(verdict.text().split("\n")[1:3])


@pytest.mark.parametrize(("loss", "options", "fixed"), WRONG, ids=str)
def test_a_fix_has_the_right_sign(loss: str, options: dict[str, Any], fixed: str) -> None:
    assert fixed in list_sign_fixes(klsym.explain(loss, **options))
    again = klsym.explain(fixed, **options)
    assert not list_sign_fixes(again) and "wrong sign" not in describe(again).lower()
    assert "KL008" not in {d.code.code for d in again.diagnostics}


@pytest.mark.parametrize(("loss", "options"), RIGHT, ids=str)
def test_a_right_sign_needs_no_fix(loss: str, options: dict[str, Any]) -> None:
    assert not list_sign_fixes(klsym.explain(loss, **options))


@pytest.mark.parametrize(
    ("loss", "options", "fix"),
    [
        ("-rho*A - 0.001*k3", OFF, "0.001*rho*k3 in place of -0.001*k3"),
        ("-A*log_q + beta*k3/2", {}, "beta/2*k2 in place of beta*k3/2"),
        ("R - 0.1*k3", {"use": "reward"}, "-0.1*k1 in place of -0.1*k3"),
        ("-A*log_q + k3", {}, "k2 in place of k3"),
    ],
    ids=str,
)
def test_a_penalty_keeps_its_coefficient(loss: str, options: dict[str, Any], fix: str) -> None:
    assert fix in klsym.explain(loss, **options).text()


def test_a_clip_that_leaves_no_gradient_for_one_sign_says_so() -> None:
    """max(.., 3 A) is always 3 A where A > 0."""
    inverted = klsym.explain("-max(min(rho*A, clip(rho, 0.8, 1.2)*A), 3*A)", **OFF)
    assert "only where A <= 0" in describe(inverted)
    assert "only where" not in describe(klsym.explain("ppo"))
    assert "h = 1 where k1 >= -10 and k1 <= 10" in " ".join(klsym.explain("clip(k1, -10, 10)").text().split())


@pytest.mark.parametrize(
    ("typed", "assumed"),
    [
        ("ratio = (logp - old_logp).exp(); -ratio*A + 0.04*k3", True),
        ("-torch.min(ratio*advantages, torch.clamp(ratio, 0.8, 1.2)*advantages)", True),
        ("-(logp - logp.detach()).exp()*advantages", False),
        ("(logp - ref_logp)**2/2", False),
        ("rho*k3", False),
    ],
)
def test_an_old_policy_in_pasted_code_means_its_samples(typed: str, assumed: bool) -> None:
    verdict = klsym.explain(typed)
    assert (verdict.setting.sampling == "off-policy") == assumed
    assert ("assumed: samples" in " ".join(verdict.text().split())) == assumed
    assert klsym.explain(typed, sampling="on-policy").setting.sampling == "on-policy"


K3 = "(torch.exp(ref_logp - logp) - (ref_logp - logp) - 1)"


@pytest.mark.parametrize(
    ("loss", "options", "right"),
    [
        (f"-logp*A + 0.04*{K3}", {}, "0.04*k2"),
        (f"rewards - 0.1*{K3}", {"use": "reward"}, "-0.1*k1"),
        (f"-torch.exp(logp - old_logp)*A + 0.04*{K3}", {}, "0.04*rho*k3"),
        ("-A*log_q + beta*k3/2", {}, "beta*k2/2"),
        ("R - 0.1*k3", {"use": "reward"}, "-0.1*k1"),
        ("R - k3", {"use": "reward"}, "-k1"),
    ],
    ids=str,
)
def test_the_code_of_a_fix_is_the_fix(loss: str, options: dict[str, Any], right: str) -> None:
    """What is printed is read again: brackets, sign and coefficient stand where they must."""
    from klsym.engine.answers.dispatch import as_written
    from klsym.render.questions.fixes import list_fixes

    fixes = [text for text, _ in list_fixes(klsym.explain(loss, **options)) if " in place of " in text]
    assert fixes
    for text in fixes:
        code = re.split(r" (?:--|in place of )", text)[0]
        code, _, symbols = code.rpartition(" (") if code.endswith(")") and " (" in code else (code, "", code)
        expected = unfold(as_written(right, ()).expression)
        assert sympy.expand(unfold(as_written(code, ()).expression) - expected) == 0
        assert sympy.expand(unfold(as_written(symbols.rstrip(")"), ()).expression) - expected) == 0


CLIP = "clip(rho, 1 - eps, 1 + eps)*A"


@pytest.mark.parametrize(
    ("loss", "fix"),
    [
        (f"max(rho*A, {CLIP})", "-min(rho*A, A*clip(rho, 1 - eps, eps + 1))"),
        (f"min(rho*A, {CLIP})", f"-min(rho*A, {CLIP})"),
        (f"-min(-rho*A, -{CLIP})", "max(-rho*A, -A*clip(rho, 1 - eps, eps + 1))"),
        (f"max(rho*A, {CLIP}) + beta*k3", "-min(rho*A, A*clip(rho, 1 - eps, eps + 1)) + beta*k3"),
    ],
)
def test_the_fix_of_a_clipped_loss_is_that_of_ppo(loss: str, fix: str) -> None:
    fixes = [text.partition(": ")[0] for text, _ in list_fixes(klsym.explain(loss, sampling="off-policy"))]
    assert fix in fixes


@pytest.mark.parametrize("loss", [f"-max(rho*A, {CLIP})", f"min(-rho*A, -{CLIP}) + k2"])
def test_the_smaller_of_two_clipped_losses_is_said_to_be_no_ppo(loss: str) -> None:
    assert "PPO takes the larger of the two losses" in str(klsym.explain(loss, sampling="off-policy"))


@pytest.mark.parametrize(
    "loss", [f"-min(rho*A, {CLIP})", f"max(-rho*A, -{CLIP})", "max(k1, 0)", "-min(rho, 2)*A"]
)
def test_others_are_not(loss: str) -> None:
    assert "PPO takes" not in str(klsym.explain(loss, sampling="off-policy"))


def test_a_mask_of_one_loss_alone_is_said() -> None:
    masked, plain = "(logp*adv*loss_mask).sum()", "(logp*adv).sum()"
    said = "B alone has a mask, loss_mask, which is taken for one of padding"
    assert said in " ".join(str(klsym.compare(plain, masked)).split())
    assert "alone has a mask" not in str(klsym.compare(plain, plain))
    assert "alone has a mask" not in str(klsym.compare(masked, masked))


def test_values_of_a_critic_are_said_to_be_held() -> None:
    held, attached = "-logp*(R - values.detach())", "-logp*(R - values)"
    said = "values is held: the gradient of the policy is compared, not what flows into the critic"
    assert said in " ".join(str(klsym.compare(held, attached)).split())
    assert "is held" not in str(klsym.compare("-logp*R", "-logp*(R - beta)"))


@pytest.mark.parametrize(
    ("loss", "options", "is_said"),
    [
        ("k1", {}, True),
        ("2*k1", {"use": "reward"}, True),
        ("log_mu - log_q", {"sampling": "off-policy"}, True),
        ("k1", {"sampling": "off-policy"}, False),
        ("-k1", {}, False),
        ("k3", {}, False),
        ("k1", {"level": "token", "aggregate": "mean"}, False),
    ],
)
def test_which_values_may_be_negative(loss: str, options: dict[str, str], is_said: bool) -> None:
    assert ("single values may be negative" in str(klsym.explain(loss, **options))) is is_said


FUNCTIONS: dict[str, Callable[[float], float]] = {  # of the reward, whose mean a loss of minus it maximises
    "R/(abs(R) + 1)": lambda x: x / (abs(x) + 1),
    "R/(1000000*abs(R) + 1)": lambda x: x / (1e6 * abs(x) + 1),
    "R/(abs(R) + 1)**2": lambda x: x / (abs(x) + 1) ** 2,
    "R*abs(R)": lambda x: x * abs(x),
    "(R - 1)*abs(R - 1)": lambda x: (x - 1) * abs(x - 1),
    "min(R, 1)": lambda x: min(x, 1),
    "clip(R, -1, 2)": lambda x: min(max(x, -1), 2),
    "max(R, 2*R)": lambda x: max(x, 2 * x),
    "where(R > 0, 1, 2)": lambda x: 1 if x > 0 else 2,
    "where(R > 0.1, 1, 0)": lambda x: 1 if x > 0.1 else 0,
    "where(R > 0, R - 5, R)": lambda x: x - 5 if x > 0 else x,
    "softplus(R)": lambda x: math.log(1 + math.exp(x)),
    "sigmoid(R)": lambda x: 1 / (1 + math.exp(-x)),
    "logsigmoid(R)": lambda x: -math.log(1 + math.exp(-x)),
    "exp(-R)": lambda x: math.exp(-x),
    "(1 - exp(-R))": lambda x: 1 - math.exp(-x),
    "R**3": lambda x: x**3,
    "R**2": lambda x: x**2,
    "(R - R**2)": lambda x: x - x**2,
}


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("sign", ["-", ""])
def test_the_wrong_sign_is_said_of_functions_that_lower_rewards_alone(sign: str, function: str) -> None:
    values = [FUNCTIONS[function](-3 + 0.25 * i) for i in range(25)]
    rises = all(a <= b for a, b in itertools.pairwise(values))
    falls = all(a >= b for a, b in itertools.pairwise(values))
    says = "the wrong sign" in str(klsym.explain(f"{sign}{function}*log_q")).casefold()
    assert says == (falls if sign else rises)


JUMPS = [  # the coefficient of the score, as a function of the reward at fixed other values, and the loss
    ("sg(M)*rho*A + where(A > 0, 1, 3)*rho", lambda a, r: a + (1 if a > 0 else 3)),
    ("sg(M)*rho*A + where(A > 0, 3, 1)*rho", lambda a, r: a + (3 if a > 0 else 1)),
    ("where(A > 0, A, A - 1)*log_q", lambda a, r: a if a > 0 else a - 1),
    ("where(A > 0, A, A + 1)*log_q", lambda a, r: a if a > 0 else a + 1),
    ("where(R < 1/3, 2*R, R)*log_q", lambda a, r: 2 * r if r < 1 / 3 else r),
    ("where(R > 1/3, 2*R, R)*log_q", lambda a, r: 2 * r if r > 1 / 3 else r),
    ("(R > 0)*R*log_q", lambda a, r: max(r, 0)),
    ("(R < 0)*R*log_q", lambda a, r: min(r, 0)),
    ("(1 - (R > 0))*log_q", lambda a, r: float(r <= 0)),
    ("(R > 0)*log_q", lambda a, r: float(r > 0)),
    ("(R > 1)*R*log_q", lambda a, r: r * (r > 1)),
    ("((R > 0) - (R > 1))*log_q", lambda a, r: float(0 < r <= 1)),
    ("clip(R, 0, 1)*log_q", lambda a, r: min(max(r, 0), 1)),
    ("abs(R)*log_q", lambda a, r: abs(r)),
]


@pytest.mark.parametrize(("loss", "coefficient"), JUMPS, ids=[loss for loss, _ in JUMPS])
@pytest.mark.parametrize("options", [{}, {"level": "token"}, OFF, {"batch": "leave-one-out"}], ids=str)
def test_a_sign_is_wrong_where_no_sample_gains_by_a_larger_reward(
    loss: str, coefficient: Callable[[float, float], float], options: dict[str, Any]
) -> None:
    """Descending lowers log q by the coefficient: the sign is wrong if that rises, jumps included."""
    values = [coefficient(x / 37, x / 37) for x in range(-80, 81)]
    falls = any(after < before - 1e-12 for before, after in itertools.pairwise(values))
    verdict = klsym.explain(loss, **options)
    assert ("KL008" in {d.code.code for d in verdict.diagnostics}) == (not falls)


def test_a_fix_without_a_named_objective_says_what_its_sign_does() -> None:
    verdict = klsym.explain("sg(r/(1 + r))*rho*A")
    assert list_fixes(verdict) == [
        ("-sg(r/(1 + r))*rho*A: makes a sample more likely the larger its A is", "by SymPy alone")
    ]


def test_no_term_is_offered_in_its_own_place() -> None:
    assert not any(
        "k2 in place of k2" in fix for fix, _ in list_fixes(klsym.explain("sg(r/(1 + r))*rho*A + k2"))
    )


@pytest.mark.parametrize(
    ("loss", "kind"),
    [
        ("-(1 + M)*A*log_q", "A policy gradient:"), ("(1 + M)*A*log_q", "The wrong sign"),
        ("-(1 - M)*A*log_q", "A policy gradient:"), ("(1 - M)*A*log_q", "The wrong sign"),
        ("-(2 - M)*A*log_q", "A policy gradient:"), ("-(1 - M)*R*rho", "A policy gradient:"),
        ("-A*log_q + M*A*log_q", "A policy gradient:"), ("-(M - 1)*A*log_q", "The wrong sign"),
        ("(1 - 2*M)*A*log_q", "A policy gradient whose sign changes with the mask M"),
        ("-(1 - 2*M)*A*log_q", "A policy gradient whose sign changes with the mask M"),
    ],
)  # fmt: skip
def test_the_sign_of_a_reward_is_looked_at_where_a_mask_is_0_and_where_it_is_1(loss: str, kind: str) -> None:
    assert describe(klsym.explain(loss)).strip().startswith(kind)
