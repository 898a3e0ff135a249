"""From a divergence to its losses: what estimates E_q[f(r)], what descends it, and what does not.  Untrusted.

    grad E_q[f(r)] = E_q[c s]  with  c = f - r f' = f + df/dlog q,  r = p/q

At samples of q: a loss g with -r g' = c, which is dg/dlog q = c; or rho f with rho = q/sg(q), of value 1; or
c, detached.  At samples of mu: rho f, or sg(rho) g; or rho c, detached.  With c(1) = 0 all of them are c s
at a sample of q, and rho c s at one of mu.  f itself, differentiated or detached, is none of them.

>>> found = losses_of("forward-kl")
>>> [row.loss for row in found.gradients]
['k3', 'rho*(1 - r*k1 - r)', '1 - r', 'rho*(1 - r*k1 - r)', 'sg(rho)*k3', 'rho*(1 - r)']
>>> {row.trust for row in (*found.values, *found.gradients, *found.wrong)}
{'kernel'}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import sympy

from klsym.engine.answers.dispatch import explain_written
from klsym.engine.divergences import f_divergence_smooth as outer
from klsym.engine.divergences.f_divergence import (
    NAMED_GENERATORS,
    Generated,
    Inequality,
    build_alpha_generator,
    build_divergence,
    differentiate_in_log_q,
    name_divergence,
    substitute_reference,
)
from klsym.engine.divergences.usual_names import find_divergence, name_kls, suggest_divergence
from klsym.engine.fields.field import reduce_loss
from klsym.engine.fields.primitives import find_primitive
from klsym.engine.fields.slot_loss import SlotLoss, build_slot_losses
from klsym.engine.options.settings import Setting
from klsym.engine.proof.derivation import Derivation, Proof, derive
from klsym.engine.proof.quantities import Quantity, expectation, grad
from klsym.engine.proof.shown_counterexample import describe_counterexample
from klsym.engine.verdicts.verdict import Verdict
from klsym.errors import NotInRing, ProofError, Refused, UsageError
from klsym.kernel.ring import ExpPoly
from klsym.language.convert import is_in_core, to_ring, to_sympy
from klsym.language.estimators import NAMES
from klsym.language.expressions import COUNTS, OF_TABLE, PARAMETERS, k1, parameter, r, remove_sg, rho, sg
from klsym.language.messages import Message
from klsym.language.parser import FUNCTIONS, parse, parse_asked
from klsym.language.sums import list_mixture_weights
from klsym.notation.coefficients import show_element
from klsym.notation.losses import Written, show
from klsym.notation.printers import TEXT, is_sum

ON, OFF = "on-policy", "off-policy"
JENSEN_SHANNON = "jensen-shannon"
WRITTEN_GENERATORS = {
    JENSEN_SHANNON: "(r*log(r) - (1 + r)*log((1 + r)/2))/2",
    "alpha": "r**alpha - alpha*r + alpha - 1",  # alpha (alpha - 1) times the alpha divergence
}
OF_A_NUMBER = {  # tsallis: (E_q[(q/p)^(a - 1)] - 1)/(a - 1)
    JENSEN_SHANNON: "({0})*r*log(r) - (({0})*r + 1 - ({0}))*log(({0})*r + 1 - ({0}))",
    "tsallis": "(r**(1 - ({0})) - 1)/(({0}) - 1)",
}
RENYI = (  # log of a mean, which is no E_q[f(r)]
    "renyi={0} is log(1 + ({1})*D)/({1}) with D = tsallis={0}: its gradient is that of D over the mean"
    " E_q[r**({2})]; ask for tsallis={0}"
)
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+|(alpha|tsallis|renyi|jensen-shannon)=\S+")
ESTIMATORS = {name: to_ring(e) for name, e in OF_TABLE.items() if name != "k1" and is_in_core(e)}
NOT_OF_R = (
    "full", "full_kl", "H", "js", "log_q", "M", "log_p", "log_mu", "log_old", "rho", "rho_old", "R", "A",
    "sg", "clip", "abs", "min", "max",
)  # fmt: skip


@dataclass(frozen=True)
class Value:
    """Is E_m[L] = E_q[f(r)]: proved, refuted on a model, or None?"""

    same: bool | None = None
    proof: Proof | None = None


@dataclass(frozen=True)
class DivergenceLoss:
    """One way to write it, and the proof of its gradient; value: is that of the loss E_q[f(r)], too?"""

    loss: str
    sampling: str
    use: str
    proof: Proof
    value: Value

    @property
    def equal(self) -> str:
        """The statement, in the grammar."""
        return str(self.proof)

    @property
    def trust(self) -> str:
        return self.proof.trust

    @property
    def unbiased(self) -> bool | None:
        """Is the value E_q[f(r)]?  None is open."""
        return self.value.same


@dataclass(frozen=True)
class WrongEstimate:
    """A tempting choice that is none: its verdict, and a model in which its gradient is another one."""

    loss: str
    sampling: str
    use: str
    verdict: Verdict
    trust: str
    witness: dict[str, Any] | None


@dataclass(frozen=True)
class Descents:
    """A divergence E_q[f(r)] with f(1) = f'(1) = 0, and its losses; `render.questions.descents` prints it.

    name, multiple: where it has a name.  coefficient: c of grad E_q[f(r)] = E_q[c s] with c(1) = 0.
    values estimate it, gradients descend it, wrong look as if they did.
    no_formula: what has none in the loss grammar.  messages: what else is to be known.
    """

    asked: str
    name: str | None
    multiple: str
    shape: Generated
    coefficient: Any
    values: tuple[DivergenceLoss, ...]
    gradients: tuple[DivergenceLoss, ...]
    wrong: tuple[WrongEstimate, ...]
    messages: tuple[Message, ...] = ()
    no_formula: tuple[Message, ...] = ()


def losses_of(divergence: str, parameters: Iterable[str] = (), sampling: str | None = None) -> Descents:
    """The losses that estimate and descend a divergence; see `klsym.study.api.losses_of`."""
    typed = _read(divergence, tuple(parameters))
    try:
        divided = _divide_ring_element(to_ring(typed), divergence)
    except NotInRing:
        divided = _divide_smooth_function(typed, divergence)
    if divided.shape is None:
        raise UsageError(f"{divergence[:60]!r}: f is a + b*r, so that E_q[f(r)] is the same for all q")
    parts, settings = divided.parts, (ON, OFF) if sampling is None else (sampling,)
    gradients = tuple(_prove_row(row, parts) for row in _list_choices(parts) if row.sampling in settings)
    return Descents(
        asked=divergence,
        name=divided.name,
        multiple=divided.multiple,
        shape=divided.shape,
        coefficient=parts.texts["c"],
        values=tuple(_estimate(parts, at) for at in settings),
        gradients=gradients,
        wrong=tuple(_refute_row(row, parts) for row in _list_tempting(parts) if row.sampling in settings),
        messages=_list_messages(divided.shape, parts.f),
        no_formula=parts.no_formula,
    )


@dataclass(frozen=True)
class Parts:
    """f, c = f - r f' with c(1) = 0, and g with dg/dlog q = c, as SymPy expressions.

    g is the solution of -r g' = c with g(1) = 0, or else sg(c)*k1, as `no_formula` says.
    """

    f: Any
    c: Any
    g: Any
    texts: dict[str, str]
    no_formula: tuple[Message, ...] = ()


class Divided(NamedTuple):
    """The parts of a divergence with its shape, None for c constant; it is `multiple` times the one named."""

    parts: Parts
    shape: Generated | None
    name: str | None = None
    multiple: str = "1"


def _divide_ring_element(typed: ExpPoly, asked: str) -> Divided:
    f = subtract_tangent(typed)
    c = f + differentiate_in_log_q(f)
    g, divergence_name = find_naive_loss(c), name_divergence(f)
    texts = {name: write_element(e) for name, e in (("f", f), ("c", c), ("g", g)) if e is not None}
    parts = Parts(to_sympy(f), to_sympy(c), None if g is None else to_sympy(g), texts)
    shape = build_divergence(f, c) if differentiate_in_log_q(c) else None
    if asked.strip() == "alpha":
        return Divided(parts, shape, "alpha")
    if divergence_name is None:
        return Divided(parts, shape)
    return Divided(parts, shape, divergence_name[0], show_element(divergence_name[1]))


def _divide_smooth_function(typed: Any, asked: str) -> Divided:
    """f that is smooth, but no exponential polynomial; derivatives and antiderivatives are SymPy's."""
    in_x = outer.convert_to_x(typed)
    if in_x is None:
        raise UsageError(f"{asked[:60]!r}: f is a smooth function of r = p/q alone, such as r*log(r)")
    f = outer.remove_affine_part(in_x.replace(sympy.log, outer.expand_log_of_factors))
    c = f - outer.X * sympy.diff(f, outer.X)
    c = min((sympy.expand(e, multinomial=False) for e in (c, sympy.cancel(c))), key=sympy.count_ops)
    rhs = sympy.expand(-c / outer.X)
    g = outer.find_antiderivative(rhs, 1)
    parts_by_name = {"f": f, "c": c} | ({} if g is None else {"g": g - g.subs(outer.X, 1)})
    exact = {name: outer.convert_to_r(e, with_k1=True) for name, e in parts_by_name.items()}
    why = () if g is not None else (Message("no-loss", proved=outer.has_no_elementary_antiderivative(rhs)),)
    exact.setdefault("g", sg(exact["c"]) * k1)
    texts = {name: show(e, TEXT) for name, e in exact.items()}
    parts = Parts(exact["f"], c=exact["c"], g=exact["g"], texts=texts, no_formula=why)
    name = JENSEN_SHANNON if asked.strip() == JENSEN_SHANNON else None
    return Divided(parts, outer.describe_shape(f, c) if c.has(outer.X) else None, name)


