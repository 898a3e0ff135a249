"""Certificates as terms for the verified checker, what the driver refuses, and what the checker says."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from klsym.cli import main
from klsym.errors import Refused
from klsym.kernel import certify, check, digest
from klsym.kernel.names import LOG_RATIOS, MEASURES, SAMPLE
from klsym.kernel.ring import ExpPoly
from klsym.kernel.statements import Context, Gradient, Mean, Side
from klsym.study.ledger.settle_claim import recall
from klsym.study.rocq.export import OUTSIDE, export, write_files
from klsym.study.rocq.parts import Assumed, write_script
from klsym.study.rocq.terms import GIVEN, Outside, Words, place
from support.certificates.faulty_certificates import Draft
from support.certificates.region_certificates import CERTIFICATES as REGIONS
from support.faulty.definitions import PAIRS
from support.faulty.definitions import cited as CITING
from support.scale import scaled

KL_GRADIENT = Side.from_atom(Gradient(Side.from_atom(Mean("", "q", ExpPoly.from_variable("k1")))))
ROCQ = Path(__file__).parents[3] / "rocq"
SPEC = importlib.util.spec_from_file_location("rocq_check", ROCQ / "check.py")
assert SPEC and SPEC.loader
driver = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(driver)

# cited theorems, stop-gradient, ratios, a premise of parameters, rows, models; a batch; steps; a clip
CLAIMS = (
    "gradient.k1-loss", "gradient.k3-loss", "gradient.k-lambda-loss", "offpolicy.sg-rho-k2",
    "optimum.reverse", "value.k3-nonnegative", "value.k2-biased", "batch.leave-one-out",
    "sequence.cumulative", "sequence.reward-to-go", "sequence.leave-one-out", "neighbour.gspo-ratio",
    "neighbour.offpolicy-sequence-whole", "shipped.ratio-mask",
)  # fmt: skip


@pytest.fixture(scope="module")
def certificates():
    return {claim: recall(claim).certificate() for claim in CLAIMS}


def test_a_short_certificate_reads_as_it_is_written(certificates):
    [part] = certificates["gradient.k1-loss"]["parts"]
    one, k1 = "[((Qmake 1 1), [], [])]", "[((Qmake 1 1), [(Sample Whole K1 false, 1%Z)], [])]"
    minus = "[([((Qmake (-1) 1), [], [])], [])]"
    assert write_script(part, {}) == (
        "Script (Assume (Premises [] [] None [] []) [] [])\n"
        f" [(Part [({one}, [MeanGradient Single Mq {k1}])] [] Equal []\n"
        f"  [({minus}, ChainRule Single Mq {k1}); ({minus}, ScoreMeanZero Single Whole {one})])]\n"
        " Proved"
    )


def test_every_part_is_a_script_or_outside(certificates):
    exported = export(certificates)
    assert exported.parts == sum(len(c["parts"]) for c in certificates.values())
    assert not exported.outside
    assert export(certificates) == exported  # and nothing depends on chance
    cited = exported.scripts["gradient.k3-loss part 1"]
    assert cited.count("(Part ") == 2 and "Cited 0" in cited


def test_what_is_outside_says_why():
    """No claim of the ledger is; here a curl is said to be 0."""
    certificate = copy.deepcopy(recall("sequence.token-field-not-conservative").certificate())
    for part in certificate["parts"]:
        part["close"] = {"by": "equality", "rows": []}
    reasons = export({"curl": certificate}).outside
    assert reasons == {"curl part 1": "the curl of a field", "curl part 2": "the curl of a field"}


OF_REGIONS = {  # certificates about regions that the checker does not reach, and why
    "not kl": "a model of which facts are assumed",
    "ppo on policy": "what a name of parameters stands for",
    "token field": "the curl of a field with names",
}


@pytest.mark.parametrize("name", REGIONS)
def test_what_is_defined_is_told_before_it_is_used(name):
    """A definition for each name, which speaks of those before it alone; or there is no script, and why."""
    exported = export({"region": REGIONS[name]().certificate()})
    assert exported.outside == ({"region part 1": OF_REGIONS[name]} if name in OF_REGIONS else {})
    for script in exported.scripts.values():
        defined = re.findall(r"\(Define (.*?\])\)(?=[;\]])", script.partition("(Part ")[0])
        assert defined and {*map(int, re.findall(r"Named \[[\w; ]*\] (\d+)", script))} <= {
            *range(len(defined))
        }
        for number, text in enumerate(defined):
            assert all(int(n) < number for n in re.findall(r"Named \[[\w; ]*\] (\d+)", text))


def test_a_region_that_samples_cross_is_no_script():
    """The gradient of a clipped loss, whose certificate no longer says that no sample is at the bound."""
    [part] = REGIONS["ppo objective"]().certificate()["parts"]
    assert write_script(part, {}).count("Settled Mmu Single (Named [Whole]") == 2
    for kind in ("off", "apart"):
        part["hypotheses"] = [h for h in part["hypotheses"] if h[0] != kind]
    with pytest.raises(Outside, match="a region whose bound may be crossed"):
        write_script(part, {})


UNRECORDED = (
    "no tie, not recorded",
    "a fact not recorded",
    "a derivative of a region",
    "a sum of regions over positions",
)


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair.mistake in UNRECORDED], ids=lambda pair: pair.mistake
)
def test_what_no_hypothesis_says_is_not_assumed_by_a_script(pair):
    """Nor has a script names of which the kernel knows nothing; the same without the mistake is one."""
    right, wrong = (make().certificate() for make in (pair.right, pair.wrong))
    assert export({"right": right}).scripts and not export({"wrong": wrong}).scripts


def test_the_pairs_are_those_of_the_kernel():
    assert {pair.mistake for pair in PAIRS} >= {*UNRECORDED}


def test_facts_that_no_step_uses_are_left_out(certificates):
    """What is proved without them holds with them; a model would have to satisfy them."""
    certificate = copy.deepcopy(certificates["gradient.k1-loss"])
    one = [["1", {"R": 1}]]
    certificate["parts"][0]["context"] |= {"facts": [one], "witness": {"R": "0"}}
    certificate["digest"] = digest(certificate["parts"])
    assert check(certificate)
    assert (
        export({"given": certificate}).scripts == export({"given": certificates["gradient.k1-loss"]}).scripts
    )
    refuted = copy.deepcopy(certificates["value.k2-biased"])
    refuted["parts"][0]["context"] |= {"facts": [one], "witness": {"R": "0"}}
    assert export({"not": refuted}).outside["not part 1"] == "a model of which facts are assumed"


def test_a_part_that_cites_what_is_defined_has_its_definitions():
    certificate = CITING().certificate()
    assert check(certificate) and certificate["cites"]
    [script] = export({"citing": certificate}).scripts.values()
    assert "(Define [Past; Now] Region " in script and "Cited 0" in script


POWERS = {"cell": {}, "rows": [], "of": [], "times": [], "apart": []}


def test_a_rule_about_regions_where_nothing_is_defined_changes_nothing():
    draft = Draft(Side.from_atom(Mean("", "q", ExpPoly.from_variable("k1"))), Side()).step("region", **POWERS)
    part, _ = certify({**draft.part, "right": draft.sides["left"].to_json()}, {})
    assert "Indicators Single Mq [" in (script := write_script(part, {})) and "InCell" not in script


@pytest.mark.parametrize("kind", ["generous", "plausible"])
def test_a_hypothesis_that_is_not_known_is_outside(certificates, kind):
    [part] = copy.deepcopy(certificates["gradient.k1-loss"]["parts"])
    write_script(part, {})
    part["hypotheses"].append([kind, "q"])
    with pytest.raises(Outside, match=f"the hypothesis {kind}"):
        write_script(part, {})


def test_a_curl_is_told_by_its_field_and_a_model_with_two_directions():
    certificate = recall("sequence.token-field-not-conservative").certificate()
    script = export({"curl": certificate}).scripts["curl part 1"]
    k2 = "[((Qmake 1 2), [(Sample Now K1 false, 2%Z)], [])]"
    assert script.startswith(
        f"Script (Assume (Premises [] [] None [] []) [] [])\n [] (Curled Mq Steps {k2}\n (Model ["
    )
    root = certificate["parts"][0]["close"]["model"]["tree"]
    ones = {"0": "(Qmake 0 1)", "1": "(Qmake 1 1)"}
    rows = " ".join(f"[{'; '.join(ones[n] for n in root[name])}]" for name in ("u", "v"))
    assert f"{rows} [[(Qmake 0 1)" in script


def test_a_family_is_told_without_its_free_constants():
    certificate = recall("gradient.k2-unique").certificate()
    script = export({"unique": certificate}).scripts["unique part 1"]
    half_square = "[((Qmake 1 2), [(Sample Whole K1 false, 2%Z)], [])]"
    assert certificate["parts"][0]["context"]["parameters"] == ["a", "b"]  # and g = k1^2/2 + b + a k1
    assert script.endswith(f"false [((Qmake 1 1), [], [])] 2 {half_square} [1; 0]))")


@pytest.mark.parametrize(
    ("claim", "number", "witness"),
    [
        ("practice.reward-forward", 4, "false []"),  # -k1 r: d^3/dk1^3 + d^2/dk1^2 leaves -r
        ("catalogue.unweighted-none", 2, "true [false]"),  # (b + k1) exp(-w): d^2/dw dk1 leaves -exp(-w)
    ],
)
def test_what_is_no_combination_has_a_derivative_of_one_term(claim, number, witness):
    certificate = recall(claim).certificate()
    script = export({"none": certificate}).scripts[f"none part {number}"]
    assert script.endswith(f" {witness}))") and "(Independent (Witness [" in script


def test_only_what_is_known_not_to_be_zero_divides():
    context = Context(parameters=("n",))
    inverse = ExpPoly.from_variable("n").invert()
    assert "Par 0 true" in Words(context, frozenset({"n"})).write_element(inverse)
    with pytest.raises(Outside, match="division by n"):
        Words(context).write_element(inverse)


def test_a_sum_over_the_others_is_independent_of_the_sample_itself():
    certificate = recall("batch.leave-one-out").certificate()
    script = export({"loo": certificate}).scripts["loo part 1"]
    assert (
        "(Premises [] [] (Some (1, false)) [] [])" in script
    )  # n is the second parameter, and divides nothing
    assert script.count("Independence Batch Mq (") == 2  # E[k1 s] and E[sum k1_j s], term by term
    assert "(Sample Others K1 false, 1%Z); (Par 0 true, (-1)%Z); (Sample Self Score false, 1%Z)" in script


def test_the_length_of_a_sample_of_a_batch_is_outside():
    [part] = copy.deepcopy(recall("batch.no-centering").certificate()["parts"])
    part["left"][0][1][0][3], part["steps"] = [["1", {"length[self]": 1}]], part["steps"][:1]
    with pytest.raises(Outside, match="a length in a batch"):
        write_script(part, {})


@pytest.mark.parametrize("slot", ["past", "future"])
def test_a_function_of_several_steps_is_outside(slot):
    """There it is the sum over the steps, and the checker knows functions of what is in a slot."""
    words = Words(Context(functions=(("f", ("k1",)),)))
    assert "Sample Now (Fn 0 0) false" in words.write_element(ExpPoly.from_variable("f[now]"))
    with pytest.raises(Outside, match="several steps"):
        words.write_element(ExpPoly.from_variable(f"f[{slot}]"))


def test_a_step_that_is_taken_backwards_has_the_other_sign():
    """sum_t X_t Y_past is the right side of the rule that exchanges sums."""
    certificate = recall("sequence.reward-to-go").certificate()
    script = export({"r": certificate}).scripts["r part 3"]
    assert script.count("Exchange Steps Mq Score K1") == 2 and script.count("PartsOfASum Steps Mq") == 2
    mean = Mean("t", "q", ExpPoly.from_variable("k1[past]"), ("now",))
    backwards = {"now": "s", "other": "k1", "slot": "past"}
    [(sign, instance)] = Assumed(Words(Context()), (), (), (), False, [])._list_instances(
        "exchange of sums", backwards, mean
    )
    assert sign == -1 and instance.startswith("Exchange Steps Mq K1 Score [")


def test_a_model_of_sequences_names_its_nodes_by_the_prefixes_that_lead_to_them():
    certificate = recall("neighbour.gspo-ratio").certificate()
    script = export({"g": certificate}).scripts["g part 1"]
    assert re.findall(r"\((\[[\d; ]*\]), Node", script) == ["[]", "[0]"]
    assert script.endswith(" [0; 0] []))")


def test_every_log_ratio_is_known():
    texts = {Words(Context()).write_element(ExpPoly.from_variable(name)) for name in LOG_RATIOS}
    assert len(texts) == len(LOG_RATIOS)


def test_a_measure_that_the_checker_does_not_know_is_outside():
    assert [place(m) for m in (*MEASURES, SAMPLE)] == ["Mq", "Mp", "Mmu", "Mcount", "Msample"]
    with pytest.raises(Outside, match="the measure old"):
        place("old")


def test_a_model_pays_what_the_terms_name():
    """The lists of a model stand in the order in which `Given 0`, `Given 1`, .. are numbered."""
    certificate = recall("clip.clamped-k3-loss").certificate()
    script = export({"clip": certificate}).scripts["clip part 2"]
    [mask] = set(re.findall(r"Given (\d+)", script))
    rows = ["[(Qmake 0 1); (Qmake 0 1)]"] * len(GIVEN)
    rows[int(mask)] = "[(Qmake 1 1); (Qmake 0 1)]"
    assert f"[{'; '.join(rows)}])]\n  [0] []" in script


def test_a_region_is_found_however_it_is_written():
    """1 - k1/2 >= 0, assumed in the normal form and named with its terms in another order."""
    region = ExpPoly.from_variable("k1") * Fraction(-1, 2) + 1
    assumed = Assumed(Words(Context()), (), (), (("q", region.to_json()),), False, [])
    row = {"kind": "square", "scale": [["1", {}]], "factor": [["1", {}]], "at": ["", "q"], "v": []}
    row |= {"of": [["1", {"w": 1}]], "score": []}
    shown = [
        assumed.write_row(row | {"nonnegative": text}) for text in (region.to_json(), region.to_json()[::-1])
    ]
    assert shown[0] == shown[1] and shown[0].startswith("Row (Square (Some 0))")


def test_names_are_told_apart():
    words = Words(Context(parameters=("a",), functions=(("f", ("k1",)), ("g", ("w",)))))
    names = ["k1", "sg(k1)", "w", "log_q", "length", "R", "A", "H", "f", "f'", "g", "sg(g)", "a"]
    assert len({words.write_element(ExpPoly.from_variable(name)) for name in names}) == len(names)


# ---------------------------------------------------------------------------- the command
def written(folder: Path, certificates) -> Path:
    for claim, certificate in certificates.items():
        (folder / f"{claim}.json").write_text(json.dumps(certificate))
    return folder


def test_the_command_writes_what_the_library_writes(tmp_path, capsys, certificates):
    (tmp_path / "in").mkdir()
    source = written(tmp_path / "in", certificates)
    assert main(["export", "--rocq", str(tmp_path / "out"), str(source)]) == 0
    count = export(certificates).parts
    assert capsys.readouterr().out.startswith(f"{count} of {count} parts in ")
    write_files(export(certificates), tmp_path)
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert OUTSIDE in files and "Parts_gradient.v" in files
    assert all((tmp_path / "out" / n).read_bytes() == (tmp_path / n).read_bytes() for n in files)


def test_the_command_takes_no_word_for_a_proof(tmp_path, capsys, certificates):
    broken = copy.deepcopy(certificates["gradient.k3-loss"])
    broken["parts"][0]["right"] = certificates["gradient.k1-loss"]["parts"][0]["right"]
    broken["digest"] = digest(broken["parts"])
    source = written(tmp_path, {"gradient.k3-loss": broken})
    assert main(["export", "--rocq", str(tmp_path / "out"), str(source / "gradient.k3-loss.json")]) == 1
    assert capsys.readouterr().out.startswith("REFUSED")
    assert not (tmp_path / "out").exists()


def test_two_files_of_one_name_are_refused(tmp_path, capsys, certificates):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        written(tmp_path / folder, {"gradient.k1-loss": certificates["gradient.k1-loss"]})
    files = [str(tmp_path / folder) for folder in ("a", "b")]
    assert main(["export", "--rocq", str(tmp_path / "out"), *files]) == 2
    assert "another file is called gradient.k1-loss" in capsys.readouterr().err


def test_the_whole_ledger_is_exported_or_outside_for_a_reason(tmp_path, capsys):
    assert main(["export", "--rocq", str(tmp_path)]) == 0
    done, total = map(int, re.match(r"(\d+) of (\d+) parts", capsys.readouterr().out).groups())
    outside = (tmp_path / OUTSIDE).read_text().splitlines()
    assert done + len(outside) == total and done > len(outside)
    reason = re.compile(
        r"a second direction|the curl of a field|a function of several steps|a length in a batch"
        r"|the gradient of a product|isolated values of parameters|a name of an expectation"
        r"|a model of which facts are assumed|the (closing|rule|variable|measure|hypothesis) \w.*"
    )
    assert [line for line in outside if not reason.fullmatch(line.rpartition(": ")[2])] == []
    text = "".join(path.read_text() for path in tmp_path.glob("Parts_*.v"))
    assert text.count(" part ") == done


# ---------------------------------------------------------------------------- the driver
def test_the_sources_take_nothing_for_granted_and_are_all_compiled():
    for path in ROCQ.rglob("*.v"):
        assert not driver.unproved(path.read_text()), path.name
    named = {path.relative_to(ROCQ).with_suffix("").as_posix() for path in ROCQ.rglob("*.v")}
    assert named == {*driver.ORDER, "statements/Headlines"}


def test_an_axiom_beyond_those_of_the_reals_is_noticed(tmp_path):
    known = (ROCQ / "axioms.txt").read_text().split()
    driver.expect_axioms(tmp_path, "Axioms:\n" + "".join(f"{name} : Prop\n" for name in known))
    for text in ("", "Closed under the global context\n", "Axioms:\nklsym_is_right : False\n"):
        with pytest.raises(driver.Failed, match="axioms"):
            driver.expect_axioms(tmp_path, text)


def test_where_rocq_is_missing_one_line_says_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver.main(tmp_path) == 1
    error = capsys.readouterr().err
    assert "apt-get install coq libcoq-coquelicot" in error and error.count("\n") == 1


@pytest.mark.skipif(shutil.which("coqc") is None, reason="Rocq is not installed")
@pytest.mark.skipif(not scaled(1, 0), reason="make rocq asks the same of every certificate")
def test_the_checker_accepts_these_and_no_part_that_was_changed(tmp_path, certificates):
    library, folder = tmp_path / "checker", tmp_path / "theorems"
    library.mkdir()
    for name in driver.ORDER[: driver.ORDER.index("certificates/Parts") + 1]:
        driver.compiled(Path(shutil.copy(ROCQ / f"{name}.v", library)), library)
    exported = export(certificates)
    total = 0
    for path in write_files(exported, folder):
        if path.suffix == ".v":
            parts, wrong = driver.counts(path, driver.compiled(path, library))
            assert wrong >= parts
            total += parts
    assert total == len(exported.scripts)
    # the kernel's theorem with another right side, which the kernel would refuse as well
    changed = copy.deepcopy(certificates["gradient.k3-loss"])
    part = changed["parts"][0]
    part["right"] = (Side.from_json(part["right"]) * 2).to_json()
    changed["digest"] = digest(changed["parts"])
    with pytest.raises(Refused):
        check(changed)
    [path, *_] = write_files(export({"gradient.k3-loss": changed}), tmp_path / "changed")
    with pytest.raises(driver.Failed, match="refused"):
        driver.compiled(path, library)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Hypothesis cheat : False.\nTheorem all : 1 = 0.", "Hypothesis outside a section"),
        ("Section A.\nVariable x : R.\nEnd A.\nVariables y : R.", "Variables outside a section"),
        ("Lemma x : True.\nAdmitted.", "Admitted"),
        ("Lemma a : False. Proof. admit.", "admit"),
        ("Axiom a : False.", "Axiom"),
        ("Parameter x : R.", "Parameter"),
        ("Section A.\nHypothesis h : 0 < 1.\nEnd A.", ""),
        ("(* Axiom *) Lemma x : True.", ""),
    ],
)
def test_nothing_is_taken_for_granted(text: str, word: str, tmp_path: Path) -> None:
    assert driver.unproved(text) == word
    path = tmp_path / "A.v"
    path.write_text(text)
    if word:
        with pytest.raises(driver.Failed, match="unproved"):
            driver.compiled(path, tmp_path)


@pytest.mark.parametrize("name", ["cheat1", "cheat'", "T.cheat"])
def test_an_axiom_of_any_name_is_seen(name: str, tmp_path: Path) -> None:
    with pytest.raises(driver.Failed, match="axioms"):
        driver.expect_axioms(tmp_path, f"Axioms:\n{name} : False\n")
