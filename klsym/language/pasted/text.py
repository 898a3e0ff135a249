"""Pasted text as Python's parser takes it: without comments and indentation, with ** for ^ and KL(q, p).

>>> as_python("KL(q||p)  # exact\\n  + k1^2")
'KL(q, p)\\n+ k1**2'
"""

from __future__ import annotations

import ast
import re
import warnings
from textwrap import dedent
from typing import Any

from klsym.language.training_names import find_meaning, is_coefficient

QUOTED_OR_COMMENT = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|#[^\n]*")
BRANCH = re.compile(r"(if|elif|else|for|while|with|def|try|except)\b.*:")
CONDITION = re.compile(r"\s*if (((?:\w+\.)*)(\w+)( (?:!=|>=?) \d+(?:\.\d*)?)?( is not None)?)\s*:\s*")
OWNERS = {  # of settings; of other objects a part may be data
    "self", "this", "args", "arg", "config", "cfg", "conf", "opt", "opts", "options", "hparams", "params",
    "flags", "settings", "trainer", "script_args", "training_args", "model_args", "algo_config", "algorithm",
}  # fmt: skip
BLOCKS = (ast.ClassDef, ast.FunctionDef, ast.For, ast.While, ast.With, ast.If)
TYPES = r"(?:const )?(?:auto|torch\.Tensor|double|float)[&*]?|const|let|var"  # of C++ and JavaScript
CPP_TYPE = re.compile(rf"(^|;)\s*(?:{TYPES}) (?=\w+ =)", re.MULTILINE)
COEFFICIENT = re.compile(r"(?<![\w.])(tau|beta|lam|alpha|gamma)(?=\([^()]*[-+*/])")  # before a bracket
KEYWORDS = r"(?:if|else|in|is|and|or|as|for|not)\b"
PRIVATE_FUNCTION = re.compile(r"(?<!\w)_(?=[a-z]\w*\()")  # as in _masked_mean(x, mask)
# Further lines of a statement that no bracket joins: deeper than its first, with an operator in front.
CONTINUED = re.compile(r"^([ \t]*)(\S[^\n]*[^\s:,(\[])((?:\n\1[ \t]+[-+*/] [^\n]+)+)", re.MULTILINE)
LOG_OF_NAME = re.compile(rf"\blog[ \t]+(?!{KEYWORDS})(?=([A-Za-z_]\w*)\b(?!\())\1")  # as in -A * log pi
OF_CPP = re.compile(
    r"\w::\w|\w->\w|\b(?:auto|const|double|float|int|void)[&*]? \w|[{}]\s*(?:;|$)", re.MULTILINE
)
GREEK = str.maketrans({
    "π": "pi", "ρ": "rho", "β": "beta", "α": "alpha", "ε": "eps", "λ": "lam", "γ": "gamma", "μ": "mu",
    "τ": "tau", "θ": "theta", "σ": "sigma", "−": "-", "·": "*", "×": "*",
})  # fmt: skip
DIVERGENCE = re.compile(
    r"\b(?:KL|kl|D_?KL|d_?kl|D_\{KL\})(?:_?div(?:ergence)?)?[(\[]\s*(\w+)\s*(?:\|\||∥|‖)\s*(\w+)\s*[)\]]"
)


def as_python(text: str) -> str:
    """Return statements, one a line; a backslash at the end of a line joins it to the next.

    An `if` of a setting that is on, such as `if self.beta != 0:`, is left out, and its lines stay.
    """
    plain = _join_continued(_remove_comments(text.replace("\r\n", "\n").expandtabs(8)))
    if is_block(indented := as_operators(dedent(plain).strip())):
        return indented
    lines = plain.split("\n")
    statements = lines if list_branches(text) else [line for line in lines if not find_setting(line)]
    source = "\n".join(line.strip() for line in statements).strip().replace("\\\n", " ")
    return as_operators(source)


