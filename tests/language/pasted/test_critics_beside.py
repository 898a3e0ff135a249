"""The loss of a critic beside that of the policy: it has no gradient for the policy, with its coefficient."""

from __future__ import annotations

import pytest

import klsym
from klsym.errors import UsageError

BEFORE = "a_loss = -A*logp; ent_loss = H(q); "


@pytest.mark.parametrize("coefficient", ["self._w_vf", "w_vf", "self.vf_coef", "value_loss_coef", "0.5"])
@pytest.mark.parametrize("critic", ["vf_loss", "value_loss", "critic_loss"])
def test_a_critics_loss_is_left_out_with_its_coefficient(coefficient: str, critic: str) -> None:
    with_critic = f"{BEFORE}loss = a_loss + {coefficient}*{critic} - self._w_ent*ent_loss"
    comparison = klsym.compare(with_critic, f"{BEFORE}loss = a_loss - self._w_ent*ent_loss")
    assert comparison.gradient.same
    assert "entropy bonus" in str(klsym.explain(with_critic))


def test_the_first_refusal_names_all_that_is_missing() -> None:
    code = "loss = a_loss + self._w_vf * vf_loss - self._w_ent * ent_loss"
    with pytest.raises(UsageError) as refusal:
        klsym.explain(code)
    message = str(refusal.value)
    assert "a_loss = -A*log_q" in message and "ent_loss = H(q)" in message
    assert "n entropy bonus" in str(klsym.explain(f"a_loss = -A*logp; ent_loss = H(q); {code}"))


def test_an_attribute_that_is_unknown_names_the_others() -> None:
    with pytest.raises(UsageError, match=r"self\.har.*ent_loss = H\(q\)"):
        klsym.explain("loss = self.har*logp - w_ent*ent_loss")


@pytest.mark.parametrize("name", ["w_reward", "w_is", "w_adv", "w_logp", "w_ratio", "w_vf_is", "w_value"])
def test_other_weights_are_asked_for(name: str) -> None:
    with pytest.raises(UsageError):
        klsym.explain(f"loss = -{name}*A*logp")
