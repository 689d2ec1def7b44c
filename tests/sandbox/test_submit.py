"""Submissions to the real server: data-set classes, refusals, hostile requests."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.sandbox.submit import HEADER, make_plan
from shared.harness.sandbox_api import SubmitRequest
from tests.sandbox.conftest import Sandbox, StartSandbox

HUMANEVAL = {
    "prompt": 'def double(n):\n    """Twice n."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(0) == 0\n",
}
MBPP = {
    "labels": {"test_setup_code": "two = 2"},
    "test_list": ["assert double(2) == 5", "assert double(2) == 4"],
}
RIGHT, WRONG = "def double(n):\n    return 2 * n", "def double(n):\n    return n + 1"


def fenced(code: str, tag: str = "python") -> str:
    return f"```{tag}\n{code}\n```"


def submission(dataset: str, completion: str, record: Any, **config: Any) -> dict[str, Any]:
    config = {"provided_data": record} | config
    return {"dataset": dataset, "id": "task/1", "completion": completion, "config": config}


async def judged(
    sandbox: Sandbox, dataset: str, completion: str, record: Any, **config: Any
) -> Any:
    status, answer = await sandbox.submit(**submission(dataset, completion, record, **config))
    assert status == 200, answer
    assert answer["id"] == "task/1"
    return answer


def program(dataset: str, completion: str, record: Any, **config: Any) -> str:
    request = SubmitRequest(**submission(dataset, completion, record, **config))
    return make_plan(request).program.code


async def test_datasets_are_listed(sandbox: Sandbox):
    assert await sandbox.send("GET", "/list_datasets", b"") == (
        200,
        ["code_contests", "humaneval_python", "shadow_humaneval_python", "mbpp"],
    )


@pytest.mark.parametrize(
    ("dataset", "record"),
    [
        ("humaneval_python", HUMANEVAL),
        ("shadow_humaneval_python", HUMANEVAL),
        ("my_own", HUMANEVAL),
    ],
)
async def test_humaneval_and_its_relatives(sandbox: Sandbox, dataset: str, record: Any):
    config = {"dataset_type": "HumanEvalDataset"}
    freeform = config | {"extra": {"is_freeform": True}}
    for code, accepted in ((RIGHT, True), (WRONG, False)):
        body = code.partition("\n")[2] + "\n"
        answer = await judged(sandbox, dataset, body, record, **config)
        assert (answer["accepted"], answer["tests"][0]["passed"]) == (accepted, accepted)
        answer = await judged(sandbox, dataset, fenced(code), record, **freeform)
        assert (answer["accepted"], answer["extracted_code"]) == (accepted, code)
        assert answer["full_code"].endswith(record["test"] + "\ncheck(double)")


def test_shadow_humaneval_extracts_as_the_original():
    """The first block whatever its language, cut at the main guard and after the function."""
    guard = 'if __name__ == "__main__":\n    pass'
    text = fenced(f"{RIGHT}\n{guard}", "text") + "\n" + fenced(WRONG)
    freeform = {"extra": {"is_freeform": True}}
    shadow = program("shadow_humaneval_python", text, HUMANEVAL, **freeform)
    assert RIGHT in shadow
    assert guard not in shadow
    assert WRONG in program("humaneval_python", text, HUMANEVAL, **freeform)
    two = fenced(f"{RIGHT}\nx = 1")
    assert "x = 1" not in program("shadow_humaneval_python", two, HUMANEVAL, **freeform)
    assert "x = 1" in program("humaneval_python", two, HUMANEVAL, **freeform)


def test_humaneval_programs_load_numpy_if_they_name_it():
    without = program("humaneval_python", "    return 2 * n\n", HUMANEVAL)
    named = program("humaneval_python", "    return int(np.int64(2) * n)\n", HUMANEVAL)
    assert "numpy" not in without
    assert named.startswith(HEADER)
    place = HEADER.count("\n")
    assert without.splitlines()[place] == named.splitlines()[place]


async def test_mbpp_joins_set_up_code_and_tests(sandbox: Sandbox):
    answer = await judged(sandbox, "mbpp", fenced("def double(n):\n    return two * n"), MBPP)
    assert answer["accepted"] is False
    assert answer["extracted_code"] == "two = 2\ndef double(n):\n    return two * n"
    few = await judged(sandbox, "mbpp", fenced(RIGHT), MBPP, is_fewshot=True)
    assert few["accepted"] is True
    assert "== 5" not in few["full_code"]
    as_text = MBPP | {"labels": json.dumps(MBPP["labels"]), "test_list": '["assert two == 2"]'}
    renamed = await judged(sandbox, "my_mbpp", "", as_text, dataset_type="MBPPDataset")
    assert (renamed["accepted"], renamed["full_code"]) == (True, "two = 2\n\nassert two == 2\n")


def cases(stdin: Any, stdout: Any) -> dict[str, Any]:
    return {"test": [{"input": stdin, "output": stdout}]}


def test_default_times_of_programs_are_the_originals():
    for language, seconds in (("cpp", 10), ("java", 10), ("go", 10), ("rust", 20), ("python", 20)):
        request = submission("code_contests", "", cases({"stdin": ""}, {"stdout": ""}))
        request["config"]["language"] = language
        assert make_plan(SubmitRequest(**request)).program.run_timeout == seconds, language


UNJUDGEABLE: list[tuple[str, Any, dict[str, Any], str]] = [
    ("mbpp", None, {}, "provided_data"),
    ("mbpp", {"labels": {}}, {}, "test_setup_code"),
    ("humaneval_python", HUMANEVAL | {"tests": "x"}, {}, "MultiPL-E"),
    ("code_contests", {"test": []}, {}, "config.language"),
    ("code_contests", cases({}, {"stdout": ""}), {"language": "cpp"}, "stdin"),
    ("set", MBPP, {"dataset_type": "AutoEvalDataset"}, "eval class AutoEvalDataset not found"),
    ("set", MBPP, {}, "no eval class found for dataset set"),
]


async def test_what_cannot_be_judged_is_400(sandbox: Sandbox):
    failures = []
    for dataset, record, config, named in UNJUDGEABLE:
        status, answer = await sandbox.submit(**submission(dataset, "x", record, **config))
        if status != 400 or named not in answer["detail"] or len(answer["detail"]) >= 600:
            failures.append((dataset, named, status, answer))
    assert not failures, failures


async def test_custom_extraction_is_not_executed(sandbox: Sandbox, tmp_path: Path):
    trace = tmp_path / "trace"
    logic = f"open({str(trace)!r}, 'w')\nsubmit_code_blocks([])"
    request = submission("code_contests", "x", {"test": []}, language="python")
    request["config"]["custom_extract_logic"] = logic
    status, answer = await sandbox.submit(**request)
    assert status == 400
    assert "custom_extract_logic" in answer["detail"]
    assert not trace.exists()


async def test_trouble_of_the_sandbox_is_an_error_at_once(start_sandbox: StartSandbox):
    sandbox = await start_sandbox()
    record = cases({"stdin": ""}, {"stdout": ""})
    status, answer = await sandbox.submit(
        **submission("code_contests", "", record, language="scala")
    )
    assert (status, list(answer)) == (500, ["detail"])
    assert answer["detail"].partition(": ")[2]
    assert await sandbox.metric('plumbline_sandbox_submits_total{outcome="failed"}') == 1
