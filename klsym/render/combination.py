"""Combinations of the named targets, such as grad KL(q||p) - lam grad KL(p||q)."""

from __future__ import annotations

from klsym.render.spelling import LATEX, is_quotient, is_sum


def combination_text(multiples: dict[str, str]) -> str:
    """grad KL(q||p) - grad KL(p||q), from the multiples.

    >>> combination_text({"reverse-kl": "1", "forward-kl": "-lam"})
    'grad KL(q||p) - lam grad KL(p||q)'
    >>> combination_text({"reward": "-A", "rest": "beta/rho"})
    '-grad E_q[A] + E_q[beta/rho*s]'
    """
    names = {"reverse-kl": "grad KL(q||p)", "forward-kl": "grad KL(p||q)"}
    rows = []
    for name, value in multiples.items():
        if name == "reward":  # one sign comes out of the mean
            negative = value.startswith("-") and not is_sum(value)
            rows.append(("-1", f"grad E_q[{value[1:]}]") if negative else ("1", f"grad E_q[{value}]"))
        elif name == "rest":
            rows.append(("1", f"E_q[{f'({value})' if is_sum(value) or value.startswith('-') else value}*s]"))
        else:
            rows.append((value, names[name]))
    return _signed(rows)


def _signed(rows: list[tuple[str, str]]) -> str:
    text = ""
    for value, name in rows:
        negative = value.startswith("-") and " " not in value
        size = value[1:] if negative else value
        compound = " " in size or is_quotient(size)
        scale = "" if size == "1" else (f"({size}) " if compound else f"{size} ")
        text += (" - " if negative else " + ") + scale + name
    text = text.removeprefix(" + ")
    return "-" + text[3:] if text.startswith(" - ") else text or "0"


def combination_latex(multiples: dict[str, str]) -> str:
    r"""The implied objective, from the multiples in LaTeX.

    >>> combination_latex({"reverse-kl": r"\beta", "reward": "-A"})
    '\\beta\\,\\mathrm{KL}(q\\,\\Vert\\,p) + \\mathbb{E}_{q}\\!\\left[-A\\right]'
    """
    rows = []
    for name, value in multiples.items():
        if name == "reward":
            rows.append(LATEX.expectation("q", value))
        else:
            pair = ("q", "p") if name == "reverse-kl" else ("p", "q")
            rows.append(_scale(value) + LATEX.divergence("KL", *pair))
    return " + ".join(rows).replace("+ -", "- ") or "0"


def _scale(shown: str) -> str:
    if shown in ("1", "-1"):
        return shown.removesuffix("1")
    return (LATEX.bracket(shown) if is_sum(shown) else shown) + r"\,"
