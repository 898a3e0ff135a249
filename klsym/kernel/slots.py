"""Slots: the random positions that a mean speaks of.  Trusted.

A single sample is one slot, a batch holds n independent samples, a sequence T steps.  By its index, a mean
mentions

    ""   one sample                  x
    i    one sample of a batch       self, others (the n - 1 others)
    ij   two samples of a batch      self, other, rest (the n - 2 remaining ones)
    t    one step of a sequence      past (u < t), now (t), future (u > t), x (the whole sequence)
    it   one step of one sequence of a batch: those of t, and others (the other sequences, whole)

A variable of a slot is its sum over the positions in the slot: k1[past] = sum_{u<t} k1_u, so that
exp(k1[past]) is a product of ratios; likewise R, H, generic functions, length (1 at each step) and the score
function.  A alone is no sum but any theta-free function of what is known once the slot is drawn: A[past]
of t and the prefix y_<t, A[now] of t and y_<=t, A[future] of t and the whole sequence; A, without a slot, of
the whole sequence alone, the same at each of its steps.
"""

from __future__ import annotations

# The density of all that an index speaks of is the product over these slots.
PARTS = {
    "": ("x",),
    "i": ("self", "others"),
    "ij": ("self", "other", "rest"),
    "t": ("past", "now", "future"),
    "it": ("past", "now", "future", "others"),
}
SLOTS = {index: parts + ("x",) * ("t" in index) for index, parts in PARTS.items()}
SCORES = PARTS | {"t": ("x",), "it": ("x", "others")}  # its score function is the sum over these
SEQUENCE = PARTS["t"]
SINGLE = ("x", "self", "other", "now")  # slots that hold one position, or are one sample

# slot -> what may be mentioned beside it and does not depend on it: what comes before, and other samples
UPSTREAM: dict[str, dict[str, tuple[str, ...]]] = {
    "": {"x": ()},
    "i": {"self": ("others",), "others": ("self",)},
    "ij": {"self": ("other", "rest"), "other": ("self", "rest"), "rest": ("self", "other")},
    "t": {"now": ("past",), "future": ("past", "now")},
    "it": {
        "now": ("past", "others"),
        "future": ("past", "now", "others"),
        "others": ("past", "now", "future", "x"),
    },
}

SECOND = "'"  # marks a score function along the second of two directions, as in s[now'] u.s and v.s


def find_slot(entry: str) -> str:
    """Return the slot of a score entry.

    >>> find_slot("past'")
    'past'
    """
    return entry.removesuffix(SECOND)


def is_second(entry: str) -> bool:
    return entry.endswith(SECOND)


def is_score(entry: object, index: str) -> bool:
    """Is this a score entry for a mean at the index?"""
    return isinstance(entry, str) and find_slot(entry) in SLOTS[index]


def name_in_slot(name: str, slot: str) -> str:
    """Return the name of a one-sample variable in a slot.

    >>> name_in_slot("sg(k1)", "now"), name_in_slot("k1", "x")
    ('sg(k1[now])', 'k1')
    """
    if slot == "x":
        return name
    return f"sg({name[3:-1]}[{slot}])" if name.startswith("sg(") else f"{name}[{slot}]"


LENGTHS = frozenset(
    name_in_slot("length", slot) for slot in ("x", "self", "other")
)  # of whole sequences: T > 0