# ---------------------------------------------------------------------------- reading f
def _read(text: str, parameters: tuple[str, ...]) -> Any:
    """f as a SymPy expression; the message points at what makes it no function of r."""
    plain = re.sub(r"^([a-z-]{4,})\s+(?=[\d.]+(/\d+)?$)", r"\1=", text.strip())  # alpha 0.5
    if plain in NAMED_GENERATORS:
        return to_sympy(NAMED_GENERATORS[plain])
    if plain in WRITTEN_GENERATORS:
        return parse(WRITTEN_GENERATORS[plain])
    if plain.lower() in ("kl", "kl-divergence"):
        raise UsageError(f"{plain!r}: type klsym divergence reverse-kl or klsym divergence forward-kl")
    if usual := name_kls(plain) if name_kls(plain) in NAMED_GENERATORS else find_divergence(plain):
        raise UsageError(f"{plain!r}: type klsym divergence {usual}")
    if hint := suggest_divergence(plain):
        raise UsageError(f"{plain!r} is no smooth function of r{hint}")
    if NAME.fullmatch(plain) and not re.search(rf"\b({'|'.join(NAMES)}|r)\b", plain):
        return _parse_alpha_name(plain, parameters)
    for word in re.finditer(r"[A-Za-z_]\w*", text):
        if word[0] in NOT_OF_R:
            raise UsageError(
                f"{word[0]} at character {word.start() + 1} of {text[:60]!r}: f is a smooth function of"
                " r = p/q alone, such as r*log(r); klsym explain takes whole losses"
            )
    try:
        return parse_asked(text, parameters)
    except UsageError as error:
        if re.fullmatch(r"[a-z_]+", plain) and plain not in FUNCTIONS:
            raise UsageError(f"unknown divergence {plain!r} ({list_known_names()})") from None
        raise error