def as_operators(source: str) -> str:
    """Return a text with KL(q, p) for KL(q||p) or D_KL[q||p], ** for ^, Greek letters and C++ as Python.

    >>> as_operators("-sigma(tau(r - 1))*A*log π_θ"), as_operators("self.alpha(x + 1)*sigma")
    ('-sigmoid(tau*(r - 1))*A*log(pi_theta)', 'self.alpha(x + 1)*sigma')
    >>> as_operators("x = log if y else z")
    'x = log if y else z'
    """
    source = CPP_TYPE.sub(r"\1", PRIVATE_FUNCTION.sub("", source.replace("torch::", "torch.")))
    source = LOG_OF_NAME.sub(r"log(\1)", source.translate(GREEK))
    source = re.sub(r"(?<![\w.])sigma(?=\(.)", "sigmoid", COEFFICIENT.sub(r"\1*", source))
    return DIVERGENCE.sub(r"KL(\1, \2)", source).replace("^", "**")


def is_cpp(text: str) -> bool:
    """Is it a line of C++?

    >>> [is_cpp(x) for x in ("auto x = y->exp();", "std::exp(x)", "x: float = 2", "loss = auto*k1")]
    [True, True, False, False]
    """
    return bool(OF_CPP.search(text))


def is_block(source: str) -> bool:
    """Is it code with a function, a loop or another block, indented as Python reads it?

    >>> is_block("for x in y: z = x"), is_block("z = x"), is_block("for x in y")
    (True, False, False)
    """
    try:
        statements = parse_python(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(x, BLOCKS) for x in statements)


def list_assumed_settings(text: str) -> tuple[str, ...]:
    """Return the conditions that `as_python` takes to be true.

    >>> list_assumed_settings("loss = k1\\nif self.beta != 0.0:\\n    loss = loss + self.beta*k3")
    ('self.beta != 0.0',)
    """
    conditions = filter(None, map(find_setting, _remove_comments(text).splitlines()))
    return () if list_branches(text) else tuple(conditions)


def find_setting(line: str) -> str:
    """Return the condition of a line that asks whether a setting is on; "" for other lines.

    >>> conditions = ("kl_coef > 0", "args.use_kl", "mask is not None", "logp > 0", "x", "batch.score > 0")
    >>> [find_setting(f"if {condition}:") for condition in conditions]
    ['kl_coef > 0', 'args.use_kl', 'mask is not None', '', '', '']
    """
    match = CONDITION.fullmatch(line)
    if match is None:
        return ""
    condition, owner, name, _, is_given = match.groups()
    is_owned = bool({*owner.lower().split(".")} & OWNERS) and not find_meaning(name)
    is_switch = name.startswith(("use_", "with_", "enable_", "add_", "apply_")) and not find_meaning(name)
    is_setting = is_given or is_coefficient(name) or is_owned or is_switch
    return condition if is_setting else ""


def list_branches(text: str) -> list[str]:
    """Return the lines that choose among statements, apart from those of a setting that is on.

    >>> list_branches("if self.beta > 0:\\n  x = k3")
    []
    >>> list_branches("if mode == 'a':\\n  x = k3\\nelse:\\n  x = k2")
    ["if mode == 'a':", 'else:']
    """
    lines = [line.strip() for line in _remove_comments(text).splitlines()]
    branches = [line for line in lines if BRANCH.fullmatch(line)]
    has_other = any(not line.startswith("if ") for line in branches)
    return branches if has_other else [line for line in branches if not find_setting(line)]


def is_statements(text: str) -> bool:
    """Is it code that assigns names or calls methods, and no formula?

    >>> is_statements("loss = pg - entropy.mean()"), is_statements("-A*log_q - 0.01*entropy")
    (True, False)
    """
    return bool(re.search(r"\n|(?<![<>=!])=(?!=)|\w\.\w+\(", text))


