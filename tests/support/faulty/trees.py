"""Statements and premises at an index, and finite models of sequences that refute nothing."""

from __future__ import annotations

import json
from typing import Any

from klsym.kernel import digest
from klsym.kernel.statements import Side
from support.certificates.faulty_certificates import *
from support.certificates.slot_helpers import future, mean_i, n, now, others, own, past, rest, sum_t

BATCH: dict[str, Any] = {"parameters": ("n",)}
ON = (log_q - sg(log_q)).exp()  # rho where the sampler is a detached copy of q
PREFIX, RETURN = past(ON) * now(ON), past(k1) + now(k1)
HIDDEN = sum_t("q", now(on_policy(w * k1)))  # 0 on-policy, its gradient is that of KL(q||p)

SETTINGS = {
    "change of measure": [
        ("prefix weights off-policy", STEP1, GOT,
            lambda: Draft(sum_t("mu", past(rho) * now(rho * k1), "now"), sum_t("q", now(k1), "now"))
            .step("change of measure", sum_t("q", now(k1), "now"), to="q")),
    ],
    "chain rule": [
        ("prefix weights set to one before differentiating", STEP1, GOT,
            lambda: Draft(mean_grad("t", "q", PREFIX * R), NOTHING).step("chain rule", NOTHING)),
        ("a value of this step differentiated in the loss of a token", STEP1, GOT,
            lambda: Draft(mean_grad("t", "q", sg(RETURN) * now(k1)), NOTHING)
            .step("chain rule", sum_t("q", now(k1), "past") + sum_t("q", RETURN + now(k1), "now"))),
    ],
    "stop-gradient": [
        ("the reference for the sampler at a step", STEP1, GOT,
            lambda: Draft(sum_t("q", now(ON * (k1 - sg(k1))) + now(k1), "now"), NOTHING)
            .step("stop-gradient", NOTHING)),
        ("the weight of one slot only", STEP1, GOT,
            lambda: Draft(sum_t("q", PREFIX * now(k1)), sum_t("q", past(ON) * now(k1)))
            .step("stop-gradient", sum_t("q", past(ON) * now(k1)))),
        ("a weight that is no copy", STEP1, GOT,
            lambda: Draft(sum_t("q", past(sg(rho)) * now(k1)), sum_t("q", now(k1)))
            .step("stop-gradient", sum_t("q", now(k1)))),
    ],
    "score mean zero": [
        ("a value that mentions the future", STEP1, "\\['future'\\] may depend on the slot now",
            lambda: Draft(sum_t("q", sg(future(k1)), "now"), NOTHING)
            .step("score mean zero", NOTHING, slot="now")),
        ("a value that mentions the whole", STEP1, "\\['x'\\] may depend on the slot now",
            lambda: Draft(sum_t("q", sg(k1), "now"), NOTHING).step("score mean zero", NOTHING, slot="now")),
    ],
    "sum over t": [
        ("the value of a sequence for that of its steps", STEP1, "of: one of .* expected, got 'sg\\(k1\\)'",
            lambda: Draft(Em("q", sg(k2)), sum_t("q", now(sg(k2))))
            .step("sum over t", sum_t("q", now(sg(k2))), of="sg(k1)")),
    ],
    "independence": [
        ("the square of a sum for the sum of given squares", STEP2, GOT,
            lambda: Draft(mean_i("q", others(sg(k2))), Em("q", k2) * (n - 1), **BATCH)
            .step("stop-gradient").step("independence", Em("q", k2) * (n - 1))),
    ],
    "parts of a sum": [
        ("the value of a step for that of the past", STEP1, GOT,
            lambda: Draft(sum_t("q", k1, "now"), sum_t("q", past(k1), "now"))
            .step("parts of a sum", sum_t("q", past(k1), "now"), of=["k1"])),
    ],
}  # fmt: skip

