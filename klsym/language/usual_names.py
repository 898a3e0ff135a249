"""Usual names in training code, read as what they stand for; an ambiguous one is asked for.

logp is read as log_q, ref_logp as log_p, old_logp as log_mu, advantages as A, self.beta as beta.  A ratio
that only multiplies, clipped or not, or stands beside an old log-probability, is read as q/mu, which the
answer says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

from sympy import S

from klsym.errors import UsageError, spell_option
from klsym.kernel.names import is_declarable
from klsym.language.expressions import ATOMS, COUNTS, PARAMETERS, exp, parameter
from klsym.language.messages import Message
from klsym.language.parser import MAX_DEPTH, PARAMETER, SHOWN, Reader, is_of_answers
from klsym.language.reductions import LOGITS, MASK, WORD_LOGS, average_over_words, is_probability
from klsym.language.sums import DENSITIES, build_entropy
from klsym.language.training_names import (
    AMBIGUOUS,
    LOG_WEIGHT,
    MASKS,
    RATIO,
    ask_for_value,
    expand_initial,
    find_density,
    find_logits,
    find_meaning,
    find_negative_density,
    find_policy,
    is_coefficient,
    names_policy,
    split_words,
    suggest_for_token_advantage,
    suggest_for_top_words,
)

LIBRARIES = {"torch", "jnp", "np", "numpy", "jax", "F", "nn", "lax", "tf", "math", "mx"}
OF_DISTRIBUTIONS = {"log_prob", "entropy"}  # methods of torch.distributions, and their like
SETTINGS = {"args", "cfg", "config", "conf", "hparams", "hp", "opt", "opts", "training_args", "script_args"}
PROBABILITIES, LOG_PROBABILITIES = "exp(log_q), exp(log_p) or exp(log_mu)", "log_q, log_p or log_mu"
ANOTHER = {"log_q": "log_mu", "log_p": "log_q"}  # what one of two names for the same density may be

OF_TWO_POLICIES = (
    "rho_old for q/old (`{0} = (logp - {1}).exp(); ...`) or rho for q/mu (`{0} = (logp - {2}).exp(); ...`)"
)
TWO_RATIOS = (
    "say of both what they are, as in `{0} = exp(logp - old_logp); {1} = exp(old_logp - rollout_logp); ...`"
)
MEANINGS = (find_meaning, find_logits, find_negative_density, is_coefficient)
OF_UNKNOWN_LOGITS = (
    ": assign them first, as in `student_logits = ..`, `ref_logits = ..` or `old_logits = ..`, or type"
    " full_kl(q, p) for a sum over the vocabulary; klsym audit runs functions"
)
OF_FACTORS = {"detach", "float", "contiguous"}  # methods that leave a factor one
BOUNDS_OF_TWO = {"min", "max", "minimum", "maximum"}
BOUNDS_OF_ONE = {"clamp", "clip", "clamp_", "clamp_max", "clamp_min"}


def _list_names(node: ast.expr) -> list[str]:
    """Return the names in x.y["z"], in their order."""
    match node:
        case ast.Name(name):
            return [name]
        case ast.Attribute(of, name) | ast.Subscript(of, ast.Constant(str(name))):
            return [*_list_names(of), name]
        case ast.Call(ast.Attribute(of, name)) if name in OF_FACTORS:
            return _list_names(of)
        case ast.Subscript(of) | ast.Call(of):
            return _list_names(of)
    return []


def names_old(name: str) -> bool:
    """Is it a name with the word old?"""
    return "old" in split_words(name)


def _split_operands(call: ast.Call) -> tuple[str, list[ast.expr]]:
    """Return the name of a function and what it is of: of x.clamp(0, 1) x is the first."""
    match call.func:
        case ast.Attribute(ast.Name(owner), name) if owner in LIBRARIES:
            return name, call.args
        case ast.Attribute(receiver, name):
            return name, [receiver, *call.args]
        case ast.Name(name):
            return name, call.args
    return "", [call.func, *call.args]


def list_factors(tree: ast.AST) -> frozenset[str]:
    """Return the names that occur as factors of products alone: w in -(w.detach() * x).mean().

    >>> sorted(list_factors(ast.parse("k = a - 1 - log(a); -w.detach()*b*k + c*d.x + a*2")))
    ['b', 'c', 'd', 'k', 'w']
    """
    of_products: set[str] = set()
    elsewhere: set[str] = set()

    def visit(node: ast.AST, is_factor: bool) -> None:
        match node:
            case ast.Name(name, ast.Load()):
                (of_products if is_factor else elsewhere).add(name)
            case ast.BinOp(first, ast.Mult(), second):
                visit(first, True)
                visit(second, True)
            case ast.UnaryOp(_, operand) | ast.Attribute(operand):
                visit(operand, is_factor)
            case ast.Call(_, _, keywords):
                name, operands = _split_operands(node)
                for number, operand in enumerate(operands):
                    is_kept = name in BOUNDS_OF_ONE or (is_factor and name in OF_FACTORS)
                    is_bounded = name in BOUNDS_OF_TWO and isinstance(operand, ast.Name)
                    visit(operand, is_bounded or (number == 0 and is_kept))
                for keyword in keywords:
                    visit(keyword.value, False)
            case ast.Compare(first, _, others):  # a mask of ratios, as ratio < 1.2
                for operand in (first, *others):
                    visit(operand, isinstance(operand, ast.Name))
            case _:
                for child in ast.iter_child_nodes(node):
                    visit(child, False)

    visit(tree, False)
    return frozenset(of_products - elsewhere)


def list_multipliers_of_advantage(tree: ast.AST) -> frozenset[str]:
    """Return the names in what an advantage is multiplied by.

    >>> sorted(list_multipliers_of_advantage(ast.parse("f(b*(c - 1))*adv + beta*(d - 1)")))
    ['b', 'c', 'f']
    """
    found: set[str] = set()

    def has_advantage(names: set[str]) -> bool:
        return any(find_meaning(name) == "A" or name == "A" for name in names)

    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            left, right = (
                {x.id for x in ast.walk(side) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load)}
                for side in (node.left, node.right)
            )
            found |= (right if has_advantage(left) else set()) | (left if has_advantage(right) else set())
    return frozenset(found)


class NameReader(Reader):
    """A reader of the grammar that knows the usual names.

    is_foreign: is something read that the grammar has not?  read_as: the symbol of each name that is typed.
    """

    def __init__(self, text: str, parameters: Iterable[str]) -> None:
        super().__init__(text, parameters, {})
        self.is_foreign = False
        self.read_as: dict[str, Any] = {}
        self.declared: dict[str, None] = {}
        self.assumed: tuple[str, ...] = ()
        self.assigned: dict[str, int] = {}  # name -> how deep its value is nested
        self.names_typed: set[str] = set()  # names, attributes and keys in the whole text
        self.values_typed: list[str] = []  # names of values, in their order
        self.factors: frozenset[str] = frozenset()  # names that only multiply
        self.probabilities: dict[str, ast.expr] = {}  # names that are read as one, where each stands
        self.later: set[str] = set()  # names that are assigned further below
        self.target = ""  # the name that the line assigns
        self.used: set[str] = set()  # assigned names that later lines read
        self.temperatures: dict[str, str] = {}  # of softmax, "" for none -> its argument

    def collect_names(self, tree: ast.AST) -> None:
        """Note the names in the whole text, by which some of them are read."""
        for node in ast.walk(tree):
            match node:
                case ast.Name(name, context):
                    self.names_typed.add(name)
                    self.values_typed += [name] if isinstance(context, ast.Load) else []
                case ast.Attribute(_, name) | ast.Subscript(_, ast.Constant(str(name))):
                    self.names_typed.add(name)
        self.factors = list_factors(tree) | list_multipliers_of_advantage(tree)

    def read_name(self, name: str, node: ast.expr) -> Any:
        if name in self.later and name not in self.names and not self.has_meaning(name):
            self.is_foreign = True
            raise self.make_error_at(f"{name[:SHOWN]!r} is used before it is assigned", node)
        if name in self.names:
            if name in ATOMS:
                self.read_as[name] = self.names[name]
            return self.names[name]
        return self.read_usual_name(name, name, node)

    def has_meaning(self, name: str) -> bool:
        return name in MASKS or (name not in AMBIGUOUS and any(find(name) for find in MEANINGS))

    def read_usual_name(self, typed: str, name: str, node: ast.expr, is_setting: bool = False) -> Any:
        """Return the symbol for a usual name of a log-probability, an advantage, a mask or a coefficient."""
        if find_meaning(name) == "rho" and (pair := self.find_older_policies()):
            self.is_foreign = True
            hint = f": type {OF_TWO_POLICIES.format(name, *pair)}"
            raise self.make_error_with_hint(f"ambiguous name {name[:SHOWN]!r}", hint, node)
        if self.is_weight(name):
            self.is_foreign = True
            self.read_as[typed] = ATOMS["rho"]
            return ATOMS["rho"]
        if name in AMBIGUOUS:
            self.is_foreign = True
            hint = f": type {AMBIGUOUS[name].format(name)}{self.ask_for_others(name)}"
            raise self.make_error_with_hint(f"ambiguous name {name!r}", hint, node)
        if name in MASKS:
            symbol = MASK
        elif find_density(name) is not None:
            symbol = self.read_probability(name, node)
        elif (negative := find_negative_density(name)) is not None:
            symbol = -ATOMS[self.choose_older_policy(name, negative)]
        elif (meaning := find_meaning(expand_initial(name, self.names_typed))) is not None:
            symbol = self.read_density(name, meaning, node)
        elif {"prob", "probs"} & {*split_words(name)}:
            symbol = self.read_probability(name, node)
        elif is_setting or is_coefficient(name):
            return self.declare_parameter(typed, name, node)
        elif (density := find_logits(typed.replace(".", "_"))) is not None:
            self.is_foreign = True
            return LOGITS[ATOMS[density]]
        elif typed != name:
            declare = f"type {name[:SHOWN]} for a number that is the same for all samples, with"
            hint = ask_for_value(name) or f"{declare} {spell_option('param', name[:SHOWN])}"
            raise self.make_error_with_hint(f"unknown name {typed[:SHOWN]!r}", f": {hint}", node)
        else:
            return super().read_name(name, node)  # refuses it
        self.is_foreign, self.read_as[typed] = True, symbol
        return symbol

    def is_weight(self, name: str) -> bool:
        """Is a ratio read as rho: it only multiplies, or an advantage, or the text names an old policy?

        It could be p/q as well; the answer says how it was read.
        """
        is_ratio = AMBIGUOUS.get(name) == RATIO
        return is_ratio and (name in self.factors or self.is_beside_old_policy())

    def is_unsettled(self, name: str) -> bool:
        """Is it a name whose value has to be asked for?"""
        if name in self.names or name in self.later or self.is_weight(name) or self.has_meaning(name):
            return False
        if name in DENSITIES:  # a policy, as in H(q)
            return False
        return name in AMBIGUOUS or bool(ask_for_value(name))

    def ask_for_others(self, name: str) -> str:
        """Return what to type for the other names of the text whose values have to be asked for."""
        others = [
            other
            for other in dict.fromkeys(self.values_typed)
            if other != name and self.is_unsettled(other) and not suggest_for_top_words(other)
        ]
        own = ask_for_value(name)
        asked = ((other, AMBIGUOUS.get(other, "").format(other) or ask_for_value(other)) for other in others)
        return "".join(f"; for {other[:SHOWN]}: {hint}" for other, hint in asked if hint != own)

    def suggest_name(self, name: str) -> str:
        others = self.ask_for_others(name) if ask_for_value(name) else ""
        self.is_foreign |= bool(others)
        return super().suggest_name(name) + others

    def is_beside_old_policy(self) -> bool:
        """Has the text a log-probability of the old policy?  A ratio there is rho."""
        return any(find_meaning(name) == "log_mu" for name in self.names_typed)

    def find_older_policies(self) -> tuple[str, str] | None:
        """Return the names of log_old and of log_mu, if the text has names of both."""
        named = {
            self.choose_older_policy(name, meaning): name
            for name in sorted(self.names_typed)
            if (meaning := find_meaning(name)) in ("log_mu", "log_old")
        }
        return (named["log_old"], named["log_mu"]) if len(named) == 2 else None

    def choose_older_policy(self, name: str, meaning: str) -> str:
        """Return the meaning of a name; old_logp is log_old if another policy is named as the sampler."""
        if meaning != "log_mu" or not names_old(name):
            return meaning
        samplers = (candidate for candidate in self.names_typed if find_meaning(candidate) == "log_mu")
        return meaning if all(map(names_old, samplers)) else "log_old"

    def read_logits(self, node: ast.expr, call: Any) -> Any:
        """Return the log density of the policy whose logits are the argument of softmax.

        The name of the logits says which policy it is, or else the name that the line assigns.
        """
        self.is_foreign, temperature = True, ""
        typed = ast.unparse(node)
        match node:
            case ast.BinOp(logits, ast.Div(), divisor):
                node, temperature = logits, ast.unparse(divisor)
        assigned = self.names.get(node.id, S.Zero) if isinstance(node, ast.Name) else S.Zero
        if densities := [density for density, logits in LOGITS.items() if assigned.has(logits)]:
            [density] = densities
            self.used |= {*_list_names(node)}
            factor = LOGITS[density] / assigned
            temperature = temperature if factor == 1 else str(factor)
        else:
            named = "_".join(_list_names(node))
            meaning = find_logits(f"{named}_logits") if named else None
            if meaning is None and names_policy(self.target):
                meaning = find_logits(f"{self.target}_logits")
            if meaning not in ATOMS:
                reason = f"{call.name}(..) of {typed[:SHOWN]!r}, the logits of an unknown policy"
                raise self.make_error_with_hint(reason, OF_UNKNOWN_LOGITS, call.node)
            density = ATOMS[meaning]
        self.read_as.setdefault(typed, WORD_LOGS[density])
        self.temperatures.setdefault(temperature, typed)
        return density

    def read_probability(self, name: str, node: ast.expr) -> Any:
        """Return exp(log_q) for probs, exp(log_p) for ref_probs: those of the sampled token."""
        density = find_density(expand_initial(name, self.names_typed))
        self.probabilities.setdefault(name, node)
        if density is None:
            return self.read_density(name, PROBABILITIES, node)  # refuses it
        return exp(ATOMS[self.choose_older_policy(name, density)])

    def refuse_probability_factor(self, e: Any, is_summed: bool = False) -> None:
        """Raise UsageError for a probability that multiplies: it may be one of the whole vocabulary."""
        if self.probabilities and is_probability(e):
            name, node = next(iter(self.probabilities.items()))
            exact = str(average_over_words(e)) if is_summed else "full_kl(q, p) or H(q)"
            self.read_density(name, PROBABILITIES, node, exact)

    def read_density(
        self, name: str, meaning: str, node: ast.expr, exact: str = "full_kl(q, p) or H(q)"
    ) -> Any:
        if meaning == LOG_WEIGHT:
            return ATOMS["log_q"] - ATOMS["log_mu"]
        if meaning not in ATOMS:
            self.is_foreign = True
            is_log = "log" in split_words(name) and meaning == PROBABILITIES
            kind, wanted = ("log-probability", LOG_PROBABILITIES) if is_log else ("probability", meaning)
            over_words = f"; for a sum over the vocabulary type {exact}" * (meaning == PROBABILITIES)
            raise self.make_error_with_hint(f"{name!r} is a {kind}", f": type {wanted}{over_words}", node)
        return ATOMS[self.choose_older_policy(name, meaning)]

    def read_method_of_policy(self, method: str, receiver: ast.expr, node: ast.expr) -> Any:
        """Return log_q for dist.log_prob(a), log_p for ref_policy.log_prob(a), H(q) for dist.entropy()."""
        self.is_foreign = True
        named = (x for x in ast.walk(receiver) if isinstance(x, ast.Name | ast.Attribute))
        last = next((x.attr if isinstance(x, ast.Attribute) else x.id for x in named), "")
        meaning = find_policy(last)
        if meaning is None:
            hint = f": type {LOG_PROBABILITIES}"
            raise self.make_error_with_hint(
                f"{method}(..) of {last[:SHOWN]!r}, an unknown policy", hint, node
            )
        if method == "entropy":
            return build_entropy(meaning.removeprefix("log_"))
        self.read_as[f"{last}.{method}()"] = ATOMS[meaning]
        return ATOMS[meaning]

    def declare_parameter(self, typed: str, name: str, node: ast.expr) -> Any:
        """Return the parameter for a coefficient that is not declared."""
        self.is_foreign = True
        is_plain = PARAMETER.fullmatch(name) and not is_of_answers(name) and is_declarable(name)
        if not is_plain or name in COUNTS:
            hint = f": assign its value to another name, or declare one with {spell_option('param')}"
            raise self.make_error_with_hint(f"no parameter can be called {name[:SHOWN]!r}", hint, node)
        symbol = self.read_as[typed] = parameter(name)
        if name not in PARAMETERS:
            self.declared[name] = None
        return symbol

    def refuse_two_names(self) -> None:
        """Refuse two names for one thing: of logprobs and new_logprobs one is the old policy's.

        An assigned ratio is one name of rho.
        """
        rho = ATOMS["rho"]
        first = {value: name for name, value in self.names.items() if value == rho and name not in ATOMS}
        for typed, symbol in self.read_as.items():
            first_name = first.setdefault(symbol, typed)
            if first_name != typed and (typed not in ATOMS or first_name in self.read_as):
                self.is_foreign = True
                both = f"{first_name[:SHOWN]!r} and {typed[:SHOWN]!r} would both be read as {symbol}"
                if symbol == rho:
                    pair = sorted((first_name, typed), key=self.order_ratio)
                    raise UsageError(f"{both}: {TWO_RATIOS.format(*(name[:SHOWN] for name in pair))}")
                if of_token := suggest_for_token_advantage(first_name, typed):
                    raise UsageError(f"{both}: {of_token}")
                name_typed, instead = first_name, ANOTHER.get(str(symbol), "...")
                if (letters := {name[-1:]: name for name in (first_name, typed)}).keys() == {"p", "q"}:
                    name_typed, instead = letters["p"], "log_p"  # as in the grammar
                is_call, short = name_typed.endswith(")"), name_typed.split(".")[-1][:SHOWN]
                example = f"assign one of them first, as in `{short} = {instead}; ...`"
                raise UsageError(f"{both}: {f'type {instead} for one of them' if is_call else example}")

    def order_ratio(self, name: str) -> tuple[bool, bool]:
        """Put a name that is assigned, or that is a plain ratio, before a weight."""
        return AMBIGUOUS.get(name) != RATIO, name in self.read_as

    def split_chain(self, node: ast.expr) -> list[str] | None:
        """Return the names of x.y["z"], where x is no value: no name of the grammar, and not assigned."""
        names: list[str] = []
        while True:
            match node:
                case ast.Attribute(of, name):
                    names.append(name)
                case ast.Subscript(of, ast.Constant(str(name))):
                    names.append(name)
                case ast.Name(name):
                    is_value = name in self.names or find_meaning(name) or name in MASKS or name in AMBIGUOUS
                    return None if is_value else [name, *reversed(names)]
                case _:
                    return None
            node = of

    def read_attribute(self, node: ast.expr) -> Any:
        """Return the value of self.beta, cfg.kl_coef or batch["advantages"], by the last name; of x[:, j]."""
        match node:
            case ast.Attribute(ast.Name("self"), name) if name in self.assigned:
                self.used.add(name)
                return self.names[name]
            case ast.Subscript(of, index) if isinstance(index, ast.Tuple | ast.Slice):
                places = getattr(index, "elts", [index])
                if all(isinstance(place, ast.Slice | ast.Name | ast.Constant) for place in places):
                    self.assumed = (*self.assumed, f"{ast.unparse(node)[:SHOWN]} is of the tokens drawn")
                    return self.build(of, 1)
        chain = self.split_chain(node)
        plain = chain is not None and all(PARAMETER.fullmatch(name) for name in chain)
        if chain is None or not plain or chain[0] in LIBRARIES:
            return super().build(node, MAX_DEPTH)  # refuses it
        self.is_foreign = True
        of_coefficient = chain[-1] == "value" and len(chain) > 1 and is_coefficient(chain[-2])
        name = chain[-2] if of_coefficient else chain[-1]  # kl_ctl.value is kl_ctl
        return self.read_usual_name(".".join(chain), name, node, bool(SETTINGS & {*chain[:-1]}))

    def list_names_read(self) -> Iterator[Message]:
        """Yield what was read as what."""
        pairs = tuple(
            (x, LOG_WEIGHT if symbol.is_Add else str(symbol))
            for x, symbol in self.read_as.items()
            if symbol != MASK and x != str(symbol)
        )
        if pairs:
            yield Message("names-read", pairs=pairs)
        if self.declared:
            yield Message("parameters-declared", names=tuple(self.declared))
        if masks := tuple(typed for typed, symbol in self.read_as.items() if symbol == MASK):
            yield Message("masks-left-out", names=masks)
