"""Code in C++: lines with a type, separated by semicolons; and means inside min and clip."""

from __future__ import annotations

import re

import pytest

import klsym
from klsym.errors import UsageError
from klsym.language.spellings import read_loss

CLIPPED = "torch{0}clamp(ratio, 1.0 - clip_param, 1.0 + clip_param)"


@pytest.mark.parametrize(
    ("cpp", "python"),
    [
        (
            f"auto surr_1 = ratio * advantages; auto surr_2 = {CLIPPED.format('::')} * advantages;"
            " auto loss = -torch::min(surr_1, surr_2).mean();",
            f"surr_1 = ratio * advantages; surr_2 = {CLIPPED.format('.')} * advantages;"
            " loss = -torch.min(surr_1, surr_2).mean()",
        ),
        ("const auto& kl = logp - ref_logp; torch::Tensor loss = kl.mean();", "(logp - ref_logp).mean()"),
        ("double x = 2.0; auto loss = x*torch::exp(logp - old_logp)*A;", "2*exp(logp - old_logp)*A"),
        ("auto a = -logp;\nauto loss = (a * advantages).mean();", "-(logp*advantages).mean()"),
    ],
)
def test_lines_of_cpp_are_read_as_those_of_python(cpp: str, python: str) -> None:
    assert read_loss(cpp).expression == read_loss(python).expression


@pytest.mark.parametrize(
    "code",
    [
        "float x = 1; auto loss = ratio->mul(A);",
        "auto loss = -(logp->exp()*A);",
        "std::vector<float> x = y; loss = k1",
        "for (int i = 0; i < n; ++i) { loss += k1; }",
    ],
)
def test_other_lines_of_cpp_are_said_to_be_cpp(code: str) -> None:
    with pytest.raises(UsageError, match=r"a line of C\+\+ that is not read: type it in Python"):
        read_loss(code)


@pytest.mark.parametrize("code", ["loss = auto*", "x: float == 2", "loss = k1 +", "a[1:: = k1"])
def test_wrong_python_is_not_said_to_be_cpp(code: str) -> None:
    with pytest.raises(UsageError) as refusal:
        read_loss(code)
    assert "C++" not in str(refusal.value)


@pytest.mark.parametrize(
    "code",
    [
        "a = ratio*A.mean(); b = (clamp(ratio, 0.8, 1.2)*A).mean(); -torch.min(a, b).mean()",
        "-torch.min((ratio*A).mean(), (ratio.clamp(0.8, 1.2)*A).mean())",
        "-torch.max((rho*A).mean(), 2*rho*A)",
        "loss = (logp*A).mean().clamp(-1, 1)",
    ],
)
def test_a_mean_inside_bounds_is_refused_with_a_command_that_answers(code: str) -> None:
    with pytest.raises(UsageError, match="a mean inside min, max or clip") as refusal:
        klsym.explain(code)
    [command] = re.findall(r"klsym explain '([^']*)'", str(refusal.value))
    assert "maximises E_q[A]" in str(klsym.explain(command, sampling="off-policy"))


def test_the_mean_of_the_advantages_beside_the_ratio_is_read() -> None:
    assert "maximises E_q[A/n]" in str(klsym.explain("loss = -(ratio*advantages.mean()).mean()"))
