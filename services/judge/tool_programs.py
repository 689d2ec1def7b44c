"""Programs of tools: one call of the sandbox, under the permits that verdicts need as well."""

from http import HTTPStatus

from services.judge.calls import single_outcome
from services.judge.requests import Attempts
from services.judge.sandbox import SandboxClient, SandboxUnavailableError
from shared.config import SandboxConfig
from shared.errors import ServiceError
from shared.harness.sandbox_api import RunCodeRequest, RunCodeResponse
from shared.programs import Program, ProgramResult, ProgramStatus, cut_output
from shared.schemas import InfraFailure
from shared.statuses import CaseCode, FailureKind, VerdictDetail

# Statuses of a sandbox that does not know the language, or does not take so large a program.
_REFUSALS = {
    f"http_{status.value}"
    for status in (
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    )
}
_STATUSES = {
    CaseCode.PASSED: ProgramStatus.OK,
    CaseCode.TIMEOUT: ProgramStatus.TIMEOUT,
    CaseCode.COMPILE_ERROR: ProgramStatus.COMPILE_ERROR,
    CaseCode.RUNTIME_ERROR: ProgramStatus.ERROR,
}


class ProgramRefusedError(ServiceError):
    """The sandbox does not accept the request, so that a repetition is useless."""


async def run_program(
    program: Program, limits: SandboxConfig, sandbox: SandboxClient
) -> ProgramResult:
    """Run a program.

    Raises:
        ProgramRefusedError: The sandbox does not accept it.
        ServiceError: It could not be run.
    """
    request = RunCodeRequest(
        code=program.code,
        language=program.language,
        stdin=program.stdin,
        compile_timeout=program.timeout,
        run_timeout=program.timeout,
        memory_limit_MB=program.memory_limit_mb or limits.memory_limit_mb,
    )
    try:
        response = await sandbox.run_code(request, Attempts())
    except SandboxUnavailableError as error:
        refused = error.failures[-1].kind in _REFUSALS
        raise (ProgramRefusedError if refused else ServiceError)(str(error)) from None
    return _result(response)


def _result(response: RunCodeResponse) -> ProgramResult:
    outcome = single_outcome(response, "", "", lambda *_: True)
    if outcome.code is CaseCode.API_ERROR:
        failure = InfraFailure(kind=FailureKind.UNUSABLE_ANSWER, text=str(outcome.detail))
        raise ServiceError(str(failure))
    no_memory = outcome.detail is VerdictDetail.MEMORY_LIMIT
    stdout, more = cut_output(outcome.actual)
    stderr, more_errors = cut_output(outcome.stderr)
    run = response.run_result or response.compile_result
    return ProgramResult(
        status=ProgramStatus.MEMORY if no_memory else _STATUSES[outcome.code],
        stdout=stdout,
        stderr=stderr,
        exit_code=None if outcome.code is CaseCode.TIMEOUT else outcome.exit_code,
        seconds=(run and run.execution_time) or 0.0,
        truncated=more or more_errors,
    )
