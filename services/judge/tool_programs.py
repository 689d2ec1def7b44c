"""Programs of tools: one call of the sandbox, under the permits that verdicts need as well."""

from http import HTTPStatus

from services.judge.programs import failure_detail
from services.judge.requests import Attempts, CommandResult, RunCode, RunCodeResponse
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from shared.config import SandboxConfig
from shared.programs import Program, ProgramAnswer, ProgramResult, ProgramStatus, cut_output
from shared.schemas import InfraFailure
from shared.statuses import FailureKind, VerdictDetail

# Statuses of a sandbox that does not know the language, or does not take so large a program.
_REFUSALS = {
    f"http_{status.value}"
    for status in (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
}


async def run_program(
    program: Program, limits: SandboxConfig, sandbox: SandboxClient
) -> ProgramAnswer:
    """Run a program; a failure of the infrastructure is in the answer, never in the output."""
    request = RunCode(
        code=program.code,
        language=program.language,
        stdin=program.stdin,
        compile_timeout=program.timeout,
        run_timeout=program.timeout,
        memory_limit_mb=program.memory_limit_mb or limits.memory_limit_mb,
    )
    try:
        response = await sandbox.run_code(request, Attempts())
    except SandboxUnavailableError as error:
        failure = error.failures[-1]
        return ProgramAnswer(failure=str(failure), refused=failure.kind in _REFUSALS)
    return answer_of(response)


def answer_of(response: RunCodeResponse) -> ProgramAnswer:
    """Convert the response to a call."""
    compiled, run = response.compile_result, response.run_result
    if compiled is not None and (compiled.status != "Finished" or compiled.return_code != 0):
        if compiled.status == "Error":
            return _unusable(VerdictDetail.NO_RUN_RESULT)
        return _answer(ProgramStatus.COMPILE_ERROR, compiled, None)
    if run is None:
        return _unusable(VerdictDetail.NO_RUN_RESULT)
    if run.status == "TimeLimitExceeded":
        return _answer(ProgramStatus.TIMEOUT, run, None)
    if run.status != "Finished" or run.return_code is None:
        return _unusable(VerdictDetail.UNFINISHED_RUN)
    if run.return_code == 0:
        return _answer(ProgramStatus.OK, run, 0)
    refused_memory = failure_detail(run.return_code, run.stderr) is VerdictDetail.MEMORY_LIMIT
    status = ProgramStatus.MEMORY if refused_memory else ProgramStatus.ERROR
    return _answer(status, run, run.return_code)


def _answer(status: ProgramStatus, shown: CommandResult, exit_code: int | None) -> ProgramAnswer:
    stdout, more = cut_output(shown.stdout)
    stderr, more_errors = cut_output(shown.stderr)
    result = ProgramResult(
        status=status,
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        seconds=shown.execution_time or 0.0,
        truncated=more or more_errors,
    )
    return ProgramAnswer(result=result)


def _unusable(reason: VerdictDetail) -> ProgramAnswer:
    failure = InfraFailure(kind=FailureKind.UNUSABLE_ANSWER, text=reason.value)
    return ProgramAnswer(failure=str(failure))
