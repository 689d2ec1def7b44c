"""Runs on final sets, in real folders."""

import json
from dataclasses import replace
from pathlib import Path

import fsspec
from hypothesis import given
from hypothesis import strategies as st

from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.final_sets import advice, final_set_uses, uses
from shared.finished_run import open_run
from shared.run_record import RunRecord
from tests.shared.finished_runs import write_run


def record(*overrides, run="r-1", model="coder", sha256="aa", **fields):
    return RunRecord.model_validate(
        {
            "run": run,
            "model": model,
            "fingerprint": f"{run}{overrides}",
            "config": load_config(None, overrides),
            "datasets": [
                {"dataset": name, "sha256": sha256, "problems": 2, "samples": 2}
                for name in ("humaneval", "mbpp_reg")
            ],
            **fields,
        }
    )


def used(*records):
    (use,) = uses([records[0]], records)
    return use


def test_only_final_sets_are_counted():
    assert used(record()).dataset == "humaneval"
    assert used(record("data.final_sets=[mbpp_reg]")).dataset == "mbpp_reg"
    assert uses([record("data.final_sets=[]")], [record()]) == []


def test_what_the_page_on_acceptance_says_of_them():
    page = " ".join((Path(__file__).parents[2] / "docs/acceptance.md").read_text("utf-8").split())
    default = ", ".join(f"`{name}`" for name in load_config(None).data.final_sets)
    assert f"by default {default.replace(', ', ' and ')}." in page
    temperature = "actor_rollout_ref.rollout.temperature"
    found = used(*(record(f"{temperature}={value}", run=value) for value in ("0.0", "0.2")))
    (line,) = advice([replace(found, runs=3)], ["codecontests_valid", "mbpp_reg"])
    assert f" {line} " in page


def test_runs_beside_a_run_count_once(tmp_path):
    """A run that is resumed, or named twice, is one; torn, foreign and unfinished ones are none."""
    answers = {"humaneval": "+-"}
    for name in ("a", "b"):
        write_run(tmp_path / name, answers)
    write_run(tmp_path / "c", answers, change={"config.sandbox.timeout": 3.0})
    write_run(tmp_path / "unfinished", answers, change={"state": "running"})
    for name, text in (("torn", "{"), ("foreign", "[1]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    runs = [open_run(str(tmp_path / name)) for name in ("a", "b", "a")]
    (use,) = final_set_uses(runs)
    assert (use.runs, use.protocols) == (3, 2)


def test_the_runs_beside_a_url(tmp_path):
    write_run(tmp_path / "a", {"humaneval": "+-"})
    document = json.loads((tmp_path / "a" / "run.json").read_text())
    own = open_run(str(tmp_path / "a"))
    other = OutputFolder("memory://bucket/outputs/two")
    try:
        other.write_json("run.json", document | {"run": "other", "model": "m2"})
        (use,) = final_set_uses([replace(own, folder=OutputFolder("memory://bucket/outputs/one"))])
        assert use.runs == 2
    finally:
        fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_an_unknown_model_is_no_other_one():
    use = used(record(), record(run="r-2", model=None))
    assert (use.runs, use.protocols, use.models) == (2, 1, 1)
    assert used(record(model=None)).models == 1


def test_judge_settings_of_another_set_are_no_other_protocol():
    assert used(record(), record("judge.datasets.mbpp_reg.checker=exact")).protocols == 1
    assert used(record(), record("judge.datasets.humaneval.checker=exact")).protocols == 2


def test_seed_and_model_are_no_protocol():
    runs = [
        record(f"run.seed={n}", f"generation.model=m{n}", run=f"r-{n}", model=f"m{n}")
        for n in (1, 2)
    ]
    use = used(*runs)
    assert (use.runs, use.protocols, use.models, use.tuned) == (2, 1, 2, False)
    third = used(*runs, record(run="r-3", model="m3"))
    assert third.tuned
    assert advice([third], []) == [
        "humaneval is marked final, but 3 runs tried 1 protocol with 3 models on it: choose on a "
        "set that is not final"
    ]


@given(st.permutations(range(6)), st.integers(1, 3))
def test_neither_order_nor_repetition_counts(order, times):
    records = [
        record(f"sandbox.timeout={n % 3 + 1}", run=f"r-{n}", model=f"m{n % 2}") for n in range(6)
    ]
    (use,) = uses([records[0]], [records[place] for place in order] * times)
    assert (use.runs, use.protocols, use.models) == (6, 3, 2)
