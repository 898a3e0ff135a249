"""The functions of PyTorch, JAX and NumPy that losses use, each in terms of the loss grammar.

A row of FUNCTIONS has the names of the arguments, those after "/" optional, and a function that builds the
value from the reader, the call and the arguments as trees.

>>> [name for name, row in FUNCTIONS.items() if row.names == ("x", "/", "lo", "hi")]
['clamp', 'clamp_', 'clip', 'clip_by_value']
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from klsym.errors import spell_option
from klsym.language.expressions import DENSITIES as SYMBOLS
from klsym.language.expressions import above, exp, log_q, sg
from klsym.language.parser import SHOWN
from klsym.language.pasted_text import QUANTILES
from klsym.language.recognition import recognise
from klsym.language.reductions import MASK, SAMPLES, WORD_LOGS, WORDS, Std, has_words, select_drawn_word
from klsym.language.sums import DENSITIES, OverVocabulary, full_kl
from klsym.language.training_names import find_policy, names_drawn_word


class Call(NamedTuple):
    """A call as it is typed: x.f(y) has the arguments x, y."""

    name: str
    arguments: list[ast.expr]
    node: ast.Call
    is_method: bool


class Row(NamedTuple):
    """A function that is read."""

    names: tuple[str, ...]
    build: Callable[..., Any]  # of the reader, the call, {name: tree}, the depth


KEYWORDS = {
    "input": "x", "a": "x", "other": "y", "x2": "y", "x1": "x", "exponent": "n", "min": "lo", "a_min": "lo",
    "max": "hi", "a_max": "hi", "clip_value_min": "lo", "clip_value_max": "hi", "dim": "axis",
    "keepdim": "keepdims", "condition": "when",
}  # fmt: skip


def bind_arguments(reader: Any, row: Row, call: Call) -> dict[str, ast.expr]:
    """Return the arguments by name; what is unknown, missing or given twice is refused."""
    order = [name for name in row.names if name != "/"]
    needed = row.names[: row.names.index("/")] if "/" in row.names else row.names
    short_name = call.name[:SHOWN]
    if len(call.arguments) > len(order) or any(isinstance(x, ast.Starred) for x in call.arguments):
        raise reader.make_error_at(f"{short_name} takes {len(order)} arguments at most", call.node)
    arguments = dict(zip(order, call.arguments, strict=False))
    for keyword in call.node.keywords:
        name = keyword.arg or "**"
        argument = name if name in order else KEYWORDS.get(name, "")
        if argument not in order or argument in arguments:
            raise reader.make_error_at(f"the argument {name[:SHOWN]}= of {short_name} is not read", call.node)
        arguments[argument] = keyword.value
    arguments = {name: tree for name, tree in arguments.items() if not _is_none(tree)}
    if missing := [name for name in needed if name not in arguments]:
        raise reader.make_error_at(f"{short_name} without its argument {missing[0]}", call.node)
    return arguments


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# ---------------------------------------------------------------------------- elementwise
def make_elementwise_row(names: str, of: Callable[..., Any]) -> Row:
    """Return a row of which all arguments are formulas: of(reader, node, *values)."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        values = [reader.build(given[name], depth) for name in names.split()]
        return of(reader, call.node, *values)

    return Row(tuple(names.split()), build)


def make_grammar_row(name: str) -> Row:
    """Return the row of a function that the grammar has, too."""
    return make_elementwise_row("x", lambda reader, node, x: reader.call_function(name, [x], node))


def make_operator_row(operator: ast.operator) -> Row:
    return make_elementwise_row("x y", lambda reader, node, x, y: reader.apply_operator(operator, x, y, node))


def _build_exp(reader: Any, x: Any, node: ast.expr) -> Any:
    return reader.call_function("exp", [x], node)


def _build_log(reader: Any, x: Any, node: ast.expr) -> Any:
    return reader.call_function("log", [x], node)


def _make_extreme_row(name: str) -> Row:
    """Return the row of min or max; of a library, and as methods, a number is an axis."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        if "y" not in given:
            raise reader.make_error_at(f"{call.name} over samples or tokens is not read", call.node)
        x, y = (reader.build(given[key], depth) for key in ("x", "y"))
        if call.name == name and y.is_number:
            hint = f"{name} with a number is that over an axis: type {name}(x, {y}) for the {name} of both"
            raise reader.make_error_at(hint, call.node)
        return reader.call_function(name, [x, y], call.node)

    return Row(("x", "/", "y"), build)


def _build_clamp(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return clip(x, lo, hi), or one bound alone."""
    x = reader.build(given["x"], depth)
    bounds = {name: reader.build(given[name], depth) for name in ("lo", "hi") if name in given}
    if not bounds:
        raise reader.make_error_at(f"{call.name} without a bound", call.node)
    if len(bounds) == 2:
        return reader.call_function("clip", [x, bounds["lo"], bounds["hi"]], call.node)
    return reader.call_function("max" if "lo" in bounds else "min", [x, *bounds.values()], call.node)


