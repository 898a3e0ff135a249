"""The operations that are read, one row each: from the formulas of the arguments to that of the result.

The tracers of PyTorch, JAX and NumPy share this table; names are those of PyTorch, synonyms below.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from sympy import Abs, Dummy, Integer, Max, Min, Mul, SympifyError, exp, log, sqrt

from klsym.audit.compiled import running
from klsym.audit.terms import (
    VOCABULARY,
    Misfit,
    Refused,
    Step,
    Top,
    Total,
    make_step,
    mask,
    replace_totals,
    sum_over,
    token,
)
from klsym.audit.tracing.shapes import is_of_masks_alone
from klsym.language.expressions import clip, sg

Formula = Any
ONE, ZERO = Integer(1), Integer(0)
MOST_TRUTHS = 6  # comparisons in one condition: all their values are gone through


def compute_power(base: Formula, exponent: Formula) -> Formula:
    """Return base ** exponent, where the result is real."""
    if exponent.is_negative:
        return divide(ONE, compute_power(base, -exponent))
    if exponent.is_Integer or base.is_nonnegative:
        return base**exponent
    if base.is_number and base.is_positive:
        return exp(exponent * log(base))
    raise Refused(f"a fractional power of {base}, which may be negative")


def divide(a: Formula, b: Formula) -> Formula:
    """Return a/b; refuse b = 0, and a mask of single tokens (sums of a mask, such as a length, are read).

    Misfit asks whether the argument is a mask at all.
    """
    if b.is_zero:
        raise Refused("a division by zero")
    if is_of_masks_alone(b) and replace_totals(b).has(mask):
        raise Misfit("a division by an expression of the mask of each token", mask)
    return a / b


def apply_clamp(x: Formula, low: Formula | None = None, high: Formula | None = None) -> Formula:
    """Return clip, or max or min where there is one bound only."""
    if low is not None and high is not None:
        return clip(x, low, high)
    return Max(x, low) if low is not None else Min(x, high) if high is not None else x


def choose_where(condition: Formula, a: Formula, b: Formula) -> Formula:
    """Return a where the condition is 1, b where it is 0."""
    return condition * a + (1 - condition) * b


def compare_greater(a: Formula, b: Formula) -> Formula:
    for x, answer in ((a, ONE), (b, ZERO)):
        if x.is_infinite:  # all else is finite
            return answer if x.is_positive else ONE - answer
    return make_step(a - b)


def compare_not_less(a: Formula, b: Formula) -> Formula:
    """Return a >= b as 1 - (b > a): ties have no probability, but among masks, which are compared exactly."""
    return 1 - compare_greater(b, a)


def decide_truths(e: Formula, test: Callable[[Formula], bool]) -> Formula:
    """Return 1 where the test holds of e, else 0, for e made of masks and comparisons, each 0 or 1.

    The answer is the polynomial that is linear in each of them and right at all their values.
    """
    truths = sorted(e.atoms(Step, Top) | (e.free_symbols & {mask}), key=str)
    if e.xreplace(dict.fromkeys(truths, ZERO)).free_symbols:
        raise Refused("a comparison with == of what depends on the sample")
    if len(truths) > MOST_TRUTHS:
        raise Refused(f"a condition made of more than {MOST_TRUTHS} comparisons")
    polynomial = ZERO
    for values in product((ZERO, ONE), repeat=len(truths)):
        if test(e.xreplace(dict(zip(truths, values, strict=True)))):
            polynomial += Mul(*(t if v else 1 - t for t, v in zip(truths, values, strict=True)))
    return polynomial.expand()


def compare_equal(a: Formula, b: Formula) -> Formula:
    parameters = running.get_session().parameters
    if (a - b).xreplace({x: Dummy(positive=True) for x in parameters}).is_nonzero:
        running.take_for_positive(name for x, name in parameters.items() if (a - b).has(x))
        return ZERO
    if (a - b).has(Total) and is_of_masks_alone(a - b):
        return 1 - make_step(a - b) - make_step(b - a)
    return decide_truths(a - b, lambda value: value == 0)


def convert_to_truth(x: Formula) -> Formula:
    """Return x != 0, of masks and of comparisons."""
    return 1 - compare_equal(x, ZERO) if x.has(Total) else decide_truths(x, lambda value: value != 0)


def compute_inverse(x: Formula) -> Formula:
    return divide(ONE, x)


def compute_logistic(x: Formula) -> Formula:
    return 1 / (1 + exp(-x))


def compute_log_logistic(x: Formula) -> Formula:
    return -log(1 + exp(-x))


def compute_log(x: Formula) -> Formula:
    if not x.is_positive and x.is_nonpositive:
        raise Refused(f"log of {x}")
    return log(x)


def compute_log_softmax(x: Formula, chosen: Formula | None = None) -> Formula:
    """Return log_softmax over the vocabulary of log-probabilities: themselves; or over chosen words."""
    if chosen is not None:
        return x - compute_log_mass(x, chosen)
    if x not in VOCABULARY:
        raise Refused(f"log_softmax of {x}: bind the logits as log_q[v], log_p[v] or log_mu[v]")
    return x


def compute_log_mass(x: Formula, chosen: Formula | None = None) -> Formula:
    """Return logsumexp over the vocabulary: log 1; over words chosen of it the log of their mass."""
    if chosen is not None:
        return log(sum_over(chosen * exp(x), "v"))
    compute_log_softmax(x)
    return ZERO


def convert_to_integer(x: Formula) -> Formula:
    """Return a cast to integers, of what has integer values."""
    if x.free_symbols <= {mask, token} or is_of_masks_alone(x):
        return x
    raise Refused("a cast to integers of what is none")


def compute_sign(x: Formula) -> Formula:
    return 2 * make_step(x) - 1


ELEMENTWISE: dict[str, Callable[..., Formula]] = {
    "add": lambda a, b, alpha=ONE: a + alpha * b,
    "sub": lambda a, b, alpha=ONE: a - alpha * b,
    "rsub": lambda a, b, alpha=ONE: b - alpha * a,
    "mul": lambda a, b: a * b,
    "div": divide,
    "rdiv": lambda a, b: divide(b, a),
    "neg": lambda x: -x,
    "positive": lambda x: x,
    "pow": compute_power,
    "rpow": lambda a, b: compute_power(b, a),
    "addcmul": lambda x, a, b, value=ONE: x + value * a * b,
    "lerp": lambda a, b, weight: a + weight * (b - a),
    "square": lambda x: x**2,
    "exp": exp,
    "exp2": lambda x: 2**x,
    "expm1": lambda x: exp(x) - 1,
    "log": compute_log,
    "log2": lambda x: compute_log(x) / log(2),
    "log1p": lambda x: compute_log(1 + x),
    "logaddexp": lambda a, b: log(exp(a) + exp(b)),
    "sqrt": sqrt,
    "rsqrt": lambda x: divide(ONE, sqrt(x)),
    "reciprocal": compute_inverse,
    "abs": Abs,
    "sign": compute_sign,
    "sigmoid": compute_logistic,
    "log_sigmoid": compute_log_logistic,
    "softplus": lambda x: log(1 + exp(x)),
    "relu": lambda x: Max(x, ZERO),
    "clamp": apply_clamp,
    "clamp_min": lambda x, low: Max(x, low),
    "clamp_max": lambda x, high: Min(x, high),
    "minimum": Min,
    "maximum": Max,
    "where": choose_where,
    "gt": compare_greater,
    "ge": compare_not_less,
    "lt": lambda a, b: compare_greater(b, a),
    "le": lambda a, b: compare_not_less(b, a),
    "eq": compare_equal,
    "ne": lambda a, b: 1 - compare_equal(a, b),
    "logical_not": lambda x: 1 - convert_to_truth(x),
    "logical_and": lambda a, b: convert_to_truth(a) * convert_to_truth(b),
    "logical_or": lambda a, b: (
        convert_to_truth(a) + convert_to_truth(b) - convert_to_truth(a) * convert_to_truth(b)
    ),
    "bool": convert_to_truth,
    "isfinite": lambda x: ONE,  # formulas are finite; what overflows is a finding
    "isnan": lambda x: ZERO,
    "isinf": lambda x: ZERO,
    "detach": sg,
    "masked_fill": lambda x, condition, value: choose_where(condition, value, x),
    "zeros_like": lambda x: ZERO,
    "ones_like": lambda x: ONE,
    "full_like": lambda x, fill: fill,
    "nan_to_num": lambda x, nan=ZERO, posinf=ONE, neginf=ONE: x,  # formulas are finite
    "same": lambda x: x,
    "long": convert_to_integer,
    "int": convert_to_integer,
    "log_softmax": compute_log_softmax,
    "softmax": lambda x, chosen=None: exp(compute_log_softmax(x, chosen)),
}
SYNONYMS = {
    "multiply": "mul", "subtract": "sub", "divide": "div", "true_divide": "div", "truediv": "div",
    "rtruediv": "rdiv",
    "negative": "neg", "absolute": "abs", "float_power": "pow", "power": "pow", "special_expm1": "expm1",
    "special_log1p": "log1p", "special_exp2": "exp2", "special_expit": "sigmoid", "logistic": "sigmoid",
    "clip": "clamp", "fmin": "minimum", "fmax": "maximum",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "bitwise_and": "logical_and", "and": "logical_and", "bitwise_or": "logical_or", "or": "logical_or",
    "bitwise_not": "logical_not", "invert": "logical_not", "stop_gradient": "detach",
    "logsigmoid": "log_sigmoid",
    "special_log_softmax": "log_softmax", "special_softmax": "softmax",
    **dict.fromkeys(
        ("clone", "contiguous", "float", "double", "half", "bfloat16", "to", "type_as", "cpu", "cuda",
         "expand", "expand_as", "broadcast_to", "view", "view_as", "reshape", "flatten", "unsqueeze",
         "squeeze", "alias", "convert_element_type", "copy", "broadcast_in_dim", "astype", "asarray"), "same"
    ),
}  # fmt: skip


def find_operation(name: str) -> Callable[..., Formula] | None:
    """Return the row of an operation, by any of its names; None where there is none."""
    return ELEMENTWISE.get(SYNONYMS.get(name, name))


def apply_operation(name: str, *arguments: Formula, **options: Formula) -> Formula:
    """Return the formula of an operation; raises Refused with its name where its arguments do not fit."""
    row = find_operation(name)
    if row is None:
        raise Refused(f"the operation {name} is not read")
    try:
        return row(*arguments, **options)
    except TypeError:
        text = ", ".join([str(a) for a in arguments] + list(options))
        raise Refused(f"{name} with the arguments {text[:80]} is not read") from None
    except SympifyError:
        raise Refused(f"{name} of what is no number and no tensor") from None
