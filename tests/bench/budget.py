"""`make bench-budget`: the price and the error of each budget of time-outs (`judge.max_timeouts`).

Every public CodeContests answer is judged once without a budget, and the time and the code of each
case are recorded (`--record FILE`: to be used again). The effect of a budget is then computed: the
cases behind the last allowed time-out are dropped. A lower CPU limit than the recorded one gives
more time-outs: cases that took longer become time-outs that are killed at `judge.cpu_grace` times
that limit.
"""

import argparse
import asyncio
import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Self

from pydantic import BaseModel

from services.data.importer import import_dataset
from services.judge.judging import judge_answer
from services.judge.verdict import Judgement
from shared.config import load_config
from shared.datasets import read_dataset
from shared.statuses import CaseCode, aggregate_cases
from tests.bench.answers import Answer, real_data
from tests.bench.judges import client, make_task
from tests.sandboxes import sandbox

_BUDGETS = (1, 2, 3, 4, 8)
_SETTINGS = ["judge.max_timeouts=null", "judge.confirm_timeouts=false"]
_MEMORY = "sandbox.memory_limit_mb=256"
_GRACE = 1.25


class CaseRecord(BaseModel):
    """One case: its code and its CPU seconds, which do not depend on the machine's load.

    They are wall-clock seconds for a case that the harness lost, which gives no CPU time.
    """

    code: CaseCode
    cpu: float

    def within(self, limit: float) -> "CaseRecord":
        """The same case under a lower CPU limit."""
        if self.cpu <= limit:
            return self
        return CaseRecord(code=CaseCode.TIMEOUT, cpu=min(self.cpu, limit * _GRACE))


class AnswerRecord(BaseModel):
    """An answer judged without a budget."""

    problem: str
    total: int
    cases: list[CaseRecord]

    @classmethod
    def of(cls, answer: Answer, judgement: Judgement) -> Self:
        cases = [
            CaseRecord(code=case.code, cpu=case.cpu_time or case.duration)
            for case in judgement.cases
        ]
        return cls(problem=answer.problem.problem_id, total=judgement.cases_total, cases=cases)

    def cut(self, budget: int | None, limit: float) -> Sequence[CaseRecord]:
        """The cases that run with a budget."""
        cases = [case.within(limit) for case in self.cases]
        late = [place for place, case in enumerate(cases) if case.code is CaseCode.TIMEOUT]
        return cases if budget is None or len(late) < budget else cases[: late[budget - 1] + 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="file of records; read if it exists")
    parser.add_argument("--limits", type=float, nargs="*", default=[5, 1, 0.1, 0.05])
    arguments = parser.parse_args()
    file: Path | None = arguments.record
    if file is not None and file.exists():
        records = [AnswerRecord.model_validate_json(line) for line in file.open()]
    else:
        records = asyncio.run(_judge(max(arguments.limits)))
        if file is not None:
            file.write_text("".join(record.model_dump_json() + "\n" for record in records))
    for limit in arguments.limits:
        print("\n".join(_table(records, limit)))


async def _judge(limit: float) -> list[AnswerRecord]:
    config = load_config(None, [*_SETTINGS, _MEMORY, f"sandbox.timeout={limit}"])
    slots = asyncio.Semaphore(len(os.sched_getaffinity(0)))

    async def one(answer: Answer) -> AnswerRecord:
        async with slots:
            task = make_task(config, ours, answer.problem, answer.completion)
            return AnswerRecord.of(answer, await judge_answer(task))

    with tempfile.TemporaryDirectory() as folder, sandbox(Path(folder)) as url:
        async with client(url) as ours:
            return await asyncio.gather(*(one(answer) for answer in _answers(Path(folder))))


def _answers(folder: Path) -> list[Answer]:
    data = real_data()
    assert data is not None, "no public data; see PLUMBLINE_REAL_DATA"
    source = str(data / "code_contests_test_40.jsonl.gz")
    path = import_dataset("code_contests", source, folder, include_generated=True).path
    problems = {problem.problem_id: problem for problem in read_dataset(str(path))}
    with gzip.open(data / "code_contests_completions.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [Answer(problems[row["problem"]], row["response"]) for row in rows]


def _table(records: Sequence[AnswerRecord], limit: float) -> Iterable[str]:
    exact = [record.cut(None, limit) for record in records]
    late = sum(any(case.code is CaseCode.TIMEOUT for case in cases) for cases in exact)
    yield f"\n{len(records)} answers, CPU limit {limit:g} s, {late} of them with a time-out\n"
    yield "| budget | CPU, s | cut | not run | accepted | mean pass ratio | status differs |"
    yield "|---|---|---|---|---|---|---|"
    for budget in (None, *_BUDGETS):
        yield _row(records, exact, budget, limit)


def _row(
    records: Sequence[AnswerRecord],
    exact: Sequence[Sequence[CaseRecord]],
    budget: int | None,
    limit: float,
) -> str:
    found = [record.cut(budget, limit) for record in records]
    skipped = [len(whole) - len(cases) for whole, cases in zip(exact, found, strict=True)]
    low = [_passed(cases) / one.total for cases, one in zip(found, records, strict=True)]
    high = [
        (_passed(cases) + left) / one.total
        for cases, left, one in zip(found, skipped, records, strict=True)
    ]
    seconds = sum(case.cpu for case in chain.from_iterable(found))
    accepted = sum(_passed(cases) == one.total for cases, one in zip(found, records, strict=True))
    differing = sum(
        _status(cases) != _status(whole) for cases, whole in zip(found, exact, strict=True)
    )
    share = f"{sum(low) / len(low):.4f}"
    if any(skipped):
        share += f" to {sum(high) / len(high):.4f}"
    cut = sum(map(bool, skipped))
    name = "none" if budget is None else str(budget)
    return (
        f"| {name} | {seconds:.0f} | {cut} | {sum(skipped)} | {accepted} | {share} | {differing} |"
    )


def _passed(cases: Sequence[CaseRecord]) -> int:
    return sum(case.code is CaseCode.PASSED for case in cases)


def _status(cases: Sequence[CaseRecord]) -> str:
    return aggregate_cases([case.code for case in cases])


if __name__ == "__main__":
    main()
