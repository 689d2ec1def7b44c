"""Judging of one completion: guard, method, and confirmation of doubtful outcomes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from services.judge import verdict
from services.judge.calls import Method, Task, compute
from services.judge.methods.functions import FunctionMethod
from services.judge.methods.fusion import ComputeScoreMethod, SubmitMethod
from services.judge.methods.stdio import BatchMethod, CallMethod
from services.judge.methods.translated import ProgramMethod
from services.judge.sandbox import Attempts, SandboxUnavailableError
from services.judge.verdict import Judgement, Lateness, Outcomes
from shared.errors import ConfigError
from shared.harness.languages import LANGUAGES
from shared.schemas import (
    JudgedCode,
    ProgramTests,
    SandboxFusionTests,
    StdioTests,
    is_encodable,
)
from shared.statuses import FailureKind, FinalStatus, JudgeMethod, VerdictDetail

# Times that a case runs alone while its outcome is doubtful. Its shortest time counts.
CONFIRMATIONS = 3
# Calls alone for one answer, whatever happens, and the cases of one of them.
MOST_CALLS, CASES_ALONE = 20, 8
# Cases that are certainly late or killed alone, after which what was measured of the others
# counts. An answer that is in time never gets there, however busy the machine is.
MOST_LATE = 8
# Failures of the sandbox that an answer may cause.
_BY_AN_ANSWER = (
    FailureKind.READ_TIMEOUT,
    FailureKind.SANDBOX_ERROR,
    FailureKind.UNUSABLE_ANSWER,
    "http_500",
    "http_504",
)


async def judge(task: Task) -> Judgement:
    """Judge a completion: its answer, unless the guard rejects it.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable response.
        ConfigError: The method needs something that is not installed.
    """
    return _guard(task) or await judge_answer(task)


async def judge_answer(task: Task) -> Judgement:
    """Judge an answer by its method; doubtful outcomes are confirmed.

    An answer for which the sandbox gives no usable response, alone either, although it gives one
    for an answer that does nothing, has failed.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable response.
        ConfigError: The method needs something that is not installed.
    """
    try:
        return await _judge(task)
    except SandboxUnavailableError as error:
        if error.failures[-1].kind not in _BY_AN_ANSWER or not await _judges_others(task):
            raise
    try:
        return await _judge(replace(task, alone=True))
    except SandboxUnavailableError as error:
        if error.failures[-1].kind not in _BY_AN_ANSWER:
            raise
        status = FinalStatus.TIMEOUT if error.after_time else FinalStatus.RUNTIME_ERROR
    method, detail = choose_method(task), VerdictDetail.NO_RESPONSE
    return Judgement(method.name, method.checker, task.total, status=status, detail=detail)


async def _judges_others(task: Task) -> bool:
    """Whether an answer to the same problem that does nothing can be judged."""
    tests = task.problem.tests
    name = getattr(tests, "fn_name", None) or getattr(tests, "entry_point", None)
    language = LANGUAGES.get(task.settings.language)
    if name is None and language is None:
        return False
    code = f"def {name}(*args, **options): pass" if name or language is None else language.idle
    try:
        judgement = await _judge(replace(task, completion=f"```\n{code}\n```", attempts=Attempts()))
    except SandboxUnavailableError:
        return False
    return bool(judgement.cases) and judgement.status is None


async def _judge(task: Task) -> Judgement:
    # Finding the code of an answer takes much longer per character than comparing outputs.
    method = await compute(lambda: choose_method(task), 10 * len(task.completion))
    answer, total = method.extraction, task.total
    code = JudgedCode.of(answer.code, answer.reason, answer.start) if answer else None
    if answer is not None and not answer.found:
        status, detail = FinalStatus.SYNTAX_ERROR, VerdictDetail(answer.reason)
        return Judgement(method.name, method.checker, total, (), status, detail, code=code)
    outcomes = await method.run_cases(task, range(total))
    if isinstance(task.problem.tests, SandboxFusionTests):
        total = len(outcomes)
    outcomes, confirmed, flipped = await _confirm(task, method, outcomes)
    outcomes = await method.check(task, outcomes)
    judgement = verdict.conclude(method.name, method.checker, total, outcomes)
    shared = method.shared_process
    return replace(
        judgement, confirmed=confirmed, flipped=flipped, code=code, shared_process=shared
    )


async def _confirm(task: Task, method: Method, first: Outcomes) -> tuple[Outcomes, int, int]:
    """Run doubtful cases again, alone; return all outcomes and the counts of a ``Judgement``."""
    settings, outcomes = task.settings, first
    timeouts = settings.confirm_timeouts
    late = 0
    allowed = settings.max_timeouts if method.has_budget else None
    times = Counter[int]()
    todo: Sequence[int] = verdict.doubtful_cases(first, timeouts=timeouts)
    for _ in range(MOST_CALLS):
        todo, left = verdict.within_budget(allowed, outcomes, todo)
        if not todo or late >= MOST_LATE:
            break
        again = await method.run_cases(task.confirming(left), todo[:CASES_ALONE])
        times.update(again.keys() & set(todo))
        late += sum(case.lateness is Lateness.LATE for case in again.values())
        late += sum(case.killed and times[place] == 1 for place, case in again.items())
        outcomes = verdict.settle(outcomes, again)
        settled = {place for place, count in times.items() if count >= CONFIRMATIONS}
        todo = verdict.cases_left(outcomes, settled, allowed, timeouts=timeouts)
    if times:
        outcomes = verdict.apply_budget(allowed, outcomes)
    again = {place: outcomes[place] for place in times}
    return outcomes, *verdict.count_confirmed(times, first, again)


def choose_method(task: Task) -> Method:
    """Return the configured method for the kind of tests that the problem has.

    Raises:
        ConfigError: The method needs something that is not installed.
    """
    tests, method = task.problem.tests, JudgeMethod(task.settings.method)
    if method is JudgeMethod.SUBMIT:
        return SubmitMethod(tests)
    if isinstance(tests, SandboxFusionTests):
        raise ConfigError("a problem without tests is judged by the method submit alone")
    if isinstance(tests, ProgramTests):
        return ProgramMethod(task, tests)
    if not isinstance(tests, StdioTests):
        return FunctionMethod(task, tests)
    if method is JudgeMethod.COMPUTE_SCORE:
        return ComputeScoreMethod(task, tests)
    return (CallMethod if tests.fn_name else BatchMethod)(task, tests)


def _guard(task: Task) -> Judgement | None:
    """Reject a completion that is empty, too long or not encodable, without a sandbox call."""
    status, detail = FinalStatus.SYNTAX_ERROR, None
    if not task.completion.strip():
        status = FinalStatus.EMPTY_OUTPUT
    elif len(task.completion) > task.settings.max_completion_chars:
        detail = VerdictDetail.COMPLETION_TOO_LONG
    elif not is_encodable(task.completion):
        detail = VerdictDetail.INVALID_UTF8
    else:
        return None
    return Judgement(JudgeMethod.GUARD, "none", task.total, status=status, detail=detail)
