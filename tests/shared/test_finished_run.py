import json

import pytest

from shared.errors import OutputError
from shared.finished_run import open_run
from shared.run_record import RunRecord
from tests.shared.ledgers import generation, verdict


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "run.json").write_text(RunRecord(run="mine-1", name="mine").model_dump_json())
    (tmp_path / "phase0_summary.json").write_text(json.dumps({"d1": {"total_problems": 2}}))
    for file, records in {
        "generations.jsonl": [generation("p1"), generation("p2")],
        "verdicts.jsonl": [verdict(generation(name)) for name in ("p1", "p2")],
    }.items():
        (tmp_path / file).write_text("".join(record.model_dump_json() + "\n" for record in records))
    return tmp_path


def test_a_torn_last_line_is_named_and_left_out(folder):
    path = folder / "verdicts.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    run = open_run(str(folder))
    assert [one.problem_id for one in run.verdicts()] == ["p1"]
    (torn,) = run.skipped
    assert torn.startswith(f"{path}:2: torn last line")


def test_verdicts_that_are_gone_are_told_once(folder):
    record = RunRecord(run="mine-1", name="mine", samples=2, samples_judged=2)
    (folder / "run.json").write_text(record.model_dump_json())
    whole = open_run(str(folder))
    assert len(list(whole.verdicts())) == 2
    assert whole.skipped == []
    path = folder / "verdicts.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    run = open_run(str(folder))
    assert len(list(run.verdicts())) == len(list(run.verdicts())) == 1
    (gone,) = run.skipped
    assert gone.startswith(f"{path}: 1 of the 2 verdicts that run.json counts")


@pytest.mark.parametrize(
    ("line", "said"), [("{}", ":1: not a verdict (dataset: "), ("nonsense", ":1: not JSON")]
)
def test_any_other_bad_line_is_an_error(folder, line, said):
    path = folder / "verdicts.jsonl"
    path.write_text(f"{line}\n" + path.read_text())
    with pytest.raises(OutputError) as caught:
        list(open_run(str(folder)).verdicts())
    assert f"{path}{said}" in str(caught.value)


def test_each_verdict_comes_with_its_completion(folder):
    run = open_run(str(folder))
    pairs = [(one.problem_id, made.completion) for one, made in run.judged_samples()]
    assert pairs == [("p1", "print(1)"), ("p2", "print(1)")]
    (folder / "generations.jsonl").write_text(generation("p2").model_dump_json() + "\n")
    found = [(one.problem_id, made is not None) for one, made in run.judged_samples()]
    assert found == [("p1", False), ("p2", True)]


@pytest.mark.parametrize("name", ["run.json", "phase0_summary.json"])
def test_a_folder_without_a_finished_run(folder, name):
    (folder / name).unlink()
    with pytest.raises(OutputError, match=name):
        open_run(str(folder))
    (folder / name).write_text("{")
    with pytest.raises(OutputError, match=r"cannot be read"):
        open_run(str(folder))
