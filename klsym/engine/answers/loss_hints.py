"""The command `klsym explain ..` for a loss that is typed where something else is expected.

>>> suggest_explain("k3"), suggest_explain("torch.exp(ref_logp - logp)"), suggest_explain("reverse-kl")
('; for a loss: klsym explain k3', "; for a loss: klsym explain 'torch.exp(ref_logp - logp)'", '')
"""

from __future__ import annotations

from shlex import quote

from klsym.errors import UsageError
from klsym.language.expressions import REWARDS, log_q, unfold
from klsym.language.named_losses import find_named_loss
from klsym.language.spellings import read_loss

LONGEST = 100  # characters of a formula that is printed again


def is_loss(text: str) -> bool:
    """Is it the name of a loss, or a formula of the policy or of a reward?

    >>> is_loss("grpo"), is_loss("rho*k3"), is_loss("-A*logp"), is_loss("reverse"), is_loss("KL004")
    (True, True, True, False, False)
    """
    try:
        if find_named_loss(text) is not None:
            return True
    except UsageError:  # a name with several readings
        return True
    try:
        expression = unfold(read_loss(text).expression)
    except UsageError:
        return False
    return bool(expression.has(log_q, *REWARDS))


def write_explain(text: str) -> str:
    """Return the command that explains a loss.

    >>> write_explain("rho*k3")
    "klsym explain 'rho*k3'"
    """
    loss = " ".join(text.split())
    return f"klsym explain {quote(loss) if len(loss) <= LONGEST else 'LOSS'}"


def suggest_explain(text: str) -> str:
    """Return "; for a loss: klsym explain .." if the text is one, else ""."""
    return f"; for a loss: {write_explain(text)}" if is_loss(text) else ""
