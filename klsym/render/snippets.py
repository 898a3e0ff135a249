"""Code for a loss in PyTorch, JAX or NumPy, printed from its expression.

A snippet is a function of log densities, one value for each sample; averaged over a batch, its gradient is
that of the loss.  NumPy does not differentiate: there the score coefficient, `push`, is returned as well.

>>> from klsym.language.expressions import k3, rho, k2, sg
>>> print(code(rho * k3, "torch"))
rho*(torch.expm1(-k1) + k1)
>>> print(code(sg(rho) * k2, "jax"))
jax.lax.stop_gradient(rho)*k1**2/2
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from klsym.engine.options.choices import is_differentiated, is_reward
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import UsageError
from klsym.language.expressions import OF_TABLE
from klsym.language.parser import parse
from klsym.notation.losses import Written, build_tree
from klsym.notation.printers import IN_TEXT, Piece, Text, is_sum
from klsym.notation.tree import Call, Formula, Minus, Name, Number, Power, Product, Quotient, Sum
from klsym.records import record
from klsym.render.headline import describe_next_tokens
from klsym.render.option_words import find_words


@record
class Framework:
    """The spelling of functions in a library; # stands for the argument."""

    title: str
    module: str
    sg: str
    total: str  # over the last axis
    later: str  # sums from each place of the last axis to its end
    sigmoid: str
    logsigmoid: str

    def spell_function(self, name: str) -> str | None:
        """Return the call of a function of the grammar; None if the library has no such function."""
        named = {name: f"{self.module}.{name}(#)" for name in ("exp", "log", "sqrt", "abs", "expm1")}
        return {**named, "sigmoid": self.sigmoid, "logsigmoid": self.logsigmoid}.get(name)


FRAMEWORKS = {
    "torch": Framework(
        "PyTorch", "torch", "#.detach()", total="#.sum(-1{keep})", later="#.flip(-1).cumsum(-1).flip(-1)",
        sigmoid="torch.sigmoid(#)", logsigmoid="torch.nn.functional.logsigmoid(#)",
    ),
    "jax": Framework(
        "JAX", "jnp", "jax.lax.stop_gradient(#)", total="#.sum(-1{keep})",
        later="#[..., ::-1].cumsum(-1)[..., ::-1]", sigmoid="jax.nn.sigmoid(#)",
        logsigmoid="jax.nn.log_sigmoid(#)",
    ),
    "numpy": Framework(
        "NumPy", module="np", sg="#", total="#.sum(-1{keep})", later="#[..., ::-1].cumsum(-1)[..., ::-1]",
        sigmoid="np.exp(-np.logaddexp(0, -(#)))", logsigmoid="-np.logaddexp(0, -(#))",
    ),
}  # fmt: skip
KEEP = {"torch": ", keepdim=True", "jax": ", keepdims=True", "numpy": ", keepdims=True"}
INPUTS = ("log_q", "log_p", "log_mu")
KLS = {"reverse-kl": "KL(q||p)", "forward-kl": "KL(p||q)"}


class Code(Text):
    """A printer of losses as code: in k1, with r - 1 as expm1(-k1)."""

    templates: ClassVar = IN_TEXT

    def __init__(self, framework: Framework) -> None:
        self.framework = framework

    def call(self, function: str, argument: Piece, tall: bool) -> Piece:
        if function == "sg":
            simple = str(argument).isidentifier() or self.framework.sg[0] != "#"
            return self.fill(self.framework.sg, argument if simple else f"({argument})")
        if spelled := self.framework.spell_function(function):
            return self.fill(spelled, argument)
        if function == "past":
            return f"({argument}.cumsum(-1) - {argument})"
        raise UsageError(f"{function} has no code in {self.framework.title} yet")


def code(loss: Any, framework: str) -> str:
    """A loss as one expression in k1, rho and the inputs."""
    return Code(get_framework(framework))(_rewrite_in_k1(build_tree(loss)))


