"""The default method (`batch`) with this repository's sandbox."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from aiohttp.test_utils import TestServer

from services.judge.judging import MOST_LATE, judge_answer
from services.judge.sandbox import Attempts, SandboxClient, SandboxUnavailableError
from services.judge.verdict import Judgement
from services.sandbox.app import create_app
from services.sandbox.settings import SandboxSettings
from shared.harness.wire import CallResult
from shared.schemas import Verdict, sha256
from shared.statuses import FinalStatus, VerdictDetail
from tests.judge.pools import OpenPool
from tests.judge.stand_ins import Damaged, Scripted, Spiked, case
from tests.judge.tasks import fenced, judge_code, make_task, stdio, together, verdict_of

ECHO = "print(input())"
# Of 0.3 CPU seconds, and a wall guard of 1.5 seconds.
QUICK = ("sandbox.timeout=0.3", "judge.cpu_grace=1", "judge.wall_factor=5")
JudgeAnswer = Callable[..., Awaitable[Verdict]]


@pytest.fixture
def judge(sandbox: SandboxClient) -> JudgeAnswer:
    async def judge(
        code: str, *cases: tuple[str, str], overrides: Sequence[str] = (), **fields: str
    ) -> Verdict:
        problem = stdio(*(cases or [("1\n", "1\n")]), **fields)
        return await judge_code(sandbox, problem, code, *overrides)

    return judge


async def judged(
    sandbox: object, code: str, *cases: tuple[str, str], overrides: Sequence[str] = ()
) -> tuple[Judgement, Attempts]:
    """With the cases' details, by a stand-in."""
    completion = fenced(code, "cpp" if "judge.language=cpp" in overrides else "python")
    task = make_task(sandbox, stdio(*cases), completion, *overrides)  # type: ignore[arg-type]
    return await judge_answer(task), task.attempts


def stderr_of(verdict: Verdict) -> str:
    failed = verdict.first_failed_case
    return (failed and failed.stderr) or ""


def codes(judgement: Judgement) -> list[int]:
    return [int(outcome.code) for outcome in judgement.cases]


async def test_all_cases_pass(judge: JudgeAnswer) -> None:
    verdict = await judge(ECHO, ("1\n", "1\n"), ("ä 2\n", "ä  2 "), ("3", "3"))
    assert verdict.case_codes == [1, 1, 1]
    assert verdict.final_status is FinalStatus.SUCCESS
    assert verdict.accepted
    assert (verdict.cases_passed, verdict.cases_total, verdict.pass_ratio) == (3, 3, 1.0)
    assert (verdict.method, verdict.checker, verdict.attempts) == ("batch", "tokens", 1)
    assert (verdict.confirmed, verdict.flipped) == (0, 0)
    assert verdict.first_failed_case is None
    assert verdict.detail is None
    assert verdict.total_judge_time > 0


MANY = """\
import os, sys, time
match input():
    case "right": print("right")
    case "wrong": print("left")
    case "raise": raise ValueError("broken")
    case "exit": print("exit"); sys.exit(3)
    case "leave": os._exit(0)
    case "signal": os.kill(os.getpid(), 11)
    case "memory": bytearray(10**10)
    case "deep": f = lambda: f(); f()
    case "bytes": sys.stdout.buffer.write(b"\\xff")
    case "loop":
        while True: pass
    case "sleep": time.sleep(60)
    case "much": print("x" * 2_000_000)
    case "read": input()
"""


async def test_each_case_has_its_own_outcome(sandbox: SandboxClient) -> None:
    expected: dict[str, tuple[int, str | None]] = {
        "right": (1, None),
        "wrong": (0, None),
        "raise": (-2, None),
        "exit": (-2, None),
        "leave": (0, None),
        "signal": (-2, "SIGSEGV"),
        "memory": (-2, "memory_limit"),
        "deep": (-2, None),
        "bytes": (0, "not_utf8"),
        "loop": (-3, None),
        "sleep": (-3, "wall_guard"),
        "much": (-2, "output_limit"),
        "read": (-2, None),
    }
    limits = ("judge.max_output_mb=1", "judge.confirm_timeouts=false", *QUICK)
    judgement, attempts = await judged(
        sandbox, MANY, *[(name, name) for name in expected], overrides=limits
    )
    found = {
        name: (int(outcome.code), outcome.detail)
        for name, outcome in zip(expected, judgement.cases, strict=True)
    }
    assert found == expected
    assert attempts.requests == 1


async def test_expected_outputs_stay_here() -> None:
    sandbox = Scripted([[("compile", "ok", b"", b""), case(0, b"1"), ("end", "done")]])
    await judged(sandbox, ECHO, ("in-0", "out-0"))
    (asked,) = sandbox.asked
    assert asked.inputs == ["in-0"]
    assert "out-0" not in asked.model_dump_json()


