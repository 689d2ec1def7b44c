"""The ledger of final sets, in real folders."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import fsspec
from hypothesis import given
from hypothesis import strategies as st

from shared.artifacts import OutputFolder
from shared.config import load_config
from shared.final_sets import (
    FOLDER,
    advice,
    entries_of,
    read_ledger,
    record_run,
    uses,
)
from shared.run_record import RunRecord


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
    entries = [entry for one in records for entry in entries_of(one)]
    (found,) = uses(entries, entries_of(records[0]))
    return found


def test_only_final_sets_are_counted():
    assert [one.dataset for one in entries_of(record())] == ["humaneval"]
    assert [one.dataset for one in entries_of(record("data.final_sets=[mbpp_reg]"))] == ["mbpp_reg"]
    assert entries_of(record("data.final_sets=[]")) == []


def test_what_the_page_on_acceptance_says_of_them():
    page = " ".join((Path(__file__).parents[2] / "docs/acceptance.md").read_text("utf-8").split())
    default = ", ".join(f"`{name}`" for name in load_config(None).data.final_sets)
    assert f"by default {default.replace(', ', ' and ')}." in page
    temperature = "actor_rollout_ref.rollout.temperature"
    found = used(*(record(f"{temperature}={value}", run=value) for value in ("0.0", "0.2")))
    (line,) = advice([replace(found, runs=3)], ["codecontests_valid", "mbpp_reg"])
    assert f" {line} " in page


def test_a_run_is_counted_once_however_often_it_is_published(tmp_path):
    output = str(tmp_path / "one")
    for finished_at in (1.0, 2.0):
        record_run(OutputFolder(str(tmp_path / "one")), entries_of(record(finished_at=finished_at)))
    entries, notes = read_ledger(output)
    assert ([one.finished_at for one in entries], notes) == ([1.0], [])


def test_a_repeated_run_in_another_folder_and_another_protocol_count(tmp_path):
    for one in (record(), record(run="r-2"), record("sandbox.timeout=3")):
        record_run(OutputFolder(str(tmp_path / "one")), entries_of(one))
    entries, _ = read_ledger(str(tmp_path / "any"))
    (use,) = uses(entries, entries_of(record()))
    assert (use.runs, use.protocols, use.models) == (3, 2, 1)
    assert sorted(use.differing["sandbox.timeout"]) == [3.0, 10.0]


def test_writers_need_no_lock(tmp_path):
    folder = OutputFolder(str(tmp_path / "one"))
    runs = [entries_of(record(run=f"r-{number}")) for number in range(20)]
    for _ in range(2):
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda entries: record_run(folder, entries), runs))
    entries, notes = read_ledger(str(tmp_path / "any"))
    assert (len(entries), notes) == (20, [])
    assert [path for path in (tmp_path / "one" / FOLDER).iterdir() if path.suffix != ".json"] == []


def test_the_ledger_of_a_url():
    try:
        record_run(OutputFolder("memory://bucket/outputs/two"), entries_of(record()))
        entries, _ = read_ledger("memory://bucket/outputs/one")
        assert [one.run for one in entries] == ["r-1"]
    finally:
        fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_a_file_that_is_no_entry_is_left_out_and_said(tmp_path):
    record_run(OutputFolder(str(tmp_path / "one")), entries_of(record()))
    (tmp_path / "one" / FOLDER / "torn.json").write_text('{"dataset"')
    (tmp_path / "one" / FOLDER / "other.json").write_text("[1]")
    (tmp_path / "one" / FOLDER / "README.txt").write_text("mine")
    entries, notes = read_ledger(str(tmp_path / "any"))
    assert len(entries) == 1
    assert sorted(Path(note.split()[0]).name for note in notes) == ["other.json", "torn.json"]


def test_what_is_not_known_of_recorded_answers_is_no_other_protocol_or_model():
    prompts = {"humaneval": {"template": "x", "sha256": "aa"}}
    recorded = record(run="r-2", model=None)
    use = used(record(prompts=prompts), recorded)
    assert (use.runs, use.protocols, use.models) == (2, 1, 1)
    assert used(recorded).models == 1
    use = used(record(prompts=prompts), record("sandbox.timeout=3", run="r-2", model=None))
    assert (use.protocols, list(use.differing)) == (2, ["sandbox.timeout"])


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
    own = entries_of(records[0])
    entries = [entry for place in order for entry in entries_of(records[place])] * times
    (use,) = uses(entries, own)
    assert (use.runs, use.protocols, use.models) == (6, 3, 2)
    assert sorted(use.differing["sandbox.timeout"]) == [1, 2, 3]
