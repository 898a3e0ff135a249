"""What a statement at an index gives and says, and finite models of sequences that refute nothing."""

from __future__ import annotations

from typing import Any

from drafts import (
    CLOSE,
    GOT,
    NOTHING,
    ONE,
    PART,
    QP,
    STEP1,
    ZERO,
    A,
    Draft,
    Em,
    R,
    V,
    beta,
    grad,
    k1,
    k2,
    rho,
    sg,
    w,
)  # fmt: skip
from slotted import at_index, curl, future, gradient_of, mean_i, now, others, own, past, rest, sum_t

from klsym.statements import E, Side

H, T = V("H"), V("length")
BATCH: dict[str, Any] = {"parameters": ("n",)}
MEAN, PREFIX = mean_i("q", own(k1)), past(rho) * now(rho)
CHAIN_RULE_OF_KL = {"premises": ((sum_t("q", now(k1)), QP),)}
STEPWISE = {"given": (("H[now]", past(k1) + now(k1)),)}
HIDDEN = sum_t("q", now(w * k1))  # 0 on-policy, its gradient is that of KL(q||p)

SETTINGS = {
    "on-policy": [
        ("a prefix weight off-policy", STEP1, "does not say that the sampler is q",
            lambda: Draft(sum_t("mu", PREFIX * now(k1), "now"), sum_t("q", now(k1), "now"))
            .step("on-policy", sum_t("q", now(k1), "now"))),
        ("prefix weights set to one before differentiating", STEP1, "expectation under q, p or mu expected",
            lambda: Draft(gradient_of("t", "mu", PREFIX * R), NOTHING, on_policy=True)
            .step("on-policy", gradient_of("t", "q", R)).step("chain rule")),
        ("the reference for the sampler at a step", STEP1, GOT,
            lambda: Draft(sum_t("mu", now(rho * k1), "now"), NOTHING, on_policy=True)
            .step("on-policy", NOTHING)),
        ("one slot only", STEP1, GOT,
            lambda: Draft(sum_t("mu", PREFIX * now(k1)), sum_t("q", past(rho) * now(k1)), on_policy=True)
            .step("on-policy", sum_t("q", past(rho) * now(k1)))),
    ],
    "given": [
        ("a value that mentions the future", PART, "unknown slot 'future' in 'k1\\[future\\]'",
            lambda: Draft(sum_t("q", now(H), "now"), NOTHING, given=(("H[now]", future(k1)),)).step("given")),
        ("a value that mentions the whole", PART, "unknown slot 'x' in 'length'",
            lambda: Draft(sum_t("q", now(H)), Side.constant(1), given=(("H[now]", T.inverse()),))
            .step("given")),
        ("a value of the past", PART, "can be given a value, not 'H\\[past\\]'",
            lambda: Draft(sum_t("q", past(H)), NOTHING, given=(("H[past]", ZERO),)).step("given")),
        ("a value of another sample", PART, "can be given a value, not 'H\\[others\\]'",
            lambda: Draft(mean_i("q", others(H)), NOTHING, given=(("H[others]", ZERO),), **BATCH)
            .step("given", NOTHING)),
        ("a value in terms of earlier ones", PART, "the value of H\\[now\\] mentions a given name",
            lambda: Draft(sum_t("q", now(H)), NOTHING, given=(("H[now]", past(H) + now(k1)),)).step("given")),
        ("the value of a sequence for that of a step", STEP1, GOT,
            lambda: Draft(sum_t("q", now(H)), sum_t("q", now(k2)), given=(("H", k2),))
            .step("given", sum_t("q", now(k2)))),
        ("the value of a step for that of the past", STEP1, GOT,
            lambda: Draft(sum_t("q", past(H), "now"), sum_t("q", past(k1), "now"), **STEPWISE)
            .step("given", sum_t("q", past(k1), "now"))),
        ("the value of a step in a batch of samples", STEP1, "values are put into expectations",
            lambda: Draft(mean_i("q", own(H)), MEAN, **STEPWISE).step("given", MEAN)),
        ("put into the loss of a token", STEP1, "values are put into expectations",
            lambda: Draft(gradient_of("t", "q", now(H * k1)), NOTHING, **STEPWISE)
            .step("given", gradient_of("t", "q", (past(k1) + now(k1)) * now(k1))).step("chain rule")),
    ],
    "premise": [
        ("of another slot", STEP1, "premise 0 speaks of something else",
            lambda: Draft(sum_t("q", past(k1)), QP, **CHAIN_RULE_OF_KL).step("premise", QP, number=0)),
        ("of this step for the whole", STEP1, "premise 0 speaks of something else",
            lambda: Draft(sum_t("q", k1), QP, **CHAIN_RULE_OF_KL).step("premise", QP, number=0)),
        ("of sequences for a batch of them", STEP1, "premise 0 speaks of something else",
            lambda: Draft(at_index("it", "q", now(k1)), QP, **CHAIN_RULE_OF_KL)
            .step("premise", QP, number=0)),
        ("a mean for its gradient at each step", STEP1, "premise 0 speaks of something else",
            lambda: Draft(gradient_of("t", "q", now(k1)), grad(QP), **CHAIN_RULE_OF_KL)
            .step("premise", grad(QP), number=0)),
        ("a detached quantity in a slot", PART, "holds a detached quantity",
            lambda: Draft(grad(sum_t("q", now(sg(k1)))), grad(QP), premises=((sum_t("q", now(sg(k1))), QP),))
            .step("premise", number=0)),
        ("a reward given at each step", PART, "given at one theta only",
            lambda: Draft(grad(sum_t("q", now(H))), grad(sum_t("q", past(k1) + now(k1))), **STEPWISE,
                          premises=((sum_t("q", now(H)), sum_t("q", past(k1) + now(k1))),))
            .step("premise", number=0)),
        ("on-policy along the sampler of a sequence", PART, "its value does not tell a gradient",
            lambda: Draft(grad(sum_t("mu", now(k1))), grad(QP), on_policy=True,
                          premises=((sum_t("mu", now(k1)), QP),)).step("premise", number=0)),
        ("on-policy the weight of a step", PART, "its value does not tell a gradient",
            lambda: Draft(grad(HIDDEN), NOTHING, on_policy=True, premises=((HIDDEN, NOTHING),))
            .step("premise", number=0).step("linearity")),
    ],
}  # fmt: skip

