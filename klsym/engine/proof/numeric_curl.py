"""Search for a model on which an expected gradient has a curl, if no theorem decides it.  Untrusted.

The models are small trees of tokens, and batches of single samples.  `klsym.worlds.means` computes the curl
by dual numbers, here in sixty digits.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from typing import Any

import mpmath

from klsym.engine.proof.counterexamples import choose_rows, generate_models, generate_tree_models
from klsym.kernel.statements import Context
from klsym.worlds.draw import add_rows
from klsym.worlds.elements import UNDER, ScoreCoefficients
from klsym.worlds.means import compute_curl, compute_expected_gradient
from klsym.worlds.world import World, read_model

CURL_DIGITS = 60
CURL_TOLERANCE = 1e-9
MAX_MODELS = 24


ComputedCurl = Callable[[ScoreCoefficients, dict[str, Any]], Any | None]


def find_curl(
    coefficients: ScoreCoefficients, start: str, compute: ComputedCurl | None = None
) -> dict[str, Any] | None:
    """Return a model on which the expected gradient has a curl; None if none was found.

    compute: the curl on a model, if not that of the coefficients, whose names choose the rows of the model.
    """
    compute = compute or compute_curl_on_model
    candidates = (generate_tree_models if coefficients.tokens else generate_models)(
        Context(parameters=coefficients.parameters), coefficients.on_policy
    )
    for model in islice(
        (m for m in candidates if coefficients.tokens or len(m["tree"]["q"]) > 2), MAX_MODELS
    ):
        model = add_rows(model, choose_rows(coefficients.bases, coefficients.defined))
        if not coefficients.tokens:  # two logits of one node have a curl where there are three outcomes
            model["tree"]["v"] = choose_second_direction(model["tree"]["u"])
        with mpmath.workdps(CURL_DIGITS):
            value = compute(coefficients, model)
        if value is not None and abs(value) > CURL_TOLERANCE:
            return _describe_model(model, coefficients, start, mpmath.nstr(value, 15))
    return None


def choose_second_direction(u: list[str]) -> list[str]:
    """Return one logit other than u: with v = u every curl is 0."""
    zeros = ["0"] * (len(u) - 2)
    second = ["0", "1", *zeros]
    return second if u != second else ["1", "0", *zeros]


def compute_curl_on_model(coefficients: ScoreCoefficients, model: dict[str, Any]) -> Any | None:
    """Return d_v F.u - d_u F.v; None if F has a kink or a jump, or no value."""
    world = read_model(model["tree"], coefficients.on_policy)
    lift = world.system.lift
    if not coefficients.tokens:  # the k-th outcome is a sample of k + 1 tokens
        world.rows = {**world.rows, "length": [lift(k + 1) for k in range(len(world.paths))]}
    numbers = {name: Fraction(model["parameters"][name]) for name in coefficients.parameters}

    def compute_field(moved: World, along: str) -> Any:
        parameters = {name: moved.system.lift(number) for name, number in numbers.items()}
        return compute_expected_gradient(moved, coefficients, parameters, along)

    try:
        return compute_curl(world, compute_field)
    except (ArithmeticError, ValueError, TypeError):  # a tie, a log of what is not positive, 1/0
        return None


# ---------------------------------------------------------------------------- printed model
def _describe_model(
    model: dict[str, Any], coefficients: ScoreCoefficients, start: str, left: str
) -> dict[str, Any]:
    """Describe the model by the rows in use; the A of a sequence is printed as R, whose sum it is."""
    bases = coefficients.bases
    rows = {"q", "u", "v"} | {row for base, row in UNDER.items() if base in bases and row != "mu"}
    rows |= set() if coefficients.on_policy else {"mu"}
    rows |= {"R"} if {"R", "A"} & bases else set()
    rows |= {"M"} & bases
    rows |= set() if coefficients.tokens else {"A"} & bases
    rows |= {"T"} if "length" in bases and not coefficients.tokens else set()

    def select_rows(node: dict[str, Any]) -> dict[str, Any]:
        count = len(node["q"])
        all_rows = {
            "A": node["rewards"]["R"],
            "T": [str(k + 1) for k in range(count)],
            **node,
            **node["rewards"],
        }
        selected = {name: [str(Fraction(x)) for x in all_rows[name]] for name in all_rows if name in rows}
        return selected | {
            "next": [after and select_rows(after) for after in node.get("next", [None] * count)]
        }

    parameters = {name: str(model["parameters"][name]) for name in coefficients.parameters}
    parameters |= {} if coefficients.tokens else {"n": str(coefficients.batch_size)}
    return {
        "refutes": f"curl {start} = 0",
        "tree": select_rows(model["tree"]),
        **({"parameters": parameters} if parameters else {}),
        "left": [left, left],
        "right": ["0", "0"],
    }
