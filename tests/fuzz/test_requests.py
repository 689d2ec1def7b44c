"""Requests generated from each server's own description: valid and invalid ones.

Every answer must be as described, none may be a 5xx that is not meant, and each must come in time.
"""

from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import CheckFunction
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.servers import Server

_SECONDS = 60.0
_EXAMPLES = 2
_MANY_EXAMPLES = 25
# A server may be busy, or not have been able to answer in time, and says when to come again.
_AGAIN = (503, 504)
_CHECKS: list[CheckFunction] = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def operations(server: Server) -> list[schemathesis.schemas.APIOperation]:
    schema = schemathesis.openapi.from_dict(server.description())
    return [operation.ok() for operation in schema.get_all_operations()]


def check(case: schemathesis.Case, server: Server) -> None:
    if server.name == "reward" and isinstance(case.body, dict):
        deadline = case.body.get("deadline", 600)
        if type(deadline) in (int, float):  # there is no judge, so a valid request waits for it
            case.body["deadline"] = min(deadline, 0.1)
    response = case.call(base_url=server.url, timeout=_SECONDS)
    if response.status_code >= 500:
        assert response.status_code in _AGAIN, f"{response.status_code}: {response.text[:500]}"
        assert "retry-after" in response.headers
    if case.method != "HEAD":
        case.validate_response(response, checks=_CHECKS)


@pytest.mark.parametrize(
    "examples", [_EXAMPLES, pytest.param(_MANY_EXAMPLES, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_answers_are_as_described(
    servers: list[Server], mode: GenerationMode, examples: int
) -> None:
    def run(server: Server) -> None:
        for operation in operations(server):
            if mode is GenerationMode.NEGATIVE and not operation.body:
                continue
            _generated(operation, mode, examples)(lambda case: check(case, server))

    for server in servers:
        run(server)


def _has_input(operation: schemathesis.schemas.APIOperation) -> bool:
    return bool(operation.body or operation.path_parameters or operation.query)


def _generated(
    operation: schemathesis.schemas.APIOperation, mode: GenerationMode, count: int
) -> Callable[[Callable[[schemathesis.Case], None]], None]:
    """Run a check on examples, the same ones every time."""

    def run(checked: Callable[[schemathesis.Case], None]) -> None:
        @settings(
            max_examples=count if _has_input(operation) else 1,
            database=None,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode))
        def examples(case: schemathesis.Case) -> None:
            checked(case)

        examples()

    return run
