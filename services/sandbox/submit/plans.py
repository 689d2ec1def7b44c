"""What is to be run for a submit, as the planners of the dataset classes say it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.sandbox.schemas import RunCodeRequest
from services.sandbox.submit.schemas import StdioCase, SubmitRequest


@dataclass(frozen=True)
class ProgramRun:
    """One program with its tests inside, accepted if it exits with 0.

    Attributes:
        extracted_code: The completion's part of the program.
        flag: Text that stdout must hold besides.
        extra: The answer's ``extra``.
    """

    program: RunCodeRequest
    extracted_code: str
    flag: str = ""
    extra: dict[str, Any] | None = None


@dataclass(frozen=True)
class StdioRuns:
    """One program, run on the standard input of each case.

    Attributes:
        run_all: Go on after a case that is not passed.
        shorten: Cut long texts of passed cases in the answer.
    """

    program: RunCodeRequest
    cases: list[StdioCase]
    run_all: bool
    shorten: bool


Plan = ProgramRun | StdioRuns

Planner = Callable[[SubmitRequest], Plan]
"""Raises SubmitError (400) for a request that cannot be planned; runs nothing."""
