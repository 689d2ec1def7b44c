"""Recorded cases: what each method knows of a case, their bounds, and their way into the ledger."""

import json
import random
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from redis import Redis

from services.aggregator.publish import publish
from services.judge.judging import judge_answer
from services.judge.sandbox import SandboxClient
from services.judge.verdict import case_results, to_verdict
from shared.case_records import MOST_BYTES, SampleCases
from shared.config import load_config
from shared.finished_run import open_run
from shared.ledger import Ledger, keys
from shared.run_record import make_plan
from shared.schemas import CaseRecord, CaseResult, Problem, RecordedCases, Verdict, readable_tests
from shared.statuses import FinalStatus
from tests.conftest import RedisServer
from tests.judge.tasks import HUMANEVAL, fenced, make_task, stdio, with_tests
from tests.judge.workers import Worker
from tests.shared.ledgers import enter, generation

# Its word decides what becomes of a case.
ANSWER = """\
import os, sys
word = input()
if word == "raise": raise KeyError("lost")
if word == "exit": sys.exit(3)
if word == "signal": os.kill(os.getpid(), 11)
if word == "loop":
    while True: pass
if word == "junk": sys.stdout.buffer.write(b"\\xff\\0</script>"); sys.exit()
if word == "much": print("x" * 10_000_000); sys.exit()
print(word, file=sys.stderr)
print(word)
"""
WORDS = ["ok", "no", "raise", "exit", "signal", "loop", "last"]
CASES = [(f"{word}\n", "another" if word == "no" else word) for word in WORDS]
MBPP_TESTS = ["assert inc(1) == 2", "assert inc(2) == 0"]
needs_cpp = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

RecordsOf = Callable[..., Awaitable[list[CaseRecord]]]


@pytest.fixture
def records_of(sandbox: SandboxClient) -> RecordsOf:
    async def judge(
        problem: Problem, code: str, *overrides: str, recorded: RecordedCases = "all"
    ) -> list[CaseRecord]:
        language = "cpp" if "judge.language=cpp" in overrides else "python"
        task = make_task(sandbox, problem, fenced(code, language), *overrides)
        judgement = await judge_answer(replace(task, recorded=recorded))
        verdict = to_verdict(generation(), judgement, 1, [], "w")
        cases = case_results(judgement, recorded)
        records = through_ledger(problem, verdict, SampleCases(recorded=recorded, cases=cases))
        agree(verdict, records, recorded)
        return records

    return judge


def through_ledger(problem: Problem, verdict: Verdict, cases: SampleCases) -> list[CaseRecord]:
    return list(SampleCases.unpacked(cases.packed()).of(verdict.sample, readable_tests(problem)))


def agree(verdict: Verdict, records: list[CaseRecord], recorded: RecordedCases) -> None:
    """What a verdict and the records both say is the same."""
    failed = verdict.first_failed_case
    if recorded == "all":
        assert [record.case_index for record in records] == list(range(len(verdict.case_codes)))
        assert sum(record.duration or 0 for record in records) <= verdict.total_judge_time + 1e-3
    if failed is None:
        return
    first = next(record for record in records if record.case_index == failed.case_index)
    assert first.status == failed.status
    if failed.input:
        assert (first.input, first.expected) == (failed.input, failed.expected)


