r"""The letters of a paper: klsym's LaTeX with its densities renamed.

>>> rewrite_letters(r"\mathrm{KL}(q\,\Vert\,p)", "tang-munos")
'\\mathrm{KL}(\\pi\\,\\Vert\\,\\pi_{\\mathrm{ref}})'
"""

from __future__ import annotations

import re

USUAL = "wang-zhang"
NOTATIONS: dict[str, dict[str, tuple[str, str]]] = {  # letter -> (symbol, what stands below it)
    USUAL: {},  # q, p, \mu: Wang & Zhang 2025, and klsym throughout
    "tang-munos": {"q": (r"\pi", ""), "p": (r"\pi", r"\mathrm{ref}")},  # Tang & Munos 2025, section 2
}
# A control word, a group of upright words, a letter with its index, any other sign.
TOKEN = re.compile(
    r"\\(?:text|mathrm|operatorname|mathit|mathcal|mathbb)\s*\{[^{}]*\}|\\[A-Za-z]+|\\."
    r"|(?P<letter>[A-Za-z])(?:_(?:\{(?P<group>[^{}]*)\}|(?P<one>[A-Za-z0-9])))?|.",
    re.DOTALL,
)


def rewrite_letters(latex: str, notation: str) -> str:
    r"""A formula in the letters of a notation; words and names of functions stay.

    >>> rewrite_letters(r"\mathbb{E}_p[\log p_t]", "tang-munos")
    '\\mathbb{E}_{\\pi_{\\mathrm{ref}}}[\\log \\pi_{\\mathrm{ref},t}]'
    """
    letters = NOTATIONS[notation]
    out = ""
    for token in TOKEN.finditer(latex):
        letter = token["letter"]
        if letter not in letters:
            letter_latex = token.group()
            if letter and token["group"]:  # the index of another letter may name a density
                letter_latex = f"{letter}_{{{rewrite_letters(token['group'], notation)}}}"
        else:
            letter_latex = _write_index(*letters[letter], token["group"] or token["one"] or "")
            letter_latex = f"{{{letter_latex}}}" if out.endswith(("_", "^")) else letter_latex
        if letter_latex[:1].isalpha() and re.search(r"\\[A-Za-z]+$", out):
            out += " "  # \pi x, not \pix
        out += letter_latex
    return out


def _write_index(symbol: str, below: str, index: str) -> str:
    under = ",".join(part for part in (below, index) if part)
    return f"{symbol}_{{{under}}}" if under else symbol


def rewrite_words(text: str, notation: str) -> str:
    """Words that name densities, such as "samples from q", in the letters of a notation.

    >>> rewrite_words("p << mu wherever q > 0", "tang-munos")
    'pi_ref << mu wherever pi > 0'
    """
    names = {
        letter: "_".join([s.strip("\\"), *_list_plain_index(b)])
        for letter, (s, b) in NOTATIONS[notation].items()
    }
    return re.sub(r"(?<![\w'])[qp](?![\w'(])", lambda found: names.get(found.group(), found.group()), text)


def _list_plain_index(below: str) -> list[str]:
    return [below.removeprefix(r"\mathrm{").removesuffix("}")] if below else []
