"""An answer for which the sandbox gives no usable response is judged, if others get one."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from aiohttp import web

from services.judge.judging import judge_answer
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from services.judge.verdict import case_results
from shared.schemas import Problem, Verdict
from shared.statuses import FinalStatus, VerdictDetail
from tests.judge.faulty_sandbox import Body, Call, Send, faulty
from tests.judge.pools import OpenPool
from tests.judge.tasks import (
    HUMANEVAL,
    as_verdict,
    fenced,
    make_task,
    stdio,
    together,
    verdict_of,
    with_tests,
)

MARK = "unanswerable"
STDIO = stdio(("1\n", "1\n"))
PROBLEMS = {
    "program": STDIO,
    "call": stdio(("1", "2"), fn_name="inc"),
    "check": HUMANEVAL,
    "asserts": with_tests(test_list=["assert inc(1) == 2"]),
}
ANSWER = f"```python\n# {MARK}\ndef inc(n):\n    return n + 1\nprint(1)\n```"

Failure = Callable[[Call, Send], Awaitable[Body]]


def refuses(error: type[web.HTTPException]) -> Failure:
    async def fault(call: Call, send: Send) -> Body:
        raise error

    return fault


async def is_broken(call: Call, send: Send) -> Body:
    return {"status": "SandboxError", "message": "cannot encode", "cases": "?"}


FAILURES = {
    "504": (refuses(web.HTTPGatewayTimeout), FinalStatus.TIMEOUT),
    "500": (refuses(web.HTTPInternalServerError), FinalStatus.RUNTIME_ERROR),
    "unusable": (is_broken, FinalStatus.RUNTIME_ERROR),
}


async def judged(url: str, problem: Problem, fault: Failure, *overrides: str) -> Verdict:
    async with (
        faulty(url, fault) as proxy,
        SandboxClient(
            OpenPool([proxy]), max_attempts=2, retry_budget=5, first_delay=0.01
        ) as client,
    ):
        return await verdict_of(make_task(client, problem, ANSWER, *overrides))


@pytest.mark.parametrize("failure", FAILURES)
async def test_what_the_sandbox_fails_on_alone_is_the_answers(sandbox_url: str, failure: str):
    fails, status = FAILURES[failure]

    async def on_this_answer(call: Call, send: Send) -> Body:
        return await (fails(call, send) if MARK in json.dumps(call.body) else send(call.body))

    found = {}
    for name, given in PROBLEMS.items():
        verdict = await judged(sandbox_url, given, on_this_answer)
        found[name] = verdict.final_status, verdict.detail, verdict.cases_total
    method = "judge.method=compute_score"
    verdict = await judged(sandbox_url, STDIO, on_this_answer, method)
    found["compute_score"] = verdict.final_status, verdict.detail, verdict.cases_total
    assert found == dict.fromkeys(found, (status, VerdictDetail.NO_RESPONSE, 1))


@pytest.mark.parametrize("failure", FAILURES)
async def test_what_the_sandbox_fails_on_always_is_not(sandbox_url: str, failure: str):
    for problem in PROBLEMS.values():
        with pytest.raises(SandboxUnavailableError):
            await judged(sandbox_url, problem, FAILURES[failure][0])


async def test_a_failure_that_passes_decides_nothing(sandbox_url: str):
    failed = []

    async def at_first(call: Call, send: Send) -> Body:
        if MARK in json.dumps(call.body) and len(failed) < 2:
            failed.append(call)
            raise web.HTTPGatewayTimeout
        return await send(call.body)

    assert (await judged(sandbox_url, STDIO, at_first)).accepted
    assert len(failed) == 2


RETURNS = [
    "chr(0xD800)", "{chr(0xD800): 1}", "float('nan')", "10**5000", "b'\\xff'", "(i for i in [1])",
    "__import__('decimal').Decimal('1e999999999999')", "type('X', (), {})()", "range(10**9)",
]  # fmt: skip
RAISES = [
    "ValueError(chr(0xD800))", "SystemExit(chr(0xD800))", "KeyboardInterrupt", "BaseException",
    "type(chr(0xD800), (Exception,), {})()",
    "type('T', (BaseException,), {'__str__': lambda self: 1 / 0})()",
]  # fmt: skip
PRINTS = [
    "'1e' + '9' * 20", "'1e-' + '9' * 25", "'9' * 10_000", "'nan'", "'-' + '0' * 100_000", "'\\0'",
    "chr(0xD800)", "'\\xb2'",
]  # fmt: skip


async def test_no_value_is_unjudged(sandbox: SandboxClient):
    """What functions return and raise, and what programs print for checkers that read numbers."""
    checker = "def check(input, output, expected): return float(output) == float(expected)"
    checkers = ({"checker": "decimals"}, {"checker_source": checker})
    printed = [stdio(("1\n", "2\n"), **fields) for fields in checkers]
    bodies = [*(f"return {one}" for one in RETURNS), *(f"raise {one}" for one in RAISES)]
    answers = [
        (PROBLEMS[kind], f"def inc(n):\n    {body}")
        for kind in ("call", "check", "asserts")
        for body in bodies
    ]
    answers += [(given, f"print({one})") for given in printed for one in PRINTS]

    async def status(answer: int) -> FinalStatus | str:
        given, code = answers[answer]
        try:
            task = replace(make_task(sandbox, given, fenced(code)), recorded="all")
            judgement = await judge_answer(task)
            verdict = as_verdict(judgement, task.completion, task.attempts)
            verdict.model_dump_json()
            case_results(judgement, "all")
        except Exception as error:  # noqa: BLE001 - reported by the answer's code
            return repr(error)
        return verdict.final_status

    rejected = {FinalStatus.WRONG_ANSWER, FinalStatus.RUNTIME_ERROR}
    results = await together(range(len(answers)), status)
    assert [(answers[one], end) for one, end in results.items() if end not in rejected] == []
