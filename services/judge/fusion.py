"""SandboxFusion's requests and answers, in the types of its SDK.

The SDK's package takes long to load, so this module is imported by the first call that needs it.
Calls of many cases to this project's sandbox do not.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_fusion import EvalResult, RunCodeResponse, SubmitRequest, TestConfig

from services.judge.requests import RunCode, Submit
from shared.foreign_json import JsonError


def run_code_body(call: RunCode) -> bytes:
    """Return the body of a call of ``/run_code``."""
    return json.dumps(
        {
            "code": call.code,
            "language": call.language,
            "stdin": call.stdin,
            "compile_timeout": call.compile_timeout,
            "run_timeout": call.run_timeout,
            "memory_limit_MB": call.memory_limit_mb,
            "files": call.files,
            "fetch_files": call.fetch_files,
        }
    ).encode()


def read_run_code(body: bytes) -> RunCodeResponse:
    """Decode and check an answer of ``/run_code``.

    Raises:
        JsonError: It is not one.
    """
    with _decoding():
        return RunCodeResponse.parse_raw(body)


def submit_request(call: Submit) -> SubmitRequest:
    """Return the SDK's request, whose values only the server may refuse."""
    return SubmitRequest.construct(
        dataset=call.dataset,
        id=call.id,
        completion=call.completion,
        config=TestConfig.construct(**call.config),
    )


def read_submit(body: bytes) -> EvalResult:
    """Decode and check an answer of ``/submit``.

    Raises:
        JsonError: It is not one.
    """
    with _decoding():
        return EvalResult.parse_raw(body)


@contextmanager
def _decoding() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise JsonError(type(error).__name__) from None