def parse_python(text: str, **options: Any) -> Any:
    """Return Python's tree of a text; what Python would print a warning of is passed over in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, **options)


def join_lines(text: str) -> str:
    """Return a text of several lines in one.

    >>> join_lines("d = (log_q  # of tokens\\n  - log_p)\\nloss = d**2")
    'd = (log_q - log_p); loss = d**2'
    """
    line, is_open = "", False
    for part in filter(None, (part.strip() for part in _remove_comments(text).splitlines())):
        line += (" " if is_open else "; ") * bool(line) + (part if is_open else part.rstrip("; "))
        is_open = line.count("(") + line.count("[") > line.count(")") + line.count("]")
    return line


def _join_continued(text: str) -> str:
    """Return a text with each statement that goes on below in one line.

    >>> _join_continued("loss = a\\n    + b\\n    - c\\n-d")
    'loss = a + b - c\\n-d'
    """
    return CONTINUED.sub(lambda x: x[1] + x[2] + re.sub(r"\n[ \t]+", " ", x[3]), text)


def _remove_comments(text: str) -> str:
    return QUOTED_OR_COMMENT.sub(lambda found: "" if found[0][0] == "#" else found[0], text)


def suggest_statements(text: str) -> str:
    """Return what to type in place of a formula with a definition behind a comma; empty for others.

    >>> suggest_statements("r*k2, r = pi/pi_old"), suggest_statements("k1 +")
    ('; type what a name is first: r = ..; the formula', '')
    """
    if branches := list_branches(text):
        return ask_for_lines(branches[0])
    if is_cpp(text):
        return ": a line of C++ that is not read: type it in Python, as NAME = ..; the loss"
    if re.search(r"\bE(_\w+)?\s*\[|\|\s*s\b", text):
        return ": type what stands inside E[..], as in -A*log_q, with exp(log_q) for pi(a|s)"
    match = re.search(r",\s*(?:where\s+)?(\w+)\s*=(?!=)", text)
    return f"; type what a name is first: {match[1][:60]} = ..; the formula" if match else ""


def ask_for_lines(branch: str) -> str:
    """Return what to type in place of code with a line that chooses among statements."""
    if branch.startswith(("for ", "while ")):
        return ": write what the loop computes, such as `returns = togo(R); ...`, or audit the function"
    return f": type the lines that run, without {branch[:60]!r}, or audit the function"


def forbids_gradient(node: ast.AST) -> bool:
    """Has a call the argument requires_grad=False?

    >>> [forbids_gradient(ast.parse(x)) for x in ("f(x, requires_grad=False)", "f(x, requires_grad=True)")]
    [True, False]
    """
    keywords = (x for x in ast.walk(node) if isinstance(x, ast.keyword) and x.arg == "requires_grad")
    return any(isinstance(x.value, ast.Constant) and not x.value.value for x in keywords)


def find_assigned_name(node: ast.stmt) -> str | None:
    """Return the name that a statement assigns to; None where it assigns to none."""
    match node:
        case ast.Assign([ast.Name(name), *_]) | ast.AugAssign(ast.Name(name)):
            return name
        case ast.Assign([ast.Attribute(ast.Name("self"), name)]):
            return name
    return None


def is_addition_to_itself(node: ast.stmt) -> bool:
    """Does a statement add to the name that it assigns, as in `loss = loss - x + y` or `loss -= x`?

    >>> [is_addition_to_itself(ast.parse(x).body[0]) for x in ("a = a - b + c", "a += b", "a = a*b")]
    [True, True, False]
    """
    match node:
        case ast.AugAssign(ast.Name(), ast.Add() | ast.Sub()):
            return True
        case ast.Assign([ast.Name(name)], ast.BinOp() as value):
            start: ast.expr = value
            while isinstance(start, ast.BinOp) and isinstance(start.op, ast.Add | ast.Sub):
                start = start.left
            return isinstance(start, ast.Name) and start.id == name
    return False


def is_condition(node: ast.expr) -> bool:
    """Is it a comparison, or are several joined?"""
    return isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr)
    )
