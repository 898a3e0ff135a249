"""What is recommended is right by the literal oracle, and the code that is printed does what is said."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import klsym
from klsym.api import recommend
from klsym.audit import audits
from klsym.cli import main
from klsym.commands.parser import FRAMEWORKS as FRAMEWORKS_OF_COMMAND
from klsym.engine.questions import recommend as engine
from klsym.engine.questions.candidates import Candidate, list_candidates, load_catalogue
from klsym.errors import UsageError, speak_of_flags
from klsym.language.convert import to_ring
from klsym.language.parser import parse
from klsym.render.snippets import FRAMEWORKS
from support.oracle.grammar import plain
from support.oracle.losses import Forest, Setting, sample, samples, trees
from support.oracle.slots import Slotted

pytestmark = pytest.mark.usefixtures("without_copies")

TARGETS, SAMPLINGS = ("reverse-kl", "forward-kl"), ("on-policy", "off-policy")
USES = ("loss", "reward", "value")
CASES = [*product(TARGETS, SAMPLINGS, USES)]
MEANS = {"reverse-kl": ("k1", "q"), "forward-kl": ("-k1", "p")}  # KL = E_m[.]
CLOSE = 1e-10


@cache
def found(target: str, sampling: str, use: str, level: str = "sample"):
    return recommend(target, sampling, use, level)


@cache
def forest(sampling: str, level: str) -> Forest:
    """Random worlds; of samples also one in which k3 is above 10 at an outcome."""
    far = sample((0.02, 0.58, 0.4), (0.8, 0.1, 0.1), (0.3, 0.4, 0.3), (0, 0, 0), (0, 0, 0))
    worlds = [*samples(7, copies=2), far] if level == "sample" else trees(7, ((), ((), ((), ()))), copies=3)
    return Forest(worlds, (sampling,))


def literally(choice) -> Setting:
    """The setting of a choice, in the words of the oracle."""
    options = {name: value for name, value in choice.setting.to_json().items() if value}
    return Setting(**{"credit": "to-go", "weights": "token", **options})


def exact_gradient(where: Forest, target: str):
    return where.slope(*MEANS[target]).a


def exact_value(where: Forest, target: str):
    rows, name = where.whole, {"reverse-kl": "q", "forward-kl": "p"}[target]
    k1 = plain(where.atom("k1", rows, "x"))
    return plain(where.mean(rows, where.chance(rows, name) * (k1 if name == "q" else -k1)))


def misses(choice, target: str, use: str) -> float:
    """How far the oracle's numbers are from what the choice is said to be."""
    setting = literally(choice)
    where = forest(setting.sampling, "sample" if setting.level == "sample" else "token")
    if use == "value":
        return float(np.abs(plain(where.value(choice.loss, setting)) - exact_value(where, target)).max())
    return float(np.abs(where.field(choice.loss, setting).a - exact_gradient(where, target)).max())


# ---------------------------------------------------------------------------- the choices
@pytest.mark.parametrize("case", CASES, ids=" ".join)
@pytest.mark.share(3)
def test_each_choice_is_right_by_the_literal_oracle(case):
    target, _, use = case
    for choice in found(*case).choices:
        assert misses(choice, target, use) < CLOSE, choice.loss
        if choice.value is not None:
            assert misses(choice, target, "value") < CLOSE, choice.loss


@pytest.mark.parametrize("case", CASES, ids=" ".join)
@pytest.mark.share(3)
def test_each_wrong_one_is_wrong_by_the_literal_oracle(case):
    target, _, use = case
    assert found(*case).wrong
    for one in found(*case).wrong:
        bounded = one.loss.replace("-10", "0 - 10")
        wrong = type("Wrong", (), {"loss": bounded, "setting": one.verdict.setting})
        assert misses(wrong, target, use) > 1e-3, one.loss