NO_BATCH, NO_MEAN = "hypotheses: .*batch.*recorded", "hypotheses: .*exists.*recorded"
CHAIN_RULE_OF_KL: dict[str, Any] = {"premises": ((sum_t("q", now(k1)), QP),)}
OF_A_STEP = {
    "equation": [
        ("of another slot", STEP1, GOT,
            lambda: Draft(sum_t("q", past(k1)), QP, **CHAIN_RULE_OF_KL).equation(0, QP)),
        ("of this step for the whole", STEP1, GOT,
            lambda: Draft(sum_t("q", k1), QP, **CHAIN_RULE_OF_KL).equation(0, QP)),
        ("of sequences for a batch of them", STEP1, GOT,
            lambda: Draft(mean("it", "q", now(k1)), QP, **CHAIN_RULE_OF_KL).equation(0, QP)),
        ("a mean for its gradient at each step", STEP1, GOT,
            lambda: Draft(mean_grad("t", "q", now(k1)), grad(QP), **CHAIN_RULE_OF_KL)
            .equation(0, grad(QP), gradient=1)),
        ("a detached quantity in a slot", STEP1, "holds a detached quantity",
            lambda: Draft(grad(sum_t("q", now(sg(k1)))), grad(QP), premises=((sum_t("q", now(sg(k1))), QP),))
            .equation(0, grad(QP), gradient=1)),
        ("a sum of H whose gradient differs", STEP1, "holds a detached quantity",
            lambda: Draft(grad(sum_t("q", past(H))), grad(sum_t("q", past(k1))),
                          premises=((sum_t("q", past(H)), sum_t("q", past(k1))),))
            .equation(0, grad(sum_t("q", past(k1))), gradient=1)),
        ("a reward given at each step", STEP1, "holds a detached quantity",
            lambda: Draft(grad(sum_t("q", sg(RETURN))), grad(sum_t("q", RETURN)),
                          premises=((sum_t("q", sg(RETURN)), sum_t("q", RETURN)),))
            .equation(0, grad(sum_t("q", RETURN)), gradient=1)),
        ("on-policy the weight of a step", STEP1, "holds a detached quantity",
            lambda: Draft(grad(HIDDEN), NOTHING, premises=((HIDDEN, NOTHING),))
            .equation(0, NOTHING, gradient=1)),
        ("on-policy along the sampler of a sequence", STEP1, GOT,  # what autograd averages, not a gradient
            lambda: Draft(mean_grad("t", "q", RETURN), NOTHING, premises=((sum_t("q", RETURN), NOTHING),))
            .equation(0, NOTHING, gradient=1)),
        ("a premise of steps left out", PART, "hypotheses: .*equal.*recorded \\[\\]",
            lambda: Draft(sum_t("q", now(k1)), QP, **CHAIN_RULE_OF_KL).equation(0).without("equal")),
    ],
}  # fmt: skip


def at_no_index(draft: Draft, index: str) -> dict[str, Any]:
    """The certificate of a draft, with another index in place of t."""
    parts = json.loads(json.dumps(draft.parts()).replace('"t"', f'"{index}"'))
    return {**draft.certificate(), "parts": parts, "digest": digest(parts)}