def list_known_names() -> str:
    named = ", ".join((*NAMED_GENERATORS, *WRITTEN_GENERATORS))
    examples = f"alpha=1/2, tsallis=2, {JENSEN_SHANNON}=1/10 or =beta"
    return f"known: {named}, {examples}; or f as a function of r, such as r*log(r)"


def _parse_numbered_divergence(start: str, number: str, parameters: tuple[str, ...]) -> Any:
    """jensen-shannon=1/10 or tsallis=alpha; raises ValueError for numbers that it is not defined for."""
    if number in {*PARAMETERS, *parameters} - {*COUNTS}:
        value: Any = parameter(number)
    else:
        value = Fraction(number)
        if not (0 < value < 1 if start == JENSEN_SHANNON else value not in (0, 1)):
            raise ValueError
    if start == "renyi":
        raise UsageError(RENYI.format(value, value - 1, 1 - value))
    return parse_asked(OF_A_NUMBER[start].format(value), parameters)


def _parse_alpha_name(name: str, parameters: tuple[str, ...]) -> Any:
    start, _, number = name.partition("=")
    try:
        if start in (*OF_A_NUMBER, "renyi"):
            return _parse_numbered_divergence(start, number, parameters)
        if start != "alpha":
            raise ValueError
        return to_sympy(build_alpha_generator(Fraction(number)))
    except UsageError:
        raise
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            f"unknown divergence {name[:40]!r} ({list_known_names()}); "
            "the number of alpha, tsallis and renyi is"
            " not 0 or 1, that of jensen-shannon between them"
        ) from None