# Programs that do not run


async def test_programs_that_do_not_compile(judge: JudgeAnswer) -> None:
    programs = ["print(", "if True:\npass", "return 1", "x\0y", "a = 1 1"]
    verdicts = await together(programs, lambda code: judge(code, *[("1", "1")] * 3))
    expected = ([-4, -4, -4], FinalStatus.SYNTAX_ERROR, 3, 1, True)
    assert {
        code: (
            verdict.case_codes,
            verdict.final_status,
            verdict.cases_total,
            verdict.attempts,
            "Error" in stderr_of(verdict),
        )
        for code, verdict in verdicts.items()
    } == dict.fromkeys(programs, expected)


async def test_prose_has_no_code(sandbox: SandboxClient) -> None:
    task = make_task(sandbox, stdio(("1", "1"), ("2", "2")), "I cannot help with that, sorry.")
    verdict = await verdict_of(task)
    assert (verdict.final_status, verdict.detail) == (FinalStatus.SYNTAX_ERROR, "prose_only")
    assert (verdict.cases_total, verdict.case_codes, verdict.attempts) == (2, [], 0)


# Comparing


async def test_the_problem_and_then_the_config_name_the_checker(sandbox: SandboxClient) -> None:
    rows = [
        (None, None, "1  2\n", "1 2", 1),
        (None, "exact", "1  2\n", "1 2", 0),
        (None, "float:0.01", "1.001", "1", 1),
        ("float:0.01", None, "1.001", "1", 1),
        ("lines", "exact", "A", "a", 1),
        ("exact", "lines", "A", "a", 0),
    ]

    async def judge_row(row: tuple[str | None, str | None, str, str, int]) -> Verdict:
        own, configured, printed, expected, _ = row
        overrides = [f"judge.checker={configured}"] if configured else []
        problem, code = stdio(("", expected), checker=own), f"print({printed!r}, end='')"
        return await judge_code(sandbox, problem, code, *overrides)

    verdicts = await together(rows, judge_row)
    found = {row: (verdict.case_codes, verdict.checker) for row, verdict in verdicts.items()}
    assert found == {row: ([row[4]], row[0] or row[1] or "tokens") for row in rows}


# Any divisor will do.
DIVISOR = """\
def check(input, output, expected):
    return int(input) % int(output) == 0 and int(output) > 1
"""


async def test_a_problems_own_checker(judge: JudgeAnswer) -> None:
    code = "n = int(input())\nprint(n // 2 if n != 7 else 5)\nassert n != 9"
    cases = [("8", "8"), ("7", "7"), ("9", "9"), ("6", "2")]
    verdict = await judge(code, *cases, checker_source=DIVISOR)
    assert verdict.case_codes == [1, 0, -2, 1]
    assert verdict.checker == f"python:{sha256(DIVISOR)[:8]}"
    assert verdict.attempts == 2
    # Output that the checker cannot read is wrong.
    garbage = "n = input()\nprint(n if n == '8' else 'garbage')"
    assert (await judge(garbage, *cases[:2], checker_source=DIVISOR)).case_codes == [1, 0]


# Time and memory


async def test_cpu_time_and_memory_are_measured(judge: JudgeAnswer) -> None:
    code = (
        "import time\n"
        "if input() == 'big': kept = bytearray(b'x') * 100_000_000\n"
        "while time.process_time() < 0.3: pass\n"
    )
    verdict = await judge(code, ("small", ""), ("big", ""))
    assert verdict.case_codes == [1, 1]
    assert verdict.cpu_time is not None
    assert 0.5 < verdict.cpu_time < 2
    assert verdict.peak_memory is not None
    assert 100e6 < verdict.peak_memory < 300e6
    assert verdict.total_judge_time >= 0.5


async def test_the_wall_guards_stop_is_confirmed_by_itself(
    judge: JudgeAnswer, pool: OpenPool
) -> None:
    code = "import time\ntime.sleep(60 if input() == 'slow' else 0)"
    verdict = await judge(code, ("quick", ""), ("slow", ""), overrides=QUICK)
    assert verdict.case_codes == [1, -3]
    assert verdict.detail == "wall_guard"
    assert (verdict.confirmed, verdict.flipped) == (1, 0)
    assert [grant.exclusive for grant in pool.grants] == [False, True]


@pytest.mark.parametrize(("wall", "detail"), [(3.5, "wall_guard"), (15.5, None)])
async def test_a_program_that_got_no_processor_did_not_wait_by_itself(
    wall: float, detail: str | None
) -> None:
    """The guard of 3 s excludes the time without a processor, up to 15 s in all."""
    stopped = [OK, case(0, cpu=0.2, wall=wall, code=-9, limit="wall"), DONE]
    sandbox = Scripted([stopped, stopped])
    judgement, _ = await judged(sandbox, ECHO, ("1", "1"), overrides=["sandbox.timeout=1"])
    assert codes(judgement) == [-3]
    assert [outcome.detail for outcome in judgement.cases] == [detail]
    assert sandbox.alone == [False, True]