@pytest.mark.parametrize("method", ["batch", "compute_score", "submit"])
async def test_each_status_of_a_case(records_of: RecordsOf, method: str) -> None:
    limits = ("sandbox.timeout=1", "judge.confirm_timeouts=false")
    records = await records_of(stdio(*CASES), ANSWER, f"judge.method={method}", *limits)
    ok, no, raised, left, signalled, looped, last = records
    assert [record.status for record in records] == [
        *("success", "wrong_answer", "runtime_error", "runtime_error", "runtime_error"),
        *("timeout", "success"),
    ]
    assert [record.input for record in records] == [stdin for stdin, _ in CASES]
    assert [record.expected for record in records] == [expected for _, expected in CASES]
    assert (ok.actual, ok.stderr, ok.exit_code) == ("ok\n", "ok\n", 0)
    assert (no.actual, no.exit_code, last.actual) == ("no\n", 0, "last\n")
    assert "KeyError: 'lost'" in (raised.stderr or "")
    assert (raised.exit_code, left.exit_code, signalled.exit_code) == (1, 3, -11)
    assert all(record.duration and record.duration > 0 for record in records)
    measured = method == "batch"
    assert all((record.cpu_time is not None) == measured for record in records)
    assert all((record.memory_mb is not None) == measured for record in records)
    if measured:
        assert looped.cpu_time and looped.cpu_time > 0.9
        assert 1 < (ok.memory_mb or 0) < 500
        assert ok.compile_duration and ok.compile_duration > 0
    assert {record.compile_stderr for record in records} == {None}


async def test_only_cases_that_are_asked_for(sandbox: SandboxClient) -> None:
    task = make_task(sandbox, stdio(*CASES[:4]), fenced(ANSWER))
    judgement = await judge_answer(replace(task, recorded="all"))
    found: dict[RecordedCases, list[int]] = {
        recorded: [result.case_index for result in case_results(judgement, recorded)]
        for recorded in get_args(RecordedCases)
    }
    assert found == {"none": [], "all": [0, 1, 2, 3], "failed": [1, 2, 3], "first": [1]}


@needs_cpp
@pytest.mark.parametrize("method", ["batch", "submit"])
async def test_compiling(records_of: RecordsOf, method: str) -> None:
    words = ("judge.language=cpp", f"judge.method={method}")
    works = "#include <iostream>\n#warning take care\nint main() { std::cout << 1; }"
    [records] = await records_of(stdio(("", "1")), works, *words)
    assert (records.status, records.actual, records.exit_code) == ("success", "1", 0)
    assert records.compile_duration and records.compile_duration > 0.05
    assert (records.duration or 9) < records.compile_duration
    assert "take care" in (records.compile_stderr or "")
    [records] = await records_of(stdio(("", "1")), "int main() { return x; }", *words)
    assert (records.status, records.actual, records.stderr, records.exit_code) == (
        "syntax_error",
        None,
        None,
        None,
    )
    assert "x" in (records.compile_stderr or "") and records.compile_duration


@pytest.mark.parametrize("method", ["batch", "submit"])
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("return n + 1", "success", ""),
        ("return n", "wrong_answer", "AssertionError"),
        ("return 1 // 0", "runtime_error", "ZeroDivisionError"),
        ("import os; os._exit(7)", "runtime_error", ""),
    ],
)
async def test_function_tests(
    records_of: RecordsOf, method: str, body: str, status: str, said: str
) -> None:
    code = f"def inc(n):\n    {body}\n"
    [records] = await records_of(HUMANEVAL, code, f"judge.method={method}")
    assert (records.status, records.input, records.expected) == (
        status,
        None,
        json.loads(HUMANEVAL.ground_truth)["test"],
    )
    assert said in (records.stderr or "")
    if "_exit" in body:
        assert records.exit_code == 7
    problem = with_tests(test_list=MBPP_TESTS)
    first, second = await records_of(problem, code, f"judge.method={method}")
    assert [first.expected, second.expected] == MBPP_TESTS
    assert first.duration and second.duration == 0  # one run for both


# Bounds


async def test_hostile_outputs_are_shortened(records_of: RecordsOf) -> None:
    words = [("much\n", "x" * 10_000_000), ("junk\n", "")]
    much, junk = await records_of(stdio(*words), ANSWER)
    assert much.status == "success"
    for text in (much.actual, much.expected):
        assert text is not None and len(text) < 2100
        assert "characters left out" in text
    assert junk.actual == "\\xff\0</script>"
    assert CaseRecord.model_validate_json(junk.model_dump_json()) == junk


