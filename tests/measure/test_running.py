"""What is refused, how arguments are bound, what is printed, and code in JAX."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import klsym  # noqa: E402
from klsym.cli import main  # noqa: E402
from klsym.engine.answers.objectives import read_objective  # noqa: E402
from klsym.errors import UsageError  # noqa: E402
from klsym.measure.binding import bind_loss, choose_library, load_function  # noqa: E402
from klsym.measure.expectation import read_multiples, write_objective  # noqa: E402
from klsym.measure.fit import Basis  # noqa: E402
from klsym.measure.measuring import measure  # noqa: E402
from klsym.testing import assert_minimises  # noqa: E402

FILE = "tests/support/measured/losses.py"


def reinforce(b: Any) -> Any:
    return -((b.logp * b.mask).sum(-1) * b.rewards).mean()


def k2_of_sequences(b: Any) -> Any:
    return (((b.logp - b.ref_logp) * b.mask).sum(-1) ** 2 / 2).mean()


class Counter:
    """Keeps state: a weight that grows from call to call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, b: Any) -> Any:
        self.calls += 1
        return reinforce(b) * self.calls


def permuted(b: Any) -> Any:
    return (b.logp.sum(-1) * b.rewards[torch.randperm(len(b.rewards))]).sum()


def running_mean(b: Any, seen: list[float] = []) -> Any:  # noqa: B006 (the state is meant)
    seen.append(float(b.rewards[0]))
    return reinforce(b) * np.mean(seen)


def add_twice(logp: Any, mask: Any) -> Any:
    return (logp * mask).sum()


NOISE = np.random.default_rng(0)
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (f"{FILE}:random_mask", {}, "two runs of the loss differ"),
    (f"{FILE}:logarithm", {}, r"the loss is not finite where the samples are the words"),
    (f"{FILE}:per_token", {}, r"the loss has the shape \(7, 2\)|the loss has the shape \(1, 2\)"),
    (Counter(), {}, "keep state"),
    (permuted, {"group": 2}, "two runs of the loss differ"),
    (lambda b: "k3", {}, "the loss is a str"),
    (lambda b: None, {}, "the loss is a NoneType"),
    (lambda b: (b.logp * b.mask).sum().sqrt(), {}, "is not finite"),
    (lambda b: (b.logp * b.mask).sum() / 0, {}, "is not finite"),
    (reinforce, {"sampling": "replay"}, "sampling='replay': one of on-policy"),
    (reinforce, {"group": 0}, "group=0: a whole number from 1 to 8"),
    (reinforce, {"group": 2.5}, "group=2.5"),
    (reinforce, {"words": 1}, "words=1"),
    (reinforce, {"length": 9}, "length=9"),
    (reinforce, {"prompts": 5}, "prompts=5"),
    (reinforce, {"worlds": 1}, "worlds=1"),
    (reinforce, {"words": 5, "length": 4, "group": 4}, "groups of samples: a smaller group"),
    (reinforce, {"framework": "mxnet"}, "framework 'mxnet': torch or jax expected"),
    (reinforce, {"expect": "-E[R] + reverse-lk"}, "is no objective; did you mean reverse-kl"),
    (reinforce, {"map": {"x": "logp"}}, "the loss has no argument 'x'"),
    (lambda logp, weird: logp.sum(), {}, "what is 'weird'\\? map="),
    (lambda logpas, logp: logp.sum(), {}, "what is 'logpas'\\? perhaps map=.*logp.*; map="),
    (lambda logp, mask: logp.sum(), {"map": {"mask": "masks"}}, "map mask='masks': one of tokens"),
    (f"{FILE}:absent", {}, "has no 'absent' .it has grpo"),
    ("absent.py:loss", {}, "absent.py: no such file"),
    ("klsym.nothing:loss", {}, "No module named 'klsym.nothing'"),
    (f"{FILE}", {}, "FILE.py:FUNC or MODULE:FUNC expected"),
    (3, {}, "a loss is a function of one klsym.Batch, got int"),
    (None, {}, "got NoneType"),
    (max, {}, "the arguments of the loss are not known"),
    (running_mean, {}, "a step or a running mean"),
    (lambda b: reinforce(b) * torch.rand(()), {}, "is it random"),
    (lambda b: reinforce(b) * NOISE.normal(), {}, "is it random"),
    (lambda b: {"loss": reinforce(b)}, {}, "the loss is a dict"),
    (lambda b: (), {}, "the loss is a tuple"),
    (lambda b: ["loss", 1], {}, "the loss is a str"),
    (lambda b: reinforce(b) * 1j, {}, "the loss is complex"),
    (lambda b: b.logp[:0], {}, r"the loss has the shape \(0, 2\)"),
    (lambda b: (b.logp * b.mask).sum(-1) * b.rewards, {"group": 2}, r"the shape \(2,\)"),
    (lambda b: float("nan"), {}, "the loss is not finite"),
    (lambda b: reinforce(b) * (b.mask.sum(-1) - 1).log().sum(), {}, "where the samples are the words 0 "),
    (lambda b: reinforce(b) * b.rewards.std(), {}, "the loss is not finite where"),
    (lambda b: (0 * reinforce(b)).abs().sqrt(), {}, "its gradient is not finite"),
    (reinforce, {"set": {"beta": 1}}, "the loss has no argument 'beta'"),
    (add_twice, {"map": {"mask": 3}}, "map mask=3: one of"),
    (add_twice, {"map": {"mask": "mask"}, "set": {"mask": 1}}, "'mask' is in map and in set"),
    (reinforce, {"group": 9}, "group=9"),
    (reinforce, {"words": 13}, "words=13"),
    (reinforce, {"worlds": 2.5}, "worlds=2.5: a whole number"),
    (reinforce, {"seconds": float("nan")}, "seconds=nan: a positive number"),
    (reinforce, {"near": "far"}, "near='far': a number"),
    (reinforce, {"near": float("nan")}, "near=nan: a number"),
    (reinforce, {"tool": True, "words": 2}, "tool: 3 words and a length of 2"),
    (reinforce, {"expect": "reverse-kl/0"}, "is no objective: .* expected"),
    (reinforce, {"vs": "nothing"}, "FILE.py:FUNC or MODULE:FUNC expected"),
    (reinforce, {"vs": lambda b: reinforce(b) * torch.rand(())}, "the loss to compare with differ"),
    ("math:pi", {}, "got float"),
]
NO_PATH: list[Any] = [
    lambda b: b.rewards.sum(), lambda b: reinforce(b).item(), lambda b: b.tokens.sum(),
    lambda b: (b.logp.detach() * b.mask).sum(), lambda b: True, lambda: 0.0,
    lambda b: b.logp.detach().numpy().sum(), lambda b: reinforce(b) - reinforce(b),
]  # fmt: skip