def get_framework(framework: str) -> Framework:
    """Raises UsageError: an unknown framework."""
    if framework not in FRAMEWORKS:
        raise UsageError(f"framework={framework!r}: one of {', '.join(FRAMEWORKS)} expected")
    return FRAMEWORKS[framework]


K = Name("k1")
MINUS_ONE = Minus(Number(1))
SURPLUS = Call("expm1", (Minus(K),))  # r - 1


def _rewrite_in_k1(formula: Formula) -> Formula:
    """Replace each estimator by its formula in k1 and r; r - 1 = expm1(-k1), r = exp(-k1)."""
    match formula:
        case Name(name, "") if name in OF_TABLE and formula != K:
            return _rewrite_in_k1(build_tree(OF_TABLE[name].express_in_k1()))
        case Name("r", ""):
            return Call("exp", (Minus(K),))
        case Sum(terms):
            return _rewrite_sum(terms)
        case Minus(of):
            return Minus(_rewrite_in_k1(of))
        case Product(factors, loose):
            return Product(tuple(map(_rewrite_in_k1, factors)), loose)
        case Quotient(over, under, small):
            return Quotient(_rewrite_in_k1(over), _rewrite_in_k1(under), small)
        case Power(base, exponent):
            return Power(_rewrite_in_k1(base), exponent)
        case Call(function, arguments, primes):
            return Call(function, tuple(map(_rewrite_in_k1, arguments)), primes)
    return formula


def _rewrite_sum(terms: tuple[Formula, ...]) -> Formula:
    """Replace r - 1 by expm1(-k1), which keeps its digits near r = 1."""
    remaining, r = list(terms), Name("r")
    for plus, minus, joined in ((r, MINUS_ONE, SURPLUS), (Number(1), Minus(r), Minus(SURPLUS))):
        if plus in remaining and minus in remaining:
            remaining.remove(plus)
            remaining.remove(minus)
            return Sum((joined, *map(_rewrite_in_k1, remaining))) if remaining else joined
    return Sum(tuple(map(_rewrite_in_k1, remaining)))


# ---------------------------------------------------------------------------- functions
def write_snippet(written: Written, verdict: Verdict, framework: str, use: str) -> str:
    """Return code of a function of the log densities of a batch, one value for each sample.

    written: a loss in the grammar.  verdict: of `explain`, in the setting in which it is used.
    use: "loss", "reward" (the score is multiplied by the detached penalty), or "value".
    Raises UsageError: an unknown framework; a loss that has no code yet.
    """
    chosen = get_framework(framework)
    exact = EXACT.fullmatch(written.text)
    body = (
        _write_full_kl(exact, verdict, framework) if exact else _write_body(written, verdict, framework, use)
    )
    names = [name for name in INPUTS if any(name in line for line in body)]
    names += ["mask"] if verdict.setting.is_per_token else []
    title = {"loss": "penalty", "reward": "surrogate", "value": "estimate"}[use]
    head = [f"def {title}({', '.join(names)}):", f'    """{_describe_code(written, verdict, chosen, use)}"""']
    return "\n".join([*head, *(f"    {line}" for line in body)])


EXACT = re.compile(r"full_kl\((\w+), (\w+)\)")


def _write_full_kl(kl: re.Match[str], verdict: Verdict, framework: str) -> list[str]:
    """Write full_kl(a, b) as a sum over the last axis of the log densities, the vocabulary."""
    a, b = kl.groups()
    if framework == "numpy":
        raise UsageError("a sum over all words has code for torch and jax, whose gradients are automatic")
    total = f"({get_framework(framework).module}.exp(log_{a})*(log_{a} - log_{b})).sum(-1)  # over all words"
    if not verdict.setting.is_per_token:
        return [f"return {total}"]
    return [f"kl = {total}", "return (kl*mask).sum(-1)"]


