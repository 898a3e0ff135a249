"""Where training on sequences ends, in words: a penalty on each token, a reward at the end."""

from __future__ import annotations

import math
from typing import Any

from klsym.render.answer import WIDTH
from klsym.render.questions.layout import format_rows
from klsym.render.sentences import write_sentence
from klsym.study.questions.token_optimum import TokenEnd, compute_best_value
from klsym.study.questions.token_optimum_of_loss import TokenOptimumAnswer
from klsym.study.render.optima import STABLE, count_policies, format_policy, solve_closed_form, write_penalty

MOST_NAMES = 8  # of sequences in a line
PLACES = {
    "to-go": "in the reward-to-go",
    "same-token": "in the reward of its token",
    "total": "in the reward",
}


class PrintedTokenOptimum(TokenOptimumAnswer):
    """The answer of `klsym.optimum` with level token; it prints as text and shows itself in Jupyter."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What else is to be known."""
        return tuple(map(write_sentence, self.messages))

    @property
    def title(self) -> str:
        """What was asked, in words."""
        place = PLACES.get(self.setting.credit, "in the loss")
        penalty = write_penalty(self.loss, self.beta)
        return f"where training with rewards and the penalty {penalty} on each token, {place}, ends"

    @property
    def count(self) -> str:
        """How many policies have mass on every sequence."""
        return count_policies(len(self.optimum.stationary), self.optimum.complete, "sequence")

    @property
    def best(self) -> float | None:
        """The largest E_q[R] - beta KL(q||p) of all policies; None without a penalty."""
        return compute_best_value(self.tree, self.beta) if self.beta > 0 else None

    def to_json(self) -> dict[str, Any]:
        """The object of the command-line contract."""
        return {
            "loss": self.loss,
            **{name: value for name, value in self.setting.to_json().items() if value},
            "beta": float(self.beta),
            "words": self.tree.words,
            "sequences": self._list_names(),
            "rewards": [float(x) for x in self.tree.rewards],
            "reference": [float(x) for x in self.tree.reference],
            "closed_form": self.closed_form,
            "unique": self.optimum.unique,
            "complete": self.optimum.complete,
            "stationary": [self._write_end(end) for end in self.optimum.stationary],
            "boundary": [self._write_end(end) for end in self.optimum.boundary],
            "best": self.best,
            "warnings": list(self.warnings),
        }

    @property
    def closed_form(self) -> str | None:
        """The probability of a word after a prefix, in LaTeX; V_j is the value of the sequences with it."""
        return solve_closed_form(self.own, reward="V_j")

    def _list_names(self) -> list[str]:
        """The words of each sequence, counted from 1, such as "12"."""
        return ["".join(str(w + 1) for w in y) for y in self.tree.list_sequences()]

    def _write_end(self, end: TokenEnd) -> dict[str, Any]:
        words = {"".join(str(w + 1) for w in h): list(s.policy) for h, s in end.tokens.items()}
        return {
            "policy": list(end.policy), "tokens": words, "stable": end.stable,
            "eigenvalues": list(end.eigenvalues), "reward": self._compute_reward(end),
            "kl": self._compute_kl(end),
        }  # fmt: skip

    def _compute_reward(self, end: TokenEnd) -> float:
        return sum(q * float(R) for q, R in zip(end.policy, self.tree.rewards, strict=True))

    def _compute_kl(self, end: TokenEnd) -> float:
        """KL(q||p) of whole sequences."""
        rows = zip(end.policy, self.tree.reference, strict=True)
        return sum(q * math.log(q / float(p)) for q, p in rows if q)

    def text(self, width: int = WIDTH) -> str:
        """Format the answer for a terminal, in at most 12 lines."""
        ends = [*self.optimum.stationary, *self.optimum.boundary]
        rows = [
            ("inside" if end.eigenvalues else "boundary", self._describe_end(end))
            for end in sorted(ends, key=lambda end: end.stable is not True)
        ]
        if self.best is not None and len(ends) == 1:
            rows.append(("value", self._describe_value(ends[0], self.best)))
        rows += [("note", warning) for warning in self.warnings]
        names = self._list_names()
        listed = ", ".join(names) if len(names) <= MOST_NAMES else f"{names[0]} to {names[-1]}"
        details = f"q of the sequences {listed}; reward at the end; tabular"
        return format_rows(self.title, self.count, "numeric", rows, details=details, width=width)

    def _describe_end(self, end: TokenEnd) -> str:
        shown = f"q = {format_policy(end.policy, bool(end.eigenvalues))}, {STABLE[end.stable]}"
        if not end.eigenvalues:
            return shown
        return f"{shown}; eigenvalues {end.eigenvalues[0]:.3g} to {end.eigenvalues[-1]:.3g}"

    def _describe_value(self, end: TokenEnd, best: float) -> str:
        reward, kl = self._compute_reward(end), self._compute_kl(end)
        return (
            f"E_q[R] = {reward:.6f}, KL(q||p) = {kl:.6f}; E_q[R] - {write_penalty('KL', self.beta)} ="
            f" {reward - float(self.beta) * kl:.6f}, at most {best:.6f}, at p*exp(R/beta)/Z"
        )

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from klsym.render.markup.parts import format_for_notebook
        from klsym.study.render.html import format_optimum_html

        return format_for_notebook(format_optimum_html(self))