@pytest.mark.parametrize("loss", NO_PATH, ids=range(len(NO_PATH)))
def test_a_loss_without_a_path_to_the_policy_is_zero_with_a_note(loss: Any) -> None:
    answer = measure(loss, words=2, worlds=2)
    assert (answer.kind, answer.multiples, answer.variance) == ("zero", {}, None)
    assert answer.notes[-1] == "no path leads from the policy to the loss, or all that does cancels"


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize(("loss", "options", "message"), REFUSED,
                         ids=[row[2][:30] for row in REFUSED])  # fmt: skip
def test_what_cannot_be_measured_is_refused_in_a_line(loss: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        measure(loss, **options)
    assert "\n" not in str(refusal.value)


def test_it_ends_when_the_time_is_over() -> None:
    with pytest.raises(UsageError, match=r"runs took more than 0\.01 s"):
        measure(reinforce, group=4, seconds=0.01)


def test_arguments_are_bound_by_name_and_guesses_are_told() -> None:
    def loss(logp, old_logp, response_mask, advantages, clip=0.2):
        ratio = (logp - old_logp).exp()
        return -(
            torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages) * response_mask
        ).sum()

    answer = measure(loss)
    assert answer.multiples == {"policy-gradient": -1.0}
    assert answer.notes[0] == "guessed from the names: response_mask is mask, advantages is rewards[t]"
    spread = measure(loss, map={"advantages": "token_rewards"})
    assert spread.notes[0] == "guessed from the name: response_mask is mask"
    assert spread.multiples != answer.multiples
    off_policy = measure(loss, set={"clip": 9.0}, sampling="off-policy")
    assert off_policy.multiples == {"token-policy-gradient": -1.0}
    of_sampler = "old_logp is that of q, which draws the samples; sampling='off-policy': an older one"
    assert of_sampler in answer.notes and of_sampler not in off_policy.notes
    assert bind_loss(reinforce, {}, {}).describe("on-policy") == []
    assert choose_library(loss) == "torch" and load_function(f"{FILE}:grpo").__name__ == "grpo"


