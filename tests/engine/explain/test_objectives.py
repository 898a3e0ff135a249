"""What an answer says to be minimised or maximised is what the update moves, by a literal oracle."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import klsym
from support.golden import stored
from support.judges.objective_judge import Said, judge, judged, spoken
from support.losses.cases import options
from support.losses.random_losses import Case
from support.scale import scaled

SAME = "off token reward same"
LOSSES = [  # a loss, its setting, the sense; each is judged by its headline, its terms and its JSON
    *((loss, SAME, "maximised") for loss in (  # the typed loss is not the antiderivative
        "abs(k1)*R", "clip(rho, 1 - eps, 1 + eps)*R", "min(rho, 2)*R", "where(rho > 1, 1, rho)*R",
        "min(rho*R, clip(rho, 0.8, 1.2)*R)", "sg(clip(rho, 0, 2))*where(rho_old < 0, 1, R)", "max(k3, 1/2)*R",
        "where(k1 > 0.3, k1, 0.1*rho)*R", "R*abs(rho - 1)*k1", "rho_old*min(r, 2)*R",
    )),
    ("clip(k1, -1, 1)", SAME, "minimised"), ("max(k1, 0)*rho", SAME, "minimised"),
    ("clip(k1, -1, 1) + whole(k1)/T", "off token", "minimised"),  # the part over T counts once
    ("max(k3, 1/2) - rho*whole(k1)/T", "off token", "minimised"),
    ("min(whole(k1), 1)", "token", "minimised"),
    ("normalised(R)*log_q", "off sequence /T", "minimised"),
    *((loss, "reward", "maximised") for loss in (  # signs of rewards
        "sqrt(r) - R", "R - sqrt(r)", "k2 - A", "A - k2", "beta*exp(-k1/2) - A", "-2*A + k2", "-A*M + r**2",
        "-R - 3*k2", "R - clip(k1, -1, 1)", "R + clip(k1, -1, 1)", "k1 - A", "-A", "A - beta*k3",
        "clip(rho*r - sg(r), 0, 0.45)*R + k2", "full_kl(q, p) - A", "R - max(k3, 1/2)",
    )),
    *((loss, "reward", "minimised") for loss in ("k3", "-k3", "sqrt(r)", "-clip(k1, -1, 1)", "R - R + k2",
                                                 "sg(A) - A + k1", "min(rho, 1, 1 + k1)",
                                                 "(k3 + 1 - r)*R - k1*R + k2",
                                                 "k2 + R*k1 - sg(R*k1 + R - k2) + sg(R)")),
    *((loss, "", "minimised") for loss in ("-A*log_q + beta*k2", "A*log_q - k3", "-3*k2", "R - sqrt(r)")),
    ("R - beta*k1", "off reward loo", "maximised"), ("k1 - R", "off reward mean", "maximised"),
    ("R - beta*k1", "off token reward", "maximised"), ("k2 - A", "sequence reward /T", "maximised"),
    ("full_kl(q, p) - A*log_q", "off token", "minimised"), ("js(q, p)", "token", "minimised"),
]  # fmt: skip


def case_of(loss: str, words: str) -> Case:
    given = {"sampling": "on-policy", "use": "loss", **options(words)}
    if given.get("level") == "token":
        given = {"weights": "token", **given}
        given |= {"credit": given.get("credit", "to-go")} if given["use"] == "reward" else {}
    return Case(loss, **given)


@cache
def answer_to(loss: str, words: str) -> dict[str, Any]:
    found: dict[str, Any] = klsym.explain(loss, **options(words)).to_json()
    return found


@pytest.mark.parametrize(("loss", "words", "sense"), LOSSES)
def test_the_printed_objective_is_the_one_that_an_update_moves(loss: str, words: str, sense: str) -> None:
    answer = answer_to(loss, words)
    found = list(judge(case_of(loss, words), answer, answer["summary"]))
    assert not [one for one in found if one.complaint]
    assert any(not one.unread for one in found) or answer["target"] == "no-objective"
    assert answer["objective"] is None or answer["objective"]["sense"] == sense
    assert klsym.explain(loss, **options(words)).objective.sense == sense


@pytest.mark.parametrize(("loss", "words", "sense"), LOSSES)
def test_the_opposite_sense_a_double_and_the_typed_loss_are_refused(
    loss: str, words: str, sense: str
) -> None:
    """The judge itself: a wrong version of each objective that it accepts."""
    case, answer = case_of(loss, words), answer_to(loss, words)
    right = [
        one.said for one in judge(case, answer, answer["summary"]) if not one.unread and not one.said.inside
    ]
    moving = [said for said in right if said.text != "0" and not said.place.startswith("term")]
    for said in moving:
        for wrong in (replace(said, sign=-said.sign), replace(said, text=f"2*({said.text})")):
            assert judged(case, wrong).complaint


TYPED = [  # the losses whose typed text was printed for their antiderivative
    ("abs(k1)*R", "E_mu[sum_t R_now*abs(k1_now)]"), ("min(rho, 2)*R", "E_mu[sum_t R_now*min(2, rho_now)]"),
    ("clip(k1, -1, 1)", "E_mu[sum_t clip(k1_now, -1, 1)]"),
]  # fmt: skip


@pytest.mark.parametrize(("loss", "printed"), TYPED)
def test_the_typed_loss_is_no_objective_of_a_reward(loss: str, printed: str) -> None:
    sign = 1 if loss.startswith("clip") else -1
    assert judged(case_of(loss, SAME), Said("headline", printed, sign)).complaint


def test_a_penalty_inside_its_clip_range_has_the_sign_of_the_update() -> None:
    """-clip(k1, -1, 1) in a reward that is ascended lowers the KL; the old sentence had it rise."""
    case = case_of("-clip(k1, -1, 1)", "reward")
    said = spoken("term", "minimises KL(q||p), the reverse KL, inside the clip range")
    assert said is not None and said.inside and not judged(case, said, ascended=True).complaint
    wrong = spoken("term", "maximises KL(q||p) inside the clip range")
    assert wrong is not None and "turned round" in judged(case, wrong, ascended=True).complaint


SENTENCES = [  # a headline, the objective in it
    ("maximises E_q[A] - beta*KL(q||p)", ("E_q[A] - beta*KL(q||p)", -1)),
    ("subtracted from the reward, minimises KL(p||q), the forward KL", ("KL(p||q)", 1)),
    ("minimises E_q[f(r)] with f = log(r)**2/2, convex where r <= e; f''(1) = 1", ("E_q[log(r)**2/2]", 1)),
    ("has no objective: its expected gradient is not the gradient of any function", None),
    ("minimises E_q[f(r)] with an f that has no formula here", None),
    ("a policy gradient: A times the score, with the weight rho", None),
]  # fmt: skip


@pytest.mark.parametrize(("sentence", "expected"), SENTENCES)
def test_a_sentence_is_read(sentence: str, expected: tuple[str, int] | None) -> None:
    said = spoken("headline", sentence)
    assert (said and (said.text, said.sign)) == expected


CUT = (
    "M*sg(whole(k1))*log_q", "M**2*k2", "(1 - M)*k3", "M*whole(k1)", "M*k3 - R*log_q", "where(M > 0, k1, k3)",
)  # fmt: skip


@pytest.mark.parametrize("loss", CUT)
def test_the_mask_of_a_sampler_is_one_at_each_word_that_is_drawn(loss: str) -> None:
    """The same answer with 1 for M, at tokens and for one sample."""
    for level in ("token", "sample") if "whole" not in loss else ("token",):
        answer, bare = (
            klsym.explain(text, sampling="truncated", level=level).to_json()
            for text in (loss, loss.replace("M", "1"))
        )
        told = [{**found["gradient"], "terms": None, "summary": found["summary"]} for found in (answer, bare)]
        assert told[0] == told[1]
        assert answer["sampling"] == "truncated" and {"M", "S", "mu", "rho"} <= {*answer["names"]}
        case = Case(loss, "truncated", "loss", level=level, weights="token" if level == "token" else "")
        assert not [one for one in judge(case, answer, answer["summary"]) if one.complaint]


def test_a_mask_that_is_no_sampler_stays() -> None:
    assert "M" in klsym.explain("M**2*k2").to_json()["gradient"]["coefficient"]


@pytest.mark.parametrize(
    ("loss", "level"),
    [("k3", "sample"), ("rho*k2", "sample"), ("M*A - k3", "sample"), ("k2", "sequence"),
     ("M*k2/whole(M)", "sequence"), ("k3", "token"), ("whole(k1)", "token"), ("rho*k3", "token")],
)  # fmt: skip
def test_a_counterexample_lies_inside_the_setting(loss: str, level: str) -> None:
    """S is the mass of M, which is 0 or 1 on a sample; at tokens mu is q, M being 1."""
    witness = klsym.explain(loss, sampling="truncated", level=level).to_json()["witness"]
    nodes = [witness.get("tree", witness)]
    while nodes:
        node = nodes.pop()
        nodes += [after for after in node.get("next", ()) if after]
        if level == "token":
            assert "mu" not in node or node["mu"] == node["q"]
    top = witness.get("tree", witness)
    if level != "token" and "S" in witness.get("parameters", {}):
        masks = top["M"] if "tree" in witness else witness["rewards"]["M"]
        mass = sum(float(_number(q)) * float(_number(m)) for q, m in zip(top["q"], masks, strict=True))
        assert abs(mass - _number(witness["parameters"]["S"])) < 1e-12 and {*masks} <= {"0", "1"}


def _number(text: str) -> float:
    over, _, under = text.partition("/")
    return float(over) / float(under or 1)


@pytest.mark.parametrize("start", range(scaled(8, 1)))
def test_the_golden_corpus(start: int) -> None:
    """Every objective that is printed for a stored loss; full size: all of them, in eighths."""
    found = []
    for pair, _ in stored.read()[start :: scaled(8, 240)]:
        given = dict(pair.options)
        try:
            answer = klsym.explain(pair.text, parameters=pair.parameters, **given).to_json()
        except klsym.errors.UsageError:
            continue
        names = ("level", "batch", "credit", "weights", "aggregate")
        how = {name: answer[name] or "" for name in names} | {"batch": answer["batch"] or "none"}
        case = Case(answer["read_as"] or pair.text, answer["sampling"], answer["use"], **how)
        found += [(pair, one) for one in judge(case, answer, answer["summary"], pair.parameters)]
    assert found and not [(pair, one) for pair, one in found if one.complaint]