STATEMENTS = {
    "statement": [
        ("a slot of a batch in a sum over t", PART, "unknown slot 'others' in 'k1\\[others\\]'",
            lambda: Draft(sum_t("q", others(k1), "now"), NOTHING)),
        ("a slot of a sequence in a batch", PART, "unknown slot 'past' in 'k1\\[past\\]'",
            lambda: Draft(mean_i("q", past(k1), "self"), NOTHING)),
        ("the whole batch as a slot", PART, "unknown slot 'x' in 'k1'",
            lambda: Draft(mean_i("q", k1), Em("q", k1)).step("independence", Em("q", k1))),
        ("an index that is none", PART, "unknown atom",
            lambda: Draft(at_index("x", "q", k1), Em("q", k1))),
        ("a sum under the counting measure", PART, "unknown atom",
            lambda: Draft(sum_t("count", now(k1)), NOTHING)),
        ("a field at one sequence", PART, "unknown atom",
            lambda: Draft(curl("sample", now(k2)), NOTHING)),
        ("the score of another sample in a sum over t", PART, "score: a list of slots among",
            lambda: Draft(sum_t("q", ONE, "others"), NOTHING)
            .step("score mean zero", NOTHING, slot="others")),
        ("the score of a step in a batch", PART, "score: a list of slots among",
            lambda: Draft(mean_i("q", ONE, "now"), NOTHING).step("score mean zero", NOTHING, slot="now")),
        ("a second direction of a single sample", PART, "score: a list of slots among",
            lambda: Draft(Side.atom(E("q", ONE, ("x'",))), NOTHING)),
        ("a third direction", PART, "score: a list of slots among",
            lambda: Draft(sum_t("q", ONE, "now''"), NOTHING)),
        ("division by the length of the past", PART, "division by the random variable length\\[past\\]",
            lambda: Draft(sum_t("q", past(T).inverse()), NOTHING)),  # 0 at the first step
        ("division by the lengths of the others", PART, "division by the random variable length\\[others\\]",
            lambda: Draft(mean_i("q", others(T).inverse()), NOTHING, **BATCH)),
        ("a slot in a mean over single samples", PART, "unknown slot 'now'",
            lambda: Draft(Em("q", now(k1)), NOTHING)),
        ("a slot outside its sum", PART, "unknown slot 'now'",
            lambda: Draft(QP * now(k1), NOTHING)),
        ("a part of another index", STEP1, "unknown slot 'self'",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING)
            .step("score mean zero", NOTHING, slot="now", part=own(R))),
        ("null for the part", STEP1, "a list of terms expected, got None",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING)
            .step("score mean zero", NOTHING, slot="now", part=None)),
        ("null for the slot", STEP1, "one score function of the slot None expected",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING).step("score mean zero", NOTHING, slot=None)),
        ("a premise times the value at a step", CLOSE, "unknown slot 'now'",
            lambda: Draft(sum_t("q", past(k1)), QP, **CHAIN_RULE_OF_KL)
            .close("evaluation", premises=[{"number": 0, "times": Side.constant(now(R)).to_json()}])),
        ("a premise times the gradient at a sequence", CLOSE, "times: constants and means expected",
            lambda: Draft(sum_t("q", past(k1)), QP, **CHAIN_RULE_OF_KL).close("evaluation", premises=[
                {"number": 0, "times": gradient_of("t", "sample", now(k1)).to_json()}])),
    ],
}  # fmt: skip

NODE = {
    "q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"], "v": ["0", "1"],
    "R": ["1", "3"], "next": [None, None],
}  # fmt: skip


def node(**change: Any) -> dict[str, Any]:
    return {**NODE, **change}


