"""Fixtures of ordinary runs: a finished one, and one in progress."""

import json
from pathlib import Path

from redis import Redis

from shared.case_records import SampleCases
from shared.config import load_config
from shared.ledger import Ledger
from shared.run_record import RunState
from shared.schemas import CaseResult, FailedCase, Problem, SampleId
from shared.statuses import FinalStatus
from tests.aggregator import runs
from tests.page.compared import wait
from tests.shared.ledgers import problem

DATASETS = ("codecontests_valid", "humaneval")
PER_DATASET = 60
BEGUN = 1_750_000_000.0
_CODE = """\
# Count the pairs.
def solve(words: list[str]) -> int:
    seen, pairs = {}, 0
    for word in words:
        pairs += seen.get(word[::-1], 0)
        seen[word] = seen.get(word, 0) + 1
    return pairs
print(solve(input().split()), "pairs", 3.5)
"""
_TESTS = json.dumps({"inputs": ["4\nnoon noon noon noon\n"] * 60, "outputs": ["6\nsame\n"] * 60})
_STATUSES = list(FinalStatus)
# What the run recorded of its prompts: nothing of the first data set.
ASKED = {
    "prompts": {"humaneval": {"template": "Complete this:\n{prompt}", "sha256": ""}},
    "system_prompt": {"text": "You write Python.", "sha256": ""},
}


def samples() -> list[SampleId]:
    return [SampleId(name, f"{name}_{i:03}") for name in DATASETS for i in range(PER_DATASET)]


def begin(books: Redis, run: str, output: str) -> Ledger:
    """A running run that owes all samples."""
    config = load_config(None, ["output.cases=all"])
    facts = {"name": run, "model": "org/model", "started_at": BEGUN, "output": output, **ASKED}
    return runs.begin(books, list(map(_problem, samples())), run, config=config, **facts)


def judge_some(ledger: Ledger, first: int, last: int) -> None:
    """Give the samples ``first`` to ``last`` (exclusive) an answer and a verdict."""
    for number in range(first, last):
        status = _STATUSES[number % len(_STATUSES)]
        made = {
            "completion": f"We look up the reverse of each word.\n\n```python\n{_CODE}```\nDone.",
            "output_tokens": 100 + number,
            "gen_time": 1.5,
            "finished_at": BEGUN + number,
        }
        runs.judge(
            ledger, samples()[number], status, made, _cases(status), **_found(status, number)
        )


def _found(status: FinalStatus, number: int) -> dict[str, object]:
    if status is FinalStatus.SUCCESS:
        return {"judged_at": BEGUN + number + 2, "pass_ratio": 1.0}
    return {
        "judged_at": BEGUN + number + 2,
        "pass_ratio": 0.5,
        "cases_passed": 1,
        "cases_total": 2,
        "cases_not_run": int(status is FinalStatus.TIMEOUT),
        "detail": "signal: SIGSEGV" if status is FinalStatus.RUNTIME_ERROR else None,
        "first_failed_case": FailedCase(
            case_index=1,
            status=status,
            input="4\nnoon noon noon noon\n",
            expected="6\nsame\n",
            actual="3\nsame\n",
            stderr='Traceback (most recent call last):\n  File "main.py", line 3\nKeyError: 7\n',
        ),
    }


def _cases(status: FinalStatus) -> SampleCases:
    """Sixty cases: two that failed in the middle, one with a compiler's warning, one not run."""
    passed = CaseResult(
        case_index=0,
        status=FinalStatus.SUCCESS,
        actual="6\nsame\n",
        stderr="",
        exit_code=0,
        duration=0.0123456,
        cpu_time=0.011,
        memory_mb=9.5,
    )
    cases = [passed.model_copy(update={"case_index": place}) for place in range(60)]
    wrong = {"status": status, "actual": "3\nsame\n", "stderr": "KeyError: 7\n", "exit_code": -11}
    for place in (20, 40):
        cases[place] = cases[place].model_copy(update=wrong)
    said = {"compile_duration": 0.7, "compile_stderr": "solution.cpp:3: warning: unused\n"}
    cases[50] = cases[50].model_copy(update=said)
    cases[59] = CaseResult(case_index=59, status="not_run")
    return SampleCases(recorded="all", cases=tuple(cases))


def _problem(sample: SampleId) -> Problem:
    return problem(
        sample.problem_id,
        sample.dataset,
        prompt="Mirror signs\n\nAlong a canal stand n signs, each with one word. " * 8,
        ground_truth=_TESTS,
        difficulty="hard",
        extra_info=json.dumps({"tags": ["strings", "dp"]}),
        quality="many_answers" if sample.dataset == "codecontests_valid" else "ok",
    )


def publish_one_of_two(books: Redis, folder: Path) -> None:
    """Write ``done``, which is published, and ``moving``, which has a fifth of its verdicts."""
    done = begin(books, "done", str(folder / "done"))
    judge_some(done, 0, 2 * PER_DATASET)
    done.set_state(RunState.JUDGED)
    judge_some(begin(books, "moving", str(folder / "moving")), 0, 24)
    wait(done)
