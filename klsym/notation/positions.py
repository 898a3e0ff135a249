"""Variables of slots as trees: a name of its own in text, k1_past, and a sum over positions in mathematics.

>>> from klsym.notation.printers import LATEX, TEXT
>>> LATEX(build_in_slot("k1", "past", sums=True)), TEXT(build_in_slot("k1", "past", sums=False))
('\\\\sum_{u<t} k_{1,u}', 'k1_past')
"""

from __future__ import annotations

from klsym.notation.tree import Big, Formula, Minus, Name, Number, add_terms

SLOT_ORDER = ("past", "now", "future", "self", "other", "others", "rest")
# Sums over slots together, in print only: sum_{u <= t}, sum_{u >= t}, sum_u, sum_j.
TOGETHER: dict[str, tuple[str, ...]] = {
    "all": ("past", "now", "future"),
    "upto": ("past", "now"),
    "from": ("now", "future"),
    "both": ("self", "others"),
    "batch": ("self", "other", "rest"),
}
# slot -> the range of its sum, the index of what is summed, and that of a product over the slot
POSITIONS = {
    "now": ("", "t", "t"),
    "past": ("u<t", "u", "<t"),
    "future": ("u>t", "u", ">t"),
    "upto": (r"u\le t", "u", r"\le t"),
    "from": (r"u\ge t", "u", r"\ge t"),
    "all": ("u", "u", ""),
    "self": ("", "i", "i"),
    "other": ("", "j", "j"),
    "others": (r"j\ne i", "j", r"\ne i"),
    "both": ("j", "j", ""),
    "rest": (r"l\ne i,j", "l", r"\ne i,j"),
    "batch": ("l", "l", ""),
}
POSITIONS |= {
    f"i_{slot}": (range_, f"i,{index}", f"i,{beyond}" if beyond else "i")
    for slot, (range_, index, beyond) in POSITIONS.items()
    if index in ("t", "u")
}
POSITIONS["i_x"] = ("", "i", "i")
CRITIC = {"past": ("V", "t"), "now": ("V_next", "t+1")}
KNOWN = {"now": r"\le t", "future": r"\le T"}  # what is known once a token, or everything, is drawn


def build_in_slot(name: str, slot: str, sums: bool, primes: int = 0, ratio: bool = False) -> Formula:
    """Build the variable of a slot: its sum over the positions of the slot, or the product of a ratio.

    >>> from klsym.notation.printers import LATEX, TEXT
    >>> TEXT(build_in_slot("A", "past", sums=False)), LATEX(build_in_slot("A", "now", sums=True))
    ('V', 'V_{t+1}')
    """
    if name == "A" and slot in CRITIC:  # any function of the tokens before t, or of those up to t
        text, index = CRITIC[slot]
        return Name("V", index, primes) if sums else Name(text, "", primes)
    if slot == "x" or not sums:
        return Name(name, "" if slot == "x" else slot, primes)
    of_one = slot.removeprefix("i_")  # of a sequence of a batch
    if name == "length" and of_one in STEPS:
        return _count_positions(of_one, Name("length", "i" if of_one != slot else ""))
    range_, index, beyond = POSITIONS[slot]
    if name == "A" and of_one in KNOWN:
        beyond = ("i," if of_one != slot else "") + KNOWN[of_one]
    if name == "A" or (ratio and index not in ("j", "l")):
        return Name(name, beyond, primes)
    of = Name(name, index, primes)
    return Big("prod" if ratio else "sum", range_, of) if range_ else of


STEPS = ("past", "now", "upto", "future", "from", "all")


def _count_positions(slot: str, length: Formula) -> Formula:
    """Count the positions of a slot: t - 1 before t, T - t after it."""
    t, one = Name("t"), Number(1)
    return {
        "past": add_terms(t, Minus(one)), "now": one, "upto": t, "future": add_terms(length, Minus(t)),
        "from": add_terms(length, Minus(t), one), "all": length,
    }[slot]  # fmt: skip
