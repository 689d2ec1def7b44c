import json
from pathlib import Path
from typing import Any

from services.exports import ExportFormat
from tests.exports.conftest import FENCED, Exported, run_tool


def logs(folder: Path) -> dict[str, dict[str, Any]]:
    documents = [json.loads(path.read_text("utf-8")) for path in folder.iterdir()]
    return {log["eval"]["dataset"]["name"]: log for log in documents}


def test_a_log_per_data_set(finished: Exported) -> None:
    folder = finished.export(ExportFormat.INSPECT)
    assert all(path.name.startswith("2025-06-15T15-06-40_") for path in folder.iterdir())
    log = logs(folder)["humaneval"]
    assert (log["version"], log["status"], log["eval"]["model"]) == (2, "success", "org/model-7B")
    assert "error" not in log
    assert log["eval"]["created"] == "2025-06-15T15:06:40+00:00"
    metrics = log["results"]["scores"][0]["metrics"]
    assert {name: metric["value"] for name, metric in metrics.items()} == {
        "accepted_at_1": 0.5,
        "total_problems": 2,
        "accepted_at_1_ci95_low": 0.1,
        "accepted_at_1_ci95_high": 0.9,
        "api_errors": 0,
    }
    assert next(iter(metrics)) == "accepted_at_1"
    assert log["stats"]["model_usage"]["org/model-7B"]["total_tokens"] == 30


def test_a_sample(finished: Exported) -> None:
    right, wrong = logs(finished.export(ExportFormat.INSPECT))["humaneval"]["samples"]
    assert (right["id"], right["epoch"]) == ("HumanEval/0", 1)
    assert [m["role"] for m in right["messages"]] == ["system", "user", "assistant"]
    assert right["output"]["choices"][0]["message"]["content"] == FENCED
    assert right["scores"]["plumbline"]["value"] == "C"
    assert wrong["scores"]["plumbline"]["value"] == "I"
    assert (
        wrong["scores"]["plumbline"]["explanation"]
        == "wrong_answer: 0 of 1 cases passed, 2 not run"
    )
    assert wrong["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert wrong["total_time"] == 2.0


def test_several_answers_are_epochs(finished: Exported) -> None:
    log = logs(finished.export(ExportFormat.INSPECT))["mbpp_reg"]
    assert [(s["id"], s["epoch"]) for s in log["samples"]] == [("mbpp_11", 1), ("mbpp_11", 2)]
    assert log["eval"]["config"]["epochs"] == 2
    assert log["eval"]["dataset"]["sample_ids"] == ["mbpp_11"]


def test_what_nobody_could_judge_has_an_error_and_no_score(finished: Exported) -> None:
    log = logs(finished.export(ExportFormat.INSPECT))["code-contests test"]
    assert log["status"] == "error"
    assert list(log)[-1] == "samples"
    assert log["error"]["message"] == "1 of 2 samples have no verdict"
    lost = log["samples"][1]
    assert (lost["scores"], lost["error"]["message"]) == (None, "sandbox: http_503")
    score = log["results"]["scores"][0]
    assert (score["scored_samples"], score["unscored_samples"]) == (1, 1)


PROGRAM = f"""
import sys
from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries
found = list_eval_logs(sys.argv[1])
assert {{info.task for info in found}} == {{"humaneval", "mbpp-reg", "code-contests-test"}}
headers = [read_eval_log(info, header_only=True) for info in found]
assert sorted(header.status for header in headers) == ["error", "success", "success"]
read = {{log.eval.task: log for log in map(read_eval_log, found)}}
log = read["humaneval"]
assert log.results.scores[0].metrics["accepted_at_1"].value == 0.5
assert log.samples[0].output.completion == {FENCED!r}
assert log.samples[0].input[-1].text == "Complete:\\nSolve HumanEval/0."
assert log.samples[0].scores["plumbline"].value == "C"
assert read["code_contests_test"].samples[1].error.message == "sandbox: http_503"
assert len(read_eval_log_sample_summaries(found[0])) == 2
"""


def test_the_library_reads_it(finished: Exported) -> None:
    run_tool(PROGRAM, str(finished.export(ExportFormat.INSPECT)))
