"""Keeping the answer of a submit with many cases within bounds."""

import signal
from collections.abc import Mapping

from services.sandbox.schemas import CommandResult, RunCodeResponse, RunStatus
from services.sandbox.submit.schemas import StdioCase

LONGEST_SHOWN = 1000
PLACEHOLDER = "..."


class OutputBudget:
    """What all runs of a submit may print together: an answer holds the output of each.

    Attributes:
        exceeded: The last run went beyond it.
    """

    def __init__(self, limit: int) -> None:
        self.exceeded = False
        self._limit = limit
        self._left = limit

    def spend(self, answer: RunCodeResponse) -> RunCodeResponse:
        """The answer, or beyond the limit one that says so, like one beyond a run's own limit."""
        results = [result for result in (answer.compile_result, answer.run_result) if result]
        self._left -= sum(len(result.stdout or "") + len(result.stderr or "") for result in results)
        self.exceeded = self._left < 0
        return self._without_output(answer) if self.exceeded else answer

    def _without_output(self, answer: RunCodeResponse) -> RunCodeResponse:
        said = f"output limit of {self._limit} characters for all runs of a submit exceeded\n"
        emptied = {"stdout": "", "stderr": said}
        killed = emptied | {"return_code": -signal.SIGKILL}
        return answer.model_copy(
            update={
                "status": RunStatus.FAILED,
                "compile_result": _updated(answer.compile_result, emptied),
                "run_result": _updated(answer.run_result, killed),
            }
        )


def _updated(result: CommandResult | None, update: Mapping[str, object]) -> CommandResult | None:
    return result.model_copy(update=dict(update)) if result else None


def shortened(case: StdioCase) -> StdioCase:
    """The case with its long texts cut in the middle.

    Source: SandboxFusion 469de08, ``truncate_str`` in ``sandbox/utils/common.py``.
    """
    return StdioCase.model_construct(
        input={name: _cut(text) for name, text in case.input.items()},
        output={name: _cut(text) for name, text in case.output.items()},
    )


def _cut(text: str) -> str:
    if len(text) <= LONGEST_SHOWN:
        return text
    kept = (LONGEST_SHOWN - len(PLACEHOLDER)) // 2
    return text[:kept] + PLACEHOLDER + text[-kept:]
