"""The functions of PyTorch, JAX and NumPy that losses use, each in terms of the loss grammar.

A row of FUNCTIONS has the names of the arguments, those after "/" optional, and a function that builds the
value from the reader, the call and the arguments as trees.

>>> [name for name, row in FUNCTIONS.items() if row.names == ("x", "/", "lo", "hi")]
['clamp', 'clamp_', 'clip', 'clip_by_value', 'clipByValue']
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from sympy import Rational, S, expand, log

from klsym.language import parser
from klsym.language.expressions import DENSITIES, REWARDS, above, log_mu, log_q, remove_sg, unfold, where
from klsym.language.pasted.action_values import find_trained_coefficient
from klsym.language.pasted.calls import Call, Row, make_elementwise_row
from klsym.language.pasted.names import has_mask_index, list_chain, names_mask, split_operands
from klsym.language.pasted.notes import IDENTITY_METHODS
from klsym.language.pasted.rewards_of_tokens import CUMULATIVE, read_token_values
from klsym.language.pasted.vocabulary import VOCABULARY, suggest_instead
from klsym.language.reductions import ACTION_VALUE, MASK, ONE_HOT, SAMPLES, WORDS, Std, select_one_hot
from klsym.language.sums import Normalised
from klsym.language.training_names import split_words


# ---------------------------------------------------------------------------- elementwise
def make_grammar_row(name: str) -> Row:
    """Return the row of a function that the grammar has, too."""
    return make_elementwise_row("x", lambda reader, node, x: reader.call_function(name, [x], node))


def make_operator_row(operator: ast.operator) -> Row:
    return make_elementwise_row("x y", lambda reader, node, x, y: reader.apply_operator(operator, x, y, node))


def _build_exp(reader: Any, x: Any, node: ast.expr) -> Any:
    return reader.call_function("exp", [x], node)


def _build_expm1(reader: Any, node: ast.expr, x: Any) -> Any:
    """Return exp(x) - 1, which is 0 where a mask that multiplies x is 0."""
    kept = x.xreplace({MASK: reader.one})
    return (_build_exp(reader, kept, node) - 1) * (MASK if x.has(MASK) else 1)


def _read_exp(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return exp(x); of log_alpha, which is trained for SAC's temperature, the coefficient alpha."""
    name = next(iter(list_chain(given["x"])[-1:]), "")
    if name not in reader.names and (coefficient := find_trained_coefficient(name)):
        return reader.declare_parameter(name, coefficient, call.node)
    return _build_exp(reader, reader.build(given["x"], depth), call.node)


def _build_log(reader: Any, x: Any, node: ast.expr) -> Any:
    return reader.call_function("log", [x], node)


def _make_extreme_row(name: str) -> Row:
    """Return the row of min or max; of a library, and as methods, a number is an axis."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        if "y" not in given or "axis" in given:
            if "axis" in given and reader.build(given["x"], depth) == ACTION_VALUE:
                return ACTION_VALUE  # the smaller of several critics' values
            raise reader.make_error_at(f"{call.name} over samples or tokens is not read", call.node)
        x, y = (reader.build(given[key], depth) for key in ("x", "y"))
        if call.name == name and y.is_number:
            hint = f"{name} with a number is that over an axis: type {name}(x, {y}) for the {name} of both"
            raise reader.make_error_at(hint, call.node)
        return reader.call_function(name, [x, y], call.node)

    return Row(("x", "/", "y", "axis", "keepdims"), build)


def _build_clamp(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return clip(x, lo, hi), or one bound alone."""
    x = reader.build(given["x"], depth)
    bounds = {name: reader.build(given[name], depth) for name in ("lo", "hi") if name in given}
    if not bounds:
        raise reader.make_error_at(f"{call.name} without a bound", call.node)
    if len(bounds) == 2:
        return reader.call_function("clip", [x, bounds["lo"], bounds["hi"]], call.node)
    if call.name.startswith("clamp"):
        return _clamp_from_one_side(reader, call.node, x, bounds)
    return reader.call_function("max" if "lo" in bounds else "min", [x, *bounds.values()], call.node)


def _clamp_from_one_side(reader: Any, node: ast.expr, x: Any, bounds: Mapping[Any, Any]) -> Any:
    """Return max(x, lo) or min(x, hi); where on-policy x is the bound, with its slope, as PyTorch's clamp.

    Of min(x, 1) at x = 1 the slope is half of that, as it is of torch.minimum and jnp.clip.
    """
    [(kind, bound)] = bounds.items()
    meets = expand(remove_sg(unfold(x)).xreplace({log_mu: log_q}) - remove_sg(unfold(bound))) == 0
    if meets and kind == "hi" and unfold(x).is_positive:
        return reader.call_function("clip", [x, S.Zero, bound], node)
    if meets and x.has(*DENSITIES):
        return where(above(bound, x) if kind == "lo" else above(x, bound), bound, x)
    return reader.call_function("max" if kind == "lo" else "min", [x, bound], node)