FIRST = {  # what is written first as a loss, as a reward, as a value
    ("reverse-kl", "on-policy"): ("k2", "k1", "k3"),
    ("reverse-kl", "off-policy"): ("rho*k3", "rho*k1", "rho*k3"),
    ("forward-kl", "on-policy"): ("k3", "1 - r", "1 - r - r*k1"),
    ("forward-kl", "off-policy"): ("rho*(1 - r - r*k1)", "rho*(1 - r)", "rho*(1 - r - r*k1)"),
}


@pytest.mark.parametrize(("target", "sampling"), FIRST)
def test_what_is_written_first(target, sampling):
    firsts = [found(target, sampling, use).choices[0].loss for use in USES]
    assert firsts == [*FIRST[target, sampling]]


def test_the_known_choices_are_among_them_and_the_noisy_one_is_last():
    losses = [choice.loss for choice in found("reverse-kl", "off-policy", "loss").choices]
    assert {"rho*k3", "sg(rho)*k2", "rho*k1"} <= set(losses) and losses[-1] == "rho*k1"
    last = found("reverse-kl", "off-policy", "loss").choices[-2]
    assert found("reverse-kl", "off-policy", "loss").family.where == ("-1/8", "1/8")
    assert last.against.regional_lower == "A" and "2*k1 + 1 >= 0" in last.against.where
    assert last.against.lower == "depends"  # a model outside the region


def test_every_theorem_that_is_quoted_is_replayed():
    for case in CASES:
        for choice in found(*case).choices:
            for proof in (*choice.verdict.proof.theorems, *([choice.value] if choice.value else [])):
                assert klsym.check(proof.certificate())


def test_a_truncated_weight_leaves_the_detached_choice_its_direction():
    """sg(min(rho, 2))*k2 pushes with a positive multiple of k1; the attached ones do not."""
    choices = {c.loss: c for c in found("reverse-kl", "off-policy", "loss").choices}
    cases = {name: dict(choice.clamps[1].beyond) for name, choice in choices.items()}
    assert cases["sg(rho)*k2"] == {"rho > 2": "2*k1/rho", "rho <= 2": "k1"}
    assert cases["rho*sg(k1)"]["rho > 2"] == "0"
    assert cases["rho*k3"]["rho > 2"] == "2/rho - 2*r/rho"
    assert cases["rho*k1"]["rho > 2"] == "2/rho"


# ---------------------------------------------------------------------------- candidates are judged
def offered(monkeypatch, losses):
    """In place of what the catalogue has."""
    made = lambda target, setting, use: [Candidate(loss, setting, "catalogue") for loss in losses]  # noqa: E731
    monkeypatch.setattr(engine, "list_candidates", made)


def test_a_wrong_candidate_is_never_recommended(monkeypatch):
    """The list may hold anything: the engine decides."""
    bad = ["k1", "k3", "-k2", "2*k2", "k2 + beta*k1", "rho*k2", "abs(k1)", "k2 + k3"]
    offered(monkeypatch, bad)
    engine._recommend_in_setting.cache_clear()
    answer = recommend("reverse-kl")
    engine._recommend_in_setting.cache_clear()
    assert [choice.loss for choice in answer.choices] == ["k2 + beta*k1"]  # a constant adds noise alone


def test_a_better_candidate_is_found_wherever_it_stands(monkeypatch):
    losses = ["rho*k1", "rho*sg(k1 + 1)", "rho*k3"]
    for order in (losses, losses[::-1]):
        offered(monkeypatch, order)
        engine._recommend_in_setting.cache_clear()
        assert recommend("reverse-kl", "off-policy").choices[0].loss == "rho*k3"
    engine._recommend_in_setting.cache_clear()


def test_what_is_recommended_comes_out_of_the_catalogue():
    """Each is right in the catalogue, and of the shortest ones none asks for less."""
    for target, sampling, use in CASES:
        known = load_catalogue().of(sampling, use if use != "value" else "loss")
        listed = (known.estimates if use == "value" else known.best)[target]
        sources = {one.loss: one.source for one in found(target, sampling, use).choices}
        chosen = [loss for loss, source in sources.items() if source == "catalogue"]
        assert {to_ring(parse(loss)) for loss in chosen} == {to_ring(parse(loss)) for loss in listed}
        assert {loss for loss, source in sources.items() if source != "catalogue"} <= {
            "1 - r - r*k1", "rho*(1 - r - r*k1)"
        }  # fmt: skip