def subtract_tangent(f: ExpPoly) -> ExpPoly:
    """f(1) = f'(1) = 0: a constant moves nothing, and E_q[r - 1] = 0 for all q."""
    f = f - substitute_reference(f)
    return f + substitute_reference(differentiate_in_log_q(f)) * (to_ring(r) - 1)


def find_naive_loss(c: ExpPoly) -> ExpPoly | None:
    """g with dg/dlog q = c and g(1) = 0; None where the ring has none."""
    primitive = find_primitive(c, "x")
    if primitive is None:
        return None
    g = primitive.substitute({"log_q": ExpPoly.from_variable("k1")})
    return g - substitute_reference(g)


# ---------------------------------------------------------------------------- choices
@dataclass(frozen=True)
class Spelled:
    """A loss in a setting; part: which of f, c and g it is made of, weight: what stands before it."""

    written: Written
    sampling: str
    use: str
    part: str
    weight: str


WEIGHTED = {"": lambda e: e, "rho": lambda e: rho * e, "sg(rho)": lambda e: sg(rho) * e}
PLACEMENTS = (
    (ON, "loss", "", "g"), (ON, "loss", "rho", "f"), (ON, "reward", "", "c"),
    (OFF, "loss", "rho", "f"), (OFF, "loss", "sg(rho)", "g"), (OFF, "reward", "rho", "c"),
)  # fmt: skip
# the estimate of the value in place of the loss; a weight that is missing, or on the wrong side of sg
TEMPTING = (
    (ON, "loss", "", "f"), (ON, "reward", "", "f"), (OFF, "loss", "sg(rho)", "f"), (OFF, "loss", "", "g"),
    (OFF, "loss", "rho", "g"), (OFF, "reward", "rho", "f"), (OFF, "reward", "", "c"),
)  # fmt: skip


def _list_choices(parts: Parts) -> Iterator[Spelled]:
    return _list_spelled_rows(PLACEMENTS, parts)


def _list_tempting(parts: Parts) -> Iterator[Spelled]:
    return _list_spelled_rows(TEMPTING, parts)


def _list_spelled_rows(table: tuple[tuple[str, str, str, str], ...], parts: Parts) -> Iterator[Spelled]:
    for sampling, use, weight, part in table:
        if part in parts.texts:
            text, e = parts.texts[part], getattr(parts, part)
            written = Written(_write_weight(weight, text), WEIGHTED[weight](e))
            yield Spelled(written, sampling, use, part, weight=weight)


def _write_weight(weight: str, text: str) -> str:
    inner = f"({text})" if weight and is_sum(text) else text
    return f"{weight}*{inner}" if weight else inner


def write_element(e: ExpPoly) -> str:
    """A sum of multiples of the estimators k2, k3, ...; otherwise in k1 and r.

    >>> k2 = ESTIMATORS["k2"]
    >>> write_element(k2 + ESTIMATORS["k3"] * 2), write_element(k2 * k2)
    ('2*k3 + k2', 'k1**4/4')
    """
    unknown = sympy.symbols(f"a_0:{len(ESTIMATORS)}")
    rows = [(e, sympy.Integer(-1)), *zip(ESTIMATORS.values(), unknown, strict=True)]
    keys = {key for row_element, _ in rows for key in row_element.terms}
    gaps = [
        sum(a * sympy.Rational(row_element.terms.get(key, 0)) for row_element, a in rows)
        for key in sorted(keys)
    ]
    for solution in sympy.linsolve(gaps, unknown) if e else ():
        multiples = (a.xreplace(dict.fromkeys(unknown, sympy.S.Zero)) for a in solution)
        return show(sum(a * OF_TABLE[name] for a, name in zip(multiples, ESTIMATORS, strict=True)), TEXT)
    return show_element(e)