def grown(left: Side, right: Side, tree: Any, ends: Any = "01", values: Any = None, **how: Any) -> Draft:
    """A refutation by a tree, whose two enclosures are single points."""
    model = {"tree": tree, "parameters": values or {}}
    recorded = {name: [end] * 2 for name, end in zip(("left", "right"), ends, strict=True)}
    return Draft(left, right, how.pop("relation", "="), **how).close("finite model", model=model, **recorded)


REWARDS = sum_t("q", now(R))  # 2 in the tree of one node
SAME, AFTER = (REWARDS, Side.constant(1)), [None, node(next=[None, node()])]

REFUTATIONS = {
    "finite model": [
        ("a node that is no distribution", CLOSE, "q is no full-support distribution",
            lambda: grown(*SAME, node(next=[None, node(q=["1/2", "1/4"])]), "21")),
        ("a token without probability", CLOSE, "p is no full-support distribution",
            lambda: grown(*SAME, node(p=["0", "1"]), "21")),
        ("a node without tokens", CLOSE, "q is no full-support distribution",
            lambda: grown(*SAME, {key: [] for key in NODE}, "01")),
        ("another sampler at a later node on-policy", CLOSE, "on-policy, mu must equal q",
            lambda: grown(*SAME, node(mu=["1/2", "1/2"], next=AFTER), "21", on_policy=True)),
        ("fewer nodes than tokens", CLOSE, "the lists of a node differ in length",
            lambda: grown(*SAME, node(next=[None]), "21")),
        ("a reward too many", CLOSE, "the lists of a node differ in length",
            lambda: grown(*SAME, node(R=["1", "3", "0"]), "21")),
        ("a node that lacks its second direction", CLOSE, "a node has the keys",
            lambda: grown(*SAME, {key: row for key, row in NODE.items() if key != "v"}, "21")),
        ("null for a probability", CLOSE, "an exact number such as .* expected, got 'None'",
            lambda: grown(*SAME, node(q=[None, "1"]), "21")),
        ("a parameter of the tree that is not declared", CLOSE, "a value for an undeclared parameter",
            lambda: grown(*SAME, NODE, "21", {"beta": "1"})),
        ("a parameter of the tree without a value", CLOSE, "no value for beta",
            lambda: grown(sum_t("q", beta * now(R)), Side.constant(1), NODE, "21", parameters=("beta",))),
        ("a tampered enclosure of a sum", CLOSE, "left side: enclosed in \\[2, 2\\], recorded \\[3, 3\\]",
            lambda: grown(*SAME, NODE, "31")),
        ("a tree that does not separate", CLOSE, "do not contradict the relation",
            lambda: grown(REWARDS, Side.constant(2), NODE, "22")),
        ("a tree that separates in the allowed direction", CLOSE, "do not contradict the relation",
            lambda: grown(Side.constant(1), REWARDS, NODE, "12", relation="<=")),
        ("a tree for a batch", CLOSE, "Indexed must be reduced to means over sequences first",
            lambda: grown(mean_i("q", own(R)), Side.constant(1), NODE, "21")),
        ("a tree at one sequence", CLOSE, "Indexed must be reduced to means over sequences first",
            lambda: grown(sum_t("sample", now(R)), Side.constant(5), NODE, "25")),
        ("a curl still to be taken", CLOSE, "Curl must be reduced to means over sequences",
            lambda: grown(curl("q", now(k2)), Side.constant(1), NODE)),
        ("single samples for a sum over t", CLOSE, "Indexed must be reduced to expectations first",
            lambda: Draft(*SAME).close("finite model", left=["2"] * 2, right=["1"] * 2, model={
                **{key: NODE[key] for key in ("q", "p", "mu", "u")}, "parameters": {}, "outcome": 0,
                "rewards": {"R": ["1", "3"]}})),
        ("an advantage of a tree", CLOSE, "no value for A\\[now\\]",
            lambda: grown(sum_t("q", now(A)), Side.constant(1), NODE)),
        ("a value given at each step not put in", CLOSE, "put the given values in first",
            lambda: grown(sum_t("q", now(R)), Side.constant(1), NODE, "21", given=(("R[now]", ONE),))),
        ("half a sample", CLOSE, "the model has a batch of size 1/2",
            lambda: grown(mean_i("q", others(R)), NOTHING, NODE, ("-1", "0"), {"n": "1/2"}, **BATCH)
            .step("independence")),
        ("no sample", CLOSE, "the model has a batch of size 0",
            lambda: grown(mean_i("q", others(R)), NOTHING, NODE, ("-2", "0"), {"n": "0"}, **BATCH)
            .step("independence")),
        ("a batch without a pair", CLOSE, "the model has a batch of size 1",  # E[R^2] - 2 E[R]^2 there
            lambda: grown(at_index("ij", "q", -(rest(R) ** 2)), NOTHING, node(R=["0", "1"]),
                          "00", {"n": "1"}, relation="<=", **BATCH).step("independence")),
        ("a tree against the premises", CLOSE, "a model need not satisfy the premises",
            lambda: grown(*SAME, NODE, "21", premises=((REWARDS, Side.constant(1)),))),
    ],
}  # fmt: skip

TREES = (SETTINGS, STATEMENTS, REFUTATIONS)
