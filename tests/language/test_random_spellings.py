"""Random losses in the grammar and in the spelling of PyTorch, and random pieces of code."""

from __future__ import annotations

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from klsym.errors import UsageError
from klsym.language.expressions import ATOMS, log_q, parameter, remove_sg, unfold
from klsym.language.parser import parse
from klsym.language.spellings import read_loss

LEAVES = st.sampled_from([
    ("log_q", "logp"), ("log_p", "ref_logp"), ("log_mu", "old_logp"), ("A", "advantages"), ("2", "2"),
    ("lam", "lam"), ("0.5", "0.5"), ("beta", "self.beta"),
])  # fmt: skip
UNARY = [
    ("sg({})", "({}).detach()"), ("sg({})", "jax.lax.stop_gradient({})"), ("exp({})", "({}).exp()"),
    ("abs({})", "torch.abs({})"), ("({})**2", "({}).square()"), ("({})**2", "torch.pow({}, 2)"),
    ("max({}, 0)", "F.relu({})"), ("exp({}) - 1", "np.expm1({})"),
    ("1/(1 + exp(-({})))", "torch.sigmoid({})"),
    ("log(1 + exp({}))", "F.softplus({})"), ("clip({}, -1, 2)", "({}).clamp(min=-1, max=2)"),
    ("max({}, -1)", "({}).clamp(min=-1)"), ("min({}, 2)", "jnp.clip({}, None, 2)"), ("-({})", "({}).neg()"),
    ("({})**3", "({})^3"),
]  # fmt: skip
BINARY = [
    ("({}) + ({})", "({}) + ({})"), ("({}) - ({})", "torch.sub({}, {})"), ("({})*({})", "({}) * ({})"),
    ("min({}, {})", "jnp.minimum({}, {})"), ("max({}, {})", "({}).maximum({})"),
    ("where({0} > {1}, {0}, {1})", "torch.where({0} > {1}, {0}, {1})"),
]  # fmt: skip
Pair = tuple[str, str]


def _grow(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    one = st.builds(lambda f, x: (f[0].format(x[0]), f[1].format(x[1])), st.sampled_from(UNARY), inner)
    pick = st.sampled_from(BINARY)
    two = st.builds(lambda f, x, y: (f[0].format(x[0], y[0]), f[1].format(x[1], y[1])), pick, inner, inner)
    return one | two


@settings(max_examples=150, deadline=None)
@given(st.recursive(LEAVES, _grow, max_leaves=5))
def test_a_loss_in_the_spelling_of_pytorch_is_the_loss_itself(pair: Pair) -> None:
    """Both have the same value and slope, where the expressions are not the same already."""
    typed, spelled = pair
    try:
        expected = parse(typed)
    except UsageError as error:
        reason = str(error).partition(" at character")[0]
        with pytest.raises(UsageError) as refusal:
            read_loss(spelled)
        assert reason in str(refusal.value).partition(" at character")[0]
        return
    found = read_loss(spelled).expression
    difference = unfold(found) - unfold(expected)
    if difference != 0:
        names = ("log_q", "log_p", "log_mu", "A")
        values = {ATOMS[name]: sympy.Rational(n, 7) for n, name in enumerate(names, 3)}
        values |= {parameter("lam"): sympy.Rational(2, 3), parameter("beta"): sympy.Rational(1, 5)}
        for e in (difference, sympy.diff(difference, log_q)):
            assert abs(remove_sg(e).xreplace(values).evalf(30)) < 1e-15


PIECES = [
    *"()[].,=;\n#'\"^*+-|", "k1", "logp", "torch.exp(", ".mean()", "mask", "ratio", "KL(q||p)", "loss = ",
    "self.beta", "lambda", "import os", "2",
]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join))
def test_fuzz_pieces(typed: str) -> None:
    try:
        read_loss(typed)
    except UsageError as error:
        assert str(error).isprintable() and len(str(error)) < 400
