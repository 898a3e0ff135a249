"""The words for objectives, and sums of them as they are typed: the same in all commands.

>>> read_objective("-policy-gradient + 0.04*reverse-kl").multiples
{'policy-gradient': -1, 'reverse-kl': 1/25}
>>> read_objective("2*E_mu[k3/T] - E[A]").multiples
{'E_mu[k3/T]': 2, 'reward': -A}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import sympy

from klsym.engine.answers.loss_hints import is_loss, write_explain
from klsym.engine.divergences.usual_names import name_kls, suggest_objective
from klsym.errors import UsageError, suggest_nearest
from klsym.language.expressions import PARAMETERS, REWARDS, A, R, log_q, parameter, rho, unfold
from klsym.language.parser import parse
from klsym.notation import losses
from klsym.notation.printers import TEXT
from klsym.records import record

KLS = ("reverse-kl", "forward-kl")
WHICH_KL = "reverse-kl for KL(policy || reference), or forward-kl for KL(reference || policy)"
OF_KLS = {"kl", "kld", "kl-divergence", "d_kl", "kl_div"}
WORDS = {  # each with what it may be divided by: T, the length of a sequence, or N, the tokens of a batch
    "reverse-kl": "T", "forward-kl": "", "next-token-reverse-kl": "TN", "next-token-forward-kl": "TN",
    "policy-gradient": "T", "token-policy-gradient": "TN", "entropy": "T", "next-token-entropy": "TN",
    "sampler-kl": "", "sampler-reverse-kl": "", "log-likelihood": "TN", "length": "", "inverse-length": "",
}  # fmt: skip
NAMES = (*WORDS, *(f"{word}/{letter}" for word, letters in WORDS.items() for letter in letters))
KINDS = ("zero", "combination", "f-divergence", "own-mean", "objective", "no-objective", "open")
SAME_KIND = {"0": "zero", "undecided": "open"}
OLD_WORDS = {
    "separable": "own-mean (E_mu of the loss itself) or objective (one without a name)",
    "none": "no-objective",
    "named": "the objective itself, such as reverse-kl",
}
IN_ANY_CASE = {word.lower(): word for word in (*NAMES, *KINDS, *SAME_KIND, *OLD_WORDS)}
INSIDE = (" inside clamps", " inside the clip range")
EXAMPLES = "'-E[R] + 0.04*reverse-kl', 'E_mu[k3/T]', 'reverse-kl inside clamps' or the like"
SENTENCE = 3  # words
T, N = parameter("T"), sympy.Symbol("N", positive=True)
CONSTANTS = {parameter(name) for name in PARAMETERS} - {T}
DIVISORS = {"": sympy.S.One, "/T": T, "/N": N}
OF_FIXED_SAMPLES = {
    reward * form / divisor: name + suffix
    for name, form in (("log-likelihood", log_q), ("token-policy-gradient", rho))
    for suffix, divisor in DIVISORS.items()
    for reward in (R, A)
}
OF_LENGTHS = {T: "length", 1 / T: "inverse-length", R / T: "policy-gradient/T", A / T: "policy-gradient/T"}
MEAN = re.compile(r"\bE(?:_q|_mu)?\[")
WORD = re.compile(rf"(?<!\w)(?:{'|'.join(sorted(NAMES, key=len, reverse=True))})(?!\w)")
TYPED = re.compile(r"[A-Za-z]\w*(?:-[A-Za-z]\w*)*(?:/[TN](?!\w))?")
OF_GROUPS = re.compile(r"\b(?:std|std_1|sum)\((?:R|T|T\*R)\)")  # in what measure says of groups


@record
class WantedObjective:
    """An objective as it was typed.

    word: one of KINDS, or the name of an objective without a multiple; else "".  multiples: of each name; of
    "reward" the whole reward, a function of R and A.  losses: of each E_mu[..] among the names.
    inside: is it only wanted inside the clip range?
    """

    text: str
    word: str = ""
    multiples: Mapping[str, Any] = field(default_factory=dict)
    losses: Mapping[str, Any] = field(default_factory=dict)
    inside: bool = False

    @property
    def is_kind(self) -> bool:
        return self.word in KINDS


def read_objective(text: str) -> WantedObjective:
    """Read an objective; raises UsageError for what names none, with the nearest word.

    >>> read_objective("own-mean").is_kind, read_objective("0.5*entropy/T").multiples
    (True, {'entropy/T': 1/2})
    """
    whole = text.strip()
    ending = next((end for end in INSIDE if whole.endswith(end)), "")
    typed = name_kls(whole.removesuffix(ending).strip())
    typed = IN_ANY_CASE.get(typed.lower(), typed)
    if typed in OLD_WORDS:
        raise UsageError(f"{typed!r} is no word for an objective: write {OLD_WORDS[typed]}")
    if (kind := SAME_KIND.get(typed, typed)) in KINDS:
        return WantedObjective(whole, kind, inside=bool(ending))
    multiples: dict[str, Any] = {}
    means: dict[str, Any] = {}
    for name, multiple, loss in _read_sum(typed):
        multiples[name] = sympy.expand(multiples.get(name, 0) + multiple)
        means |= {} if loss is None else {name: loss}
    multiples = {name: value for name, value in multiples.items() if value != 0}
    word = typed if typed in NAMES else ""
    return WantedObjective(whole, word, multiples=multiples, losses=means, inside=bool(ending))


Part = tuple[str, Any, Any]  # a name, its multiple, and the loss of an E_mu[..]


def _read_sum(text: str) -> Iterator[Part]:
    """Yield the parts of a sum of multiples; raises UsageError for what is no such sum."""
    replaced, sources = _mark_objectives(text)
    try:
        expression = parse(replaced, others={mark.name: mark for mark in sources})
    except UsageError:
        raise UsageError(describe_unknown(text)) from None
    multiples = _find_multiples(expression, frozenset(sources))
    if not sources or multiples is None or any(x.free_symbols - CONSTANTS for x in multiples.values()):
        raise UsageError(describe_unknown(text))
    for mark, source in sources.items():
        for name, factor, loss in _read_part(source):
            yield name, multiples.get(mark, sympy.S.Zero) * factor, loss


def _find_multiples(expression: Any, marks: frozenset[Any]) -> dict[Any, Any] | None:
    """Return the multiple of each mark in a sum of multiples of marks; None for any other expression.

    >>> x, y, z = sympy.symbols("x y z")
    >>> _find_multiples(2 * (x + z * y), frozenset({x, y}))
    {x: 2, y: 2*z}
    >>> _find_multiples(x * y, frozenset({x, y})) is _find_multiples(x + z, frozenset({x})) is None
    True
    """
    if expression in marks:
        return {expression: sympy.S.One}
    if expression.is_Mul:
        marked = [factor for factor in expression.args if factor.free_symbols & marks]
        inner = _find_multiples(marked[0], marks) if len(marked) == 1 else None
        scale = expression.func(*(factor for factor in expression.args if factor not in marked))
        return None if inner is None else {mark: scale * multiple for mark, multiple in inner.items()}
    if not expression.is_Add:
        return {} if expression == 0 else None
    multiples: dict[Any, Any] = {}
    for term in expression.args:
        inner = _find_multiples(term, marks)
        if inner is None:
            return None
        for mark, multiple in inner.items():
            multiples[mark] = multiples.get(mark, 0) + multiple
    return multiples


def _mark_objectives(text: str) -> tuple[str, dict[Any, str]]:
    """Return the text with a symbol in place of each word and each mean, and what it stands for."""
    lead = "objective_"
    while lead in text:
        lead += "_"
    sources: dict[Any, str] = {}
    replaced, place = "", 0
    while place < len(text):
        mean, word = MEAN.match(text, place), WORD.match(text, place)
        end = _find_bracket(text, mean.end()) if mean else word.end() if word else 0
        if end:
            mark = sympy.Symbol(f"{lead}{len(sources)}")
            replaced, sources[mark], place = f"{replaced}{mark}", text[place:end], end
        else:
            replaced, place = replaced + text[place], place + 1
    return replaced, sources


def _find_bracket(text: str, start: int) -> int:
    """Return the place after the bracket that closes at this depth; 0 if none does."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"[": 1, "]": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return 0


