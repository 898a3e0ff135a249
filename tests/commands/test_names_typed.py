"""Losses by usual names, options in usual words, and what is said of what is typed wrongly."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import klsym
from klsym.cli import main
from klsym.commands.help_texts import EXAMPLES, TASKS
from klsym.commands.parser import build_parser
from klsym.engine.options.option_table import CHOICES
from klsym.engine.options.synonyms import SYNONYMS
from klsym.errors import UsageError
from klsym.language.named_losses import TABLE, NamedLoss, find_named_loss, load_named_losses
from klsym.render.answer import MAX_NAME, build_answer, shorten_formula
from klsym.study.tables.trainers import trainer
from support.commands import Out, run

pytestmark = pytest.mark.usefixtures("without_copies", "forked_audits")

ROWS = load_named_losses()
LINES = 40  # of a help
LONG = {"report", "paper"}  # commands that take minutes: their examples are parsed, and not run
CODE = "def loss(logp, ref_logp):\n    return ((logp - ref_logp) ** 2 / 2).sum()\n"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_name_has_the_answer_of_its_loss(row: NamedLoss) -> None:
    named, written = klsym.explain(row.name), klsym.explain(row.loss, **row.options)
    assert (named.target, named.trust, named.summary) == (written.target, written.trust, written.summary)
    assert named.target != "open" and named.loss.text == row.name


@pytest.mark.parametrize(("width", "most"), [(100, 12), (60, 16)])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_answer_of_a_name_is_short_and_shows_each_term(row: NamedLoss, width: int, most: int) -> None:
    verdict = klsym.explain(row.name)
    lines = verdict.text(width=width).splitlines()
    assert len(lines) <= most and max(map(len, lines)) <= width
    assert not any("more term" in line for line in lines) and row.whose not in verdict.text()
    if verdict.loss.read_as:  # k1 is a name of the grammar itself
        assert row.whose in " ".join(verdict.text(full=True).split())
    starts = [f"  {shorten_formula(term.loss, MAX_NAME)}" for term in build_answer(verdict).terms]
    assert all(any(line.startswith(start) for line in lines) for start in starts)


@pytest.mark.parametrize("row", [row for row in ROWS if row.gallery], ids=lambda row: row.name)
def test_a_row_of_the_gallery_is_the_same_loss(row: NamedLoss) -> None:
    source = trainer(row.gallery)
    assert (row.loss, dict(row.options)) == (source.loss, dict(source.options))


def test_no_name_has_two_rows() -> None:
    names = [name for row in ROWS for name in row.names]
    assert len({find_named_loss(name).name for name in names}) == len(ROWS)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("K3", "k3"), ("PPO", "ppo"), ("Dr-GRPO", "dr_grpo"), ("dr grpo", "dr_grpo"),
        ("LOW-VAR-KL", "low_var_kl"),
        ("Reinforce++", "reinforce++"), (" grpo ", "grpo"), ("k3_plus", "k3+"), ("mse", "k2"),
    ],
)  # fmt: skip
def test_names_are_read_in_any_spelling(typed: str, name: str) -> None:
    row = find_named_loss(typed)
    assert row is not None and row.name == name


@pytest.mark.parametrize(
    "typed",
    ["k4", "grpoo", "dr.grpo", "grpo + k3", "", "reinforce+", "-k2", "- ppo", "k-3", "k - 3", "--k3", "k3-"],
)
def test_other_text_is_no_name(typed: str) -> None:
    assert find_named_loss(typed) is None


@pytest.mark.parametrize(
    ("typed", "loss", "options"),
    [
        ("gpg + 0.04*K3", "-A*log_q + k3/25", {"level": "token", "sampling": "off-policy"}),
        ("gpg - 0.01*entropy", "-A*log_q - H(q)/100", {"level": "token", "sampling": "off-policy"}),
        ("reinforce + beta*k2", "-R*log_q + beta*k2", {"level": "sequence"}),
        ("-A*log_q - 0.01*entropy.mean()", "-A*log_q - H(q)/100", {}),  # in code it is a value
        ("-A*log_q - 0.01*sg(entropy)", "-A*log_q", {"level": "token"}),
    ],
)
def test_a_name_inside_a_formula_is_its_loss(typed: str, loss: str, options: dict[str, str]) -> None:
    assert klsym.explain(typed).summary == klsym.explain(loss, **options).summary  # type: ignore[arg-type]


def test_names_with_different_options_are_used_with_those_that_are_typed(capsys: Out) -> None:
    """What the message advises has an answer; an option without effect beside a typed one is not asked."""
    for words in (
        "grpo gspo --level token --aggregate mean",
        "grpo gspo --level sequence --aggregate sum",
        "ppo reinforce --sampling on-policy --level sequence",
        "abs grpo --level sample --sampling on-policy",
    ):
        code, out, err = run(capsys, "compare", *words.split())
        assert (code, err) == (0, "") and out, words


def test_dapo_is_the_mean_over_the_tokens_of_the_batch() -> None:
    usual, summed = klsym.explain("dapo"), klsym.explain("dapo", aggregate="sum")
    assert "KL012" in usual.text() and "KL012" not in summed.text()
    assert "over all tokens of the batch" in usual.text().splitlines()[0]


def test_a_loss_beside_a_reward_is_compared_by_the_gradient_of_each(capsys: Out) -> None:
    for words, first in (
        (["k2 in the loss", "k1 in the reward"], "Training goes to the same policy"),
        (["k2", "k1 in reward"], "Training goes to the same policy"),
        (["k3 as a loss", "k1 as reward"], "Different objectives"),
    ):
        code, out, err = run(capsys, "compare", *words)
        assert (code, err) == (0, "") and first in out and "k1" in out
    same = klsym.compare(
        "-R*log_q + beta*k2 in the loss", "R - beta*k1 in the reward"
    )  # a reward is ascended
    assert same.gradient.same and "wrong sign" not in same.text()
    assert klsym.compare("R*log_q in the loss", "R in the reward").gradient.same is False
    assert klsym.compare("k1 in the reward", "opd").gradient.same is False  # opd brings the level of tokens
    both = klsym.compare("k1 in the reward", "k3 in the reward")
    assert both.setting.use == "reward" and both.gradient.same is False
    assert klsym.explain("k1 in the reward").target == "reverse-kl"


def test_a_name_as_the_value_of_an_option_is_the_name() -> None:
    for typed, name in (("kl_penalty=low_var_kl", "low_var_kl"), ("kl_penalty = abs", "abs")):
        assert klsym.explain(typed).to_json()["target"] == klsym.explain(name).to_json()["target"]
    assert klsym.explain("loss = k3/2").loss.read_as == "k3/2"


def test_the_ratio_of_trl_is_no_parameter() -> None:
    verdict = klsym.explain("coef_1*(torch.exp(ref_logp - logp) - (ref_logp - logp) - 1)")
    assert verdict.loss.read_as == "rho*k3" and verdict.target == "reverse-kl"


def test_k3_under_an_older_policy_is_not_said_to_push_from_it() -> None:
    """E_mu[k3] is least where q = p; one of its two terms alone would push q away from mu."""
    assert "pushes" not in klsym.explain("k3", sampling="off-policy").text()
    assert "pushes the policy away from mu" in klsym.explain("k1", sampling="off-policy").text()


def test_the_inner_clamp_of_low_var_kl_keeps_its_gradient_a_number() -> None:
    """verl clamps the log ratio before exp; without that clamp inf - inf is met."""
    assert "not a number" not in klsym.explain("low_var_kl").text(full=True)
    assert "not a number" in klsym.explain("clip(k3, -10, 10)").text(full=True)


UPSIDE_DOWN = [
    ("-torch.exp(old_logp - logp)*A", "-torch.exp(logp - old_logp)*A"), ("-A/rho", "-rho*A"),
    ("-(torch.exp(old_logp - logp)*adv).mean()", "-(torch.exp(logp - old_logp)*adv).mean()"),
    ("ratio = torch.exp(old_logp - logp); -ratio*A", "ratio = torch.exp(logp - old_logp); -ratio*A"),
    ("-har*torch.exp(old_logp - logp)*A", "-har*rho*A"),  # a declared parameter: in the grammar
]  # fmt: skip


@pytest.mark.parametrize(("typed", "fixed"), UPSIDE_DOWN)
def test_a_ratio_upside_down_is_fixed_in_the_names_that_were_typed(typed: str, fixed: str) -> None:
    options: dict[str, str] = {"sampling": "off-policy", "level": "sample"}
    verdict = klsym.explain(typed, parameters=["har"] if "har" in typed else (), **options)  # type: ignore[arg-type]
    text = " ".join(verdict.text(width=300).split())
    assert f"fix {fixed}: maximises " in text and "KL016" in text and "KL008" not in text
    again = klsym.explain(fixed, parameters=["har"] if "har" in typed else (), **options)  # type: ignore[arg-type]
    assert "KL016" not in again.text() and "KL008" not in again.text()


def test_typed_options_override_those_of_the_name() -> None:
    asked = klsym.explain("low_var_kl", sampling="on-policy", level="sample").loss.asked
    assert asked is not None and (asked.sampling, asked.level) == ("on-policy", "sample")
    usual = klsym.explain("low_var_kl").loss.asked
    assert usual is not None and (usual.sampling, usual.level) == ("off-policy", "token")


def test_an_option_of_the_name_without_effect_beside_a_typed_one_is_left_out(capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "grpo", "--level", "sample", "--json")
    assert (code, err) == (0, "") and not json.loads(out)["aggregate"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("explain kl", "'kl' is ambiguous: type klsym explain k1 --use reward; or klsym explain k3"),
        ("explain ratio", "'ratio' is ambiguous: type klsym explain 'rho*A' --sampling off-policy"),
        (
            "explain 'full_kl(q, p)' --level token --aggregate mean --use reward",
            "with aggregate mean a sum",
        ),
        ("explain 'gspo - entropy'", "sums over the vocabulary at each token: choose level token, or sample"),
        ("explain 'gspo - ppo'", "gspo is used with --level sequence; ppo is used with --level token"),
        ("explain 'abs.item()'", "'abs' is not read inside a formula: type abs(k1)"),
        ("explain 'entropy.size*k1'", "unknown name 'entropy.size'"),
        ("explain 'entropy(q)'", "unknown function 'entropy'"),
        ("explain '2*full'", "'full' is not read inside a formula: type full_kl(q, p)"),
        (
            "explain 'reinforce + ppo'",
            "reinforce is used with --level sequence; ppo is used with --level token: add",
        ),
        ("explain grpoo", "did you mean grpo?"),
        ("explain 'k3 + rh'", "did you mean rho?"),
        ("explain 'what does k3 do off policy?'", "type klsym explain k3 --sampling off-policy or"),
        ("explain 'why is my KL negative'", "type klsym recommend --target reverse-kl --use value or klsym"),
        ("explain 'does top_p sampling bias the KL'", "type klsym explain k3 --sampling top-p or"),
        ("explain 'should I divide the loss by the length'", "type klsym rule KL012 or klsym explain k3"),
        ("explain 'the KL in my reward'", "type klsym explain k1 --use reward or klsym explain k3"),
        ("explain 'what does the clip of grpo do'", "type klsym explain ppo or klsym explain grpo"),
        ("explain 'do I need an entropy bonus'", "type klsym explain entropy or klsym explain k3"),
        ("explain 'loss for a teacher model'", "type klsym explain opd or klsym explain gkd"),
        ("explain 'importance ratio gspo vs grpo'", "type klsym compare gspo grpo or klsym explain gspo"),
        ("explain 'is k1 the same as before'", "type klsym explain k1 or klsym explain k3"),
        ("explain 'is this a good idea'", "not sentences: type klsym explain k3 or klsym explain grpo"),
        ("explain 'ratio - 1'", "ambiguous name 'ratio'"),
        ("explain '(R - R.mean())/(A.std() + eps)*logp'", "or R alone and choose --batch std"),
        ("explain '-A*logp + kl_loss + pg_loss'", "ambiguous name 'kl_loss'"),
        ("explain gspo-tokens", "no name of a loss; did you mean gspo_token?"),
        ("explain schulman", "'schulman' is ambiguous: type klsym explain k1 --use reward; or"),
        ("explain zz9", "klsym examples lists the losses with names"),
        ("explain 'r*k2, r = pi/pi_old'", "; type what a name is first: r = ..; the formula"),
        (
            "explain 'F.log_softmax(x)'",
            "full_kl(q, p) for a sum over the vocabulary; klsym audit runs functions",
        ),
        ("explain '(probs*A).sum(-1)'", "for a sum over the vocabulary type full(A)"),
        ("explain k3 --position loss", "type --use loss or --use reward (see klsym explain --help)"),
        (
            "explain grpo --beta 0.04",
            "type the number in the formula, as in 0.04*k3, or js(q, p, 0.9) for gkd",
        ),
        ("explain gkd --beta 0.9", "type the number in the formula, as in 0.04*k3, or js(q, p, 0.9) for gkd"),
        ("explain ppo --clip-higher 0.28", "klsym explain '-min(rho*A, clip(rho, 0.8, 1.28)*A)'"),
        ("explain ppo --eps 0.28", "klsym explain '-min(rho*A, clip(rho, 0.8, 1.28)*A)'"),
        (
            "explain 'reverse kl'",
            "type k2; for forward-kl type k3; klsym recommend --target reverse-kl lists",
        ),
        (
            "explain 'forward KL'",
            "type k3; for reverse-kl type k2; klsym recommend --target forward-kl lists",
        ),
        ("explain DPO", "chosen and rejected, is out of scope; its beta is that of E[R] - beta*KL(policy"),
        ("explain SimPO", "klsym reads losses of samples from a policy; try klsym examples"),
        ("explain gdpo", "the grammar has a single R; try klsym measure FILE.py:FUNC"),
        ("explain 'k3 - min(q1, q2)**2'", "a critic's loss is out of scope"),
        ("explain '(R - values)**2'", "a critic's loss is out of scope"),
        ("explain 'values*k1' --param values", "a critic's loss is out of scope"),
        ("explain x*k3", "type x1 in its place, with --param x1 for a number, else what it is"),
        ("explain grpo --num_iterations 1", "type --sampling on-policy for the first step on a batch"),
        ("explain ppo --kl_estimator k3", "type the estimator as the loss: klsym explain k3"),
        ("explain trl", "'trl' is ambiguous: type klsym explain grpo; or klsym explain rloo"),
        ("explain 'verl grpo'", "grpo here is that of TRL, loss_type grpo"),
        (
            "compare forward-kl k3",
            "'forward-kl' is an objective, and no loss: type k3; for reverse-kl type k2; klsym recommend",
        ),
        ("recommend --target entropy", "for an entropy bonus type klsym explain entropy"),
        ("explain tis", "'tis' is ambiguous: type klsym explain '-sg(min(rho, 2))*A*log_q' --sampling"),
        ("'is k3 biased?'", "not sentences: type klsym explain k3 or"),
        ("explain 'does 1/|o| in GRPO cause a length bias?'", "type klsym rule KL012 or klsym explain grpo"),
        (
            "explain 'k1 in the reward' --use loss",
            "in the reward, and --use loss says otherwise: leave one out",
        ),
        ("optimum grpo --beta 1 --rewards 1,0", "unknown name 'grpo'"),
        ("explain k3 --sampling of-polcy", "did you mean off-policy?"),
        ("explain k3 --sampling zzz", "invalid choice: 'zzz'"),
        ("explian k3", "did you mean explain?"),
        ("recommend --target reverse-k", "did you mean reverse-kl?"),
        ("recommend --target 'KL(policy || mu)'", "one of reverse-kl, forward-kl, next-token-reverse-kl"),
        ("recommend --target kl", "reverse-kl for KL(policy || reference), or forward-kl for"),
        ("explain k1 --target jsd", "; for its losses type klsym divergence jensen-shannon"),
        ("check k1 --target=tv", "twice the total variation: type klsym explain abs"),
        ("explain k1 --target reverse-kl", "klsym recommend --target reverse-kl says which loss to write"),
        ("compare k1 k3 --expect 'KL(ref || policy)'", "klsym recommend --target forward-kl says which"),
        ("audit a.py:f --target js", "type --expect OBJECTIVE; for js write E_mu[js(q, p)], the Jensen"),
        ("measure a.py:f --target=forward-kl", "type --expect OBJECTIVE, as in --expect forward-kl"),
        ("audit a.py:f --expect jsd", "'jsd' is no objective: write E_mu[js(q, p)], the Jensen-Shannon"),
        ("audit a.py:f --expect TV", "write E_mu[full(abs(1 - r))], twice the total variation of each"),
        ("audit a.py:f --expect jeffreys", "is no objective: write reverse-kl + forward-kl"),
        ("audit a.py:f --expect hellinger", "write f-divergence, which is any E_q[f(r)] but a KL, and"),
        ("explain hellinger", "is a divergence, and no loss; for its losses type klsym divergence squared"),
        ("explain tv", "is a divergence, and no loss; E_q[abs(r - 1)] is twice the total variation"),
        ("recommend --target JS", "for its losses type klsym divergence jensen-shannon"),
        ("recommend --target jensen-shannon", "for its losses type klsym divergence jensen-shannon"),
        ("recommend --target tv", "twice the total variation: type klsym explain abs"),
        ("recommend", "--target reverse-kl or --target forward-kl or --target next-token-reverse-kl or"),
        ("grpo", "'grpo' is a loss and no command: type klsym explain grpo"),
        ("'rho*k3'", "type klsym explain 'rho*k3'"),
        ("'(logp - ref_logp).square()'", "type klsym explain '(logp - ref_logp).square()'"),
        ("rule k3", "no diagnostic code; for a loss: klsym explain k3; known:"),
        ("measure k3", "expected; for a loss: klsym explain k3"),
        ("measure 'k3*unknown'", "what is 'k3'"),
        ("audit k3", "for a loss: klsym explain k3"),
        ("audit .", "to list its functions: klsym audit --scan ."),
        ("explain k3 --off-policy", "--off-policy; did you mean --sampling off-policy?"),
        ("explain k3 --token", "did you mean --level token"),
        ("explain k3 --reward", "did you mean --use reward?"),
        ("explain k3 --mean", "did you mean --batch mean or --aggregate mean?"),
        ("recommend --target reverse-kl --offpolicy", "did you mean --sampling off-policy?"),
        ("compare dapo dr_grpo --level token", "sums over the samples of a batch: choose level sequence"),
        ("compare dapo dr_grpo --batch mean", "batch: samples are centred whole; choose level sequence"),
        ("compare 'gspo - entropy' ppo", "sums over the vocabulary at each token: choose level token"),
        (
            "compare dapo dr_grpoo",
            "unknown name 'dr_grpoo' at character 1",
        ),
        ("rule missing-wieght", "did you mean missing-weight?"),
        ("rule KL0004x", "is no diagnostic code"),
        ("examples grpoo", "did you mean grpo?"),
        ("examples kl", "'kl' is ambiguous"),
    ],
)
def test_what_is_typed_wrongly_is_refused_in_one_line(words: str, said: str, capsys: Out) -> None:
    code, out, err = run(capsys, *shlex.split(words))
    assert (code, out) == (2, "") and said in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    ["grpoo", "reverse-kl", "rule missing-wieght", "measure nope", "audit nope", "explain k3 --nonsense",
     "recommend --target zzz", "rules --token"],
)  # fmt: skip
def test_other_words_get_no_hint_on_losses_and_options(words: str, capsys: Out) -> None:
    code, out, err = run(capsys, *shlex.split(words))
    assert (code, out) == (2, "") and not re.search(
        "klsym explain (?!--help)|klsym divergence|did you mean --", err
    )


@pytest.mark.parametrize(
    ("typed", "name"),
    [("js", "jensen-shannon"), ("JSD", "jensen-shannon"), ("reverse_kl", "reverse-kl"),
     ("KL(p||q)", "forward-kl"), ("Hellinger", "squared-hellinger"),
     ("kl", "reverse-kl or klsym divergence forward-kl")],
)  # fmt: skip
def test_a_divergence_by_another_name_is_told_the_command(typed: str, name: str, capsys: Out) -> None:
    code, out, err = run(capsys, "divergence", typed)
    assert (code, out, err) == (2, "", f"klsym: {typed!r}: type klsym divergence {name}\n")


SENTENCES = tomllib.loads(TABLE.read_text(encoding="utf-8"))["sentence"]


@pytest.mark.parametrize("command", [command for row in SENTENCES for command in row["commands"]])
def test_a_command_for_a_sentence_has_an_answer(command: str, capsys: Out) -> None:
    words = shlex.split(command.format("k1", "k3"))
    code, out, err = run(capsys, *words[1:])
    assert (words[0], code, err) == ("klsym", 0, "") and out


def test_python_is_told_the_nearest_choice_too() -> None:
    with pytest.raises(UsageError, match="did you mean off-policy"):
        klsym.explain("k3", sampling="of-polcy")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "typed", "choice"),
    [
        ("sampling", "OffPolicy", "off-policy"), ("sampling", "off", "off-policy"),
        ("sampling", "top_p", "truncated"),
        ("sampling", "TOP-K", "truncated"), ("level", "seq", "sequence"), ("level", "Token", "token"),
        ("use", "REWARD", "reward"), ("batch", "loo", "leave-one-out"),
        ("batch", "LeaveOneOut", "leave-one-out"),
    ],
)  # fmt: skip
def test_choices_are_read_in_usual_words(option: str, typed: str, choice: str, capsys: Out) -> None:
    code, out, err = run(capsys, "explain", "k2", f"--{option}", typed, "--json")
    assert (code, err) == (0, "") and json.loads(out)[option] == choice


def test_a_target_is_read_in_any_case(capsys: Out) -> None:
    code, out, err = run(capsys, "recommend", "--target", "Reverse-KL")
    assert (code, err) == (0, "") and out == run(capsys, "recommend", "--target", "reverse-kl")[1]


def test_a_name_is_not_suggested_for_itself(capsys: Out) -> None:
    code, _, err = run(capsys, "explain", "k1 - ppo.loss")
    assert code == 2 and "did you mean ppo?" not in err


def test_synonyms_mean_choices_and_hide_none() -> None:
    for option, words in SYNONYMS.items():
        assert {*words.values()} <= {*CHOICES[option]}
        assert not {*words} & {choice.replace("-", "") for choice in CHOICES[option]}


@pytest.mark.parametrize(
    ("typed", "loss"),
    [
        ("-ratio * advantages + 0*old_logp", "-rho*A"),
        ("-torch.clamp(ratio, 0.8, 1.2) * advantages", "-clip(rho, 4/5, 6/5)*A"),
    ],
)
def test_a_ratio_beside_a_clip_or_the_old_policy_is_rho(typed: str, loss: str) -> None:
    asked = {"sampling": "off-policy", "level": "token"}
    assert klsym.explain(typed, **asked).summary == klsym.explain(loss, **asked).summary  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- help
def test_examples_are_listed_and_printed_as_json(capsys: Out) -> None:
    code, out, _ = run(capsys, "examples")
    assert code == 0 and [line.split()[2] for line in out.splitlines()] == [row.name for row in ROWS]
    code, out, _ = run(capsys, "examples", "GRPO", "--format", "json")
    (row,) = json.loads(out)
    assert code == 0 and row["name"] == "grpo" and row["command"] == "klsym explain grpo"


def test_klsym_alone_prints_a_command_for_each_task(capsys: Out) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "") and all(f"    {command}\n" in out for _, command in TASKS)


SHOWN = sorted({line for lines in (*EXAMPLES.values(), [command for _, command in TASKS]) for line in lines})


@pytest.mark.parametrize("line", SHOWN)
def test_commands_that_help_prints_work(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    _, command, *words = shlex.split(line)
    if command in LONG:
        assert build_parser(command).parse_args([command, *words]).run.startswith("klsym.study.commands.")
        return
    if "loss.py" in line:
        pytest.importorskip("torch")
    (tmp_path / "loss.py").write_text(CODE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    if any(word.startswith("certificates") for word in words[:1]):
        assert run(capsys, "prove", "gradient.k1-loss", "--certificates", "certificates")[0] == 0
    code, out, _ = run(capsys, command, *words)
    assert code in (0, 1) and out  # 1: klsym audit has found an error in the code


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_begins_with_two_commands(command: str, capsys: Out) -> None:
    with pytest.raises(SystemExit):
        main([*filter(None, [command]), "--help"])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "examples:" and [line.strip() for line in lines[:2]] == [*EXAMPLES[command]]
    assert len(lines) < LINES


def test_every_command_has_examples() -> None:
    """A command that is not there has none."""
    commands = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert {*commands} == {*EXAMPLES} - {""}
    with pytest.raises(UsageError, match="invalid choice"):
        build_parser().parse_args(["losses"])