@pytest.mark.parametrize("cases", [50, 1000])
def test_a_sample_has_a_bound_whatever_it_prints(cases: int) -> None:
    """Random text does not compress: each of them gets shorter instead."""
    noise = random.Random(0)
    texts = ["".join(chr(noise.randrange(33, 0x3000)) for _ in range(2000)) for _ in range(20)]
    made = tuple(
        CaseResult(case_index=n, status=FinalStatus.WRONG_ANSWER, actual=texts[n % 20][n:] * 2)
        for n in range(cases)
    )
    packed = SampleCases(recorded="all", cases=made).packed()
    assert len(packed) <= MOST_BYTES
    assert len(SampleCases.unpacked(packed).cases) == cases


# The way into the ledger


@pytest.fixture
def ledger(redis: Redis) -> Ledger:
    return Ledger(redis, "run-1")


PROBLEM = stdio(("1\n", "1\n"), ("2\n", "3\n"))
PLAN = make_plan([PROBLEM], lambda _problem: range(2))
FIRST, SECOND = PLAN.samples()
ECHO = fenced("print(input())")


def begin(ledger: Ledger, sandbox_url: str, folder: Path, recorded: str) -> None:
    config = load_config(None, [f"sandbox.url={sandbox_url}/run_code", f"output.cases={recorded}"])
    meta = {"output": str(folder), "name": "n", "fingerprint": "f", "state": "judged"}
    enter(ledger, [PROBLEM], PLAN, config=config, **meta)


async def judge(redis_server: RedisServer) -> None:
    async with Worker(redis_server.url, "w") as worker:
        await worker.judge_all()
        assert worker.errors == []


async def test_cases_go_with_their_verdict_into_the_file(
    ledger: Ledger, redis: Redis, redis_server: RedisServer, sandbox_url: str, tmp_path: Path
) -> None:
    begin(ledger, sandbox_url, tmp_path, "none")
    ledger.record(generation(FIRST, ECHO))
    await judge(redis_server)
    name = keys.RunKeys(ledger.run).cases
    assert not redis.exists(name)
    publish(ledger)
    assert (open_run(str(tmp_path)).record.cases, list(open_run(str(tmp_path)).cases())) == (
        None,
        [],
    )
    # The run goes on and wants the cases: the first sample was judged before.
    begin(ledger, sandbox_url, tmp_path, "failed")
    ledger.record(generation(SECOND, ECHO))
    await judge(redis_server)
    assert redis.hkeys(name) == [SECOND.key.encode()]
    publish(ledger)
    run = open_run(str(tmp_path))
    [one] = run.cases()
    assert (one.problem_id, one.sample_index, one.case_index) == ("p1", 1, 1)
    assert (one.input, one.expected, one.actual) == ("2\n", "3\n", "2\n")
    assert run.record.cases is not None
    assert run.record.cases.model_dump() == {
        "file": "cases.jsonl.gz",
        "cases": 1,
        "samples": {"failed": 1},
        "samples_without": 1,
    }
    begin(ledger, sandbox_url, tmp_path, "none")
    await judge(redis_server)
    publish(ledger)
    assert not (tmp_path / "cases.jsonl.gz").exists()
    ledger.delete()
    assert redis.keys("plumbline:run:*") == []


async def test_a_trainers_samples_have_no_cases(
    redis: Redis, redis_server: RedisServer, sandbox_url: str
) -> None:
    ledger = Ledger(redis, f"{keys.REWARDS}0123456789abcdef")
    config = load_config(None, [f"sandbox.url={sandbox_url}/run_code", "output.cases=all"])
    enter(ledger, [PROBLEM], PLAN, config=config)
    ledger.record(generation(FIRST, ECHO))
    await judge(redis_server)
    assert ledger.verdict(FIRST) is not None
    assert redis.keys("*:cases") == []