def _read_part(source: str) -> Iterator[Part]:
    """Yield the parts of a word or of a mean: E_mu[a + b] is E_mu[a] + E_mu[b]."""
    if not source.endswith("]"):
        yield source, sympy.S.One, None
        return
    under, _, inner = source[:-1].partition("[")
    expression = _parse_loss(inner, source)
    if under == "E_mu":
        yield from _read_mean_of_samples(expression, source)
    elif expression in OF_LENGTHS:
        yield OF_LENGTHS[expression], sympy.S.One, None
    elif expression.has(*REWARDS) and expression.free_symbols <= {*REWARDS, *CONSTANTS}:
        yield "reward", expression, None
    else:
        raise UsageError(f"{source[:60]!r} is no mean of a reward: write a name, or E_mu[..]")


def _parse_loss(text: str, source: str) -> Any:
    """Return the loss in a mean, where N and std(R) are names of a batch."""
    names = {"N": N}

    def name_call(match: re.Match[str]) -> str:
        name = f"of_group_{len(names)}"
        names[name] = sympy.Symbol(match[0].replace(" ", ""), positive=True)
        return name

    replaced = OF_GROUPS.sub(name_call, text)
    try:
        return parse(replaced, others=names)
    except UsageError as error:
        raise UsageError(f"{source[:60]!r} is no objective: {error}") from None


def _read_mean_of_samples(expression: Any, source: str) -> Iterator[Part]:
    """Yield the terms of E_mu[..] that depend on theta; the samples are held fixed."""
    terms = [term for term in sympy.Add.make_args(expression) if unfold(term).has(log_q)]
    if not terms:
        raise UsageError(f"{source[:60]!r} has no gradient, for its samples are fixed: write E[..]")
    for term in terms:
        factor, loss = term.as_coeff_Mul()
        if loss in OF_FIXED_SAMPLES:
            yield OF_FIXED_SAMPLES[loss], factor, None
        else:
            yield f"E_mu[{losses.show(loss, TEXT)}]", factor, loss


def describe_unknown(text: str) -> str:
    """Return why a text is no objective, with the nearest word."""
    start = f"{text[:60]!r} is no objective"
    plain, sources = _mark_objectives(text)
    for mark, source in reversed(sources.items()):
        plain = plain.replace(mark.name, "" if source.endswith("]") else source)
    words = [word for word in TYPED.findall(plain) if len(word) > 1 and word not in (*NAMES, *KINDS)]
    for word in words:
        if word in OLD_WORDS:
            return f"{start}: for {word!r} write {OLD_WORDS[word]}"
    if len(words) < SENTENCE and any(word.lower() in OF_KLS for word in words):
        return f"{start}: {WHICH_KL}"
    if hint := suggest_objective(text):
        return f"{start}: {hint}"
    loss = next((loss for loss in (text, *words[:1]) if is_loss(loss)), None)
    if loss is not None:
        return f"{start}: {loss[:60]} is a loss; what it minimises is said by {write_explain(loss)}"
    hints = (suggest_nearest(word, (*NAMES, *KINDS)) for word in words)
    if len(words) < SENTENCE and (hint := next(filter(None, hints), "")):
        return start + hint
    return f"{start}: {EXAMPLES} expected; known: {', '.join((*KINDS, *WORDS))}"