STATEMENTS = {
    "statement": [
        ("a slot of a batch in a sum over t", PART, "unknown slot 'others' in 'k1\\[others\\]'",
            lambda: Draft(sum_t("q", others(k1), "now"), NOTHING)),
        ("a slot of a sequence in a batch", PART, "unknown slot 'past' in 'k1\\[past\\]'",
            lambda: Draft(mean_i("q", past(k1), "self"), NOTHING)),
        ("the whole batch as a slot", PART, "unknown slot 'x' in 'k1'",
            lambda: Draft(mean_i("q", k1), Em("q", k1)).step("independence", Em("q", k1))),
        ("an index that is none", PART, "unknown atom",
            lambda: at_no_index(Draft(sum_t("q", k1), Em("q", k1)), "x")),
        ("a sum under the counting measure", PART, "unknown atom",
            lambda: Draft(sum_t("count", now(k1)), NOTHING)),
        ("a field at one sequence", STEP1, "a field is a mean under q, p or mu",
            lambda: Draft(curl("t", "sample", now(k2)), NOTHING).step("curl", NOTHING)),
        ("the score of another sample in a sum over t", PART, "score: a list of slots among",
            lambda: Draft(sum_t("q", ONE, "others"), NOTHING)
            .step("score mean zero", NOTHING, slot="others")),
        ("the score of a step in a batch", PART, "score: a list of slots among",
            lambda: Draft(mean_i("q", ONE, "now"), NOTHING).step("score mean zero", NOTHING, slot="now")),
        ("a step along the second direction of a single sample", PART, "score: a list of slots among",
            lambda: Draft(mean("", "q", ONE, "now'"), NOTHING)),
        ("an index with a slot of another index", PART, "unknown slot 'self' in 'k1\\[self\\]'",
            lambda: Draft(mean("it", "q", own(k1)), NOTHING)),
        ("the remaining samples of a batch of sequences", PART, "unknown slot 'rest'",
            lambda: Draft(mean("it", "q", rest(k1)), NOTHING)),
        ("pairs of single samples", PART, "unknown atom",
            lambda: at_no_index(Draft(sum_t("q", k1), NOTHING), "ijk")),
        ("division by the length of this step", PART, "division by the random variable length\\[now\\]",
            lambda: Draft(sum_t("q", V("length[now]").invert()), sum_t("q", ONE))),
        ("a part that divides by the length of the future", STEP1, "division by the random variable length",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING)
            .step("score mean zero", NOTHING, slot="now", part=past(R) * future(T).invert())),
        ("a third direction", PART, "score: a list of slots among",
            lambda: Draft(sum_t("q", ONE, "now''"), NOTHING)),
        ("division by the length of the past", PART, "division by the random variable length\\[past\\]",
            lambda: Draft(sum_t("q", past(T).invert()), NOTHING)),  # 0 at the first step
        ("division by the lengths of the others", PART, "division by the random variable length\\[others\\]",
            lambda: Draft(mean_i("q", others(T).invert()), NOTHING, **BATCH)),
        ("a slot in a mean over single samples", PART, "unknown slot 'now'",
            lambda: Draft(Em("q", now(k1)), NOTHING)),
        ("a slot outside its sum", PART, "unknown slot 'now'",
            lambda: Draft(QP * now(k1), NOTHING)),
        ("a part of another index", STEP1, "unknown slot 'self'",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING)
            .step("score mean zero", NOTHING, slot="now", part=own(R))),
        ("null for the part", STEP1, "a list of terms expected",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING)
            .step("score mean zero", NOTHING, slot="now", part=None)),
        ("null for the slot", STEP1, "one score function of the slot None expected",
            lambda: Draft(sum_t("q", past(R), "now"), NOTHING).step("score mean zero", NOTHING, slot=None)),
    ],
}  # fmt: skip

