"""Code for a loss in PyTorch, JAX or NumPy, printed from its expression.

A snippet is a function of log densities, one value for each sample; averaged over a batch, its gradient is
that of the loss.  NumPy differentiates nothing: there the push, what multiplies grad log q, comes with it.

>>> from klsym.language.expressions import k3, rho, k2, sg
>>> print(code(rho * k3, "torch"))
rho*(torch.expm1(-k1) + k1)
>>> print(code(sg(rho) * k2, "jax"))
jax.lax.stop_gradient(rho)*k1**2/2
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from klsym.errors import UsageError
from klsym.language.expressions import OF_TABLE
from klsym.language.parser import parse
from klsym.notation.losses import Written, tree_of
from klsym.notation.printers import IN_TEXT, Piece, Text, is_sum
from klsym.notation.tree import Call, Formula, Minus, Name, Number, Power, Product, Quotient, Sum
from klsym.render.headline import next_tokens


@dataclass(frozen=True)
class Framework:
    """How a library writes what losses are made of; # stands for the argument."""

    title: str
    module: str
    sg: str
    total: str  # over the last axis
    later: str  # sums from each place of the last axis to its end
    functions: tuple[str, ...] = ("exp", "log", "sqrt", "abs")

    def names(self) -> dict[str, str]:
        return {name: f"{self.module}.{name}(#)" for name in self.functions}


FRAMEWORKS = {
    "torch": Framework("PyTorch", "torch", "#.detach()", "#.sum(-1{keep})", "#.flip(-1).cumsum(-1).flip(-1)"),
    "jax": Framework(
        "JAX", "jnp", "jax.lax.stop_gradient(#)", "#.sum(-1{keep})", "#[..., ::-1].cumsum(-1)[..., ::-1]"
    ),
    "numpy": Framework("NumPy", "np", "#", "#.sum(-1{keep})", "#[..., ::-1].cumsum(-1)[..., ::-1]"),
}
KEEP = {"torch": ", keepdim=True", "jax": ", keepdims=True", "numpy": ", keepdims=True"}
INPUTS = ("log_q", "log_p", "log_mu")
KLS = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)"}


class Code(Text):
    """A printer of losses as code: in k1, with r - 1 as expm1(-k1)."""

    templates: ClassVar = IN_TEXT

    def __init__(self, framework: Framework) -> None:
        self.framework = framework

    def call(self, function: str, argument: Piece, tall: bool) -> Piece:
        module = self.framework.module
        if function == "sg":
            simple = str(argument).isidentifier() or self.framework.sg[0] != "#"
            return self.fill(self.framework.sg, argument if simple else f"({argument})")
        if function in self.framework.functions:
            return f"{module}.{function}({argument})"
        if function == "past":
            return f"({argument}.cumsum(-1) - {argument})"
        if function == "expm1":
            return f"{module}.expm1({argument})"
        raise UsageError(f"{function} has no code in {self.framework.title} yet")


def code(loss: Any, framework: str) -> str:
    """A loss as one expression in k1, rho and the inputs."""
    return Code(known(framework))(_in_k1(tree_of(loss)))


def known(framework: str) -> Framework:
    """Raises UsageError: an unknown framework."""
    if framework not in FRAMEWORKS:
        raise UsageError(f"framework={framework!r}: one of {', '.join(FRAMEWORKS)} expected")
    return FRAMEWORKS[framework]


K = Name("k1")
MINUS_ONE = Minus(Number(1))
SURPLUS = Call("expm1", (Minus(K),))  # r - 1


def _in_k1(formula: Formula) -> Formula:
    """Each estimator by its formula in k1 and r; r - 1 = expm1(-k1), r = exp(-k1)."""
    match formula:
        case Name(name, "") if name in OF_TABLE and formula != K:
            return _in_k1(tree_of(OF_TABLE[name].in_k1()))
        case Name("r", ""):
            return Call("exp", (Minus(K),))
        case Sum(terms):
            return _sum(terms)
        case Minus(of):
            return Minus(_in_k1(of))
        case Product(factors, loose):
            return Product(tuple(map(_in_k1, factors)), loose)
        case Quotient(over, under, small):
            return Quotient(_in_k1(over), _in_k1(under), small)
        case Power(base, exponent):
            return Power(_in_k1(base), exponent)
        case Call(function, arguments, primes):
            return Call(function, tuple(map(_in_k1, arguments)), primes)
    return formula


def _sum(terms: tuple[Formula, ...]) -> Formula:
    """Where r and 1 stand with opposite signs, their difference keeps its digits near r = 1."""
    rest, r = list(terms), Name("r")
    for plus, minus, joined in ((r, MINUS_ONE, SURPLUS), (Number(1), Minus(r), Minus(SURPLUS))):
        if plus in rest and minus in rest:
            rest.remove(plus)
            rest.remove(minus)
            return Sum((joined, *map(_in_k1, rest))) if rest else joined
    return Sum(tuple(map(_in_k1, rest)))