def _describe_code(written: Written, verdict: Verdict, framework: Framework, use: str) -> str:
    sampler = "q" if verdict.setting.on_policy else "mu"
    of = "sample" if verdict.setting.is_of_sample else "sequence"
    text = f"sg({written.text})*log_q" if is_reward(use) else written.text
    start = f"{text} of each {of} from {sampler}"
    if use == "value":
        mean = KLS[verdict.value.target or ""]
        return f"{start}: the mean is {mean}."
    kl = KLS.get(verdict.target or "") or describe_next_tokens(verdict)
    if framework.module == "np":
        value = f"The detached penalty of each {of} from {sampler}" if is_reward(use) else start
        return f"{value}, and its push: the mean of push*grad log q is grad {kl}."
    if verdict.target not in KLS:
        return f"{written.text}: descends {kl}."
    if EXACT.fullmatch(written.text):
        return f"{written.text}: its gradient is grad {kl}; the last axis is that of all words."
    return f"{start}: its expected gradient through log_q is grad {kl}."


def _write_body(written: Written, verdict: Verdict, framework: str, use: str) -> list[str]:
    setting, chosen = verdict.setting, get_framework(framework)
    tokens = setting.is_per_token
    loss = code(written.expression, framework)
    numpy = framework == "numpy"
    if tokens:
        return _write_token_body(loss, verdict, framework, use)
    push = code(parse(verdict.gradient.score_text, ()), framework)
    if is_reward(use):
        detached = Code(chosen).call("sg", loss, False)
        result = f"{loss}, {push}" if numpy else f"{_add_brackets(detached)}*log_q"
    else:
        result = f"{loss}, {push}" if numpy and is_differentiated(use) else loss
    return [*_write_definitions(result, setting, framework), f"return {result}"]


def _write_definitions(text: str, setting: Any, framework: str) -> list[str]:
    """Write the definitions of k1 and rho, if they are used."""
    chosen, lines = get_framework(framework), []
    if "k1" in text:
        lines.append("k1 = log_q - log_p")
    if "rho" in text:
        sampler = Code(chosen).call("sg", "log_q", False) if setting.on_policy else "log_mu"
        lines.append(f"rho = {chosen.module}.exp(log_q - {sampler})")
    return lines


def _add_brackets(text: str) -> str:
    return f"({text})" if is_sum(text) else text


def _write_token_body(loss: str, verdict: Verdict, framework: str, use: str) -> list[str]:
    """Write the body for log densities of shape (.., T), with a mask that is 1 where there is a token."""
    setting, chosen = verdict.setting, get_framework(framework)
    if framework == "numpy" and use != "value":
        raise UsageError(
            "at the level of tokens there is code for torch and jax, whose gradients are automatic"
        )
    lines = ["k1 = (log_q - log_p)*mask"] if "k1" in loss else []
    if "rho" in loss:
        sampler = Code(chosen).call("sg", "log_q", False) if setting.on_policy else "log_mu"
        lines.append(f"w = (log_q - {sampler})*mask")
        weighed = {
            "": "w", "token": "w", "prefix": "w.cumsum(-1)",
            "sequence": chosen.total.replace("#", "w").format(keep=KEEP[framework]),
        }  # fmt: skip
        of = find_words(weighed, "weights", setting.weights)
        lines.append(f"rho = {chosen.module}.exp({of})")
    if not is_reward(use):
        total = chosen.total.format(keep="").replace("#", f"({_add_brackets(loss)}*mask)")
        return [*lines, f"return {total}"]
    return [*lines, *_write_credited_sum(loss, setting, framework)]


def _write_credited_sum(loss: str, setting: Any, framework: str) -> list[str]:
    """Write the sum over tokens of the detached coefficient h of each, after credit, times its log q."""
    chosen = get_framework(framework)
    lines = [f"h = {Code(chosen).call('sg', _add_brackets(loss) + '*mask', False)}"]
    credited: dict[str, list[str]] = {
        "": [],
        "to-go": [f"h = {chosen.later.replace('#', 'h')}"],
        "same-token": [],
        "total": [f"h = {chosen.total.replace('#', 'h').format(keep=KEEP[framework])}"],
    }
    lines += find_words(credited, "credit", setting.credit)
    total = chosen.total.format(keep="").replace("#", "(h*log_q*mask)")
    return [*lines, f"return {total}"]