ON_SEQUENCES, ON_STEPS = (Em("q", R), constant(1)), (sum_t("q", now(R)), constant(2))
OF_BATCH = (mean_i("q", own(k1) * others(R)), QP)
TWICE: dict[str, Any] = {"premises": (ON_SEQUENCES, ON_STEPS)}
PREMISES = {
    "equation": [
        ("the value of a sequence for that of its steps", STEP1, GOT,
            lambda: Draft(sum_t("q", now(R)), constant(1), **TWICE).equation(0, constant(1))),
        ("two values of a reward, one of them not assumed", PART, "hypotheses: .*equal.*recorded",
            lambda: Draft(Em("q", R) - sum_t("q", now(R)), constant(-1), **TWICE)
            .equation(0, times=constant(1)).equation(1, times=constant(-1))
            .without("equal", ON_STEPS[0])),
        ("two values of a reward that no model has", CLOSE, "a model need not satisfy the premises",
            lambda: Draft(Em("q", R), constant(1), **TWICE)
            .close("finite model", model=ONE_REWARD, left=["2"] * 2, right=["1"] * 2)),
        ("a gradient across a batch from one theta", PART, "hypotheses: .*premise.*recorded .*equal",
            lambda: Draft(grad(OF_BATCH[0]), grad(QP), premises=(OF_BATCH,), **BATCH)
            .equation(0, gradient=1).without("premise").assuming("equal", *OF_BATCH)),
        ("a gradient across a batch with a baseline held constant", STEP1, "holds a detached quantity",
            lambda: Draft(grad(mean_i("q", own(k1) - others(sg(k1)))), grad(QP), **BATCH,
                          premises=((mean_i("q", own(k1) - others(sg(k1))), QP),))
            .equation(0, grad(QP), gradient=1)),
        ("a mean of gradients across a batch for a gradient", STEP1, GOT,
            lambda: Draft(mean_grad("i", "q", own(k1) * others(R)), grad(QP), premises=(OF_BATCH,), **BATCH)
            .equation(0, grad(QP), gradient=1)),
        ("the gradient of a theorem across a batch", STEP1, "may hold at one theta alone",
            lambda: Draft(grad(mean_i("q", own(k1))), grad(QP), cites=(ONE_OF_MANY,), **BATCH)
            .equation(0, grad(QP), cited=0, gradient=1)),
        ("times a value at one step", STEP1, "unknown slot 'now'",
            lambda: Draft(OF_BATCH[0], QP, premises=(OF_BATCH,), **BATCH)
            .equation(0, QP, times=constant(now(R)))),
        ("times the gradient over a batch", STEP1, "times: constants and means expected",
            lambda: Draft(OF_BATCH[0], QP, premises=(OF_BATCH,), **BATCH)
            .equation(0, QP, times=mean_grad("i", "q", own(k1)))),
        ("a theorem of a batch without its independence", PART, NO_BATCH,
            lambda: Draft(mean_i("q", own(k1)), QP, cites=(ONE_OF_MANY,), **BATCH)
            .equation(0, cited=0).without("batch")),
        ("a mean over the steps that need not exist", PART, NO_MEAN,
            lambda: Draft(OF_BATCH[0].multiply(sum_t("q", now(R))), QP.multiply(sum_t("q", now(R))),
                          premises=(OF_BATCH,), **BATCH)
            .equation(0, times=sum_t("q", now(R))).without("exists")),
    ],
    "stop-gradient": [
        ("a copy of the others replaced by their values in a field", STEP1, "Mean expected, got Curl",
            lambda: Draft(curl("i", "mu", own(k1) * others(sg(k1))), NOTHING)
            .step("stop-gradient", curl("i", "mu", own(k1) * others(k1)))),
        ("a copy at one sample dropped beside that of a step", STEP1, GOT,
            lambda: Draft(point(sg(k1) * k3), NOTHING).step("stop-gradient", point(k3))),
    ],
}  # fmt: skip
ONE_OF_MANY = Draft(mean_i("q", own(k1)), QP, **BATCH).step("independence")
ONE_REWARD = {
    "tree": {
        "q": ["1/2", "1/2"], "p": ["1/2", "1/2"], "mu": ["1/2", "1/2"], "u": ["0", "0"], "v": ["0", "0"],
        "rewards": {"R": ["2", "2"]}, "next": [None, None],
    },
    "path": [], "parameters": {},
}  # fmt: skip

NODE = {
    "q": ["1/2", "1/2"], "p": ["1/4", "3/4"], "mu": ["1/3", "2/3"], "u": ["1", "0"], "v": ["0", "1"],
    "rewards": {"R": ["1", "3"]}, "next": [None, None],
}  # fmt: skip


def node(**change: Any) -> dict[str, Any]:
    return {**NODE, **change}


def grown(left: Side, right: Side, tree: Any, ends: Any = "01", values: Any = None, **how: Any) -> Draft:
    """A refutation by a tree, whose two enclosures are single points."""
    model = {"tree": tree, "path": how.pop("path", []), "parameters": values or {}}
    recorded = {name: [end] * 2 for name, end in zip(("left", "right"), ends, strict=True)}
    return Draft(left, right, how.pop("relation", "="), **how).close("finite model", model=model, **recorded)


def of_size(n: str, left: str, right: str = "0") -> Draft:
    """E_q[sum over the others of R] against 0, in batches of a size."""
    return grown(mean_i("q", others(R)), NOTHING, NODE, (left, right), {"n": n}, **BATCH).step("independence")


REWARDS = sum_t("q", now(R))  # 2 in the tree of one node
SAME, AFTER = (REWARDS, constant(1)), [None, node(next=[None, node()])]

