"""Submissions with input/output cases: order, admission, compilation."""

from pathlib import Path
from typing import Any

import pytest

from services.sandbox import submit
from tests.sandbox import test_submit
from tests.sandbox.conftest import Sandbox, StartSandbox, needs_cpp
from tests.sandbox.test_submit import fenced

ECHO = "print(input())"


def case(stdin: str, stdout: str | None = None) -> dict[str, Any]:
    return {"input": {"stdin": stdin}, "output": {"stdout": stdin if stdout is None else stdout}}


async def judged(
    sandbox: Sandbox, code: str, cases: list[Any], language: str = "python", **config: Any
) -> Any:
    config = {"language": language, "dataset_type": "CommonOJDataset"} | config
    completion, record = fenced(code, language), {"test": cases}
    answer = await test_submit.judged(sandbox, "my_contest", completion, record, **config)
    assert answer["full_code"] is None
    return answer


async def test_bash(sandbox: Sandbox):
    answer = await judged(sandbox, "read a; echo $((a + 1))", [case("1", "2")], "bash")
    assert answer["accepted"] is True


async def test_first_failure_ends_the_cases_unless_all_are_wanted(sandbox: Sandbox):
    cases = [case("1"), case("2", "3"), case("4"), case("5", "6")]
    short = await judged(sandbox, ECHO, cases)
    whole = await judged(sandbox, ECHO, cases, extra={"run_all_cases": True})
    assert [test["passed"] for test in short["tests"]] == [True, False]
    assert [test["passed"] for test in whole["tests"]] == [True, False, True, False]
    assert [test["test_info"] for test in whole["tests"]] == cases
    assert (short["accepted"], whole["accepted"]) == (False, False)


async def test_other_keys_of_a_case_are_echoed_and_long_texts_cut(sandbox: Sandbox):
    long = {"input": {"stdin": "a" * 1001, "note": "n"}, "output": {"stdout": "a" * 1001}}
    passed = (await judged(sandbox, ECHO, [long]))["tests"][0]["test_info"]
    cut = "a" * 498 + "..." + "a" * 498
    assert passed == {"input": {"stdin": cut, "note": "n"}, "output": {"stdout": cut}}
    failed = await judged(sandbox, "print(0)", [long])
    assert failed["tests"][0]["test_info"] == long
    full = await judged(sandbox, ECHO, [long], extra={"return_full_case": True})
    assert full["tests"][0]["test_info"] == long


async def test_submit_once_let_in_is_not_turned_away(start_sandbox: StartSandbox):
    sandbox = await start_sandbox(concurrency=1, queue_limit=0)
    answer = await judged(sandbox, ECHO, [case(str(n)) for n in range(8)])
    assert (len(answer["tests"]), answer["accepted"]) == (8, True)


async def test_output_of_all_cases_is_bounded(
    start_sandbox: StartSandbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(submit, "OUTPUT_LIMIT", 250_000)
    sandbox = await start_sandbox()
    config = {"extra": {"run_all_cases": True}}
    answer = await judged(sandbox, "print('x' * 99_999)", [case("1")] * 5, **config)
    results = [test["exec_info"]["run_result"] for test in answer["tests"]]
    assert [len(result["stdout"]) for result in results] == [100_000, 100_000, 0]
    assert results[2]["return_code"] == -9
    assert "output limit of 250000" in results[2]["stderr"]
    assert answer["tests"][2]["exec_info"]["status"] == "Failed"
    passing = await judged(
        sandbox, "import sys; sys.stderr.write('x' * 99_999); print(1)", [case("1")] * 5
    )
    assert [test["passed"] for test in passing["tests"]] == [True, True, False]


@needs_cpp
async def test_cpp_that_does_not_compile_fails_each_case(
    start_sandbox: StartSandbox, tmp_path: Path
):
    tmp_path.chmod(0o755)
    sandbox = await start_sandbox(temp_root=tmp_path)
    before = set(tmp_path.iterdir())
    config = {"extra": {"run_all_cases": True}}
    answer = await judged(sandbox, "int main() { nope }", [case("1"), case("2")], "cpp", **config)
    assert [test["passed"] for test in answer["tests"]] == [False, False]
    for test in answer["tests"]:
        assert test["exec_info"]["status"] == "Failed"
        assert test["exec_info"]["run_result"] is None
        assert "nope" in test["exec_info"]["compile_result"]["stderr"]
    slow = await judged(sandbox, "int main() { }", [case("1")], "cpp", compile_timeout=1e-9)
    result = slow["tests"][0]["exec_info"]["compile_result"]
    assert result["status"] == "TimeLimitExceeded"
    await judged(sandbox, "int main() { }", [case("", "")], "cpp")
    assert set(tmp_path.iterdir()) == before