def _build_slot_loss(row: Spelled, f: Any) -> tuple[SlotLoss, Any]:
    """The loss of a sample and f, with the same names for the logs in them."""
    loss, objective = build_slot_losses((row.written, Written("", f)), Setting(row.sampling, row.use))
    return loss, remove_sg(objective.expression)


def _derive_row(row: Spelled, parts: Parts) -> tuple[Derivation, Quantity]:
    """The expected gradient of the loss, and that of E_q[f(r)]."""
    loss, f = _build_slot_loss(row, parts.f)
    return reduce_loss(loss).start.reduce(), grad(expectation(f, "q"))


def _prove_row(row: Spelled, parts: Parts) -> DivergenceLoss:
    """E_m[grad L] or E_m[sg(L) s] = grad E_q[f(r)]."""
    start, objective = _derive_row(row, parts)
    try:
        proof = start.equals(objective)
    except ProofError:
        raise ProofError(f"{row.written.text[:60]!r} is not shown to descend E_q[f(r)]") from None
    return DivergenceLoss(row.written.text, row.sampling, row.use, proof, value=_decide_value(row, parts))


def _decide_value(row: Spelled, parts: Parts) -> Value:
    loss, f = _build_slot_loss(row, parts.f)
    mean = expectation(remove_sg(loss.expression), loss.measure)
    start = derive(mean, on_policy=loss.detached_q, defined=loss.defined)
    with suppress(ProofError, Refused):
        return Value(True, start.equals(expectation(f, "q")))
    with suppress(ProofError, Refused):
        start.differs_from(expectation(f, "q"))
        return Value(False)
    return Value()


def _estimate(parts: Parts, sampling: str) -> DivergenceLoss:
    """E_m[rho (f + a (r - 1))] = E_q[f] for any number a."""
    weight = "rho" if sampling == OFF else ""
    free = next(name for name in ("a", "b", "c0") if name not in {str(x) for x in parts.f.free_symbols})
    text = _write_weight(weight, f"{parts.texts['f']} + {free}*(r - 1)")
    weighted_loss = WEIGHTED[weight](parts.f + parameter(free) * (r - 1))
    value = _decide_value(
        Spelled(Written(text, weighted_loss), sampling, use="loss", part="f", weight=weight), parts
    )
    if value.proof is None:
        raise ProofError(f"{text[:60]!r} is not shown to be an unbiased estimate of E_q[f(r)]")
    return DivergenceLoss(text, sampling, use="value", proof=value.proof, value=value)


# ---------------------------------------------------------------------------- what is none
def _refute_row(row: Spelled, parts: Parts) -> WrongEstimate:
    """A model in which its expected gradient is another one; without a model that is open."""
    verdict = explain_written(row.written, Setting(row.sampling, row.use))
    statement = row.written.text, row.sampling, row.use, verdict
    start, objective = _derive_row(row, parts)
    try:
        proof = start.differs_from(objective)
    except (ProofError, Refused):
        return WrongEstimate(*statement, "open", None)
    return WrongEstimate(*statement, proof.trust, describe_counterexample(proof))


def _list_messages(of_r: Generated, f: Any) -> tuple[Message, ...]:
    nowhere_known = isinstance(of_r.where, Inequality)
    shares = sorted(
        {w.name for logarithm in f.atoms(sympy.log) for w in list_mixture_weights(logarithm.args[0])}
    )
    mixtures = tuple(Message("mixture-weight", of=w) for w in shares)
    return (
        *mixtures,
        *([Message("no-f-divergence")] if of_r.is_divergence is False and not nowhere_known else []),
    )