REFUTATIONS = {
    "finite model": [
        ("a node that is no distribution", CLOSE, "q is no full-support distribution",
            lambda: grown(*SAME, node(next=[None, node(q=["1/2", "1/4"])]), "21")),
        ("a token without probability", CLOSE, "p is no full-support distribution",
            lambda: grown(*SAME, node(p=["0", "1"]), "21")),
        ("a token that is less than impossible", CLOSE, "mu is no full-support distribution",
            lambda: grown(*SAME, node(mu=["-1/2", "3/2"]), "21")),
        ("a node without tokens", CLOSE, "q is no full-support distribution",
            lambda: grown(*SAME, {**{key: [] for key in NODE}, "rewards": {}}, "01")),
        ("a later node without tokens", CLOSE, "q is no full-support distribution",
            lambda: grown(*SAME, node(next=[None, {**{key: [] for key in NODE}, "rewards": {}}]), "21")),
        ("another sampler at a later node", CLOSE, "mu is no full-support distribution",
            lambda: grown(*SAME, node(next=[None, node(mu=["1/2", "1/3"], next=AFTER)]), "21")),
        ("fewer nodes than tokens", CLOSE, "the lists of a node differ in length",
            lambda: grown(*SAME, node(next=[None]), "21")),
        ("more nodes than tokens", CLOSE, "the lists of a node differ in length",
            lambda: grown(*SAME, node(next=[None] * 3), "21")),
        ("a reward too many", CLOSE, "the lists of a node differ in length",
            lambda: grown(*SAME, node(rewards={"R": ["1", "3", "0"]}), "21")),
        ("a reward of another name", CLOSE, "rewards: .* expected",
            lambda: grown(*SAME, node(rewards={"R": ["1", "3"], "k1": ["0", "0"]}), "21")),
        ("a node that lacks its second direction", CLOSE, "a node has the keys",
            lambda: grown(*SAME, {key: row for key, row in NODE.items() if key != "v"}, "21")),
        ("null for a probability", CLOSE, "an exact number such as .* expected, got 'None'",
            lambda: grown(*SAME, node(q=[None, "1"]), "21")),
        ("a parameter of the tree that is not declared", CLOSE, "an undeclared parameter",
            lambda: grown(*SAME, NODE, "21", {"beta": "1"})),
        ("a parameter of the tree without a value", CLOSE, "no value for beta",
            lambda: grown(sum_t("q", beta * now(R)), constant(1), NODE, "21", parameters=("beta",))),
        ("a tampered enclosure of a sum", CLOSE, "left side: enclosed in .*'2', '2'.*, recorded .*'3', '3'",
            lambda: grown(*SAME, NODE, "31")),
        ("an enclosure that is wider than it need be", CLOSE, "left side: enclosed in .*'2', '2'",
            lambda: Draft(*SAME).close("finite model", model=TREE, left=["3/2", "5/2"], right=["1"] * 2)),
        ("the enclosures of the two sides exchanged", CLOSE, "left side: enclosed in",
            lambda: grown(*SAME, NODE, "12")),
        ("a tree that does not separate", CLOSE, "do not contradict the relation",
            lambda: grown(REWARDS, constant(2), NODE, "22")),
        ("a tree that separates in the allowed direction", CLOSE, "do not contradict the relation",
            lambda: grown(constant(1), REWARDS, NODE, "12", relation="<=")),
        ("a tree for a batch", CLOSE, "reduce both sides to means over single samples and sequences first",
            lambda: grown(mean_i("q", own(R)), constant(1), NODE, "21")),
        ("a tree for a batch of sequences", CLOSE, "reduce both sides to means over single samples",
            lambda: grown(mean("it", "q", now(R)), constant(1), NODE, "21")),
        ("a tree for one batch", CLOSE, "reduce both sides to means over single samples",
            lambda: grown(mean_i("sample", own(R)), constant(2), NODE, "12", path=[0])),
        ("a tree at one sequence", CLOSE, "a value at one sample needs one",
            lambda: grown(sum_t("sample", now(R)), constant(5), NODE, "25")),
        ("a tree at one sample", CLOSE, "a value at one sample needs one",
            lambda: grown(point(R), constant(5), NODE, "25")),
        ("a path that stops before the end", CLOSE, "the sequence goes on",
            lambda: grown(point(R), constant(5), node(next=AFTER), "35", path=[1])),
        ("a path that goes on after the end", CLOSE, "a node has the keys",
            lambda: grown(point(R), constant(5), NODE, "15", path=[0, 0])),
        ("a path along a branch that is not there", CLOSE, "there is no branch 2",
            lambda: grown(point(R), constant(5), NODE, "35", path=[2])),
        ("a path backwards", CLOSE, "there is no branch -1",
            lambda: grown(point(R), constant(5), NODE, "35", path=[-1])),
        ("a curl still to be taken", CLOSE, "reduce both sides to means",
            lambda: grown(curl("t", "q", now(k2)), constant(1), NODE)),
        ("a gradient along a sequence still to be taken", CLOSE, "reduce both sides to means",
            lambda: grown(mean_grad("t", "q", now(k2)), constant(1), NODE)),
        ("single samples for a sum over t", CLOSE, "finite model: the keys",
            lambda: Draft(*SAME).close("finite model", left=["2"] * 2, right=["1"] * 2, model={
                **{key: NODE[key] for key in ("q", "p", "mu", "u")}, "parameters": {}, "outcome": 0,
                "rewards": {"R": ["1", "3"]}})),
        ("an advantage of a tree", CLOSE, "no value for A\\[now\\]",
            lambda: grown(sum_t("q", now(A)), constant(1), NODE)),
        ("an advantage of a whole sequence", CLOSE, "A is given for single steps alone",
            lambda: grown(Em("q", A), constant(1), node(rewards=STEPS, next=[None, node(rewards=STEPS)]))),
        ("an advantage of the past", CLOSE, "A is given for single steps alone",
            lambda: grown(sum_t("q", past(A)), constant(1), node(rewards=STEPS))),
        ("a reward of one node only", CLOSE, "no value for H",
            lambda: grown(Em("q", H), constant(1), node(rewards=STEPS, next=AFTER))),
        ("a value given at each step not put in", CLOSE, "no value for H\\[now\\]",
            lambda: grown(sum_t("q", now(H)), constant(1), NODE, "21")),
        ("half a sample", CLOSE, "a batch of size 1/2", lambda: of_size("1/2", "-1")),
        ("a sample and a half", CLOSE, "a batch of size 3/2", lambda: of_size("3/2", "1")),
        ("no sample", CLOSE, "a batch of size 0", lambda: of_size("0", "-2")),
        ("less than no sample", CLOSE, "a batch of size -2", lambda: of_size("-2", "-6")),
        ("a batch of one", CLOSE, "a batch of size 1", lambda: of_size("1", "0", "1")),
        ("a batch of one that nothing is drawn from", CLOSE, "a batch of size 1",
            lambda: grown(*SAME, NODE, "21", {"n": "1"}, **BATCH)),
        ("a batch without a pair", CLOSE, "a batch of size 1",  # E[R^2] - 2 E[R]^2 there
            lambda: grown(mean("ij", "q", -(rest(R) ** 2)), NOTHING, node(rewards={"R": ["0", "1"]}),
                          "00", {"n": "1"}, relation="<=", **BATCH).step("independence")),
        ("a tree against the premises", CLOSE, "a model need not satisfy the premises",
            lambda: grown(*SAME, NODE, "21", premises=((REWARDS, constant(1)),))),
        ("a tree against a premise about parameters", CLOSE, "the model does not satisfy the premises",
            lambda: grown(*SAME, NODE, "21", {"beta": "2"}, parameters=("beta",),
                          premises=((constant(beta), constant(1)),))),
        ("slots taken for one another along a sequence", CLOSE, "left side: enclosed in .*, recorded",
            lambda: grown(sum_t("q", past(R)), NOTHING, node(next=[None, node()]), "20")),
    ],
}  # fmt: skip
TREE = {"tree": NODE, "path": [], "parameters": {}}
STEPS = {"A": ["1", "2"], "H": ["1", "2"], "R": ["1", "3"]}

TREES = (SETTINGS, OF_A_STEP, STATEMENTS, PREMISES, REFUTATIONS)
