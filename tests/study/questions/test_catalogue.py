"""The catalogue: its normal forms against `explain`, the literal oracle and a count without normal forms."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.cli import main
from klsym.derivations.tools.modular_count import counts_by_hand
from klsym.engine.fields.named_terms import recognise_coefficient
from klsym.engine.questions.candidates import STORED, load_catalogue
from klsym.kernel.derivatives import attach, differentiate_loss
from klsym.kernel.statements import Context
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from klsym.study.questions import catalogue as module
from klsym.study.questions.catalogue import (
    COUNTED_KINDS,
    SETTINGS,
    catalogue,
    collect_entries,
    to_canonical_coefficient,
    write_catalogue,
)
from klsym.study.questions.loss_enumeration import (
    LEAVES,
    SizeLevel,
    compute_pair,
    count_spellings,
    levels,
    read_code,
    write_infix,
)
from klsym.study.render.catalogue import summarise
from support.judges.loss_judge import examine
from support.judges.loss_witness import AGREE
from support.losses.random_losses import Case
from support.oracle.grammar import evaluate, plain
from support.oracle.losses import Forest, Setting, samples

pytestmark = pytest.mark.usefixtures("without_copies")

SMALL = 5  # made anew here; what is stored goes further


@cache
def small() -> tuple[SizeLevel, ...]:
    return tuple(levels(SMALL))


def drawn(seed: int, count: int, largest: int = 8) -> list[str]:
    """Spellings of any size, built at random from above."""
    stream = random.Random(seed)

    def grown(size: int) -> str:
        if size == 1:
            return stream.choice(list(LEAVES))
        if size == 2 or stream.random() < 0.25:
            return "B" + grown(size - 1)
        left = stream.randint(1, size - 2)
        return stream.choice("XYZ") + grown(left) + grown(size - 1 - left)

    return [grown(stream.randint(1, largest)) for _ in range(count)]


# ---------------------------------------------------------------------------- spellings
def test_a_spelling_is_read_as_it_is_printed():
    for code in drawn(1, 300):
        element = to_ring(parse(write_infix(code)))
        value, slope = compute_pair(code)
        assert attach(element) == value
        assert attach(differentiate_loss(element, "", Context()).get("x", to_ring(0))) == slope, write_infix(
            code
        )


def test_brackets_stand_where_they_are_needed():
    shown = {
        "ZCZDE": "k1 - (k2 - k3)",
        "ZZCDE": "k1 - k2 - k3",
        "XYCDBE": "(k1 + k2)*sg(k3)",
        "X0C": "1/2*k1",
    }
    assert {code: write_infix(code) for code in shown} == shown


@pytest.mark.parametrize("code", ["", "X", "XA", "CC", "?", "B"])
def test_no_spelling(code):
    with pytest.raises(ValueError, match=r"left over|starts with"):
        read_code(code)


def test_every_spelling_is_counted_once():
    assert [sum(count for count, _ in level.values()) for level in small()] == count_spellings(SMALL)
    assert all(len(code) == size for size, level in enumerate(small(), 1) for _, code in level.values())
    assert all(compute_pair(code) == key for level in small() for key, (_, code) in level.items())


def test_of_several_spellings_the_first_is_kept():
    """Against every spelling of size 5, one by one."""
    alphabet: list[list[str]] = [list(LEAVES)]
    for size in range(2, 6):
        codes = ["B" + code for code in alphabet[-1]]
        codes += [
            sign + x + y
            for i in range(1, size - 1)
            for x in alphabet[i - 1]
            for y in alphabet[size - 2 - i]
            for sign in "XYZ"
        ]
        alphabet.append(codes)
    by_hand = SizeLevel()
    for code in alphabet[-1]:
        by_hand.add(compute_pair(code), 1, code)
    assert len(alphabet[-1]) == count_spellings(5)[-1] and by_hand == small()[4]


def test_levels_merge_in_any_order():
    first, second, third = (dict(level) for level in small()[2:5])
    one = SizeLevel(first).merge(SizeLevel(second)).merge(SizeLevel(third))
    other = SizeLevel(third).merge(SizeLevel(first).merge(SizeLevel(second)))
    assert one == other and one.rows == other.rows


# ---------------------------------------------------------------------------- counts
@pytest.mark.parametrize(("sampling", "use"), SETTINGS)
def test_the_counts_are_those_without_normal_forms(sampling, use):
    found = catalogue(small()[:4]).of(sampling, use)
    counted = counts_by_hand(4, sampling == "on-policy", use == "reward")
    assert tuple(found.counts[kind][-1] for kind in COUNTED_KINDS) == counted[1:]
    assert sum(counts[-1] for counts in found.targets.values()) == counted[1]


def test_a_wrong_normal_form_is_noticed(monkeypatch):
    """The mean of r is 1, not 0; and the constant of c drops."""
    right = counts_by_hand(3, True, False)
    monkeypatch.setattr(module, "mean_value", lambda v, sampling: v)
    monkeypatch.setattr(module, "to_canonical_coefficient", lambda a, sampling: a)
    found = catalogue(small()[:3]).of("on-policy", "loss")
    wrong = tuple(found.counts[kind][-1] for kind in COUNTED_KINDS)
    assert wrong[:2] == right[1:3] and wrong[2] > right[3] and wrong[3] == right[4] and wrong[4] > right[5]


def test_what_is_stored_begins_with_what_is_made():
    made, kept = catalogue(small()), load_catalogue()
    assert kept.size > SMALL and kept.spellings[:SMALL] == made.spellings
    for found in made.settings:
        there = kept.of(found.sampling, found.use)
        assert {kind: counts[:SMALL] for kind, counts in there.counts.items()} == found.counts
        for target, counts in there.targets.items():
            assert counts[:SMALL] == found.targets.get(target, [0] * SMALL)
        for kl, choices in there.choices.items():
            assert short(choices) == short(found.choices[kl])


def short(choices: Any) -> list[tuple[Any, ...]]:
    return [(c.constant, c.gradient, c.loss, c.size) for c in choices if c.size <= SMALL]


def test_the_file_holds_what_is_read_from_it():
    text = STORED.read_text()
    assert (
        write_catalogue(load_catalogue()) == text
        and f"klsym catalogue --size {load_catalogue().size}" in text
    )
    assert len(text) < 100_000


# ---------------------------------------------------------------------------- entries
def sampled(sampling: str, use: str, count: int) -> list[tuple[Any, Any]]:
    found = list(collect_entries(small(), sampling, use).items())
    return random.Random(f"{sampling} {use}").sample(found, count)


@pytest.mark.parametrize(("sampling", "use"), SETTINGS)
def test_entries_against_explain_and_the_literal_oracle(sampling, use):
    """Target, coefficient and gradient at a sample are those of `explain`, which the oracle judges."""
    for (_, a), entry in sampled(sampling, use, 10):
        text = write_infix(entry.code)
        outcome = examine(Case(text, sampling, use))
        assert not outcome.complaints, outcome
        verdict = klsym.explain(text, sampling=sampling, use=use)
        c = to_canonical_coefficient(a, sampling)
        said = to_ring(parse(verdict.gradient.canonical_text))
        of_coefficient = str(verdict.target).replace("own-mean", "objective")
        assert of_coefficient == recognise_coefficient(c).target, text
        assert said - said.terms.get(((), ()), 0) == c, text
        at_sample = to_ring(parse(verdict.gradient.score_text))
        assert (at_sample.substitute({"w": to_ring(0)}) if sampling == "on-policy" else at_sample) == a


@pytest.mark.parametrize(("sampling", "use"), SETTINGS)
def test_other_spellings_are_the_same_to_the_literal_oracle(sampling, use):
    """A random spelling and the loss that the catalogue keeps for it: one value, one field."""
    where, kept = Forest(samples(7, copies=2), (sampling,)), collect_entries(small(), sampling, use)
    view, merged = module.View(sampling == "on-policy"), 0
    for code in drawn(2, 40, SMALL):
        v, a = compute_pair(code)
        one, other = write_infix(code), write_infix(kept[view(v), view(a if use == "loss" else v)].code)
        merged += one != other
        for ask, part in ((where.value, "value"), (where.field, "a")):
            left, right = (getattr(ask(text, Setting(sampling, use)), part) for text in (one, other))
            assert np.abs(np.asarray(left) - np.asarray(right)).max() < AGREE, (one, other)
    assert merged > 5


# ---------------------------------------------------------------------------- those with the gradient of a KL
ALL = [
    (found, kl, choice)
    for found in load_catalogue().settings
    for kl, choices in found.choices.items()
    for choice in choices
]


@pytest.mark.parametrize("number", range(0, len(ALL), 9))
def test_a_choice_is_what_explain_says(number):
    found, kl, choice = ALL[number]
    verdict = klsym.explain(choice.loss, sampling=found.sampling, use=found.use)
    assert (verdict.target, verdict.trust) == (kl, "kernel")
    assert verdict.to_json()["gradient"]["combination"] == {kl: "1"}
    assert to_ring(parse(choice.gradient)).substitute(
        {"w": to_ring(0)} if found.sampling == "on-policy" else {}
    ) == to_ring(parse(choice.gradient))
    right = (
        klsym.explain(choice.unbiased, sampling=found.sampling, use=found.use) if choice.unbiased else None
    )
    if right:
        assert right.value.is_unbiased_for(kl) and right.gradient.score_text in (
            choice.gradient,
            verdict.gradient.score_text,
        )
    if choice.unbiased != choice.loss:
        assert not verdict.value.is_unbiased_for(kl)


def test_choices_differ_in_their_constant_alone():
    forms = {"reverse-kl": "k1", "forward-kl": "-r"}
    for found, kl, choice in ALL:
        weight = "rho" if found.sampling == "off-policy" else "1"
        expected = to_ring(parse(f"{weight}*({forms[kl]} + ({choice.constant}))"))
        assert to_ring(parse(choice.gradient)) == expected
    for found in load_catalogue().settings:
        for choices in found.choices.values():
            assert len({choice.constant for choice in choices}) == len(choices)
            assert [c.size for c in choices] == sorted(c.size for c in choices)


@pytest.mark.parametrize(("sampling", "use"), SETTINGS)
def test_the_nearest_constant_varies_least(sampling, use):
    """Variances on finite models, from the losses as they are written."""
    choices = [c for c in load_catalogue().of(sampling, use).choices["reverse-kl"] if c.size <= 7]
    best = set()
    for seed in range(6):
        trees = samples(30 + seed, copies=1)
        where = Forest(trees, (sampling,))
        spread = {c.constant: variances(where, c.loss, Setting(sampling, use)) for c in choices}
        best_of = b_star(where)
        for world in range(len(trees)):
            least = min(spread, key=lambda b, world=world: spread[b][world])
            near = min(spread, key=lambda b, world=world: abs(float(Fraction(b)) - best_of[world]))
            assert least == near or abs(spread[least][world] - spread[near][world]) < 1e-12
            best.add(least)
    assert len(best) > 2


def direction(where: Forest, rows: Any) -> Any:
    """u.s at each row, for one u."""
    u = np.sin(1 + np.arange(where.logits))
    return np.tensordot(u, where.atom("log_q", rows, "x").a[:, 0], axes=1)


def variances(where: Forest, text: str, setting: Setting) -> Any:
    """Var of the gradient at a sample along u, in each world, as autograd has it."""
    rows, found = where.surrogate(text, setting)
    mass = where.chance(rows).value
    u = np.sin(1 + np.arange(where.logits))
    slope = np.tensordot(u, np.broadcast_to(found.a, (where.logits, 1, len(mass)))[:, 0], axes=1) / mass
    mean, square = (where.mean(rows, mass * x).value for x in (slope, slope**2))
    return square - mean**2


def b_star(where: Forest) -> Any:
    rows = where.whole
    names = where.names(rows)
    weight, k1 = (plain(evaluate(t, lambda n, slot=None: plain(names(n, slot)))) for t in ("rho", "k1"))
    mass = where.chance(rows).value * (weight * direction(where, rows)) ** 2
    return -where.mean(rows, mass * k1).value / where.mean(rows, mass).value


def test_an_end_of_an_interval_is_half_way():
    near = module.find_nearest([Fraction(1), Fraction(0)])
    assert near == {Fraction(0): (None, "1/2"), Fraction(1): ("1/2", None)}
    assert module.find_nearest([Fraction(3)]) == {Fraction(3): (None, None)}


# ---------------------------------------------------------------------------- the command
def test_the_command_prints_what_is_stored(capsys):
    assert main(["catalogue"]) == 0
    shown = capsys.readouterr().out
    assert shown == summarise(load_catalogue()) + "\n"
    assert "off-policy, in the loss: 21 gradients at a sample" in shown and "rho*k3" in shown


def test_the_command_makes_a_size_anew(capsys, tmp_path):
    target = tmp_path / "found.json"
    assert main(["catalogue", "--size", "4", "--json", "-o", str(target)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == json.loads(target.read_text()) and answer["size"] == 4
    assert module.Catalogue.from_json(answer) == catalogue(small()[:4])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_sizes_print(size):
    assert summarise(catalogue(small()[:size])).isascii()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "0"], "1 or more"),
        (["--size", "many"], "a whole number"),
        (["--size", "11"], "10 or less"),
        (["--scheduler", "tcp://a:1"], "choose a --size"),
        (["--size", "3", "--scheduler", "nowhere"], "an address"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert main(["catalogue", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and message in err and err.count("\n") == 1


def test_the_guide_says_what_is_stored():
    guide = STORED.parents[3] / "docs" / "guides" / "choose-a-penalty.md"
    text = " ".join(guide.read_text(encoding="utf-8").split())
    found = load_catalogue().of("off-policy", "loss")
    assert (
        f"The {load_catalogue().spellings[-1]:,} expressions of up to {load_catalogue().size} leaves" in text
    )
    assert f"are {found.counts['losses'][-1]:,} different losses off-policy" in text
    assert f"with {found.counts['expected_gradients'][-1]:,} different expected gradients" in text


def test_the_points_of_the_picture_are_literal():
    """b_star and the excess of the variance in a model, from the densities."""
    from klsym.experiments.pictures.catalogue import point
    from klsym.language.abbreviations import Context
    from klsym.numeric.models import random_model
    from klsym.study.ledger.settle_claim import recall

    theorem = recall("catalogue.order").theorems[0]
    for seed in range(3):
        model = random_model(seed, 3, Context())
        q, p, mu, u = (np.array([float(x) for x in row]) for row in (model.q, model.p, model.mu, model.u))
        k1, rho, s = np.log(q / p), q / mu, u - q @ u
        weights = mu * (rho * s) ** 2
        best = -weights @ k1 / weights.sum()

        def spread(b, rho=rho, k1=k1, s=s, mu=mu):
            gradient = rho * (k1 + b) * s
            return mu @ gradient**2 - (mu @ gradient) ** 2

        for b in (Fraction(0), Fraction(1), Fraction(-1, 2)):
            x, y = point(theorem, model, b)
            assert x == pytest.approx(best)
            assert y == pytest.approx((spread(float(b)) - spread(best)) / weights.sum())
            assert y == pytest.approx((float(b) - best) ** 2)
