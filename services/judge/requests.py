"""Attempts of requests, and the call that runs cases in any SandboxFusion.

There the harness travels in ``/run_code``.
"""

import base64
import marshal
import secrets
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from shared.harness import wire
from shared.harness.confinement import AUDIT_ARCHITECTURES, COMMON, LOCAL_SOCKETS, compile_filter
from shared.harness.sandbox_api import RunCodeRequest, RunCodeResponse
from shared.harness.sources import harness_sources, module_source
from shared.harness.wire import CallResult, RunCasesRequest
from shared.schemas import InfraFailure
from shared.service.logs import get_logger

log = get_logger(__name__)

# The oldest format of marshal that all versions read.
_ANY_VERSION = 2


@dataclass
class Attempts:
    """Requests made for one sample, and the failed ones among them."""

    requests: int = 0
    failures: list[InfraFailure] = field(default_factory=list)


class RunsCode(Protocol):
    async def run_code(
        self, request: RunCodeRequest, attempts: Attempts, *, alone: bool = False
    ) -> RunCodeResponse: ...


async def run_with_harness(
    sandbox: RunsCode, request: RunCasesRequest, attempts: Attempts, *, alone: bool
) -> CallResult:
    """Run a program on all inputs."""
    key = secrets.token_bytes(32)
    functions = request.language == wire.FUNCTIONS
    call = base64.b64encode(wire.encode_call(request)).decode()
    response = await sandbox.run_code(
        RunCodeRequest(
            code=source("boot"),
            language="python",
            stdin="\n".join((key.hex(), "".join(request.inputs))),
            run_timeout=request.limits.call,
            # The harness limits each case; it has no limit itself.
            files={**harness_files(functions=functions), wire.CALL: call},
            fetch_files=[wire.RESULTS],
        ),
        attempts,
        alone=alone,
    )
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
    """Return the source text of a module that runs in the sandbox."""
    return module_source("services.judge.harness", name)


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
