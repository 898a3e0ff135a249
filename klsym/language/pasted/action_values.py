"""A critic's value Q of an action in pasted code, which the grammar calls R.

    log_q*Q         a weight of the drawn action, which is held                      log_q*R
    alpha*log_q - Q the action is reparametrised, as in soft actor-critic: the expected
                    gradient is that of the exact mean                               full(alpha*log_q - R)
    sum_a q (alpha log q - Q)   the exact mean, written out                          full(alpha*log_q - R)

Source: Haarnoja et al., Soft Actor-Critic Algorithms and Applications, arXiv:1812.05905, eq. 7 and 9.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from sympy import diff

from klsym.language.expressions import DENSITIES, REWARDS, OverPositions, R, remove_sg, unfold
from klsym.language.reductions import ACTION_VALUE
from klsym.language.sums import OverVocabulary
from klsym.language.training_names import names_critic, names_state_value, names_temperature, split_words

VALUE_OF_ACTION = re.compile(r"(q|qf|qs|qvals?|qvalues?)\d*[a-z]?")
OF_LOSSES = {"loss", "losses", "target", "targets", "next", "backup"}
HELD = "{names} is held, a value of the drawn action"
REPARAMETRISED = (
    "the action is a differentiable function of noise (rsample), so that the expected gradient is that of the"
    " exact mean over actions; {names} is a value of each action, which is held"
)
OF_EACH_ACTION = "{names} is held, a value of each action"


class SettledLoss(NamedTuple):
    """A loss with R in place of the values of actions, and the assumption behind it."""

    loss: Any
    assumed: str


def names_action_value(name: str) -> bool:
    """Is it a usual name of what a critic says of an action, and no loss or target of it?

    >>> [x for x in ("current_q1a", "min_qf_pi", "Q", "vf", "qf_loss", "q_target", "log_q")
    ...  if names_action_value(x)]
    ['current_q1a', 'min_qf_pi', 'Q']
    """
    if not names_critic(name) or names_state_value(name) or {*split_words(name)} & OF_LOSSES:
        return False
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return any(VALUE_OF_ACTION.fullmatch(part) for part in spaced.split("_"))


def names_policy_loss(name: str) -> bool:
    """Is it a usual name of the loss of a policy beside that of a critic?

    >>> [x for x in ("actor_loss", "policy_loss", "pi_loss", "loss", "qf_loss") if names_policy_loss(x)]
    ['actor_loss', 'policy_loss', 'pi_loss']
    """
    words = {*split_words(name)}
    return bool(words & OF_LOSSES) and bool(words & {"actor", "policy", "pi"})


def find_trained_coefficient(name: str) -> str:
    """Return the coefficient of the entropy of whose log a name is, which is trained; "" for other names.

    >>> [find_trained_coefficient(x) for x in ("log_alpha", "log_ent_coef", "log_probs", "target_entropy")]
    ['alpha', 'ent_coef', '', '']
    """
    return name.removeprefix("log_") if names_temperature(name) and name.startswith("log_") else ""


def settle_action_values(loss: Any, names: list[str], is_of_policy: bool = False) -> SettledLoss | None:
    """Return the loss with R for the values of actions; None where it is neither a weight nor a term.

    is_of_policy: does the name of the loss say that it trains the policy, so that a value may stand alone?

    >>> from klsym.language.expressions import alpha, log_q
    >>> settle_action_values(alpha * log_q - ACTION_VALUE, ["q_pi"]).loss
    full(-R + alpha*log_q)
    >>> settle_action_values(-log_q * ACTION_VALUE, ["q_pi"]).loss
    -R*log_q
    >>> settle_action_values(log_q * ACTION_VALUE**2, ["q_pi"])
    >>> settle_action_values(-ACTION_VALUE, ["q_pi"], is_of_policy=True).loss
    full(-R)
    """
    typed = " or ".join(names)
    exact = [x for x in loss.atoms(OverVocabulary) if x.has(ACTION_VALUE)]
    outside = loss.xreplace(dict.fromkeys(exact, OverVocabulary(DENSITIES[0])))
    slope = diff(remove_sg(unfold(outside)), ACTION_VALUE)
    read = loss.xreplace({ACTION_VALUE: R})
    if slope == 0 and exact:
        return SettledLoss(read, OF_EACH_ACTION.format(names=typed))
    if exact or slope == 0 or slope.has(ACTION_VALUE) or not (is_of_policy or outside.has(*DENSITIES)):
        return None
    if slope.has(*DENSITIES):
        return SettledLoss(read, HELD.format(names=typed))
    if slope.has(*REWARDS, OverPositions) or outside.has(OverPositions, OverVocabulary):
        return None
    return SettledLoss(OverVocabulary(read), REPARAMETRISED.format(names=typed))
