import json
from pathlib import Path
from typing import Any

from services.exports import ExportFormat
from services.exports.samples import task_names
from tests.exports.conftest import FENCED, Exported, run_tool

TIME = "2025-06-15T15-06-40"
TASKS = ["humaneval", "mbpp_reg", "code_contests_test"]


def documents(folder: Path, task: str) -> list[dict[str, Any]]:
    path = folder / "org__model-7B" / f"samples_{task}_{TIME}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "org__model-7B" / f"results_{TIME}.json").read_text())


def test_results(finished: Exported) -> None:
    found = results(finished.export(ExportFormat.LM_EVAL))
    assert list(found["results"]) == TASKS
    assert found["results"]["humaneval"] == {
        "alias": "humaneval",
        "total_problems,none": 2,
        "accepted_at_1,none": 0.5,
        "accepted_at_1_ci95_low,none": 0.1,
        "accepted_at_1_ci95_high,none": 0.9,
        "api_errors,none": 0,
    }
    for part in ("configs", "versions", "n-shot", "n-samples", "higher_is_better", "task_hashes"):
        assert list(found[part]) == TASKS
    assert found["n-samples"]["code_contests_test"] == {"original": 2, "effective": 1}
    assert found["config"]["model_args"] == {"model": "org/model-7B"}
    assert found["config"]["gen_kwargs"]["temperature"] == 0.5


def test_documents(finished: Exported) -> None:
    folder = finished.export(ExportFormat.LM_EVAL)
    right, wrong = documents(folder, "humaneval")
    assert (right["doc_id"], wrong["doc_id"]) == (0, 1)
    assert (right["resps"], right["filtered_resps"]) == ([[FENCED]], [FENCED])
    assert (right["accepted_at_1"], wrong["accepted_at_1"]) == (1.0, 0.0)
    assert right["doc"]["problem_id"] == "HumanEval/0"
    messages = json.loads(right["arguments"]["gen_args_0"]["arg_0"])
    assert messages[-1]["content"] == "Complete:\nSolve HumanEval/0."


def test_answers_to_one_problem_are_one_document(finished: Exported) -> None:
    (document,) = documents(finished.export(ExportFormat.LM_EVAL), "mbpp_reg")
    assert document["resps"] == [[FENCED, "no code here."]]
    assert (document["accepted_at_1"], document["pass_ratio_mean"]) == (0.5, 0.5)
    assert document["cases_not_run"] == [0, 2]


def test_what_nobody_could_judge_has_no_value(finished: Exported) -> None:
    judged, lost = documents(finished.export(ExportFormat.LM_EVAL), "code_contests_test")
    assert (judged["accepted_at_1"], lost["accepted_at_1"]) == (0.0, None)
    assert lost["final_status"] == ["api_error"]


def test_data_sets_with_the_same_task_name_stay_apart() -> None:
    names = task_names(["a-b", "a_b", "c"])
    assert (names["a-b"], names["c"]) == ("a_b", "c")
    assert len(set(names.values())) == 3


PROGRAM = f"""
import json, sys
from pathlib import Path
from lm_eval import utils
folder = Path(sys.argv[1])
files = [str(path) for path in folder.iterdir()]
(path,) = utils.get_results_filenames(files)
assert "accepted_at_1_ci95_low" in utils.make_table(json.loads(Path(path).read_text()))
names = [Path(name).name for name in utils.get_sample_results_filenames(files)]
assert {{utils.get_file_task_name(name) for name in names}} == set({TASKS})
assert utils.sanitize_model_name("org/model-7B") == folder.name
"""


def test_the_library_reads_it(finished: Exported) -> None:
    run_tool(PROGRAM, str(finished.export(ExportFormat.LM_EVAL) / "org__model-7B"))