def test_a_model_is_called_as_trainers_do() -> None:
    def loss(b):
        both = [
            m(b.input_ids, attention_mask=torch.ones_like(b.input_ids)).logits for m in (b.model, b.ref_model)
        ]
        q, p = (x[:, :-1].log_softmax(-1).gather(-1, b.tokens[..., None])[..., 0] for x in both)
        assert torch.allclose(q * b.mask, b.logp * b.mask) and torch.allclose(p * b.mask, b.ref_logp * b.mask)
        last = b.model(b.input_ids, logits_to_keep=2).logits
        assert torch.equal(last, both[0][:, -2:]) and b.model.config.vocab_size == b.logits.shape[-1]
        return (((q - p.detach()) * b.mask).sum(-1) ** 2 / 2).sum()

    assert measure(loss, prompts=2).multiples == {"reverse-kl": 1.0}


def test_padding_on_the_left_is_the_same_sequence() -> None:
    def loss(b):
        pad = torch.zeros(len(b.tokens), 2, dtype=torch.long)
        padded = torch.cat([pad, b.input_ids], 1)
        mask = torch.cat([pad, torch.ones_like(b.input_ids)], 1)
        logits = b.model(padded, attention_mask=mask).logits[:, 2:]
        assert torch.equal(logits, b.model(b.input_ids).logits)
        return reinforce(b)

    assert measure(loss).multiples == {"policy-gradient": -1.0}


def test_code_in_float32_is_recognised() -> None:
    def loss(b):
        x = ((b.logp.float() - b.ref_logp.float()) * b.mask.float()).sum(-1)
        return (x**2 / 2).mean()

    answer = measure(loss)
    assert answer.multiples == pytest.approx({"reverse-kl": 1.0}, rel=1e-5) and answer.turning.is_float32
    assert any("float32" in note for note in answer.notes)


def test_settings_of_the_world() -> None:
    for options in (
        {"prompts": 3},
        {"third": True},
        {"binary": True},
        {"words": 4, "length": 2},
        {"near": None},
    ):
        assert measure(reinforce, **options).multiples == {"policy-gradient": -1.0}
    ratio = measure(lambda b: -((b.logp - b.old_logp).exp() * b.rewards[:, None] * b.mask).sum(), third=True)
    assert "policy-gradient" not in ratio.multiples
    uneven = measure(lambda b: -(b.logp * b.mask).mean(-1) @ b.rewards)
    assert uneven.multiples == {"policy-gradient": -0.5}
    assert "the multiples depend on the shape: -0.3333333 for 2 words and 3 steps" in uneven.notes
    ordered = measure(lambda b: -(b.logp * b.mask).sum(-1)[0] * b.rewards[0], group=2)
    assert ordered.multiples == {"policy-gradient": -1.0} and "order of the samples" in ordered.notes[0]


def test_the_variance_and_its_ratio() -> None:
    answer = measure(reinforce, group=2, vs=lambda b: 2 * reinforce(b))
    assert answer.versus == pytest.approx(1 / 4) and answer.variance > 0
    assert measure(reinforce, vs=lambda b: 0.0).versus is None  # the other one has no variance

    def first_alone(b):
        return 2 * reinforce(b) if len(b.rewards) < 2 else -((b.logp * b.mask).sum(-1) * b.rewards)[0]

    ordered, single = measure(first_alone, group=2), measure(reinforce)
    assert ordered.variance == pytest.approx(single.variance)  # the second sample is not looked at


def test_an_answer_is_compared_with_any_objective() -> None:
    answer = klsym.measure(
        lambda b: reinforce(b) + 0.04 * k2_of_sequences(b), expect="-E[R] + 0.04*reverse-kl"
    )
    assert answer.expected.ok and answer.meets("0.04*reverse-kl - policy-gradient")
    other = answer.compare("-E[R]")
    assert not other.ok and 0.9 < other.cosine < 1 and len(other.errors) == len(other.cosines) == 4
    assert_minimises(k2_of_sequences, "reverse-kl")
    with pytest.raises(AssertionError, match="minimises reverse-kl; expected forward-kl"):
        assert_minimises(k2_of_sequences, "forward-kl")
    with pytest.raises(AssertionError, match="and no objective; expected next-token-reverse-kl"):
        assert_minimises(lambda b: ((b.logp - b.ref_logp) ** 2 / 2 * b.mask).sum(), "next-token-reverse-kl")


