"""A verdict records the code that the method extracted from the completion."""

from services.judge.judging import judge_answer
from services.judge.sandbox import Attempts
from shared.extraction import extract, extract_verl
from shared.harness.sandbox_api import RunCodeRequest, RunCodeResponse
from shared.harness.wire import CallResult, RunCasesRequest
from shared.schemas import Problem, Verdict, sha256
from tests.judge.tasks import as_verdict, make_task, stdio, with_tests

COMPLETION = (
    "First:\n```python\ndef g(): ...\n```\nor\n```python\nprint(1)\n```\n```cpp\nint main;\n```\n"
)
CPP = "```cpp\n#include <cstdio>\nint main() {}\n```\n```python\nprint(1)\n```"
COMPLETIONS = [
    *(COMPLETION, CPP, "print(2)", "no code", "    return 1\n"),
    "<think>\n```python\nprint(0)\n```\n</think>\n```python\nprint(1)\n```",
    "Windows:\r\n```python\r\nx = 1\r\nprint(x)\r\n```\r\n",
    "1. Indented:\n   ```python\n   def g():\n       return 1\n   ```",
]
STDIO = stdio(("1\n", "1\n"))
HUMANEVAL = with_tests(test="def check(f): ...", entry_point="g", prompt="def g():")
MBPP = with_tests(test_list=["assert g() is None"])


class Failing:
    """Gives every program an outcome, and none of the harness's records."""

    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse:
        return RunCodeResponse(message="", status="Failed")

    async def run_cases(
        self, request: RunCasesRequest, attempts: Attempts, *, alone: bool = False
    ) -> CallResult:
        """Lose every harness but one without a program."""
        return CallResult(end=None if request.code else "done")


async def recorded(problem: Problem, completion: str, *options: str) -> Verdict:
    task = make_task(Failing(), problem, completion, *options)  # type: ignore[arg-type]
    return as_verdict(await judge_answer(task), completion, task.attempts)


# Configured method, problem, recorded method, extraction.
METHODS = [
    ("batch", STDIO, "batch", lambda text, language: extract(text, language=language)),
    ("batch", HUMANEVAL, "function", lambda text, _: extract(text, entry_point="g")),
    ("batch", MBPP, "function", lambda text, _: extract(text, entry_point="g")),
    ("compute_score", STDIO, "compute_score", lambda text, _: extract_verl(text)),
]


async def test_it_is_what_the_method_takes() -> None:
    """Every completion with every method; all pairs of completions, methods and languages."""
    for c, completion in enumerate(COMPLETIONS):
        for m, (method, problem, name, extract_by) in enumerate(METHODS):
            language = ("python", "cpp")[(c + m) % 2]
            options = [f"judge.method={method}", f"judge.language={language}"]
            verdict = await recorded(problem, completion, *options)
            expected, code = extract_by(completion, language), verdict.code
            assert code is not None, (completion, *options)
            assert (verdict.method, code.reason) == (name, expected.reason), (completion, *options)
            assert code.sha256 == sha256(expected.code), (completion, *options)
            assert code.read(completion) == expected.code, (completion, *options)
            assert Verdict.model_validate_json(verdict.model_dump_json()).code == code


async def test_what_is_put_around_the_code_is_not_part_of_it() -> None:
    problem = stdio(("1", "1"), fn_name="f")
    completion = "```python\ndef f(x):\n    return x\n```"
    for method in ("batch", "compute_score"):
        code = (await recorded(problem, completion, f"judge.method={method}")).code
        assert code is not None
        assert code.read(completion).strip() == "def f(x):\n    return x"