OK = ("compile", "ok", b"", b"")
DONE = ("end", "done")


@pytest.mark.parametrize(
    ("cpu", "again", "code", "confirmed", "flipped"),
    [
        (1.0, [], 1, 0, 0),
        (1.1, [0.9], 1, 1, 1),
        (1.1, [1.3], -3, 1, 0),
        (1.1, [1.1, 1.05, 1.03], 1, 1, 1),  # the shortest time counts
        (1.1, [1.1, 1.05, 1.04], -3, 1, 0),
        (1.25, [], -3, 0, 0),
    ],
)
async def test_a_case_just_beyond_its_limit_is_confirmed(
    cpu: float, again: list[float], code: int, confirmed: int, flipped: int
) -> None:
    """Of 1 second and a grace of a quarter."""
    records = [[OK, case(0, b"1", cpu=seconds), DONE] for seconds in (cpu, *again)]
    sandbox = Scripted([*records])
    judgement, _ = await judged(sandbox, ECHO, ("1", "1"), overrides=["sandbox.timeout=1"])
    assert codes(judgement) == [code]
    assert (judgement.confirmed, judgement.flipped) == (confirmed, flipped)
    assert sandbox.alone == [False] + [True] * len(again)


async def test_an_answer_that_is_late_everywhere_does_not_keep_the_sandbox() -> None:
    """Of 24 cases that may be late by somebody else's fault, eight alone are enough."""
    slow = [case(place, b"1", cpu=1.25, user=0.9, limit="cpu") for place in range(24)]
    sandbox = Scripted([[OK, *slow, DONE], [OK, *slow[:8], DONE]])
    overrides = ["sandbox.timeout=1", "judge.max_timeouts=null"]
    judgement, _ = await judged(sandbox, ECHO, *[("1", "1")] * 24, overrides=overrides)
    assert codes(judgement) == [-3] * 24
    assert sandbox.alone == [False, True]


async def test_a_load_spike_decides_nothing(sandbox: SandboxClient) -> None:
    spiked = Spiked(sandbox)
    cases = [("slow 1", "slow 1"), ("2", "2"), ("slow 3", "4"), ("5", "6")]
    judgement, _ = await judged(spiked, ECHO, *cases, overrides=QUICK)
    assert codes(judgement) == [1, 1, 0, 0]
    assert (judgement.confirmed, judgement.flipped) == (2, 2)
    assert spiked.calls == [False, True]


@pytest.mark.parametrize(("allowed", "spike"), [(1, True), (2, True), (3, False)])
async def test_with_few_time_outs_allowed_a_load_spike_decides_nothing_either(
    sandbox: SandboxClient, allowed: int, spike: bool
) -> None:
    """What the spike kept from running is run; true time-outs count as they do without it."""
    code = "s = input()\nwhile 'loop' in s: pass\nprint(s)"
    inputs = ["loop 1", "slow 2", "3", "loop 4", "5", "loop 6", "7"]
    expected = {1: [-3] + [-5] * 6, 2: [-3, 1, 1, -3] + [-5] * 3, 3: [-3, 1, 1, -3, 1, -3, -5]}
    crowded = Spiked(sandbox) if spike else sandbox
    overrides = [f"judge.max_timeouts={allowed}", *QUICK]
    judgement, _ = await judged(crowded, code, *[(i, i) for i in inputs], overrides=overrides)
    assert codes(judgement) == expected[allowed]
    spiked = spike and allowed > 1
    assert (judgement.confirmed, judgement.flipped) == (spiked, spiked)


# Calls


async def test_a_call_begins_no_case_when_its_time_is_up(
    judge: JudgeAnswer, pool: OpenPool
) -> None:
    code = "import time\nn = input()\ntime.sleep(0.1)\nprint(n)"
    cases = [(str(n), str(n if n != 3 else 0)) for n in range(6)]
    verdict = await judge(code, *cases, overrides=["judge.call_seconds=0.15"])
    assert verdict.case_codes == [1, 1, 1, 0, 1, 1]
    assert verdict.attempts == len(pool.grants) > 2


async def test_large_inputs_go_in_calls_of_their_own(
    sandbox: SandboxClient, pool: OpenPool
) -> None:
    sizes = [400, 600, 1, 5000, 300, 300, 400]
    code = "s = input()\nprint(len(s), s[0])"
    cases = [
        (letter * size, f"{size} {letter}") for letter, size in zip("abcdefg", sizes, strict=True)
    ]
    task = make_task(sandbox, stdio(*cases), fenced(code))
    verdict = await verdict_of(replace(task, max_call_input=1000))
    assert verdict.case_codes == [1] * 7
    assert verdict.attempts == len(pool.grants) == 4