def _build_where(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    grammar_call = ast.Call(ast.Name("where"), [given[name] for name in ("when", "x", "y")], [])
    return reader.build(ast.copy_location(grammar_call, call.node), depth)


def _fill_where(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the value where a condition holds, and x elsewhere, for x.masked_fill(condition, value)."""
    return _build_where(reader, call, {**given, "x": given["value"], "y": given["x"]}, depth)


# ---------------------------------------------------------------------------- means and sums
def _make_reduction_row(kind: str) -> Row:
    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        _refuse_computed_axis(reader, call, given)
        if kind == "mean":
            _refuse_selected(reader, given["x"])
        x = reader.read_averaged(kind, given["x"], depth)
        if x.has(ONE_HOT):
            return select_one_hot(x) / (WORDS if kind == "mean" else 1)
        if kind == "mean" and has_mask_index(given["x"]):
            return _average_kept(reader, call, x.xreplace({MASK: reader.one}), given.get("axis"))
        mean = reader.reduce_to_mean(kind, x, call.name, "axis" in given)
        reader.note_axis(mean, given.get("axis"))
        reader.token_sums.note(x, given.get("axis"))
        if kind == "mean":
            reader.token_sums.note_mean(x, given.get("axis"), call.name)
        return mean

    return Row(("x", "/", "axis", "keepdims"), build)


def _build_std(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the standard deviation over the batch; one over n or n - 1 is a constant factor."""
    deviation = Std(reader.build(given["x"], depth))
    reader.note_axis(deviation, given.get("axis"))
    return deviation


def _build_whitened(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return normalised(x) for whiten(x), where x is of rewards alone."""
    x = reader.build(given["x"], depth)
    if x.has(*DENSITIES) or not x.has(*REWARDS) or "shift_mean" in given:
        raise reader.make_error_with_hint(
            f"{call.name} of other values than rewards", suggest_instead("whiten"), call.node
        )
    reader.centred[x], reader.divides_by_std = None, True
    return Normalised(x)


def _copy_values(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the values of a list, without their gradients: torch.tensor(x) copies."""
    return reader.call_function("sg", [_join(reader, call, given, depth)], call.node)


def _make_masked_row(kind: str) -> Row:
    """Return the row of masked_mean(x, mask) or masked_sum(x, mask); some libraries have the mask first."""

    def build(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
        _refuse_computed_axis(reader, call, given)
        if names_mask(given["x"]) and not names_mask(given["mask"]):
            averaged, weights = given["mask"], given["x"]
        else:
            averaged, weights = given["x"], given["mask"]
        x, mask = reader.read_averaged(kind, averaged, depth), reader.build(weights, depth)
        if mask != MASK:
            typed = ast.unparse(weights)[:40]
            hint = f": for other weights type {ast.unparse(averaged)[:40]}*{typed}/{typed}.mean()"
            reason = f"{call.name} with a second argument that is no mask of padding"
            raise reader.make_error_with_hint(reason, hint, call.node)
        if kind == "mean":
            return _average_kept(reader, call, x, given.get("axis"))
        reader.token_sums.note(MASK * x, given.get("axis"))
        return reader.reduce_to_mean(kind, MASK * x, call.name)

    return Row(("x", "mask", "/", "axis", "keepdims", "eps", "dtype"), build)


PENALTIES: dict[str, Callable[[Any, ast.expr, Any], Any]] = {
    **dict.fromkeys(("kl", "k1"), lambda reader, node, d: d),
    "abs": lambda reader, node, d: reader.call_function("abs", [d], node),
    **dict.fromkeys(("mse", "k2"), lambda reader, node, d: d**2 / 2),
    **dict.fromkeys(("low_var_kl", "k3"), lambda reader, node, d: _build_exp(reader, -d, node) - 1 + d),
}
"""The kinds of verl's kl_penalty, of the difference of log-probabilities and those of the reference."""


def _build_penalty(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return kl_penalty(logprob, ref_logprob, kind) of verl/trainer/ppo/core_algos.py."""
    kind = getattr(given.get("kind"), "value", None)
    if not isinstance(kind, str) or kind not in PENALTIES:
        kinds = ", ".join(PENALTIES)
        hint = f": it is read for {kinds}, as in kl_penalty(logp, ref_logp, 'low_var_kl')"
        raise reader.make_error_with_hint(f"{call.name} of no such kind", hint, call.node)
    if kind in ("low_var_kl", "k3"):
        reader.note_assumption(f"the clamps of {call.name} far from p = q are left out")
    x, y = (reader.build(given[name], depth) for name in ("x", "y"))
    return PENALTIES[kind](reader, call.node, x - y)


AGGREGATES = {
    "token-mean": "({x}*{mask}).sum()/{mask}.sum()",
    "seq-mean-token-sum": "({x}*{mask}).sum(-1).mean()",
    "seq-mean-token-mean": "(({x}*{mask}).sum(-1)/{mask}.sum(-1)).mean()",
    "seq-mean-token-sum-norm": "({x}*{mask}).sum(-1).mean()",
}
"""The modes of verl's agg_loss, and what each computes, up to a constant factor."""
OF_SIZES = ("dp_size", "batch_num_tokens", "global_batch_size", "loss_scale_factor")


def _build_aggregate(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the mean that agg_loss of verl computes; a mode that is a setting is taken to be its default.

    Source: agg_loss in verl/trainer/ppo/core_algos.py of github.com/volcengine/verl.
    """
    mode, typed = given.get("mode", ast.Constant("token-mean")), ""
    if not isinstance(mode, ast.Constant):
        typed, mode = ast.unparse(mode)[:40], ast.Constant("token-mean")
        reader.note_assumption(f"{typed} is 'token-mean'")
    if mode.value not in AGGREGATES:
        modes = ", ".join(AGGREGATES)
        hint = f": its modes are {modes}; for another type the sums, as in (x*mask).sum(-1).mean()"
        raise reader.make_error_with_hint(f"{call.name} with {ast.unparse(mode)[:40]}", hint, call.node)
    if reader.build(given["mask"], depth) != MASK:
        raise reader.make_error_at(
            f"{call.name} with a second argument that is no mask of padding", call.node
        )
    if sizes := [name for name in OF_SIZES if name in given]:
        reader.note_assumption(f"{' and '.join(sizes)} change the loss by a constant factor alone")
    if mode.value.endswith("norm"):
        reader.note_assumption("the constant length that divides the sums is left out")
    names = {"x": "loss_mat", "mask": "loss_mask"}
    written = ast.parse(AGGREGATES[mode.value].format(**names), mode="eval").body
    arguments = {names[key]: given[key] for key in names}
    return reader.build(ast.copy_location(_Substitution(arguments).visit(written), call.node), depth)


class _Substitution(ast.NodeTransformer):
    """Writes arguments for the names of parameters."""

    def __init__(self, arguments: dict[str, ast.expr]) -> None:
        self.arguments = arguments

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.arguments.get(node.id, node)


def _average_kept(reader: Any, call: Call, x: Any, axis: ast.expr | None) -> Any:
    """Return the mean over the tokens that the mask keeps, sum(mask x)/sum(mask)."""
    reader.token_sums.note(MASK * x, axis)
    reader.token_sums.note(MASK, axis)
    total, count = (reader.reduce_to_mean("sum", summand, call.name) for summand in (MASK * x, MASK))
    return total / count


def _build_product(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the product of a ratio over the tokens of a sequence, exp of the sum of its logs."""
    logs = log(unfold(read_token_values(reader, call, given, depth)))
    if logs.has(log):
        hint = ": a product is read of ratios, as in prod(exp(logp - old_logp), -1)"
        raise reader.make_error_with_hint(f"{call.name} of a value that is no ratio", hint, call.node)
    return reader.call_function("exp", [reader.reduce_to_mean("sum", logs, call.name, True)], call.node)


def _refuse_selected(reader: Any, node: ast.expr) -> None:
    """Refuse the mean of x[keep], where keep is computed: it divides by the number of entries that stay."""
    match node:
        case ast.Subscript(_, ast.Name(name)) if name in reader.assigned:
            hint = f": type (x*{name}).sum() divided by what the batch is divided by, a number or mask.sum()"
            raise reader.make_error_with_hint(f"a mean over the entries that {name[:60]} keeps", hint, node)


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


def _count_samples(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the number of samples of a batch; that of the tokens of a response is refused."""
    if isinstance(given["x"], ast.Attribute) and {*split_words(given["x"].attr)} & {"ids", "tokens"}:
        hint = ": type T for the length of a response, or mask.sum() for the tokens of the batch"
        raise reader.make_error_with_hint(f"{call.name} of the tokens of a response", hint, call.node)
    reader.counts_samples = True
    return SAMPLES


def _count_elements(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the number of elements: x.numel(), of every word for logits; x.size(0), the samples."""
    axis = ast.unparse(given["axis"]) if "axis" in given else ""
    if axis not in ("", "0"):
        raise reader.make_error_at(f"{call.name} of another axis than that of the samples", call.node)
    of_words = reader.is_logits_argument(given["x"]) and not axis
    return SAMPLES * (WORDS if of_words else 1)


def _join(reader: Any, call: Call, given: dict[str, ast.expr], depth: int) -> Any:
    """Return the values of a list that a loop has filled, or the only element of a list."""
    match given["x"]:
        case ast.List([element]) | ast.Tuple([element]):
            return reader.build(element, depth)
    return reader.build(given["x"], depth)


HOLDING = (
    "detach",
    "stop_gradient",
    "item",
    "stopgrad",
    "stop_grad",
    "stopgradient",
    "StopGradient",
    "value",
    "numpy",
)

FUNCTIONS: dict[str, Row] = {
    **VOCABULARY,
    **CUMULATIVE,
    **{name: make_grammar_row(name) for name in ("log", "sqrt", "abs")},
    "exp": Row(("x",), _read_exp),
    "absolute": make_grammar_row("abs"),
    **dict.fromkeys(HOLDING, make_grammar_row("sg")),
    "expm1": make_elementwise_row("x", _build_expm1),
    "entr": make_elementwise_row("x", lambda reader, node, x: -x * _build_log(reader, x, node)),
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
    **dict.fromkeys(
        ("clamp", "clamp_", "clip", "clip_by_value", "clipByValue"), Row(("x", "/", "lo", "hi"), _build_clamp)
    ),
    "clamp_min": make_elementwise_row(
        "x lo", lambda reader, node, x, lo: _clamp_from_one_side(reader, node, x, {"lo": lo})
    ),
    "clamp_max": make_elementwise_row(
        "x hi", lambda reader, node, x, hi: _clamp_from_one_side(reader, node, x, {"hi": hi})
    ),
    **dict.fromkeys(("min", "minimum"), _make_extreme_row("min")),
    **dict.fromkeys(("max", "maximum"), _make_extreme_row("max")),
    "where": Row(("when", "x", "y"), _build_where),
    **dict.fromkeys(("masked_fill", "masked_fill_"), Row(("x", "when", "value"), _fill_where)),
    **{kind: _make_reduction_row(kind) for kind in ("mean", "sum")},
    **{f"reduce_{kind}": _make_reduction_row(kind) for kind in ("mean", "sum")},
    **dict.fromkeys(("prod", "reduce_prod"), Row(("x", "axis", "/", "keepdims"), _build_product)),
    "std": Row(("x", "/", "axis", "keepdims", "unbiased", "correction", "ddof"), _build_std),
    "len": Row(("x",), _count_samples),
    "epsilon": Row((), lambda *_: Rational(1, 10**7)),  # of Keras
    **dict.fromkeys(("numel", "size"), Row(("x", "/", "axis"), _count_elements)),
    **dict.fromkeys(
        ("cat", "concat", "concatenate", "stack", "hstack", "vstack"), Row(("x", "/", "axis"), _join)
    ),
    **dict.fromkeys(
        ("tensor", "as_tensor", "asarray", "array"), Row(("x", "/", "dtype", "device"), _copy_values)
    ),
    "float": Row(
        ("x",),
        lambda reader, call, given, depth: reader.call_function(
            "sg", [reader.build(given["x"], depth)], call.node
        ),
    ),
    "Variable": Row(("x",), lambda reader, call, given, depth: reader.build(given["x"], depth)),
    "zeros_like": Row(("x",), lambda reader, call, given, depth: reader.zero),
    "ones_like": Row(("x",), lambda reader, call, given, depth: reader.one),
    **dict.fromkeys(("masked_mean", "weighted_mean", "masked_average"), _make_masked_row("mean")),
    **dict.fromkeys(("kl_penalty", "kl_penalty_forward"), Row(("x", "y", "/", "kind"), _build_penalty)),
    "agg_loss": Row(("x", "mask", "/", "mode", *OF_SIZES), _build_aggregate),
    **dict.fromkeys(("whiten", "masked_whiten"), Row(("x", "/", "mask", "shift_mean"), _build_whitened)),
    "masked_sum": _make_masked_row("sum"),
    **dict.fromkeys(("mse_loss", "mse", "mseloss"), _make_distance_row(lambda reader, node, d: d**2)),
    "l1_loss": _make_distance_row(lambda reader, node, d: reader.call_function("abs", [d], node)),
    **dict.fromkeys(("smooth_l1_loss", "huber_loss"), _make_distance_row(_build_huber)),
}

OF_GRAMMAR = {*parser.FUNCTIONS, *parser.OF_DENSITIES, "where"}
KNOWN = {*FUNCTIONS, *OF_GRAMMAR, *IDENTITY_METHODS}


def list_unknown_calls(node: ast.AST) -> list[ast.Call]:
    """Return the calls of functions that are not read."""
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return [call for call in calls if split_operands(call)[0] not in KNOWN]
