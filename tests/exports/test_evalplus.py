import json
from dataclasses import replace
from pathlib import Path

import pytest

from services.exports import ExportFormat, export_samples
from services.exports.samples import RunSamples
from shared.artifacts import OutputFolder
from shared.errors import DataError
from shared.function_plan import prelude_of
from shared.schemas import HumanEvalTests
from tests.exports.conftest import BODY, FENCED, Exported, run_tool

CODE = "def f():\n    return 1"


def test_solutions(finished: Exported) -> None:
    folder = finished.export(ExportFormat.EVALPLUS)
    assert {path.name for path in folder.iterdir()} == {"humaneval.jsonl", "mbpp_reg.jsonl"}
    read = [json.loads(line) for line in (folder / "humaneval.jsonl").open()]
    assert read[0] == {"task_id": "HumanEval/0", "solution": CODE}
    assert read[1]["task_id"] == "HumanEval/1"
    assert read[1]["completion"].rstrip() == BODY.rstrip()
    read = [json.loads(line) for line in (folder / "mbpp_reg.jsonl").open()]
    assert read == [
        {"task_id": "Mbpp/11", "solution": CODE},
        {"task_id": "Mbpp/11", "solution": ""},
    ]


def test_other_data_sets_are_named(finished: Exported) -> None:
    samples = finished.load()
    export_samples(ExportFormat.EVALPLUS, samples, OutputFolder("memory://evalplus"))
    assert samples.notes == ["skipped, because EvalPlus has no tests for them: code-contests test"]


def test_a_run_without_any_that_it_knows(finished: Exported) -> None:
    samples = finished.load()
    others = {"code-contests test": samples.datasets["code-contests test"]}
    chosen = RunSamples(samples.run, others)
    with pytest.raises(DataError, match="not code-contests test; choose another format"):
        export_samples(ExportFormat.EVALPLUS, chosen, OutputFolder("memory://evalplus-none"))


PROGRAM = """
import json, sys
from evalplus.data import get_human_eval_plus, load_solutions
from evalplus.evaluate import check_correctness, get_groundtruth
problems = get_human_eval_plus()
truth = get_groundtruth(problems, "expected", [])
for sample in load_solutions(sys.argv[1]):
    name = sample["task_id"]
    code = sample.get("solution", problems[name]["prompt"] + sample.get("completion", ""))
    found = check_correctness("humaneval", 0, problems[name], code, truth[name], fast_check=True)
    print("judged", name, found["base"][0], found["plus"][0])
"""
PRELUDE = """from __future__ import annotations
from math import floor

def half(x):
    return x / 2

"""
ROW = {
    "prompt": f"{PRELUDE}def f(x: float) -> int:\n    '''Half of it, rounded down.'''\n",
    "canonical_solution": "    return floor(half(x))\n",
    "entry_point": "f",
    "base_input": [[4]],
    "plus_input": [[5]],
    "contract": "",
    "atol": 0,
}
ANSWERS = {  # code, EvalPlus' word on the base and the plus inputs
    "HumanEval/0": (FENCED.replace("return 1", "return floor(half(x))").replace("f()", "f(x)"),
                    "pass pass"),
    "HumanEval/1": ("    return floor(half(x))\n", "pass pass"),
    "HumanEval/2": ("from __future__ import annotations\ndef f(x: Later): return floor(half(x))\n",
                    "pass pass"),
    "HumanEval/3": ("def f(x): return half(x)\n", "pass fail"),
    "HumanEval/4": ("There is none.", "fail fail"),
}  # fmt: skip


def test_evalplus_judges_the_programs(finished: Exported, tmp_path: Path) -> None:
    """They stand alone, with imports and helpers of the prompt."""
    truth = {"test": "def check(f): pass", "entry_point": "f", "prompt": ROW["prompt"]}
    samples = finished.load()
    some = samples.datasets["humaneval"][0]
    members = [
        replace(
            some,
            generation=some.generation.model_copy(update={"problem_id": name, "completion": text}),
            problem=some.problem.model_copy(
                update={"prelude": prelude_of(HumanEvalTests(**truth))}
            ),
        )
        for name, (text, _) in ANSWERS.items()
    ]
    folder = OutputFolder(str(tmp_path / "evalplus"))
    chosen = RunSamples(samples.run, {"humaneval": members})
    assert export_samples(ExportFormat.EVALPLUS, chosen, folder) == ["humaneval.jsonl"]
    problems = tmp_path / "problems.jsonl"
    problems.write_text("".join(json.dumps({"task_id": x, **ROW}) + "\n" for x in ANSWERS))
    output = run_tool(
        PROGRAM,
        str(tmp_path / "evalplus" / "humaneval.jsonl"),
        HUMANEVAL_OVERRIDE_PATH=str(problems),
        XDG_CACHE_HOME=str(tmp_path),
    )
    judged = [line.split(" ", 2)[1:] for line in output.splitlines() if line.startswith("judged")]
    assert dict(judged) == {name: words for name, (_, words) in ANSWERS.items()}
