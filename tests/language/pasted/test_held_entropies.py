"""Entropies of pasted code, with and without a gradient."""

from __future__ import annotations

import pytest

import klsym

LINES = "{entropy}; loss = -A*log_q - 0.1*entropy.mean()"
WITHOUT = [
    "entropy = entropy_from_logits(logits, requires_grad=False)",
    "entropy = self.get_entropy(logits).detach()",
    "entropy = entropy_from_logits(logits, requires_grad=True).detach()",
    "entropy = entropy_from_logits(logits).detach(); entropy += 1",
    "entropy = (-(probs*logprobs)).sum(-1).detach(); entropy += 1",
    "entropy = (-(probs*logprobs)).sum(-1).detach(); entropy /= 2",
    "entropy, accuracy = entropy_from_logits(logits, requires_grad=False)",
]
WITH = [
    "entropy = entropy_from_logits(logits, requires_grad=True)",
    "entropy = entropy_from_logits(logits)",
    "entropy = entropy_from_logits(logits, requires_grad=False); entropy = H(q)",
    "entropy = entropy_from_logits(logits).detach(); entropy += H(q)",
]


@pytest.mark.parametrize("entropy", WITHOUT)
def test_an_entropy_without_a_gradient_does_nothing(entropy: str) -> None:
    read = klsym.explain(LINES.format(entropy=entropy))
    assert "maximises E_q[A]" in str(read)
    assert "has zero gradient at every sample" in str(read)
    assert "bonus" not in str(read)


@pytest.mark.parametrize("entropy", WITH)
def test_one_with_a_gradient_is_a_bonus(entropy: str) -> None:
    assert "entropy bonus" in str(klsym.explain(LINES.format(entropy=entropy))).casefold()


def test_the_two_differ() -> None:
    held, attached = (LINES.format(entropy=x[0]) for x in (WITHOUT, WITH))
    assert "Different objectives" in str(klsym.compare(held, attached))


@pytest.mark.parametrize("batch", ["mean", "batch"])
def test_it_does_nothing_over_the_tokens_of_a_batch_either(batch: str) -> None:
    """What is held adds no noise: its gradient is 0 at every sample, whatever divides it."""
    held = klsym.explain("-10*sg(full(log_q))", level="token", aggregate=batch)
    assert held.target == "zero"
    assert "zero at every sample" in str(held)
    both = klsym.explain("-A*log_q - 10*sg(k1)", level="token", aggregate=batch)
    alone = klsym.explain("-A*log_q", level="token", aggregate=batch)
    assert both.target == alone.target
    assert "noise" not in str(both)
    noisy = klsym.explain("k1", level="token", aggregate="sum")
    assert "zero at every sample" not in str(noisy)


@pytest.mark.parametrize("ending", [").detach()", ", requires_grad=False)"])
def test_a_log_probability_without_a_gradient_is_asked_for(ending: str) -> None:
    with pytest.raises(klsym.KlsymError):
        klsym.explain(f"logp = get_logps(model, ids{ending}; loss = -A*logp")
