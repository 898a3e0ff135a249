"""Normal densities and entropies that code writes out: not read, with a command that works."""

from __future__ import annotations

import re

import pytest

import klsym
from klsym.errors import UsageError

CONTINUOUS = (
    "pdf = 1. / K.sqrt(2. * {0} * sigma_sq) * K.exp(-K.square(action - mu) / (2. * sigma_sq));"
    " log_pdf = K.log(pdf + K.epsilon()); entropy = K.sum(0.5 * (K.log(2. * {0} * sigma_sq) + 1.));"
    " exp_v = log_pdf * advantages; exp_v = K.sum(exp_v + 0.01 * entropy); actor_loss = -exp_v"
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (CONTINUOUS.format("np.pi"), "density"),
        (CONTINUOUS.format("3.14159"), "density"),
        (
            "lp = -((a - m)/s)**2/2 - torch.log(s*math.sqrt(2*math.pi)); loss = -(lp*advantages).mean()",
            "log density",
        ),
        ("ent = 0.5*(torch.log(2*math.pi*v) + 1); loss = -A*logp - 0.01*ent.mean()", "entropy"),
    ],
)
def test_a_written_density_is_refused_with_a_command_that_answers(code: str, kind: str) -> None:
    with pytest.raises(UsageError, match=f"writes out the {kind} of a policy") as refusal:
        klsym.explain(code)
    [command] = re.findall(r"klsym explain '([^']*)'", str(refusal.value))
    assert "olicy gradient" in str(klsym.explain(command))


@pytest.mark.parametrize("number", ["np.pi", "math.pi", "torch.pi", "np.e"])
def test_a_number_of_a_library_is_named(number: str) -> None:
    with pytest.raises(UsageError, match=rf"the number {re.escape(number)} is not read.*type its value"):
        klsym.explain(f"x = {number}*k1")


@pytest.mark.parametrize(
    "code",
    [
        "w = torch.exp(-(logp - old_logp)**2)*har(x); loss = -w*A*logp",
        "w = har(3.14159); loss = -w*A*logp",
        "w = torch.exp(har)*3.14159; loss = -w*A*logp",
        "d = (logp - ref_logp)**2*har; loss = d*3.14159",
    ],
)
def test_other_lines_are_no_densities(code: str) -> None:
    with pytest.raises(UsageError) as refusal:
        klsym.explain(code)
    assert "writes out" not in str(refusal.value)


def test_a_density_that_is_not_used_is_no_matter() -> None:
    code = "pdf = exp(-(a - m)**2/(2*v))/sqrt(2*np.pi*v); loss = -A*logp"
    assert "maximises E_q[A]" in str(klsym.explain(code))
