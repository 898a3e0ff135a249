"""mse_loss, l1_loss and smooth_l1_loss of log-probabilities are read as what PyTorch computes."""

from __future__ import annotations

import pytest

from klsym import explain
from klsym.errors import UsageError
from klsym.language.expressions import log_p, log_q, unfold
from klsym.language.spellings import read_loss

torch = pytest.importorskip("torch")
DISTANCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize("apart", [-40.0, -1.5, -0.99, 0.3, 1.01, 7.0])
def test_the_value_and_slope_are_those_of_the_code(name: str, apart: float) -> None:
    e = unfold(read_loss(f"F.{name}(logp, ref_logp, reduction='none')").expression)
    x, y = torch.tensor(apart - 2.0, dtype=torch.float64, requires_grad=True), torch.tensor(-2.0).double()
    value = getattr(torch.nn.functional, name)(x, y)
    value.backward()
    at = [float(e.subs({log_q: float(x.detach()) + step, log_p: float(y)})) for step in (0, 1e-6, -1e-6)]
    assert at[0] == pytest.approx(value.item(), rel=1e-12)
    assert (at[1] - at[2]) / 2e-6 == pytest.approx(x.grad.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("typed", "target", "left_out"),
    [
        ("F.mse_loss(logp, ref_logp)", "reverse-kl", True),  # twice
        ("0.5*F.mse_loss(logp, ref_logp, reduction='none')", "reverse-kl", False),
        ("F.mse_loss(logp, ref_logp, reduction='sum')/2", "reverse-kl", True),
    ],
)
def test_a_squared_distance_is_k2(typed: str, target: str, left_out: bool) -> None:
    answer = explain(typed)
    assert answer.target == target
    assert ("mse_loss() is left out" in " ".join(str(answer).split())) == left_out


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("F.mse_loss(logp)", "mse_loss without its argument target"),
        ("F.mse_loss(logp, ref_logp, reduction='x')", "mse_loss with a reduction that is not read"),
        ("F.mse_loss(logp, ref_logp, reduction=how)", "mse_loss with a reduction that is not read"),
        ("F.huber_loss(logp, ref_logp, delta=0.5)", "the argument delta= of huber_loss is not read"),
        ("F.mse_loss(values, returns)", "out of scope"),
    ],
)
def test_other_distances_are_refused(typed: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_loss(typed)