def _build_where(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    grammar_call = ast.Call(ast.Name("where"), [given[name] for name in ("when", "x", "y")], [])
    return reader.build(ast.copy_location(grammar_call, call.node), depth)


# ---------------------------------------------------------------------------- means and sums
def _make_reduction_row(kind: str) -> Row:
    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        _refuse_computed_axis(reader, call, given)
        x = reader.build(given["x"], depth)
        mean = reader.reduce_to_mean(kind, x, call.name, "axis" in given)
        reader.note_axis(mean, given.get("axis"))
        reader.token_sums.note(x, given.get("axis"))
        return mean

    return Row(("x", "/", "axis", "keepdims"), build)


def _build_std(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the standard deviation over the batch; one over n or n - 1 is a constant factor."""
    deviation = Std(reader.build(given["x"], depth))
    reader.note_axis(deviation, given.get("axis"))
    return deviation


def _make_masked_row(kind: str) -> Row:
    """Return the row of masked_mean(x, mask) or masked_sum(x, mask)."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        _refuse_computed_axis(reader, call, given)
        x, mask = reader.build(given["x"], depth), reader.build(given["mask"], depth)
        if mask != MASK:
            raise reader.make_error_at(
                f"{call.name} with a second argument that is no mask of padding", call.node
            )
        if kind == "mean":
            reader.token_sums.note(MASK * x, given.get("axis"))
            reader.token_sums.note(MASK, given.get("axis"))
            return reader.reduce_to_mean("sum", MASK * x, call.name) / reader.reduce_to_mean(
                "sum", MASK, call.name
            )
        return reader.reduce_to_mean(kind, MASK * x, call.name)

    return Row(("x", "mask", "/", "axis"), build)


def _refuse_computed_axis(reader: Any, call: Call, given: dict[str, ast.expr]) -> None:
    for name in ("axis", "keepdims"):
        node = given.get(name)
        if node is not None and not _is_literal(node):
            raise reader.make_error_at(f"{call.name} over an axis that is no number", call.node)


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant(int() | bool()) | ast.UnaryOp(ast.USub(), ast.Constant(int())):
            return True
        case ast.Tuple(items) | ast.List(items):
            return all(map(_is_literal, items))
    return False


# ---------------------------------------------------------------------------- divergences
POLICIES = {"pi": "q", "pi_theta": "q", "policy": "q", "ref": "p", "pi_ref": "p", "pi_old": "mu"}


def _name_policy(name: str) -> str:
    """Return q, p or mu for the name of a policy; other names as they are."""
    if name in POLICIES or name in DENSITIES:
        return POLICIES.get(name, name)
    return (find_policy(name) or name).removeprefix("log_")


def _build_divergence(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return KL(q||p), which the text has as KL(q, p)."""
    names = [node.id for node in given.values() if isinstance(node, ast.Name)]
    policies = [_name_policy(name) for name in names]
    if len(policies) != 2 or not {*policies} <= {*DENSITIES} or len({*policies}) == 1:
        policy_names = ", ".join(DENSITIES)
        raise reader.make_error_at(
            f"{call.name} is of two different policies among {policy_names}, as in KL(q||p)", call.node
        )
    return full_kl(*policies)


def _build_kl_div(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return F.kl_div(log a, log b, log_target=True) = sum_y b (log b - log a) = KL(b||a).

    An input that is a, not log a, is read as PyTorch computes it: sum_y b (log b - a).
    """
    flag, reduction = given.get("log_target"), given.get("reduction")
    is_log = isinstance(flag, ast.Constant) and flag.value is True
    first, second = (select_drawn_word(reader.build(given[name], depth)) for name in ("x", "target"))
    target = second if is_log else (second.args[0] if second.args else None)
    symbols = {symbol: name for name, symbol in DENSITIES.items()}
    is_exponentiated = isinstance(first, exp) and first.args[0] in SYMBOLS
    if reader.gathers:
        hint = ": kl_div adds up all words; for those that are gathered type full(M*..) with a mask M"
        raise reader.make_error_with_hint(f"{call.name} beside gather", hint, call.node)
    if not (first in SYMBOLS or is_exponentiated) or target not in SYMBOLS or first == target:
        hint = ": it is read of two log-probabilities, as in F.kl_div(logp, ref_logp, log_target=True)"
        if second in SYMBOLS and not is_log:
            hint = (
                ": without log_target=True the target is a probability, as in F.kl_div(logp, ref_logp.exp())"
            )
        raise reader.make_error_with_hint(f"{call.name} of other arguments", hint, call.node)
    factor = _read_reduction(reader, call, reduction)
    if is_exponentiated:
        return factor * OverVocabulary(recognise(exp(target - log_q)) * (target - first))
    return factor * full_kl(symbols[target], symbols[first])


def _read_reduction(reader: Any, call: Call, reduction: ast.expr | None) -> Any:
    """Return the factor of a sum over the vocabulary; a setting is assumed to be batchmean."""
    factors = {"none": 1 / WORDS, "mean": 1 / WORDS, "batchmean": 1, "sum": SAMPLES}
    match reduction:
        case None:
            return factors["mean"]
        case ast.Constant(name) if name in factors:
            return factors[name]
        case ast.Name() | ast.Attribute():
            typed = ast.unparse(reduction)[:40]
            reader.assumed = (*reader.assumed, f"{typed} is 'batchmean', another one is another factor")
            return factors["batchmean"]
    raise reader.make_error_at("kl_div with a reduction that is not read", call.node)


def _make_distance_row(of: Callable[[Any, ast.expr, Any], Any]) -> Row:
    """Return the row of the mean of(reader, node, x - y), such as mse_loss(x, y)."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        x, y = (reader.build(given[name], depth) for name in ("x", "target"))
        value, reduction = of(reader, call.node, x - y), given.get("reduction")
        kind = reduction.value if isinstance(reduction, ast.Constant) else "" if reduction else "mean"
        if kind not in ("none", "mean", "sum"):
            raise reader.make_error_at(f"{call.name} with a reduction that is not read", call.node)
        return value if kind == "none" else reader.reduce_to_mean(kind, value, call.name)

    return Row(("x", "target", "/", "reduction"), build)


def _build_huber(reader: Any, node: ast.expr, d: Any) -> Any:
    """Return m*|d| - m**2/2 with m = min(|d|, 1): d**2/2 near 0, |d| - 1/2 beyond."""
    size = reader.call_function("abs", [d], node)
    near = reader.call_function("min", [size, reader.one], node)
    return near * size - near**2 / 2


def names_kl_module(node: ast.Call) -> bool:
    """Is it nn.KLDivLoss(..)?"""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "KLDivLoss"


def unfold_module(node: ast.Call, modules: Mapping[str, list[ast.keyword]]) -> ast.Call:
    """Return F.kl_div(a, b, ..) for nn.KLDivLoss(..)(a, b), or for the name of such a module.

    modules: the name of each one, and its arguments.
    """
    match node.func:
        case ast.Call(_, [], keywords) as module if names_kl_module(module):
            pass
        case ast.Name(name) if name in modules:
            keywords = modules[name]
        case _:
            return node
    function = ast.copy_location(ast.Attribute(ast.Name("F"), "kl_div"), node)
    return ast.copy_location(ast.Call(function, node.args, [*node.keywords, *keywords]), node)


def _make_softmax_row(is_log: bool) -> Row:
    """Return the row of log_softmax or softmax: of every word; its argument is the logits of a policy."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        word = WORD_LOGS[reader.read_logits(given["x"], call)]
        is_detached = any(isinstance(x, ast.Attribute) and x.attr == "detach" for x in ast.walk(given["x"]))
        word = sg(word) if is_detached else word
        return word if is_log else exp(word)

    return Row(("x", "/", "axis", "dtype"), build)


def _count_samples(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the number of samples of a batch."""
    reader.counts_samples = True
    return SAMPLES


def _build_gather(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return a value of every word at the drawn word; the name of the index has to say that it is that."""
    of_words = reader.build(given["x"], depth)
    if not has_words(of_words):
        reason = f"{call.name} of a value that is not of every word"
        raise reader.make_error_with_hint(reason, suggest_instead("gather"), call.node)
    index = ast.unparse(given["index"]) if "index" in given else ""
    if not names_drawn_word(index):
        hint = ": name the index of the drawn word token_ids or labels; for the top k words type full(M*..)"
        raise reader.make_error_with_hint(f"{call.name} at unknown words", hint, call.node)
    reader.gathers = True
    reader.assumed = (*reader.assumed, f"{index} is the word that was drawn")
    return select_drawn_word(of_words)


OVER_WORDS = {"log_softmax", "softmax", "logsumexp", "gather", "cross_entropy"}
OVER_A_BATCH = {"var", "whiten", "masked_whiten", "masked_std", "masked_var"}


def suggest_instead(name: str) -> str:
    """Return what to type for a function over the batch or the vocabulary that is not read; empty for others.

    >>> suggest_instead("var")
    ": type normalised(R) for (R - R.mean())/R.std(), or R alone and choose batch='std'"
    """
    if name in OVER_WORDS:
        return (
            ": type log_q and log_p, full_kl(q, p) for a sum over the vocabulary; klsym audit runs functions"
        )
    if name in QUANTILES:
        return ": it is read in comparisons, as in (x >= quantile(x, 0.8))*A*logp, a mask M that is held"
    if name not in OVER_A_BATCH:
        return ""
    option = spell_option("batch", "std")
    return f": type normalised(R) for (R - R.mean())/R.std(), or R alone and choose {option}"


FUNCTIONS: dict[str, Row] = {
    **{name: make_grammar_row(name) for name in ("exp", "log", "sqrt", "abs")},
    "absolute": make_grammar_row("abs"),
    **dict.fromkeys(("detach", "stop_gradient", "item"), make_grammar_row("sg")),
    "expm1": make_elementwise_row("x", lambda reader, node, x: _build_exp(reader, x, node) - 1),
    "exp2": make_elementwise_row("x", lambda reader, node, x: reader.build_power(reader.two, x, node)),
    "log1p": make_elementwise_row("x", lambda reader, node, x: _build_log(reader, 1 + x, node)),
    "square": make_elementwise_row("x", lambda reader, node, x: reader.build_power(x, reader.two, node)),
    "reciprocal": make_elementwise_row(
        "x", lambda reader, node, x: reader.apply_operator(ast.Div(), reader.one, x, node)
    ),
    "rsqrt": make_elementwise_row("x", lambda reader, node, x: 1 / reader.call_function("sqrt", [x], node)),
    **dict.fromkeys(
        ("sign", "sgn"),
        make_elementwise_row("x", lambda reader, node, x: above(x, reader.zero) - above(reader.zero, x)),
    ),
    **dict.fromkeys(("neg", "negative"), make_elementwise_row("x", lambda reader, node, x: -x)),
    "relu": make_elementwise_row(
        "x", lambda reader, node, x: reader.call_function("max", [x, reader.zero], node)
    ),
    "sigmoid": make_grammar_row("sigmoid"),
    **dict.fromkeys(("logsigmoid", "log_sigmoid"), make_grammar_row("logsigmoid")),
    "softplus": make_elementwise_row(
        "x", lambda reader, node, x: _build_log(reader, 1 + _build_exp(reader, x, node), node)
    ),
    **dict.fromkeys(
        ("pow", "power"), make_elementwise_row("x n", lambda reader, node, *xn: reader.build_power(*xn, node))
    ),
    "add": make_operator_row(ast.Add()),
    **dict.fromkeys(("sub", "subtract"), make_operator_row(ast.Sub())),
    **dict.fromkeys(("mul", "multiply"), make_operator_row(ast.Mult())),
    **dict.fromkeys(("div", "divide", "true_divide"), make_operator_row(ast.Div())),
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_by_value"), Row(("x", "/", "lo", "hi"), _build_clamp)),
    "clamp_min": make_elementwise_row(
        "x lo", lambda reader, node, x, lo: reader.call_function("max", [x, lo], node)
    ),
    "clamp_max": make_elementwise_row(
        "x hi", lambda reader, node, x, hi: reader.call_function("min", [x, hi], node)
    ),
    **dict.fromkeys(("min", "minimum"), _make_extreme_row("min")),
    **dict.fromkeys(("max", "maximum"), _make_extreme_row("max")),
    "where": Row(("when", "x", "y"), _build_where),
    **{kind: _make_reduction_row(kind) for kind in ("mean", "sum")},
    **{f"reduce_{kind}": _make_reduction_row(kind) for kind in ("mean", "sum")},
    "std": Row(("x", "/", "axis", "keepdims", "unbiased", "correction", "ddof"), _build_std),
    "len": Row(("x",), _count_samples),
    "zeros_like": Row(("x",), lambda reader, call, given, depth: reader.zero),
    "ones_like": Row(("x",), lambda reader, call, given, depth: reader.one),
    "softmax": _make_softmax_row(is_log=False),
    "log_softmax": _make_softmax_row(is_log=True),
    "gather": Row(("x", "/", "axis", "index"), _build_gather),
    "take_along_axis": Row(("x", "index", "/", "axis"), _build_gather),
    "masked_mean": _make_masked_row("mean"),
    "masked_sum": _make_masked_row("sum"),
    "kl_div": Row(("x", "target", "/", "reduction", "log_target"), _build_kl_div),
    "mse_loss": _make_distance_row(lambda reader, node, d: d**2),
    "l1_loss": _make_distance_row(lambda reader, node, d: reader.call_function("abs", [d], node)),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss"), _make_distance_row(_build_huber)),
    **dict.fromkeys(("KL", "kl", "kl_divergence"), Row(("x", "y"), _build_divergence)),
}
