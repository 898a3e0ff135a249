"""Losses that have a wanted objective, so that a typed loss can be compared with it.  Untrusted.

Under q, sg(h) log q has the gradient E_q[h s], which is grad E_q[h] where E_q[grad h] = 0; under mu it is
weighted by q/mu.  E_mu[f] is the objective of f itself, whose samples are fixed.

>>> from klsym.engine.answers.objectives import read_objective
>>> build_wanted_loss(read_objective("0.04*reverse-kl - E[A]"), Setting(), A)
-A*log_q + log_q*sg(k1)/25
"""

from __future__ import annotations

from typing import Any

import sympy

from klsym.engine.answers.is_correct import NEXT_TOKENS
from klsym.engine.answers.objectives import OF_GROUPS, N, T, WantedObjective
from klsym.engine.options.settings import Setting
from klsym.language.expressions import DENSITIES, A, Estimator, OverPositions, R, exp, k1, log_mu, log_q, sg
from klsym.language.sums import OverVocabulary, Whole, full_kl

OF_NEXT_TOKENS = {
    "next-token-reverse-kl": full_kl("q", "p"),
    "next-token-forward-kl": full_kl("p", "q"),
    "next-token-entropy": -OverVocabulary(log_q),
}


class Unwritten(Exception):
    """No loss of the grammar has this objective in this setting."""


def build_wanted_loss(wanted: WantedObjective, setting: Setting, reward: Any) -> Any:
    """Return a loss with this objective, where no option divides the sum over tokens.

    reward: R, or A in a loss of advantages.  Raises Unwritten.
    """
    writer = _Writer(setting, reward)
    return sympy.Add(*(x * writer.write(name, wanted) for name, x in wanted.multiples.items()))


class _Writer:
    """Losses for the names of objectives, of samples or of tokens."""

    def __init__(self, setting: Setting, reward: Any) -> None:
        self.setting, self.tokens = setting, setting.is_per_token
        self.reward = A if reward == A else self.sum_tokens(R)

    def sum_tokens(self, x: Any) -> Any:
        """Return what a sequence has of x."""
        return Whole(x) if self.tokens else x

    def score_under_q(self, h: Any) -> Any:
        """Return a loss with the expected gradient E_q[h s], h of the whole sample."""
        ratio = exp(self.sum_tokens(log_q - log_mu))
        return sg(h if self.setting.on_policy else ratio * h) * log_q

    def write(self, name: str, wanted: WantedObjective) -> Any:
        """Return a loss with the objective of this name."""
        word, _, letter = name.partition("/")
        if name == "reward":
            h = wanted.multiples[name]
            return self.score_under_q(h.xreplace({R: self.sum_tokens(R)})) / h
        if name in wanted.losses:
            return self.write_mean_of_samples(wanted.losses[name])
        if letter == "N" or (self.setting.is_of_sample and (letter or word.endswith("length"))):
            raise Unwritten
        if word in OF_NEXT_TOKENS and not self.setting.is_of_sample:
            if not self.tokens:
                raise Unwritten
            return OF_NEXT_TOKENS[word] / (T if letter else 1)
        return self.write_word(NEXT_TOKENS.get(word, word.removeprefix("next-token-")), letter)

    def write_word(self, word: str, letter: str) -> Any:
        """Return a loss for an objective of whole samples; over T, E_q[grad h] adds E_q[s/T]."""
        over, own = (T, 1) if letter else (1, 0)
        log_ratio = self.sum_tokens(k1)
        coefficients = {
            "reverse-kl": log_ratio + own,
            "forward-kl": -exp(-log_ratio),
            "sampler-reverse-kl": self.sum_tokens(log_q - log_mu) + own,
            "entropy": -self.sum_tokens(log_q) - own,
            "policy-gradient": self.reward,
            "length": T,
            "inverse-length": 1 / T,
        }
        if word in coefficients:
            return self.score_under_q(coefficients[word] / over)
        of_samples = {
            "sampler-kl": -log_q,
            "log-likelihood": self.reward * log_q,
            "token-policy-gradient": self.reward * exp(log_q - log_mu),
        }
        return of_samples[word] / over

    def write_mean_of_samples(self, loss: Any) -> Any:
        """Return the loss of E_mu[..]; of what names no single token there is one for a sequence."""
        if any(x == N or OF_GROUPS.fullmatch(x.name) for x in loss.free_symbols):
            raise Unwritten
        outside_sums = loss.replace(lambda e: isinstance(e, OverPositions), lambda _: sympy.S.One)
        of_token = outside_sums.has(*DENSITIES, Estimator, OverVocabulary)
        return loss / T if self.tokens and not of_token else loss
