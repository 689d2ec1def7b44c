"""Call that runs cases in any SandboxFusion: the harness travels in ``/run_code``."""

import base64
import marshal
import secrets
from functools import cache
from typing import Protocol

from services.judge.requests import Attempts, RunCode, RunCodeResponse
from shared.harness import wire
from shared.harness.confinement import AUDIT_ARCHITECTURES, COMMON, LOCAL_SOCKETS, compile_filter
from shared.harness.sources import harness_sources, module_source
from shared.harness.wire import CallResult, RunCasesRequest
from shared.service.logs import get_logger

log = get_logger(__name__)

# The oldest format of marshal that all versions read.
_ANY_VERSION = 2


class RunsCode(Protocol):
    async def run_code(
        self, request: RunCode, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse: ...


async def run_with_harness(
    sandbox: RunsCode, request: RunCasesRequest, attempts: Attempts, *, alone: bool
) -> CallResult:
    """Run a program on all inputs.

    Raises:
        SandboxUnavailableError: The sandbox gave no usable response.
    """
    key = secrets.token_bytes(32)
    call = RunCode(
        code=source("boot"),
        language="python",
        stdin="\n".join((key.hex(), "".join(request.inputs))),
        compile_timeout=10,
        run_timeout=request.limits.call,
        memory_limit_mb=-1,  # no limit for the harness itself; it limits each case
        files={
            **harness_files(functions=request.language == "functions"),
            wire.CALL: base64.b64encode(wire.encode_call(request)).decode(),
        },
        fetch_files=(wire.RESULTS,),
    )
    response = await sandbox.run_code(call, attempts, alone=alone)
    result = wire.decode_results(wire.verified(response.file(wire.RESULTS), key))
    if result.end is None:
        run = response.run_result
        log.info(
            "harness did not finish",
            cases=len(result.cases),
            of=len(request.inputs),
            return_code=run.return_code if run else None,
            stderr=(run.stderr or "")[-500:] if run else None,
        )
    return result


def source(name: str) -> str:
    """Return the source text of one of this package's modules."""
    return module_source(__package__, name)


@cache
def harness_files(*, functions: bool = False) -> dict[str, str]:
    """Return the files of the harness, which ``boot.py`` loads, in base64.

    They are its modules' sources, and a filter of system calls for each kind of machine.

    Args:
        functions: Whether the call is one of function tests.
    """
    parts = {"harness": marshal.dumps(harness_sources(functions=functions), _ANY_VERSION)}
    for machine in AUDIT_ARCHITECTURES:
        parts[f"filter-{machine}"] = compile_filter(COMMON, LOCAL_SOCKETS, machine=machine)
    return {name: base64.b64encode(part).decode() for name, part in parts.items()}