async def test_a_call_that_is_too_large_is_split_or_refused_by_name() -> None:
    settings = SandboxSettings(body_limit_bytes=300_000, concurrency=1)
    async with (
        TestServer(create_app(settings)) as server,
        SandboxClient(
            OpenPool([str(server.make_url("")).rstrip("/")]), max_attempts=3, retry_budget=30
        ) as client,
    ):
        fits, large = "x" * 100_000, "x" * 400_000
        code = "print(len(input()))"
        verdict = await judge_code(client, stdio(*[(fits, "100000")] * 5), code)
        assert verdict.case_codes == [1] * 5
        task = make_task(client, stdio((large, "400000")), fenced(code))
        with pytest.raises(SandboxUnavailableError, match="http_413"):
            await verdict_of(task)
        assert task.attempts.requests <= 4


async def test_a_lot_of_input_and_output(judge: JudgeAnswer) -> None:
    """Beyond 128 KiB, where SandboxFusion itself cuts; and 18 MB of results, in two calls."""
    text = "x" * 6_000_000
    verdict = await judge(ECHO, (text, text), (text, text + "!"), (text, text), ("1", "1"))
    assert verdict.case_codes == [1, 0, 1, 1]
    assert verdict.attempts == 2


def cut(result: CallResult, kept: int) -> CallResult:
    """Return what a harness had recorded when it was killed behind so many records."""
    cases = dict(list(result.cases.items())[: max(0, kept - 1)])
    return CallResult(result.compiled if kept else None, cases=cases)


@pytest.mark.parametrize("kept", [0, 3])
async def test_a_harness_that_was_killed_runs_again_alone(
    sandbox: SandboxClient, pool: OpenPool, kept: int
) -> None:
    pending = [True]
    damaged = Damaged(
        sandbox, lambda result: cut(result, kept) if pending and pending.pop() else result
    )
    code = "n = int(input())\nassert n != 3\nprint(n)"
    cases = [(str(n), str(n if n else 9)) for n in range(5)]
    judgement, attempts = await judged(damaged, code, *cases)
    assert codes(judgement) == [0, 1, 1, -2, 1]
    told = max(0, kept - 1)
    assert (judgement.confirmed, judgement.flipped) == (5 - told, 5 - told)
    assert attempts.requests == 2
    assert [grant.exclusive for grant in pool.grants] == [False, True]


async def test_an_answer_that_always_kills_its_harness_has_an_error(
    sandbox: SandboxClient,
) -> None:
    damaged = Damaged(sandbox, lambda result: cut(result, 1))
    judgement, attempts = await judged(damaged, ECHO, *[(str(n), str(n)) for n in range(9)])
    assert codes(judgement) == [-2] * 9
    details = {case.detail for case in judgement.cases}
    assert details == {VerdictDetail.KILLED_TWICE, VerdictDetail.HARNESS_KILLED}
    assert attempts.requests == 1 + MOST_LATE  # it does not keep the sandbox any longer


async def test_where_no_harness_runs_the_answer_is_not_at_fault(sandbox: SandboxClient) -> None:
    damaged = Damaged(sandbox, lambda _result: CallResult())
    with pytest.raises(SandboxUnavailableError, match="harness"):
        await judged(damaged, ECHO, ("1", "1"))


@pytest.mark.parametrize(
    ("again", "code", "detail", "flipped"),
    [(0, 1, None, 1), (-9, -2, VerdictDetail.KILLED_TWICE, 0), (1, -2, None, 1)],
)
async def test_a_case_that_somebody_killed_runs_again(
    again: int, code: int, detail: VerdictDetail | None, flipped: int
) -> None:
    records = [[OK, case(0, b"1", code=ended), DONE] for ended in (-9, again)]
    sandbox = Scripted([*records])
    overrides = ["judge.confirm_timeouts=false"]
    judgement, _ = await judged(sandbox, ECHO, ("1", "1"), overrides=overrides)
    assert codes(judgement) == [code]
    assert judgement.cases[0].detail == detail
    assert (judgement.confirmed, judgement.flipped) == (1, flipped)
    assert sandbox.alone == [False, True]


async def test_a_compiler_that_takes_too_long() -> None:
    late = [("compile", "timeout", b"", b""), ("end", "compile")]
    judgement, _ = await judged(
        Scripted([late]), ECHO, *[("1", "1")] * 2, overrides=["judge.language=cpp"]
    )
    assert codes(judgement) == [-4, -4]
    assert {outcome.detail for outcome in judgement.cases} == {"compile_timeout"}