def test_objectives_in_words() -> None:
    names = ["policy-gradient", "reverse-kl", "next-token-reverse-kl", "E_mu[k3/T]", "policy-gradient/T"]
    table = {
        "-E[R] + 0.04*reverse-kl": {"policy-gradient": -1, "reverse-kl": 0.04},
        "-2*E[A]": {"policy-gradient": -2},
        "1/2*next-token-reverse-kl - reverse-kl/4": {"next-token-reverse-kl": 0.5, "reverse-kl": -0.25},
        "2*E_mu[k3/T] - 3*policy-gradient/T": {"E_mu[k3/T]": 2, "policy-gradient/T": -3},
        "E_mu[0.04*k3/T]": {"E_mu[k3/T]": 0.04},
        "-1e-3*reverse-kl+reverse-kl": {"reverse-kl": 0.999},
        "next-token-reverse-kl/N": {"next-token-reverse-kl/T": 1},  # of one sample
    }
    for text, multiples in table.items():
        assert read_multiples(read_objective(text), names) == pytest.approx(multiples)
        written = read_objective(write_objective(multiples))
        assert read_multiples(written, names) == pytest.approx(multiples)
    for text in ("beta*reverse-kl", "E[R**2]", "E[R*A]", "reverse-kl inside clamps"):
        with pytest.raises(UsageError):
            read_multiples(read_objective(text), names)


def test_a_basis_keeps_one_of_equal_names_and_finds_the_fewest() -> None:
    a, b, c = (np.random.default_rng(k).normal(size=12) for k in range(3))
    basis = Basis.build_from(["a", "b", "also a", "nothing", "c"], np.array([a, b, a, 0 * a, c]).T)
    assert (basis.names, basis.aliases) == (("a", "b", "c"), {"a": ("also a",)})
    [fit] = basis.find_fits(2 * a - b, lambda fit: fit.residual < 1e-9)
    assert fit.multiples == pytest.approx({"a": 2, "b": -1})
    assert basis.find_fits(np.ones(12), lambda fit: fit.residual < 1e-9) == []
    assert basis.fit_names(a, ["unknown"]) is None


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = "-E[R] + 0.1*reverse-kl"
    assert main(["measure", f"{FILE}:whole_batch", "--group", "2", "--expect", wanted, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["kind"] == "named" and answer["schema"] == 1 and answer["expect"]["ok"]
    assert answer["multiples"] == {"policy-gradient": -1.0, "reverse-kl": 0.1}
    assert main(["measure", f"{FILE}:whole_batch", "--group", "2", "--expect", "-E[R]"]) == 1
    out, err = capsys.readouterr()
    assert (
        out.startswith("losses.py:whole_batch, run on-policy, groups of 2 samples") and "is not -E[R]" in err
    )
    flat = " ".join(out.split())
    assert "penalty on KL(policy || reference): maximises E[R] - 0.1*reverse-kl measured" in flat
    assert len(out.splitlines()) <= 12 and "expected -E[R]: no, relative error" in flat
    assert main(["measure", f"{FILE}:failing"]) == 2
    err = capsys.readouterr().err
    assert "raises ValueError: cannot use 1 samples" in err and err.count("\n") == 1
    assert main(["measure", f"{FILE}:endless", "--time-limit", "1"]) == 2
    assert "does the code loop?" in capsys.readouterr().err
    assert main(["measure", f"{FILE}:grpo", "--set", "beta=0", "--map", "advantages=rewards[t]"]) == 0
    assert "maximises E[R/T]" in capsys.readouterr().out


def test_jax_measures_the_same() -> None:
    jax = pytest.importorskip("jax")

    def loss(b):
        x = ((b.logp - b.ref_logp) * b.mask).sum(-1)
        return (x**2 / 2).mean() - (b.rewards * (b.logp * b.mask).sum(-1)).mean()

    def through_the_model(b):
        logits = jax.nn.log_softmax(b.model(b.input_ids).logits[:, :-1])
        drawn = jax.numpy.take_along_axis(logits, b.tokens[..., None], -1)[..., 0]
        return ((drawn - b.ref_logp) ** 2 / 2 * b.mask).sum()

    def branching(b):
        return loss(b) if float(b.rewards[0]) > -100 else 0.0

    for code in (loss, branching):
        answer = measure(code, framework="jax", words=2, worlds=2)
        assert answer.multiples == {"policy-gradient": -1.0, "reverse-kl": 1.0}
    assert measure(through_the_model, framework="jax", words=2, worlds=2).multiples == {
        "next-token-reverse-kl": 1.0
    }
    noise = np.random.default_rng(0)
    with pytest.raises(UsageError, match="two runs of the loss differ"):
        measure(lambda b: loss(b) * noise.normal(), framework="jax", words=2, worlds=2)