def test_what_the_catalogue_has_in_no_gradient_is_not_right_for_another_kl():
    """Were the lists of the two divergences exchanged, nothing would be recommended."""
    other = {"reverse-kl": "forward-kl", "forward-kl": "reverse-kl"}
    for target, sampling, use in CASES:
        setting = engine.checked_setting(sampling=sampling, use="loss" if use == "value" else use)
        for one in list_candidates(target, setting, use):
            assert engine.judge_candidate(one.loss, setting, target, use)
            assert not engine.judge_candidate(one.loss, setting, other[target], use)


def test_where_none_is_right_it_says_so_and_where_one_is(monkeypatch):
    monkeypatch.setattr(engine, "list_candidates", lambda target, setting, use: (
        one for one in list_candidates(target, setting, use) if one.source != "tokens"
    ))  # fmt: skip
    engine._recommend_in_setting.cache_clear()
    answer = recommend("forward-kl", level="token")
    engine._recommend_in_setting.cache_clear()
    assert answer.choices == () and answer.elsewhere.loss == "k3"
    assert answer.elsewhere.setting.level == "sequence"
    assert "none of the" in str(answer) and "none of the" in answer.markdown()


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("use", ["loss", "reward", "value"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.share(3)
def test_choices_for_tokens(target, sampling, use):
    answer = found(target, sampling, use, "token")
    assert answer.choices
    for choice in answer.choices:
        assert misses(choice, target, use) < CLOSE, (choice.loss, choice.setting)


# ---------------------------------------------------------------------------- code
def executed(code: str, **modules):
    """The function that a snippet defines."""
    names = dict(modules)
    exec(compile(code, "snippet", "exec"), names)
    return next(value for name, value in names.items() if name not in modules and callable(value))


def drawn(seed: int = 3, size: int = 6):
    stream = np.random.default_rng(seed)
    logits = stream.normal(size=(3, size))
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def expected(target: str):
    """grad KL along the logits of q, in closed form."""
    log_q, log_p, _ = drawn()
    q, p, k1 = np.exp(log_q), np.exp(log_p), log_q - log_p
    return {"reverse-kl": q * (k1 - (q * k1).sum()), "forward-kl": q - p}[target]


GRADIENTS = [case for case in CASES if case[2] != "value"]


def arguments(function, log_q, log_p, log_mu):
    known = {"log_q": log_q, "log_p": log_p, "log_mu": log_mu}
    wanted = function.__code__.co_varnames[: function.__code__.co_argcount]
    return [known[name] for name in wanted]


@pytest.mark.parametrize("case", GRADIENTS, ids=" ".join)
def test_pytorch_code_descends_what_is_said(case):
    torch = pytest.importorskip("torch")
    log_q, log_p, log_mu = (torch.tensor(row) for row in drawn())
    for number, choice in enumerate(found(*case).choices):
        function = executed(found(*case).snippet("torch", number), torch=torch)
        logits = log_q.clone().requires_grad_(True)
        moved = torch.log_softmax(logits, dim=0)
        sampler = moved.detach() if case[1] == "on-policy" else log_mu
        (sampler.exp() * function(*arguments(function, moved, log_p, log_mu))).sum().backward()
        assert np.abs(logits.grad.numpy() - expected(case[0])).max() < CLOSE, choice.loss


@pytest.mark.parametrize("case", GRADIENTS, ids=" ".join)
@pytest.mark.share(3)
def test_jax_code_descends_what_is_said(case):
    """Of every third choice: jax compiles each anew."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        log_q, log_p, log_mu = (jnp.array(row) for row in drawn())
        for number in range(0, len(found(*case).choices), 3):
            function = executed(found(*case).snippet("jax", number), jax=jax, jnp=jnp)

            def loss(logits, function=function):
                moved = jax.nn.log_softmax(logits)
                sampler = jax.lax.stop_gradient(moved) if case[1] == "on-policy" else log_mu
                return (jnp.exp(sampler) * function(*arguments(function, moved, log_p, log_mu))).sum()

            gradient = np.asarray(jax.grad(loss)(log_q))
            assert np.abs(gradient - expected(case[0])).max() < CLOSE, number


@pytest.mark.parametrize("case", GRADIENTS, ids=" ".join)
def test_numpy_code_says_its_push(case):
    log_q, log_p, log_mu = drawn()
    for number, choice in enumerate(found(*case).choices):
        function = executed(found(*case).snippet("numpy", number), np=np)
        _, push = function(*arguments(function, log_q, log_p, log_mu))
        weight = np.exp(log_q if case[1] == "on-policy" else log_mu) * push
        gradient = weight - np.exp(log_q) * weight.sum()
        assert np.abs(gradient - expected(case[0])).max() < CLOSE, choice.loss


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "value"], ids=" ".join)
def test_code_for_values(case):
    target, sampling, _ = case
    log_q, log_p, log_mu = drawn()
    weight = np.exp(log_q if sampling == "on-policy" else log_mu)
    kl = {"reverse-kl": np.exp(log_q) @ (log_q - log_p), "forward-kl": np.exp(log_p) @ (log_p - log_q)}
    for number in range(len(found(*case).choices)):
        function = executed(found(*case).snippet("numpy", number), np=np)
        estimate = function(*arguments(function, log_q, log_p, log_mu))
        assert abs(weight @ estimate - kl[target]) < CLOSE


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("use", ["loss", "reward"])
@pytest.mark.parametrize("target", TARGETS)
def test_pytorch_code_for_tokens(target, sampling, use):
    """All sequences of a tree of two tokens, weighted by their mass, against grad KL of whole sequences."""
    torch = pytest.importorskip("torch")
    stream = np.random.default_rng(5)
    tables = [torch.tensor(stream.normal(size=(4, 2))) for _ in range(3)]  # states: start, after 0, ..
    tables[0].requires_grad_(True)
    log_q, log_p, log_mu = (torch.log_softmax(table, dim=1) for table in tables)
    paths = [(0,), (1, 0), (1, 1)]  # token 0 at the start ends the sequence

    def rows(table):
        return torch.stack([
            torch.stack([table[0, path[0]], table[1, path[1]] if len(path) > 1 else table[0, 0] * 0])
            for path in paths
        ])  # fmt: skip

    mask = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    whole = {
        name: (rows(table) * mask).sum(-1) for name, table in (("q", log_q), ("p", log_p), ("mu", log_mu))
    }
    first, second = ("q", "p") if target == "reverse-kl" else ("p", "q")
    kl = (whole[first].exp() * (whole[first] - whole[second])).sum()
    [wanted] = torch.autograd.grad(kl, tables[0], retain_graph=True)
    mass = whole["q" if sampling == "on-policy" else "mu"].detach().exp()
    answer = found(target, sampling, use, "token")
    for number in range(len(answer.choices)):
        function = executed(answer.snippet("torch", number), torch=torch)
        known = {"log_q": rows(log_q), "log_p": rows(log_p), "log_mu": rows(log_mu), "mask": mask}
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        loss = (mass * function(*(known[name] for name in names))).sum()
        [gradient] = torch.autograd.grad(loss, tables[0], retain_graph=True)
        assert (gradient - wanted).abs().max() < CLOSE, answer.choices[number].loss


AUDITS = [*((*case, "torch") for case in CASES), *((*case, "jax") for case in CASES[3:12:2]),
          *((*case, "numpy") for case in CASES)]  # fmt: skip


@pytest.mark.parametrize("case", AUDITS, ids=str)
@pytest.mark.share(3)
def test_the_code_passes_its_own_audit(case):
    """As a user would ask: arguments by their names, and of NumPy code, at each choice, what is rewarded."""
    target, sampling, use, framework = case
    module = pytest.importorskip(framework)
    modules = {"torch": {"torch": module}, "numpy": {"np": np}}.get(framework)
    if modules is None:
        import jax.numpy as jnp

        modules = {"jax": module, "jnp": jnp}
    pushes = {"use": "reward", "result": None if use == "value" else 1} if framework == "numpy" else {}
    answer = found(target, sampling, use)
    for number in range(len(answer.choices) if framework == "numpy" else 1):
        audit = audits.audit(
            executed(answer.snippet(framework, number), **modules), sampling=sampling, **pushes
        )
        assert audit.verdict.value.is_unbiased_for(target) if use == "value" else audit.meets(target), number


def test_k3_and_the_forward_coefficient_keep_their_digits():
    """expm1: at log q/p = 1e-9, r - 1 - log r would be rounding alone."""
    code = found("reverse-kl", "on-policy", "value").snippet("numpy")
    assert "expm1" in code
    (log_q, log_p) = np.array([1e-5]), np.array([0.0])
    exact = 1e-10 / 2 - 1e-15 / 6
    assert abs(executed(code, np=np)(log_q, log_p)[0] - exact) < 1e-5 * exact
    assert "expm1" in found("forward-kl", "on-policy", "reward").snippet("torch")


def test_code_that_is_not_there_is_refused_in_one_line():
    answer = found("reverse-kl", "on-policy", "loss")
    with pytest.raises(UsageError, match="one of torch, jax, numpy"):
        answer.snippet("mxnet")
    with pytest.raises(UsageError, match="there are"):
        answer.snippet("torch", 99)
    with pytest.raises(UsageError, match="level of tokens"):
        found("reverse-kl", "on-policy", "loss", "token").snippet("numpy")


# ---------------------------------------------------------------------------- the command
def test_the_command(capsys):
    assert main(["recommend", "--target", "reverse-kl", "--sampling", "off-policy"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "To minimise KL(policy || reference) as a loss, samples from an older policy mu\n  write rho*k3: "
    )
    with speak_of_flags():
        assert text.rstrip() == str(found("reverse-kl", "off-policy", "loss"))
    assert main(["recommend", "--target", "forward-kl", "--use", "reward", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [one["loss"] for one in answer["choices"]] == ["1 - r", "-r"]
    assert {one["trust"] for one in answer["choices"]} == {"kernel"}
    assert set(FRAMEWORKS) == set(answer["choices"][0]["snippet"]) == set(FRAMEWORKS_OF_COMMAND)
    assert main(["recommend", "--target", "forward-kl", "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert "```python" in shown and all(
        line.count(" | ") >= 1 for line in shown.splitlines() if line[:1] == "|"
    )


# ---------------------------------------------------------------------------- next tokens, cut samplers
NEXT_TOKENS = [("next-token-reverse-kl", "k2", "k3"), ("next-token-forward-kl", "k3", "k2")]


@pytest.mark.parametrize("target, right, wrong", NEXT_TOKENS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_next_tokens(target: str, right: str, wrong: str, sampling: str) -> None:
    """By the oracle: the field of each choice is that of the exact sum over all words."""
    answer = recommend(target, sampling)
    losses = [choice.loss for choice in answer.choices]
    q, p = ("q", "p") if "reverse" in target else ("p", "q")
    assert losses[0] == f"full_kl({q}, {p})" and (right in losses) == (sampling == "on-policy")
    assert wrong in [one.loss for one in answer.wrong]
    where = Slotted(trees(7, ((), ((), ((), ()))), copies=3), (sampling,))
    exact = where.field({"q": "full(k1)", "p": "full(-r*k1)"}[q], Setting(sampling, level="token")).a
    for choice in answer.choices[1:]:
        assert choice.verdict.trust == "kernel"
        assert float(np.abs(where.field(choice.loss, literally(choice)).a - exact).max()) < CLOSE
    off = where.field(wrong, Setting(sampling, level="token")).a
    assert float(np.abs(off - exact).max()) > 1e-3


@pytest.mark.parametrize("target", [*TARGETS, "next-token-forward-kl"])
def test_the_code_of_an_exact_sum(target: str) -> None:
    torch = pytest.importorskip("torch")
    sampling = "on-policy" if target.startswith("next") else "truncated"
    answer = recommend(target, sampling)
    assert answer.choices[0].exact
    logits = torch.tensor([[0.3, -0.2, 0.7], [0.1, 0.0, -1.0]], dtype=torch.double, requires_grad=True)
    other = torch.tensor([[-0.5, 0.2, 0.1], [0.4, 0.3, 0.0]], dtype=torch.double).log_softmax(-1)
    log_q, more = logits.log_softmax(-1), [torch.ones(2)] if target.startswith("next") else []
    found = executed(answer.snippet("torch"), torch=torch)(log_q, other, *more)
    first, second = (other, log_q) if "forward" in target else (log_q, other)
    literal = sum(first[i, k].exp() * (first[i, k] - second[i, k]) for i in range(2) for k in range(3))
    assert abs(float((found.sum() - literal).detach())) < 1e-12


def test_under_a_cut_sampler_samples_alone_do_not_do() -> None:
    answer = recommend("reverse-kl", "truncated")
    assert [choice.loss for choice in answer.choices] == ["full_kl(q, p)"]
    told = " ".join(str(answer).split())
    assert "samples from the policy without its least likely words" in told
    assert "k2" in [one.loss for one in answer.wrong]
    refused = [("reverse-kl", "truncated", "reward"), ("reverse-kl", "truncated", "loss", "token"),
               ("next-token-reverse-kl", "truncated"), ("next-token-reverse-kl", "on-policy", "value"),
               ("next-token-forward-kl", "on-policy", "loss", "sequence")]  # fmt: skip
    for question in refused:
        with pytest.raises(UsageError, match=r"choose level sample|leave use and level out"):
            recommend(*question)
    with pytest.raises(UsageError, match="code for torch and jax"):
        answer.snippet("numpy")


def test_bad_arguments_in_python():
    for bad in ({"target": "kl"}, {"target": "reverse-kl", "use": "critic"}):
        with pytest.raises(UsageError, match="expected"):
            klsym.recommend(**bad)


# ----------------------------------------------------------------- a reward that is weighted already
@pytest.mark.parametrize("level", ["sample", "sequence"])
@pytest.mark.parametrize(
    ("target", "inside", "alone"), [("reverse-kl", "k1", "rho*k1"), ("forward-kl", "1 - r", "rho*(1 - r)")]
)
def test_a_reward_inside_a_weighted_policy_loss(target: Any, inside: str, alone: str, level: Any) -> None:
    """rho*sg(k1) has the gradient of the KL, rho*sg(rho*k1) has not: the weight would count twice."""
    found = klsym.recommend(target, sampling="off-policy", use="reward", level=level)
    assert found.weighted is not None and found.weighted.reward == inside
    assert found.choices[0].loss == alone
    asked = {"sampling": "off-policy", "level": level}
    assert klsym.explain(f"rho*sg({inside})", **asked).target == target
    assert klsym.explain(f"rho*sg({alone})", **asked).target != target
    lines = found.text().splitlines()
    assert any(
        line.strip().startswith("in a policy loss that multiplies") and f"write {inside}" in line
        for line in lines
    )
    assert found.to_json()["weighted"]["trust"] == "kernel"


@pytest.mark.parametrize(
    "options", [{"use": "loss"}, {"use": "value"}, {"use": "reward", "sampling": "on-policy"}]
)
def test_nothing_is_said_of_a_weight_where_there_is_none(options: Any) -> None:
    found = klsym.recommend("reverse-kl", **{"sampling": "off-policy", **options})
    assert found.weighted is None and "multiplies" not in found.text()
