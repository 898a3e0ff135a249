"""Abbreviations written out, for the kernel: named quantities, on-policy sampling, given values.  Untrusted.

    KL(a||b) = E_a[log a/b]      chi2(a||b) = E_b[(a/b - 1)^2]      J(a, b) = KL(a||b) + KL(b||a)
    Cov_m(a, b) = E_m[a b] - E_m[a] E_m[b]      D_phi(r, 1) = phi(r) - phi(1) - phi'(1) (r - 1)
    E_m[sum_t KL(a_t||b_t)] = E_m[sum_t (a/m)_t log (a/b)_t], the prefixes y_<t drawn from m
    Var_m(mean_i X_i) = E[X_i^2]/n + (1 - 1/n) E[X_i X_j] - E[X_i]^2
    on-policy: mu := q and w := log q - sg(log q)      given R = v at every sample: R := sg(v)

What H is given cannot be put in where H is summed over positions: means of H then equal means of its value by
premises (`list_given_means`).

>>> unfold(Side.from_atom(Gradient(Side.from_atom(Divergence("KL", "q", "p")))), Context()).to_json()
[[[['1', {}]], [['Gradient', [[[['1', {}]], [['Mean', '', 'q', [['1', {'k1': 1}]], []]]]]]]]]
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from klsym import kernel
from klsym.errors import UsageError
from klsym.kernel import statements
from klsym.kernel.assumptions import Hypothesis, refuse_unless
from klsym.kernel.closings import Zero
from klsym.kernel.densities import LOG_DENSITY, build_density_ratio
from klsym.kernel.derivatives import attach, differentiate_loss, move_to_slot
from klsym.kernel.names import HELD, REWARDS, SAMPLE, SAMPLE_BASES, WHOLE, detach_name, parse_name
from klsym.kernel.ring import ONE, ZERO, ExpPoly
from klsym.kernel.slots import PARTS, SLOTS, name_in_slot
from klsym.language.abbreviations import (
    NAMED,
    Bregman,
    Context,
    Covariance,
    Curl,
    Divergence,
    Gradient,
    Mean,
    MeanGradient,
    MeanVariance,
    Score,
    Side,
    Statement,
    TokenDivergence,
    collect_measures,
    walk_atoms,
    walk_elements,
    with_coefficient,
)
from klsym.records import record

PLAIN = statements.Context()


# ---------------------------------------------------------------------------- named quantities
def _expand_abbreviation(atom: Any) -> Side:
    """Return what a named quantity abbreviates."""
    match atom:
        case Divergence("KL", a, b):
            return Side.from_atom(Mean("", a, LOG_DENSITY[a] - LOG_DENSITY[b]))
        case Divergence("chi2", a, b):
            return Side.from_atom(Mean("", b, (build_density_ratio(a, b) - 1) ** 2))
        case Divergence("J", a, b):
            return _expand_abbreviation(Divergence("KL", a, b)) + _expand_abbreviation(Divergence("KL", b, a))
        case Covariance(m, a, b):
            return Side.combine((1, (Mean("", m, a * b),)), (-1, (Mean("", m, a), Mean("", m, b))))
        case Bregman(phi):  # with r = exp(-k1): phi'(1) = -dphi/dk1 at k1 = 0
            slope = phi.derive(lambda name: ONE if name == "k1" else ZERO)
            at_one, slope = (f.substitute({"k1": ZERO}) for f in (phi, slope))
            return Side.from_atom(
                Mean("", SAMPLE, phi - at_one + slope * (build_density_ratio("p", "q") - 1))
            )
        case TokenDivergence():
            return Side.from_atom(_expand_token_divergence(atom))
        case MeanVariance(m, a, score):
            return _expand_mean_variance(m, a, score)
    raise TypeError(f"{type(atom).__name__} is no abbreviation")


def _expand_token_divergence(atom: TokenDivergence) -> Mean:
    """Return a mean over tokens and prefixes: over a token given its prefix, then over prefixes."""
    m, a, b = atom.measure, atom.first, atom.second
    inner = LOG_DENSITY[a] - LOG_DENSITY[b]
    if atom.gradient:  # grad E_a[log a/b] = E_a[log a/b s 1{a = q} + grad log a/b]
        inner = (inner if a == "q" else ZERO) + differentiate_in_log_q(inner, PLAIN)
    coefficient = move_to_slot(build_density_ratio(a, m) * inner, "now", PLAIN)
    return Mean("t", m, coefficient, ("now",) if atom.gradient else ())


def _expand_mean_variance(m: str, a: ExpPoly, score: Score) -> Side:
    """Return Var(mean_i X_i): of the n^2 pairs of terms n are squares, and all others are alike."""
    refuse_unless(set(score) <= {"self"}, "the variance of a mean: score functions of self expected")
    n, k, (mine, yours) = ExpPoly.from_variable("n"), len(score), _substitute_pair(a)
    mean, square = Mean("i", m, a, ("self",) * k), Mean("i", m, a * a, ("self",) * (2 * k))
    pair = Mean("ij", m, mine * yours, ("other",) * k + ("self",) * k)
    return Side.combine((n.invert(), (square,)), (1 - n.invert(), (pair,)), (-1, (mean, mean)))


def _substitute_pair(a: ExpPoly) -> tuple[ExpPoly, ExpPoly]:
    """Return X_i and X_j of a pair: the others of i are j and the rest."""
    values_of_first, values_of_second = {}, {}
    for name in a.names():
        parsed = parse_name(name)
        if parsed.slot in PARTS["i"]:
            summed = parsed.base in SAMPLE_BASES and parsed.base != "A"  # neither A nor a region or a log
            refuse_unless(
                parsed.slot == "self" or summed, f"{name} is any function of its slot, no sum over positions"
            )
            mine, yours, rest_name = (name.replace(f"[{parsed.slot}]", f"[{z}]") for z in PARTS["ij"])
            own_part, other_part, rest_part = (ExpPoly.from_variable(z) for z in (mine, yours, rest_name))
            values_of_first[name] = own_part if parsed.slot == "self" else other_part + rest_part
            values_of_second[name] = other_part if parsed.slot == "self" else own_part + rest_part
    return a.substitute(values_of_first), a.substitute(values_of_second)


def differentiate_in_log_q(element: ExpPoly, context: statements.Context) -> ExpPoly:
    """Return the derivative along log q at one sample, with sg(.) held constant."""
    return differentiate_loss(element, "", context).get("x", ZERO)


# ---------------------------------------------------------------------------- the setting
@lru_cache(maxsize=1024)
def unfold(side: Side, context: Context) -> Side:
    """Return the side with every abbreviation written out."""
    total = Side()
    for coefficient, atoms in side.terms:
        product = Side.from_constant(coefficient)
        for atom in atoms:
            product = product.multiply(_unfold_atom(atom, context))
        total = total + product
    return total


def _unfold_atom(atom: Any, context: Context) -> Side:
    match atom:
        case Mean(index, m, a, score):
            return Side.from_atom(
                Mean(index, _choose_sampler(m, context), substitute_given(a, index, context), score)
            )
        case MeanGradient(index, m, loss) | Curl(index, m, loss):
            return Side.from_atom(
                type(atom)(index, _choose_sampler(m, context), substitute_detached(loss, index, context))
            )
        case Gradient(of):
            return _unfold_gradient(of, context)
    return unfold(_expand_abbreviation(atom), context)


def check_setting(context: Context) -> None:
    """Refuse what cannot be written out: values of other names than rewards, premises that hold none.

    What is given is known at one theta, and on-policy mu is detached: premises speak of neither.
    Raises UsageError: the setting.  Refused: a value speaks of what is not declared.
    """
    bases = [parse_name(name).base for name, _ in context.given]
    for name, value in context.given:
        if name not in (*REWARDS, *(f"{base}[now]" for base in HELD)):
            raise UsageError(f"given: R, A or H, or H[now] at a step, may have a value, not {name!r}")
        context.check(value, ("past", "now") if "[" in name else WHOLE)
        if len(set(bases)) < len(bases) or {parse_name(n).base for n in value.names()} & set(bases):
            raise UsageError(f"given: the value of {name} is given twice, or names what is given")
    for side in (side for pair in context.premises for side in pair):
        names = {parse_name(n).base for element in walk_elements(side) for n in element.names()}
        if names & set(bases):
            raise UsageError("premise: it holds a reward whose value is given at one theta only")
        hidden = any("w" in context.function_arguments.get(name, ()) for name in names)
        if context.on_policy and (hidden or "w" in names or "mu" in collect_measures(side)):
            raise UsageError("premise: on-policy mu is a detached copy of q, whose gradient no value tells")


def _unfold_gradient(of: Side, context: Context) -> Side:
    """Return a gradient, the sampler on-policy not differentiated: grad E_mu[a] is the mean of grad a."""
    total, moving = Side(), Side()
    for coefficient, atoms in of.terms:
        product = Side.from_constant(coefficient)
        for atom in atoms:
            product = product.multiply(_unfold_operand(atom, context))
        for c, inner in product.terms:
            if context.on_policy and any(isinstance(atom, Mean) and atom.measure == "mu" for atom in inner):
                total = total + _unfold_moving_factors(c, inner, context)
            else:
                moving = moving + Side.combine((c, tuple(_unfold_loss(atom, context) for atom in inner)))
    return total + (Side.from_atom(Gradient(moving)) if moving.terms else Side())


def _unfold_moving_factors(c: ExpPoly, factors: tuple[Any, ...], context: Context) -> Side:
    """Return c sum_i (grad E_i) prod_{j != i} E_j; on-policy, the sampler mu is not differentiated."""
    total = Side()
    for i, factor in enumerate(factors):
        loss = _unfold_loss(factor, context)
        if isinstance(loss, Mean) and factor.measure == "mu":
            term = Side.from_atom(MeanGradient(factor.index, "q", loss.coefficient))
        else:
            term = Side.from_atom(Gradient(Side.from_atom(loss)))
        for other in (*factors[:i], *factors[i + 1 :]):
            term = term.multiply(_unfold_atom(other, context))
        total = total + term * c
    return total


def _unfold_operand(atom: Any, context: Context) -> Side:
    """Return what is under a gradient, its means as they are written."""
    if isinstance(atom, NAMED):
        return _expand_abbreviation(atom)
    return Side.from_atom(atom) if isinstance(atom, Mean) else _unfold_atom(atom, context)


def _unfold_loss(atom: Any, context: Context) -> Any:
    if not isinstance(atom, Mean):
        return atom
    return with_coefficient(atom, substitute_detached(atom.coefficient, atom.index, context))


def _choose_sampler(measure: str, context: Context) -> str:
    return "q" if context.on_policy and measure == "mu" else measure


def substitute_given(a: ExpPoly, index: str, context: Context) -> ExpPoly:
    """Return a coefficient with what is given put in; on-policy w is 0."""
    values = _collect_given(index, context)
    if context.on_policy:
        values |= {name_in_slot("w", slot): ZERO for slot in SLOTS[index]}
    return a.substitute(values | {detach_name(n): v for n, v in values.items()})


def substitute_detached(a: ExpPoly, index: str, context: Context) -> ExpPoly:
    """Return a loss that is yet to be differentiated: given values detached, and w = log q - sg(log q)."""
    values = {name: _detach_variables(v, context) for name, v in _collect_given(index, context).items()}
    values |= {detach_name(name): v for name, v in values.items()}
    if context.on_policy:
        for slot in SLOTS[index]:
            log_q = ExpPoly.from_variable(name_in_slot("log_q", slot))
            values[name_in_slot("w", slot)] = log_q - _detach_variables(log_q, context)
            values[detach_name(name_in_slot("w", slot))] = ZERO
    return a.substitute(values)


def _collect_given(index: str, context: Context) -> dict[str, ExpPoly]:
    """Return what is known of one sample, of all rewards but H."""
    rows = () if index else context.given
    return {name: attach(value) for name, value in rows if name not in HELD and "[" not in name}


def list_given_means(side: Side, context: Context) -> list[tuple[Side, Side]]:
    """Return E_m[H a] = E_m[v a] for each mean of H that a side holds, where H = v is given."""
    values = {name: attach(value) for name, value in context.given if parse_name(name).base in HELD}
    pairs: dict[Mean, Mean] = {}
    for mean in walk_atoms(side):
        if isinstance(mean, Mean) and mean.measure != SAMPLE and mean.coefficient.names() & set(values):
            terms = mean.coefficient.terms.items()
            part = ExpPoly({k: v for k, v in terms if ExpPoly({k: v}).names() & set(values)})
            part_mean = with_coefficient(mean, part)
            pairs[part_mean] = with_coefficient(mean, part.substitute(values))
    return [(Side.from_atom(a), Side.from_atom(b)) for a, b in pairs.items()]


def _detach_variables(a: ExpPoly, context: Context) -> ExpPoly:
    return a.rename(lambda name: name if name in context.parameters else detach_name(name))


def expand_context(context: Context) -> statements.Context:
    """Return the context that the kernel reads."""
    premises = tuple((unfold(a, context), unfold(b, context)) for a, b in context.premises)
    return statements.Context(
        context.parameters,
        context.functions,
        premises,
        context.definitions,
        facts=context.facts,
        witness=context.witness,
    )


# ---------------------------------------------------------------------------- theorems
@record
class Theorem:
    """A theorem of the kernel, and the statement as its author wrote it, which unfolds to what was proved."""

    statement: Statement
    proved: kernel.Theorem

    @property
    def kind(self) -> str:
        return self.proved.kind

    @property
    def rules(self) -> tuple[str, ...]:
        return self.proved.rules

    @property
    def zeros(self) -> tuple[Zero, ...]:
        return self.proved.zeros

    @property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """Those of the kernel, a premise by its number, after what the statement abbreviates."""
        context = self.statement.context
        setting = [("on-policy",)] * context.on_policy + [("given",)] * bool(context.given)
        premises = self.proved.statement.context.premises
        numbered = (
            (h[0], premises.index(h[1:])) if h[0] in ("equal", "premise") else h
            for h in self.proved.hypotheses
        )
        return (*setting, *numbered)

    @property
    def close(self) -> dict[str, Any]:
        """How it was closed; a model of one sample as lists of what its outcomes have."""
        close, statement = self.proved.close, self.proved.statement
        steps = any("t" in getattr(atom, "index", "") for atom in walk_atoms(statement.left, statement.right))
        return {**close, "model": simplify_model(close["model"], steps)} if "model" in close else close


def simplify_model(model: dict[str, Any], steps: bool = False) -> dict[str, Any]:
    """Return a model of a certificate for readers: one node as a table of outcomes, a tree with R beside q
    and p.

    steps: does the statement speak of them?  outcome, or path: the sample at which pointwise quantities are
    evaluated.
    """
    tree, parameters = model["tree"], model["parameters"]
    if steps or any(tree["next"]):
        return {"tree": _simplify_node(tree), "path": model["path"], "parameters": parameters}
    rows = {name: tree[name] for name in ("q", "p", "mu", "old", "u") if name in tree}
    outcome = (model["path"] or [0])[0]
    return {**rows, "parameters": parameters, "rewards": dict(tree["rewards"]), "outcome": outcome}


def _simplify_node(node: dict[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {x: node[x] for x in ("q", "p", "mu", "old", "u", "v") if x in node}
    rows |= {name: row for name, row in node["rewards"].items() if name == "M"}
    following = [after and _simplify_node(after) for after in node["next"]]
    return {**rows, "R": node["rewards"].get("R", ["0"] * len(following)), "next": following}
