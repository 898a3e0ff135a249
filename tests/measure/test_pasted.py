"""Lines of code that are pasted, run on small worlds: their names are fields or numbers, by what they say."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

import klsym
from klsym import measure
from klsym.errors import UsageError
from klsym.measure.pasted import is_runnable, plan_pasted, sums_over_tokens

BONUS = "entropy = -(probs * log_probs).sum(-1)\nloss = -log_prob * advantage\nloss -= 0.1 * entropy"
PENALTY = "kl = (ref_log_probs.exp() * (ref_log_probs - log_probs)).sum(-1)\n-logp * adv + self.beta * kl"
CATEGORICAL = "d = Categorical(probs=probs)\nloss = -(d.log_prob(action) * adv).mean() - 0.1 * d.entropy()"
GATHERED = (
    "lp = F.log_softmax(logits, -1).gather(1, actions.unsqueeze(1)).squeeze(1)\nloss = -(lp * R).mean()"
)
MASKED = "r = torch.exp(logp - old_logp)\nloss = -(r * advantages.unsqueeze(1) * mask).sum(-1)\nloss.mean()"
HALF = "k = (logp - ref_logp)[mask]\nloss = 0.5 * (k ** 2).sum()"
FUNCTION = "def loss(logp, ref_logp, mask):\n    return (0.5 * (logp - ref_logp) ** 2 * mask).sum(-1)"
MEASURED = {
    BONUS: {"policy-gradient": -1.0, "entropy": -0.1},
    PENALTY: {"policy-gradient": -1.0, "forward-kl": 0.1},
    CATEGORICAL: {"policy-gradient": -1.0, "entropy": -0.1},
    GATHERED: {"policy-gradient": -1.0},
    "(q * (q.log() - p.log())).sum(-1)": {"reverse-kl": 1.0},
    "F.kl_div(logp, ref_logp, reduction='none', log_target=True).sum(-1)": {"forward-kl": 1.0},
    "-(new_probs / old_probs) * adv": {"policy-gradient": -1.0},
    "ref_logp = reference(x)\nlogp = get_logps(model, x)\n0.5 * (logp - ref_logp) ** 2": {"reverse-kl": 1.0},
    "-logp * (rewards - values)": {"policy-gradient": -1.0},
    MASKED: {"token-policy-gradient": -1.0},
    "-ratio * adv": {"policy-gradient": -1.0},
    "def f(logp, adv, scale=-1.0):\n    return -(logp * adv * scale).mean()": {"policy-gradient": 1.0},
    "a = -logp * adv\nb = (logp - ref_logp) ** 2\na.backward()\nb.backward()": {
        "policy-gradient": -1.0,
        "reverse-kl": 2.0,
    },
    "loss -= logp * adv": {"policy-gradient": -1.0},
    "loss = 0.1 * ref_log_probs": {},
    HALF: {"reverse-kl": 1.0},
    FUNCTION: {"reverse-kl": 1.0},
}
REFUSED = {
    "prob1 * (prob2.log() - prob1.log())": "prob1 and prob2 would both be prob",
    "-logp * (ratio - 1)": r"what is 'ratio'\?  A line before says it, rho for q/mu",
    "-logp * (R - Q(s, a))": "what is 'Q'",
    "tf.reduce_mean(logp)": "TensorFlow's code is not run",
    "loss = logp[": "cannot be read as Python",
    "import torch\n": "no loss in the code",
    "loss = logp\nfor x in y: pass": "the last line of the code is no loss",
    "def g(x):\n    return x\n\ndef f(logp):\n    return g(logp)": "a function beside other code",
    "-torch.exp(new.logp - old.logp) * adv": "new.logp and old.logp would both be logp",
    "-(logp * adv)[high_entropy_mask].sum()": "what is 'high_entropy_mask'",
    "logp = net(x).detach()\n-logp * adv": "what is 'x'|what is 'net'",
    "logp * unknown": "what is 'unknown'",
    "entropy = -log_p.sum(-1)\nentropy.mean()": "log_p would be ref_logp, and no other name is of the policy",
    "a = R - (logp - ref_logp)\nadvantages = whiten(a)\n-advantages.detach() * logp": "what is 'whiten'",
    "-min(coef_1, coef_2) * adv + logp": "what is 'coef_2'.*coef_2 = clip",
}


@pytest.mark.parametrize(("code", "multiples"), MEASURED.items(), ids=[code[:40] for code in MEASURED])
def test_pasted_code_is_measured(code: str, multiples: dict[str, float]) -> None:
    answer = measure(code)
    found = {name.replace("next-token-", ""): value for name, value in answer.multiples.items()}
    assert found == pytest.approx(multiples), answer


def test_rewards_that_are_averaged_are_those_of_a_group() -> None:
    code = "a = rewards - rewards.mean()\n-(a * logp).mean()"
    answer = measure(code)
    assert answer.setting.group == 3
    assert answer.multiples == pytest.approx({"policy-gradient": -2 / 3})
    clamped = measure(code.replace("rewards.mean()\n", "rewards.mean()\na = a.clamp(min=0)\n"))
    assert clamped.kind == "no-objective"


def test_what_is_assumed_is_said() -> None:
    notes = " ".join(measure(PENALTY).notes)
    assert "assumed: beta = 0.1" in notes and "ref_log_probs is ref_logits" in notes
    assert measure(PENALTY, set={"beta": 2.0}).multiples["forward-kl"] == pytest.approx(2)
    entries = " ".join(measure("-(logp[mb_inds] * adv[mb_inds])").notes)
    assert "assumed: mb_inds are samples of a minibatch" in entries
    kept = " ".join(measure("-masked_mean(logp * adv, mask)").notes)
    assert "assumed: masked_mean(x, mask) is (x*mask).sum()/mask.sum()" in kept
    swapped = measure("logp * (logp - x).detach()", map={"x": "ref_logp"})
    assert swapped.multiples == pytest.approx({"reverse-kl": 1})


@pytest.mark.parametrize(("code", "words"), REFUSED.items(), ids=[code[:40] for code in REFUSED])
def test_refused(code: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        measure(code)
    assert "\n" not in str(caught.value) and not is_runnable(code)


@pytest.mark.parametrize(
    ("code", "one_token", "padded"),
    [("-logp*adv", True, False), ("(logp.sum(-1)*R).mean()", False, False), (MASKED, False, True)],
)
def test_the_worlds_that_code_needs(code: str, one_token: bool, padded: bool) -> None:
    shape = plan_pasted(code, {}, {}).shape
    assert (shape.one_token, shape.padded) == (one_token, padded)


def test_a_sum_over_the_vocabulary_is_none_over_tokens() -> None:
    assert sums_over_tokens("x = logp*adv; x.sum(dim=1)", ())
    assert not sums_over_tokens("x = F.softmax(logits, -1); (x*x).sum(-1)", ())


def run_klsym(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "klsym", *words], capture_output=True, text=True, input=text, timeout=120
    )


def test_the_command_takes_lines_of_code() -> None:
    done = run_klsym("measure", "-", "--expect", "next-token-reverse-kl", text=FUNCTION)
    assert done.returncode == 0 and "the code, run on-policy" in done.stdout, done.stderr
    wrong = run_klsym("measure", FUNCTION, "--expect", "next-token-forward-kl")
    assert wrong.returncode == 1
    assert wrong.stderr == "klsym: the code is not next-token-forward-kl in expectation\n"
    failing = run_klsym("measure", "logp.foo()")
    assert failing.returncode == 2 and "running it raises AttributeError" in failing.stderr


def test_what_is_not_read_is_said_to_be_runnable_and_is_not_run() -> None:
    done = run_klsym("explain", "torch.cumsum(logp*adv, 0).mean()")
    assert done.returncode == 2 and done.stderr.endswith("; klsym measure with the same code runs it\n")
    other = run_klsym("explain", "torch.cumsum(logp*unknown, 0).mean()")
    assert other.returncode == 2 and "klsym measure" not in other.stderr


@pytest.mark.parametrize("name", ["_kl_ignored_token_ids", "special_token_ids", "pad_token_ids"])
def test_ids_of_other_words_are_not_those_drawn(name: str) -> None:
    code = (
        f"kl = (logp - ref_logp).masked_fill(torch.isin(completion_ids, self.{name}), 0.0); loss = kl.sum()"
    )
    with pytest.raises(klsym.KlsymError, match=f"what is '{name}'"):
        klsym.measure(code)


DISTRIBUTIONS = """
ratio = torch.exp(dist.log_prob(actions) - old_dist.log_prob(actions))
loss = -min(ratio*adv, ratio*adv).mean() - 0.01*dist.entropy().mean()
"""


@pytest.mark.parametrize(
    ("code", "multiples"),
    [
        (DISTRIBUTIONS, {"policy-gradient": -1, "entropy": -0.01}),
        ("loss += -(dist.log_prob(actions)*adv).mean()", {"policy-gradient": -1}),
        ("r = exp(logp - old_logp); loss = -r*adv", {"policy-gradient": -1}),
        ("adv = where(R == 1, lam*R, R - 1); -logp*adv", {"policy-gradient": -1.1}),
        ("probs = softmax(logits, -1); (probs*log(probs)).sum(-1).mean()", {"entropy": -1}),
    ],
)
def test_functions_and_distributions_that_the_code_does_not_define(
    code: str, multiples: dict[str, float]
) -> None:
    found = measure(code).multiples
    assert found == pytest.approx(multiples, abs=1e-9), found


def test_what_is_assumed_of_them_is_said() -> None:
    notes = " ".join(measure(DISTRIBUTIONS).notes)
    assert "dist is Categorical(logits=logits)" in notes and "old_dist is Categorical" in notes
    assert "below" not in notes
    assert any("rewards are 0 or 1" in note for note in measure("-logp*adv*(R == 1)*R").notes)
    for code in ("-unknown.log_prob(a)*adv", "-dist.sample()*adv", "-target_dist.log_prob(a)*adv"):
        with pytest.raises((UsageError, AttributeError)):
            measure(code)


PADDED = (
    "num_actions = mask.sum(); mean = {0}.mean(); std = (({0} - mean).pow(2) * mask).sum();"
    " rstd = (std / num_actions).clamp(min=1e-8).rsqrt(); adv = ({0} - mean) * rstd; loss = -adv * logp"
)


@pytest.mark.parametrize(
    ("code", "name", "field"),
    [
        (PADDED.format("advantages"), "advantages", "rewards[t]"),
        (
            "adv = rewards - rewards.mean(); loss = -((logp*adv)*mask).sum()/mask.sum()",
            "rewards",
            "rewards[t]",
        ),
        (
            "a = rewards - rewards.mean(); loss = -(logp*a[:, None]*mask).sum()/mask.sum()",
            "rewards",
            "rewards",
        ),
        ("a = rewards - rewards.mean(); -(logp*a.unsqueeze(1)*mask).sum()/mask.sum()", "rewards", "rewards"),
        ("adv = rewards - rewards.mean(); loss = -(logp*mask).sum(-1)*adv", "rewards", "rewards"),
        ("a = advantages - advantages.mean(); -(logp*mask).sum(-1)*a", "advantages", "rewards"),
        ("a = advantages - advantages.mean(); -(logp*a.view(-1, 1)*mask).sum(-1)", "advantages", "rewards"),
    ],
)
def test_values_that_a_mask_multiplies_are_of_each_token(code: str, name: str, field: str) -> None:
    """The code then runs: it has the shapes that it would have in training."""
    plan = plan_pasted(code, {}, {})
    assert plan.fields[name] == field
    assert measure(code, group=2) is not None
