"""What the letters of papers stand for: policies, the advantage, rewards, ratios and coefficients."""

from __future__ import annotations

import re

from klsym.language.typeset.tokens import make_refusal, quote_part
from klsym.language.typeset.tree import Symbol

OLD = re.compile(
    r"(?<![A-Za-z])(?:old|behavi|mu$|b$|beta$|theta_?k$|prev|rollout|sampler?$|infer|vllm)", re.IGNORECASE
)
REFERENCE = re.compile(r"(?<![A-Za-z])(?:ref|sft|init|base|teacher|prior)|^0$", re.IGNORECASE)
TRAINED = re.compile(r"(theta|phi|new|rl|student|current|psi|w|learner|trainer|actor)*", re.IGNORECASE)
LETTERS = {"q": "log_q", "p": "log_p", "mu": "log_mu"}
COEFFICIENTS = {
    "alpha": "alpha", "beta": "beta", "epsilon": "eps", "lambda": "lam", "gamma": "gamma", "tau": "tau",
    "delta": "delta", "eta": "eta", "kappa": "kappa", "zeta": "zeta", "omega": "omega", "c": "c", "C": "C",
    "xi": "xi", "nu": "nu",
}  # fmt: skip
BOUNDS = {"low": "low", "high": "high", "l": "low", "h": "high", "lo": "low", "hi": "high", "min": "low",
          "max": "high"}  # fmt: skip
VALUES = {  # words -> the letter of papers
    "advantage": "A", "advantages": "A", "adv": "A", "Adv": "A", "reward": "R", "rewards": "R",
    "ratio": "rho", "eps": "epsilon", "lam": "lambda",
}  # fmt: skip
WORDS = {"log_q", "log_p", "log_mu", "log_old", "k1", "k2", "k3"}
INDICES = re.compile(r"[tijkngm,<\s{}()0]*(?:theta|phi|psi)?")
OF_PARAMETERS = re.compile(r"(?:theta|phi)(?:_|\^|')")  # as in pi(a|s, theta_old)
UNKNOWN = r"type what it stands for, such as R, A, \pi_\theta or \beta (klsym examples)"
HINTS = {
    **dict.fromkeys(("mean", "std", "bar", "overline"), "type centred(R), loo(R) or normalised(R)"),
    "G": "type R for a return", "pm": "type clip(x, 1 - eps, 1 + eps)",
    "tilde": "type the letter alone, if it is the same value",
}  # fmt: skip
OF_RETURNS = "type A, G_t for the rewards from a token on, or R without t for the reward of the response"
OF_REWARD = "type R for the reward, or r_t(\\theta) for the ratio to the old policy"


def find_log_density(symbol: Symbol) -> str:
    """Return the log density of a policy; "" for another symbol.

    >>> [find_log_density(Symbol("pi", x)) for x in ("theta", "theta_{old}", "ref", "0", "b")]
    ['log_q', 'log_mu', 'log_p', 'log_p', 'log_mu']
    """
    name, superscript = symbol.name, re.sub(r"[{}]", "", symbol.superscript)
    if name == "P" and symbol.subscript:  # as in P_{student}; a bare P is no policy
        name = "pi"
    if name == "beta":
        return "log_mu" if "|" in (symbol.arguments or "") else ""
    if name not in ("pi", *LETTERS):
        return ""
    words = f"{re.sub(r'[{}]', '', symbol.subscript)} {superscript}".strip()
    is_plain = superscript not in COEFFICIENTS and not OF_PARAMETERS.search(symbol.arguments or "")
    if not words and is_plain:
        return LETTERS.get(name, "log_q")
    if is_plain and OLD.search(words):
        return "log_mu"
    if is_plain and REFERENCE.search(words):
        return "log_p"
    if is_plain and TRAINED.fullmatch(words.replace(" ", "")):
        return "log_q"
    shown = quote_part(f"{name}_{words}")
    raise make_refusal(f"the policy {shown}", r"type \pi_\theta, \pi_{ref} or \pi_{old}")


def is_ratio_to_old(symbol: Symbol) -> bool:
    """Is it the ratio to the old policy, as r_t(theta) or rho_t?"""
    is_rho = symbol.name == "rho" and symbol.arguments is None and bool(INDICES.fullmatch(symbol.subscript))
    return is_rho or (symbol.name in ("rho", "r") and symbol.arguments == "theta")


def name_value(symbol: Symbol, is_of_tokens: bool) -> str:
    """Return what a symbol that is no policy stands for; is_of_tokens: inside a sum over tokens."""
    name, subscript, arguments = symbol.name, symbol.subscript, symbol.arguments
    is_of_step = bool(re.search(r"(?<![A-Za-z])t(?![A-Za-z])", f"{subscript} {arguments}"))
    if name in WORDS:
        return name
    if name == "k" and subscript in ("1", "2", "3"):
        return f"k{subscript}"
    if is_ratio_to_old(symbol):
        return "rho"
    if name == "r" and not (subscript or symbol.superscript or arguments):
        return "r"
    if "+" in f"{subscript}{arguments}" or "theta" in (arguments or ""):
        raise make_refusal(f"{quote_part(name)} of the next step, or of theta,", "type A, R, V or V_next")
    if is_of_tokens and name in ("R", "r", "Q") and is_of_step:
        raise make_refusal(f"{name} with the index t inside a sum over tokens", OF_RETURNS)
    if name == "A" or (name == "delta" and is_of_step):
        return "A"
    if name == "Q":
        return "Q"
    if name == "V" or (name == "b" and is_of_tokens):
        return "V"
    if name == "b":
        return "baseline"
    if name == "R" or (name == "r" and re.search(r",|tau|y", arguments or "")):
        return "whole(R)" if is_of_tokens else "R"
    if name == "G" and subscript:
        return "togo(R)" if is_of_tokens else "R"
    return name_coefficient(symbol)


def name_coefficient(symbol: Symbol) -> str:
    """Return the name of a number that depends on neither the sample nor theta."""
    name, subscript = symbol.name, re.sub(r"[{}\s]", "", symbol.subscript)
    if name == "r":
        raise make_refusal(f"the letter r in {quote_part('r_' + subscript)}", OF_REWARD)
    if name in COEFFICIENTS and symbol.arguments is None and not symbol.superscript:
        short = BOUNDS.get(subscript, subscript)
        if re.fullmatch(r"\d?", short):
            return f"{COEFFICIENTS[name]}{short}"
        if re.fullmatch(r"[A-Za-z]{2,}", short):
            return f"{COEFFICIENTS[name]}_{short}"
    shown = quote_part(f"{name}_{subscript}" if subscript else name)
    raise make_refusal(shown, HINTS.get(name, UNKNOWN))


def find_index_group(symbol: Symbol) -> str:
    """Return under which name the indices of a symbol must agree in a formula; "" for others."""
    if find_log_density(symbol):
        return "policy"
    if symbol.name in ("A", "R", "Q", "V", "r", "rho", "G", "delta", "b"):
        return symbol.name
    return ""


def write_indices(symbol: Symbol) -> str:
    """Return the indices by which a value of one sample differs from that of another.

    >>> write_indices(Symbol("pi", "theta", "", "y_{w}|x")), write_indices(Symbol("R", "i"))
    ('y_w', 'i')
    """
    if find_log_density(symbol):
        text = (symbol.arguments or "").partition("|")[0]
    else:
        text = f"{symbol.subscript}{symbol.superscript}{symbol.arguments or ''}"
    text = re.sub(r"\s", "", text)
    return re.sub(r"\{(\w)\}", r"\1", text)
