"""The loss grammar: what is read, and as what; what is refused, and with which words."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from sympy import Abs, Max, Min, Rational, Symbol, exp, log, simplify, sqrt

from klsym.api import explain
from klsym.errors import UsageError
from klsym.language.expressions import *
from klsym.language.expressions import Estimator
from klsym.language.parser import parse, parse_asked
from klsym.language.spellings import read_loss
from klsym.language.sums import OverVocabulary
from klsym.notation.losses import show
from klsym.notation.printers import TEXT

k1 = log_q - log_p
k2, r, rho = k1**2 / 2, exp(-k1), exp(log_q - log_mu)
k3 = r - 1 + k1
n, T = parameter("n"), parameter("T")

ACCEPTED: list[tuple[str, Any]] = [
    ("k1", k1),
    ("k2", k2),
    ("k3", k3),
    ("r", r),
    ("rho", rho),
    ("log_q", log_q),
    ("log_p", log_p),
    ("log_mu", log_mu),
    ("R", R),
    ("A", A),
    ("  k1  ", k1),
    ("((k1))", k1),
    ("+k1", k1),
    ("-k1", -k1),
    ("--k1", k1),
    ("-k1**2", -(k1**2)),
    ("(-k1)**2", k1**2),
    ("2**-k1**2", 2 ** -(k1**2)),
    ("k1 - k2 - k3", k1 - k2 - k3),
    ("k1/2/n", k1 / 2 / n),
    ("k1/(2/n)", k1 * n / 2),
    ("2*k1+3*k2", 2 * k1 + 3 * k2),
    ("r**2**2", r**4),
    ("(r**2)**3", r**6),
    ("r**-1", 1 / r),
    ("r**(1/2)", sqrt(r)),
    ("r**lam", r**lam),
    ("rho**alpha", rho**alpha),
    ("k1**0", sympy.Integer(1)),
    ("k(lam)", k1 + lam * (r - 1)),
    ("k(0.5)", k1 + (r - 1) / 2),
    ("k(1)", k3),
    ("k(k(0))", k1 + k1 * (r - 1)),
    ("sg(rho)*k2", sg(rho) * k2),
    ("sg(sg(k1))", sg(k1)),
    ("sg(R)", R),
    ("sg(3)", sympy.Integer(3)),
    ("exp(k1)", exp(k1)),
    ("exp(0)", sympy.Integer(1)),
    ("exp(-1000)", exp(-1000)),
    ("log(r)", -k1),
    ("log(rho)", log_q - log_mu),
    ("log(1 + r)", log(1 + r)),
    ("log(2)", log(2)),
    ("sqrt(k2)", sqrt(k2)),
    ("sqrt(4)", sympy.Integer(2)),
    ("sqrt(sg(rho))*k3", sqrt(sg(rho)) * k3),
    ("log(sg(r))", log(sg(r))),
    ("sg(k3)**0.5", sqrt(sg(k3))),
    ("exp(1)*k1", sympy.E * k1),
    ("abs(k1)", Abs(k1)),
    ("min(k1, 2)", Min(k1, 2)),
    ("max(0, k1, r)", Max(0, k1, r)),
    ("clip(r, 1-eps, 1+eps)*A", clip(r, 1 - eps, 1 + eps) * A),
    ("clip(5, 0, 2)", sympy.Integer(2)),
    ("rho*A - beta*k3", rho * A - beta * k3),
    ("k2 - sg(k2) + sg(k3)", k2 - sg(k2) + sg(k3)),
    ("(1/n)*k1 + k2/T", k1 / n + k2 / T),
    ("eps*lam*beta*alpha", eps * lam * beta * alpha),
    ("1e2*k1", 100 * k1),
]
IDS = [text for text, _ in ACCEPTED]


@pytest.mark.parametrize(("text", "expected"), ACCEPTED, ids=IDS)
def test_accepted(text: str, expected: Any) -> None:
    assert simplify(sympy.expand_log(unfold(parse(text)) - expected)) == 0


@pytest.mark.parametrize("text", IDS)
def test_round_trip_through_the_printer(text: str) -> None:
    loss = parse(text)
    again = parse(show(loss, TEXT))
    assert again == loss or simplify(unfold(again - loss)) == 0


def test_names_are_kept() -> None:
    """An estimator stays an estimator, so that the answer can speak of k3 and not of its definition."""
    assert {str(e) for e in parse("sg(rho)*k2 + k3*r").atoms(Estimator)} == {"rho", "k2", "k3", "r"}


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("0.1", Rational(1, 10)),
        ("0.1 + 0.2", Rational(3, 10)),
        ("1e-3", Rational(1, 1000)),
        ("1.5E2", Rational(150)),
        (".5", Rational(1, 2)),
        ("2.", Rational(2)),
        ("0.30000000000000004", Rational(30000000000000004, 10**17)),
        ("1/3", Rational(1, 3)),
        ("1e999/1e999", Rational(1)),
        ("123456789012345678901234567890", Rational(123456789012345678901234567890)),
    ],
)
def test_decimals_are_exact(text: str, exact: Any) -> None:
    assert parse(text) == exact


# ---------------------------------------------------------------------------- declared parameters
@pytest.mark.parametrize("name", ["har", "C", "x1", "my_scale", "lam", "a" * 32, "q", "nu"])
def test_declared_parameter(name: str) -> None:
    assert parse(f"{name}*k1", [name]) == parameter(name) * parse("k1")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            " ",
            "a b",
            "1a",
            "_x",
            "__class__",
            "a" * 33,
            "λ",
            "a-b",
            "a\n",
            "a.b",
            "sg(x)",
        ),  # no plain name
        *(
            "k1",
            "r",
            "rho",
            "log_q",
            "R",
            "sg",
            "min",
            "k",
            "clip",
            "full",
            "js",
            "rho_old",
            "M",
        ),  # of the grammar
        *("w", "o", "s"),  # names that klsym itself gives to log(rho), log(rho_old) and to the score
        *("lambda", "if", "None", "True"),  # keywords, which could be declared but never read
    ],
)
def test_undeclarable_parameter(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse("k1", [name])
    assert "parameter" in str(caught.value) and "\n" not in str(caught.value)


# ---------------------------------------------------------------------------- refusals
UNKNOWN, UNEXPECTED, GRAMMAR = r"unknown name", r"unexpected", r"not part of the loss grammar"
ZERO, BIG, UNREAD = r"division by zero", r"too large|beyond", r"cannot be read"
# what is said, as a regular expression: a text, the character that is wrong (or several, each of them fair)
REFUSED: dict[str, dict[str, int | tuple[int, ...]]] = {
    UNKNOWN: {"kk": 1, "  kk": 3, "K1": 1, "k4": 1, "s": 1, "nan": 1, "inf": 1, "__class__": 1},
    "unknown name 'kk'": {"k1 + kk": 6},
    r"for a number write parameters=\['beta2'\], else what it is": {"k1*beta2": 4},
    "is a function": {"k1 + sg": 6, "k": 1},
    UNEXPECTED: {
        "__import__('os')": 12, "'k1'": 1, '"k1"': 1, "f'{k1}'": 2, "b'x'": 2, "k1 # note": 4,
        "k1; import os": 3, "k1\\": 3, "k1`": 3, "k1 − k2": 4, "k1·k2": 3, "k1²": 3, "\u0660": 1,
        "\ufeffk1": 1, "k1\u200b": 3, "k1\n+ k2": 3, "k1\r": 3, "k1\t+ k2": 3, "k1\0": 3, "\x1b[31mk1": 1,
        "\udcff": 1,
    },
    "unknown function": {"__import__(k1)": 1, "k1()": 1, "k1 + Rational(1, 2)": 6},
    "unknown function 'eval'": {"eval(k1)": 1},
    r"unknown function 'tanh' \(known: abs centred clip disc exp": {"tanh(k1)": 1},
    GRAMMAR: {
        "k1.real": (1, 3, 4), "sg(k1).args": (1, 7, 8), "().__class__": (1, 3, 4), "k1[0]": (1, 3),
        "lambda: 1": 1, "k1 + (lambda x: x)": (6, 7), "k1 == k2": (1, 4), "k1 < k2 != k3": (1, 4),
        "k1 if k2 else k3": (1, 4), "k1 and k2": (1, 4), "not k1": 5, "~k1": 2, "k1, k2": (1, 3), "()": 1,
        "[k1]": 1, "{k1}": 1, "{k1: k2}": 1, "[x for x in k1]": 1, "sg(*k1)": 4, "sg(**k1)": (1, 4),
        "sg(x=k1)": (1, 4), "sg(k1)(k2)": (1, 7), "1(2)": (1, 2), "(k1 := k2)": (2, 5), "await k1": 1,
        "k1 + k2 // 2": 9, "k1 + k2 % 2": 9, "k1 + k2 @ k3": 9,
    },
    r"powers are written \*\*": {"k1 + k2 ^ 2": 9},
    "unexpected 'λ'": {"λ*k1": 1},
    UNREAD: {
        "(k1": 1, "k1 + (k2*(k3)": 6, "k1)": 3, "k1 + ": (4, 5, 6), "k1 k2": (1, 3, 4), "k1 + * k2": 6,
        "k1 = 2": 4, "import os": 1, "if": 1, "lambda": 1, "class": 1, "yield k1": 1, "*k1": 1, "k1?": 3,
        "$k1": 1, "0.1.2": (1, 4),
    },
    "no number": {
        "None": 1, "True": 1, "...": 1, "k1 + 1_000": 6, "0x10": 1, "0b1": 1, "0o7": 1, "1j": 1,
        "k1 + 2.5j": 6,
    },
    ZERO: {
        "1/0": (1, 3), "k2 + k1/0": (6, 9), "k1/0.0": (1, 4), "k1/0e5": (1, 4), "k1/(1-1)": (1, 4, 5),
        "k1/(k1-k1)": (1, 4, 5), "1/(2*k1-k1-k1)": (1, 3, 4), "1/sg(0)": (1, 3), "1/log(1)": (1, 3),
        "1/abs(0)": (1, 3), "1/min(0, 1)": (1, 3), "1/clip(5, 0, 0)": (1, 3), "1/(sqrt(2)**2-2)": (1, 3, 4),
        "1/(exp(0)-1)": (1, 3, 4), "0**-1": (1, 4), "0**-0.5": (1, 4), "(k1-k1)**-2": (1, 2),
        "0**lam": (1, 4),
    },
    BIG: {
        "k1**100": (1, 5), "k1**-65": (1, 5), "9**9**9**9": (4, 7), "10**1000": (1, 5),
        "10**64*10**64*10**64*10**64*10**64*10**64*10**64*10**64*10**64*10**64*" + "10**64*" * 12 + "1": 1,
        "1e999*1e999": 1, "exp(1001)": (1, 5), "exp(-1001)": (1, 5), "exp(exp(10))": (1, 5),
    },
    "number": {"k1 + 1e1000": 6},
    "may be negative": {
        "sqrt(k1)": 1, "sqrt(-1)": 1, "sqrt(lam)": 1, "k1**0.5": 1, "k1**lam": 1, "(-8)**(1/3)": (1, 2),
    },
    "need not be positive": {"log(k1)": 1, "log(0)": 1, "log(-1)": 1, "log(k3)": 1},
    r"sg takes 1 argument\b.*got 0": {"sg()": 1},
    "got 2": {"sg(k1, k2)": 1, "log(r, 2)": 1},
    "min takes 2 or more": {"k1 + min(k1)": 6},
    "got 0": {"max()": 1, "k()": 1},
    "min takes 2 to 8 arguments, got 9": {"min(1,2,3,4,5,6,7,8,9)": 1},
    "clip takes 3 arguments, got 2": {"clip(k1, 1)": 1},
    "got 4": {"clip(k1, 1, 2, 3)": 1},
    "lo above hi": {"clip(k1, 2, 1)": 1},
}  # fmt: skip


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return str(caught.value)


ROWS = [(text, position, words) for words, rows in REFUSED.items() for text, position in rows.items()]


@pytest.mark.parametrize(("text", "position", "words"), ROWS, ids=[repr(row[0])[:40] for row in ROWS])
def test_refused(text: str, position: int | tuple[int, ...], words: str, at_most: Any) -> None:
    with at_most(2):
        message = refusal(text)
    assert re.search(words, message), message
    found = re.search(r"at character (\d+) of", message)
    fair = position if isinstance(position, tuple) else (position,)
    assert found and int(found[1]) in fair, message
    assert message.isprintable() and len(message) < 400, message


def test_the_message_shows_the_place_in_a_long_text() -> None:
    text = " + ".join(["k1"] * 20) + " + oops" + " + k2" * 20
    message = refusal(text)
    assert f"at character {text.index('oops') + 1} of" in message
    assert "oops + k2" in message and len(message) < 400


JARGON = re.compile(r"\b(BinOp|UnaryOp|BoolOp|NamedExpr|IfExp|ListComp|Starred|Compare|Call|Dict|Await)\b")


@pytest.mark.parametrize(
    "text",
    [
        *("k1^2", "k1//2", "~k1", "k1 and k2", "(k1 := k2)", "k1 if k2 else k3", "[x for x in k1]"),
        *("sg(*k1)", "k1 == k2", "sg(x=k1)", "1(2)", "{k1: k2}", "await k1"),
    ],
)
def test_no_class_names_of_the_python_parser(text: str) -> None:
    assert not JARGON.search(refusal(text))


def test_only_a_hat_is_told_how_powers_are_written() -> None:
    assert "**" in refusal("k1^2")
    assert "powers" not in refusal("k1//2") and "powers" not in refusal("k1 % 2")


HOSTILE = {
    "empty": "",
    "blank": "   ",
    "10 MB": "x" * 10_000_000,
    "10 MB of digits": "9" * 10_000_000,
    "10 MB of spaces and a name": " " * 10_000_000 + "k1",
    "100,000 parentheses": "(" * 100_000 + "k1" + ")" * 100_000,
    "100,000 open parentheses": "(" * 100_000,
    "100,000 minus signs": "-" * 100_000 + "k1",
    "3,000 minus signs": "-" * 3000 + "k1",
    "1,900 parentheses": "(" * 1900 + "k1" + ")" * 1900,
    "800 calls": "sg(" * 800 + "k1" + ")" * 800,
    "90 calls": "exp(" * 90 + "k1" + ")" * 90,
    "1,300 powers": "2" + "**2" * 1300,
    "a number of 3,999 digits": "9" * 3999,
    "a fraction of 3,900 digits": "0." + "1" * 3900 + "*k1",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_is_refused_at_once(name: str, at_most: Any) -> None:
    with at_most(3):
        message = refusal(HOSTILE[name])
    assert message.isprintable() and 10 < len(message) < 400, message


def test_long_sums_are_read() -> None:
    """A sum is no nesting: a loss of a hundred terms is fair."""
    assert parse(" + ".join(["k1"] * 100)) == 100 * parse("k1")


@pytest.mark.parametrize("text", ["((k1**64)**64)**64", "(r**64)**64", "exp(exp(1000)*k1)", "exp(1000)**64"])
def test_bounds_hold_for_nested_powers(text: str) -> None:
    assert re.search(r"beyond|too large", refusal(text))


# ---------------------------------------------------------------------------- fuzz
PIECES = [
    *("k1", "k2", "k3", "r", "rho", "log_q", "log_p", "log_mu", "R", "A", "lam", "n", "lambda", "λ"),
    *("(", ")", "(", ")", "(", ")", ",", "+", "-", "*", "/", "**", "^", ".", "'", "if", "=", ":", "[", "]"),
    *("0", "1", "2", "64", "0.5", "1e9", "1e-9", "-1", "1/2"),
    *("sg(", "exp(", "log(", "sqrt(", "abs(", "min(", "max(", "clip(", "k("),
]


def read(text: str) -> None:
    try:
        parse(text)
    except UsageError as error:
        message = str(error)
        assert message.isprintable() and len(message) < 400, message


@given(st.text(max_size=60))
def test_fuzz_any_text(text: str) -> None:
    read(text)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join))
def test_fuzz_pieces_of_the_grammar(text: str) -> None:
    read(text)


LEAVES = st.sampled_from(
    ["k1", "k2", "k3", "r", "rho", "log_q", "R", "lam", "n", "0", "1", "2", "0.5", "-1", "1/3", "3e2"]
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    call = st.sampled_from(["sg", "exp", "log", "sqrt", "abs", "k"])
    operator = st.sampled_from(["+", "-", "*", "/", "**"])
    several = st.sampled_from(["min", "max"])
    return (
        st.builds("{}({})".format, call, inner)
        | st.builds("({}){}({})".format, inner, operator, inner)
        | st.builds("{}({},{})".format, several, inner, inner)
        | st.builds("clip({},{},{})".format, inner, inner, inner)
    )


@given(st.recursive(LEAVES, _grow, max_leaves=6))
def test_fuzz_grammatical_losses(text: str) -> None:
    read(text)


# ---------------------------------------------------------------------------- training code
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log_ref", "log_p"), ("ref_logprobs", "log_p"), ("refLogProb", "log_p"), ("logp_ref", "log_p"),
        ("log_pi_ref", "log_p"), ("ref_per_token_logps", "log_p"), ("old_log_prob", "log_mu"),
        ("old_per_token_logps", "log_mu"), ("rollout_log_probs", "log_mu"), ("log_prox", "log_old"),
        ("log_pi", "log_q"), ("logprobs", "log_q"), ("newlogprob", "log_q"), ("per_token_logps", "log_q"),
        ("ratio", "rho"), ("importance_weights", "rho"), ("logratio", "k1"), ("advantages", "A"),
        ("reward", "R"),
    ],
)  # fmt: skip
def test_densities_ratios_and_rewards_are_no_parameters(name: str, meant: str) -> None:
    """Neither unasked, nor declared, nor as a symbol; and what to write is said."""
    with pytest.raises(UsageError, match=rf"unknown name '{name}' at character 4 .*: write {meant}"):
        parse(f"k1*{name}")
    with pytest.raises(UsageError, match=rf"parameter '{name}': .*; write {meant}"):
        parse(f"k1*{name}", [name])
    with pytest.raises(UsageError, match=rf"{name} \(write {meant}"):
        explain(Symbol(name, real=True) * k1)


@pytest.mark.parametrize(
    "name",
    [
        "har",
        "log_beta",
        "log_scale",
        "kl_coef",
        "kl_loss_weight",
        "reward_scale",
        "entropy_coef",
        "tis_cap",
        "kl_tau",
        "max_temperature",
        "target_kl",
        "lambda_kl",
        "max_ratio",
        "clip_ratio",
        "entropy_weight",
        "lr_scale",
    ],
)
def test_other_names_may_be_parameters(name: str) -> None:
    assert unfold(parse(f"{name}*k1", [name])) == parameter(name) * k1
    with pytest.raises(UsageError, match=rf"for a number write parameters=\['{name}'\], else what"):
        parse(f"{name}*k1")


@pytest.mark.parametrize(
    "name",
    [
        "reverse_kl", "diff", "pg_loss", "policy_loss", "actor_loss", "tis", "logr_term", "kl_div_term",
        "distillation", "token_weight", "weights", "my_entropy", "group_adv_term", "reward_term",
        "clip_loss", "clip_advantage_term", "max_loss", "entropy_bonus", "entropy_loss",
    ],
)  # fmt: skip
def test_a_name_that_may_depend_on_the_sample_is_asked_for(name: str) -> None:
    """Declared as a parameter it would have the gradient 0; the advice is read as it is printed."""
    advice = "write what it is, such as `"
    for parameters in ((), (name,)):
        for text in (f"beta*{name}", f"beta*self.{name}", f"torch.exp({name})"):
            with pytest.raises(UsageError, match=advice) as caught:
                read_loss(text, parameters)
            assert "param=" not in str(caught.value) and "parameters=" not in str(caught.value)
    example = str(caught.value).partition(advice)[2].partition("`")[0]
    assert example.startswith(f"{name} = ") and example.endswith("; ...")
    read = read_loss(example.replace("...", f"beta*{name}")).expression
    assert unfold(read).has(log_q, log_old) or read.has(A) or read.has(R) or read.has(OverVocabulary)


def test_names_of_answers_are_read_in_printed_formulas() -> None:
    """is_down stands for a region; the cross-check reads it back as a parameter."""
    assert unfold(parse("is_down*k1", ["is_down"])) == parameter("is_down") * k1


def test_a_log_importance_ratio_is_read() -> None:
    for name in ("log_importance_ratio", "log_importance_weight", "log_rho"):
        assert unfold(read_loss(f"beta*{name}").expression) == unfold(parse("beta*(log_q - log_mu)"))
        with pytest.raises(UsageError, match=rf"parameter '{name}': .*; write log_q - log_mu"):
            read_loss(f"beta*{name}", [name])


@pytest.mark.parametrize("name", ["w", "b", "c", "old", "now", "std", "K", "har", "is_x", "o"])
def test_a_parameter_that_is_advised_is_taken(name: str) -> None:
    advice = refusal(f"{name}*k1")
    advised = re.search(r"parameters=\['(\w+)'\]|write (\w+), and declare", advice)
    if advised is not None:
        other = advised[1] or advised[2]
        assert unfold(parse_asked(f"{other}*k1", [other])) == parameter(other) * k1
        assert (other == name) == (name == "har")
    with pytest.raises(UsageError) if name != "har" else nullcontext():
        parse_asked(f"{name}*k1", [name])


@pytest.mark.parametrize(
    "text", ["torch.load(k1)", "os.system(k1)", "k1.__class__()", "k1.detach()*k2", "torch.clamp(k1, max=5)"]
)
def test_calls_of_other_libraries_are_not_of_the_grammar(text: str) -> None:
    """`klsym.language.spellings` reads some of them."""
    with pytest.raises(UsageError, match="not part of the loss grammar"):
        parse(text)


@pytest.mark.parametrize("option", ["use", "sampling", "level", "batch"])
def test_none_leaves_an_option_as_usual(option: str) -> None:
    """As that of the named loss, or the default; other values that are no choice are refused."""
    assert explain("k3", **{option: None}).to_json() == explain("k3").to_json()
    with pytest.raises(UsageError, match=rf"{option}=''?: one of "):
        explain("k3", **{option: ""})
    assert explain("k3", credit=None, weights=None, aggregate=None).target == "forward-kl"


@pytest.mark.parametrize(
    ("name", "meant"), [("kl", "k1, k2 or k3"), ("approx_kl", "k1, k2 or k3"), ("pi_ref", r"exp\(log_p\)")]
)
def test_what_training_code_calls_a_density_or_a_penalty(name: str, meant: str) -> None:
    for parameters in ((), (name,)):
        with pytest.raises(UsageError, match=f"write .*{meant}"):
            parse(f"beta*{name}", parameters)
