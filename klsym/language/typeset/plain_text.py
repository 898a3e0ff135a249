"""Formulas of papers in plain text, as log π_θ(a|s) A or Σ_t log pi(a_t|s_t) A_t, spelled in LaTeX.

>>> spell_as_latex("-E[Σ_t log π_θ(a_t|s_t) Â_t]")
'-E[\\\\sum_{t} \\\\log \\\\pi _{\\\\theta }(a_{t}|s_{t}) A_{t}]'
"""

from __future__ import annotations

import re
import unicodedata

# A policy with what it is conditioned on, as in pi_old(a|s), or a sign that neither code nor the grammar has.
OF_PAPERS = re.compile(
    r"[Σ∑𝔼∇²½]|\bE(?:_\w+)?\[|(?:π|\bpi)(?:_\w+)?\s*[(\[][^()\[\]]*\|[^()\[\]]*[)\]]|[πρθεβ]\w*\s+\w"
)
# Notation of papers that code may also have.  It is read as a formula only where the text is no code.
LIKE_PAPERS = re.compile(
    r"[α-ωϵϕ\u0302]|\blog\s+\w+\(|\bsum_|\b[A-Za-z]_[a-z]\s+[A-Za-z]\w*\b|\b[qp]\([a-z]\)"
)
CLIPPED = re.compile(r"clip\}?\s*(?:\\left|\\[Bb]igg?l?)?\s*\(\s*r(_\{[^{}]*\}|_[A-Za-z])(?![\w(])")
SIGNS = str.maketrans({
    "Σ": r"\sum", "∑": r"\sum", "Π": r"\prod", "∏": r"\prod", "𝔼": "E", "∇": r"\nabla", "²": "^2", "ᵢ": "_i",
    "ₜ": "_t", "₁": "_1", "₂": "_2", "₃": "_3", "½": r"\frac{1}{2}", "𝟙": r"\mathbb{1}", "…": ".", "–": "-",
    "−": "-", "⋅": "*", "·": r"\cdot ", "×": r"\times ", "∥": "|", "‖": "|", "≤": r"\le ", "≥": r"\ge ",
    "∼": r"\sim ", "~": r"\sim ", "∈": r"\in ", "ϵ": r"\epsilon", "ϕ": r"\phi",
})  # fmt: skip
WORDS = {
    "log", "ln", "exp", "min", "max", "sum", "pi", "theta", "phi", "rho", "beta", "alpha", "epsilon",
    "lambda", "gamma", "tau", "sigma", "delta",
}  # fmt: skip
OF_GRAMMAR = {"log_q", "log_p", "log_mu", "log_old"}
HAT = "\u0302"  # above a letter, which it follows
SUBSCRIPTED = re.compile(r"([^\W\d_]+)((?:_[^\W_]+)+)")
ONE_OVER = re.compile(r"(?<![\w)])1\s*/\s*(\w+|\|[^|]+\|)(?=\s*\\sum)")
WORD = re.compile(r"(?<![A-Za-z\\])(?!log_(?:q|p|mu|old)\b)[A-Za-z]+")
MEAN = re.compile(r"\bE(?:_t|_i)?\[")  # of samples that the formula does not name
GREEK = re.compile(r"[α-ωΑ-Ω]")


def is_formula_of_papers(text: str) -> bool:
    """Is it one formula in the notation of papers?

    >>> texts = ("-log π_θ(a|s) A", "Σ_t k1", "π_θ / π_old * A", "loss = -pi[a | b]\\nloss.mean()", "ρ A")
    >>> [is_formula_of_papers(text) for text in texts]
    [True, True, False, False, True]
    """
    return "\n" not in text.strip() and OF_PAPERS.search(text) is not None


def may_be_formula_of_papers(text: str) -> bool:
    """May it be one formula in the notation of papers, if it is no code?

    >>> [may_be_formula_of_papers(text) for text in ("-E[r_t A_t]", "H(π)", "loss = -(logp*adv).mean()")]
    [True, True, False]
    """
    is_line = "\n" not in text.strip()
    return is_line and LIKE_PAPERS.search(unicodedata.normalize("NFD", text)) is not None


def name_clipped_ratios(text: str) -> str:
    """Return r_t(theta), the ratio to the old policy, for r_t in a formula that clips it.

    >>> name_clipped_ratios("min(r_t A, clip(r_t, 0, 2) A)"), name_clipped_ratios("clip(rho, 0, 2)*r_i")
    ('min(r_t(\\\\theta) A, clip(r_t(\\\\theta), 0, 2) A)', 'clip(rho, 0, 2)*r_i')
    """
    for index in {match[1] for match in CLIPPED.finditer(text)}:
        text = re.sub(rf"\br{re.escape(index)}(?![\w(])", lambda ratio: rf"{ratio[0]}(\theta)", text)
    return text


def spell_as_latex(text: str) -> str:
    """Return a formula in LaTeX: Greek letters and signs as commands, subscripts in braces, no accents."""
    spelled = re.sub(f"([rρw]){HAT}", r"\\hat{\1}", unicodedata.normalize("NFD", text)).replace(HAT, "")
    spelled = SUBSCRIPTED.sub(_brace_subscripts, spelled)
    spelled = WORD.sub(_spell_word, GREEK.sub(_name_letter, spelled.translate(SIGNS)))
    return ONE_OVER.sub(r"\\frac{1}{\1}", spelled)


def spell_means_as_code(text: str) -> str:
    """Return code with (..).mean() for E[..], whose insides are code; the text where brackets do not close.

    >>> spell_means_as_code("-E[min(ratio*adv[i], 2)]"), spell_means_as_code("E[logp")
    ('-(min(ratio*adv[i], 2)).mean()', 'E[logp')
    """
    spelled = text
    while match := MEAN.search(spelled):
        depth, end = 1, match.end()
        while depth and end < len(spelled):
            depth += (spelled[end] == "[") - (spelled[end] == "]")
            end += 1
        if depth:
            return text
        spelled = f"{spelled[: match.start()]}({spelled[match.end() : end - 1]}).mean(){spelled[end:]}"
    return spelled


def _brace_subscripts(match: re.Match[str]) -> str:
    """Return pi_{theta_{old}} for pi_theta_old; names of the grammar such as log_q stay."""
    if match[0] in OF_GRAMMAR:
        return match[0]
    *outer, last = match[2].removeprefix("_").split("_")
    last = re.sub(r"^(θ|theta)(old|ref|new|k)$", r"\1_{\2}", last)
    return match[1] + "".join(f"_{{{part}" for part in (*outer, last)) + "}" * (len(outer) + 1)


def _name_letter(match: re.Match[str]) -> str:
    """Return the command of a Greek letter."""
    name = unicodedata.name(match[0]).rpartition(" ")[2].lower().replace("lamda", "lambda")
    return f"\\{name} "


def _spell_word(match: re.Match[str]) -> str:
    return f"\\{match[0]}" if match[0] in WORDS else match[0]