# ---------------------------------------------------------------------------- functions
def snippet(written: Written, verdict: Any, framework: str, use: str) -> str:
    """A function of the log densities of a batch, one value for each sample.

    written: a loss in the grammar.  verdict: of `explain`, in the setting in which it is used.
    use: "loss", "reward" (the score is multiplied by the detached penalty), or "value".
    Raises UsageError: an unknown framework; a loss that has no code yet.
    """
    chosen = known(framework)
    exact = EXACT.fullmatch(written.text)
    body = _of_all_words(exact, verdict, framework) if exact else _body(written, verdict, framework, use)
    names = [name for name in INPUTS if any(name in line for line in body)]
    names += ["mask"] if verdict.setting.level == "token" else []
    title = {"loss": "penalty", "reward": "surrogate", "value": "estimate"}[use]
    head = [f"def {title}({', '.join(names)}):", f'    """{_says(written, verdict, chosen, use)}"""']
    return "\n".join([*head, *(f"    {line}" for line in body)])


EXACT = re.compile(r"full_kl\((\w+), (\w+)\)")


def _of_all_words(kl: re.Match[str], verdict: Any, framework: str) -> list[str]:
    """A KL as a sum over the last axis of the log densities, that of the words."""
    a, b = kl.groups()
    if framework == "numpy":
        raise UsageError("a sum over all words has code for torch and jax, whose gradients are automatic")
    total = f"({known(framework).module}.exp(log_{a})*(log_{a} - log_{b})).sum(-1)  # over all words"
    if verdict.setting.level != "token":
        return [f"return {total}"]
    return [f"kl = {total}", "return (kl*mask).sum(-1)"]


def _says(written: Written, verdict: Any, framework: Framework, use: str) -> str:
    sampler = "q" if verdict.setting.on_policy else "mu"
    of = "sample" if verdict.setting.level == "sample" else "sequence"
    text = f"sg({written.text})*log_q" if use == "reward" else written.text
    start = f"{text} of each {of} from {sampler}"
    if use == "value":
        return f"{start}: the mean is {KLS[verdict.value.target]}."
    kl = KLS.get(verdict.target) or next_tokens(verdict)
    if framework.module == "np":
        value = f"The detached penalty of each {of} from {sampler}" if use == "reward" else start
        return f"{value}, and its push: the mean of push*grad log q is grad {kl}."
    if verdict.target not in KLS:
        return f"{written.text}: descends {kl}."
    if EXACT.fullmatch(written.text):
        return f"{written.text}: its gradient is grad {kl}; the last axis is that of all words."
    return f"{start}: the mean gradient is grad {kl}; log_q carries it."


def _body(written: Written, verdict: Any, framework: str, use: str) -> list[str]:
    setting, chosen = verdict.setting, known(framework)
    tokens = setting.level == "token"
    loss = code(written.expression, framework)
    numpy = framework == "numpy"
    if tokens:
        return _of_tokens(loss, verdict, framework, use)
    push = code(parse(verdict.per_sample, ()), framework)
    if use == "reward":
        held = Code(chosen).call("sg", loss, False)
        result = f"{loss}, {push}" if numpy else f"{_factor(held)}*log_q"
    else:
        result = f"{loss}, {push}" if numpy and use == "loss" else loss
    return [*_prelude(result, setting, framework), f"return {result}"]


def _prelude(text: str, setting: Any, framework: str) -> list[str]:
    """k1 and rho, where they are used."""
    chosen, lines = known(framework), []
    if "k1" in text:
        lines.append("k1 = log_q - log_p")
    if "rho" in text:
        other = Code(chosen).call("sg", "log_q", False) if setting.on_policy else "log_mu"
        lines.append(f"rho = {chosen.module}.exp(log_q - {other})")
    return lines


def _factor(text: str) -> str:
    return f"({text})" if is_sum(text) else text


def _of_tokens(loss: str, verdict: Any, framework: str, use: str) -> list[str]:
    """log densities of tokens, of shape (.., T), with 1 in the mask where there is a token."""
    setting, chosen = verdict.setting, known(framework)
    if framework == "numpy" and use != "value":
        raise UsageError(
            "at the level of tokens there is code for torch and jax, whose gradients are automatic"
        )
    lines = ["k1 = (log_q - log_p)*mask"] if "k1" in loss else []
    if "rho" in loss:
        other = Code(chosen).call("sg", "log_q", False) if setting.on_policy else "log_mu"
        lines.append(f"w = (log_q - {other})*mask")
        of = {
            "token": "w", "prefix": "w.cumsum(-1)",
            "sequence": chosen.total.replace("#", "w").format(keep=KEEP[framework]),
        }[setting.weights or "token"]  # fmt: skip
        lines.append(f"rho = {chosen.module}.exp({of})")
    if use != "reward":
        total = chosen.total.format(keep="").replace("#", f"({_factor(loss)}*mask)")
        return [*lines, f"return {total}"]
    return [*lines, *_credited(loss, setting, framework)]


def _credited(loss: str, setting: Any, framework: str) -> list[str]:
    """What multiplies the score of each token, times its log q, summed."""
    chosen = known(framework)
    lines = [f"h = {Code(chosen).call('sg', _factor(loss) + '*mask', False)}"]
    if setting.credit == "to-go":
        lines.append(f"h = {chosen.later.replace('#', 'h')}")
    if setting.credit == "total":
        lines.append(f"h = {chosen.total.replace('#', 'h').format(keep=KEEP[framework])}")
    total = chosen.total.format(keep="").replace("#", "(h*log_q*mask)")
    return [*lines, f"return {total}"]
