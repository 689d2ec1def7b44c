"""Fixtures of runs to compare: a baseline, a better one, another protocol, one in progress."""

from collections.abc import Sequence
from functools import partial
from urllib.error import HTTPError
from urllib.request import urlopen

from redis import Redis

from shared.config import load_config
from shared.ledger import Ledger
from shared.run_record import RunState
from shared.schemas import FailedCase, Problem, SampleId
from shared.statuses import FinalStatus
from tests.aggregator.runs import begin, judge
from tests.shared.ledgers import problem
from tests.waiting import until

S = FinalStatus
DATASETS = ("codecontests_valid", "humaneval")
# Of each run a letter per problem: accepted, wrong, time-out, not judged.
ANSWERS = {
    "base": "+++++-----t---+-+-+-",
    "tuned": "++++-+++--++--+-+-!-",
    "other": "+-+-+-+-+-+-+-+-+-+-",
    "moving": "++-",
}
_STATUSES = {"+": S.SUCCESS, "-": S.WRONG_ANSWER, "t": S.TIMEOUT, "!": S.API_ERROR}


def problem_id(dataset: str, number: int) -> str:
    """Four problems of a contest in the first data set."""
    contest, letter = divmod(number, 4)
    named = f"{1500 + contest}_{'ABCD'[letter]}. Pairs"
    return named if dataset == DATASETS[0] else f"HumanEval/{number}"


def fill(books: Redis, folder: str) -> dict[str, Ledger]:
    """Write the runs; all but ``moving`` are judged."""
    return {
        name: write(books, name, f"{folder}/{name}", answers) for name, answers in ANSWERS.items()
    }


def write(
    books: Redis, run: str, output: str, answers: str, overrides: Sequence[str] = ()
) -> Ledger:
    problems = [_problem(name, i) for name in DATASETS for i in range(20)]
    settings = [*overrides, *(["judge.max_timeouts=7"] if run == "other" else [])]
    facts = {"name": run, "model": f"model-{run}", "started_at": 1_750_000_000.0, "output": output}
    ledger = begin(books, problems, run, config=load_config(None, settings), **facts)
    for dataset in DATASETS:
        for number, letter in enumerate(answers):
            _judge(ledger, SampleId(dataset, problem_id(dataset, number)), letter, run)
    if run != "moving":
        ledger.set_state(RunState.JUDGED)
    return ledger


def wait(*ledgers: Ledger) -> None:
    """Wait for the aggregator to publish judged runs."""
    for ledger in ledgers:
        until(f"{ledger.run} is published", partial(_is_published, ledger), every=0.05)


def _is_published(ledger: Ledger) -> bool:
    state = ledger.state()
    return state is not None and state.published


def until_known(address: str, run: str) -> None:
    """Wait until the aggregator answers about a run, or a sample below it."""
    url = f"{address}/api/runs/{run}"
    until(f"{run} is known", lambda: urlopen(url).status == 200, not_yet=(HTTPError,))


def _problem(dataset: str, number: int) -> Problem:
    return problem(
        problem_id(dataset, number),
        dataset,
        prompt=f"Mirror signs, number {number}",
        difficulty=("easy", "hard")[number % 2],
    )


def _judge(ledger: Ledger, sample: SampleId, letter: str, run: str) -> None:
    status = _STATUSES[letter]
    lines = ["import sys", f"# made by {run}", "n = int(input())", "print(n + 1)"]
    made = {"completion": "```python\n" + "\n".join(lines) + "\n```", "output_tokens": 50}
    if status is S.SUCCESS:
        judge(ledger, sample, status, made, pass_ratio=1.0, total_judge_time=0.25)
        return
    case = FailedCase(case_index=1, status=status, input="4\n", expected="6\n", actual=f"{run}\n")
    found = {"pass_ratio": 0.5, "cases_passed": 1, "cases_total": 2, "first_failed_case": case}
    judge(ledger, sample, status, made, **found, total_judge_time=0.75)
