"""Texts for a model about the programs that its tools ran.

The most telling part comes first: trainers cut long texts (verl after 256 characters unless
``max_tool_response_length`` says otherwise).
"""

import logging

from plumbline_reward.errors import NotJudgedError, RefusedError, RewardError
from plumbline_reward.responses import ProgramResult

LONGEST = 4000
_CONTENT_STATUSES = (400, 413, 422)

_log = logging.getLogger("plumbline_reward")


def describe(result: ProgramResult) -> str:
    """Describe what a program printed and how it ended."""
    code = "" if result.exit_code is None else f" with exit code {result.exit_code}"
    ending = {
        "ok": "",
        "timeout": f"The program was stopped at its time limit ({result.seconds:.1f} s).",
        "memory": "The program was stopped at its memory limit.",
        "compile_error": "The program does not compile.",
    }.get(result.status, f"The program failed{code}.")
    parts = [ending] if ending else []
    if result.stderr.strip():
        parts.append(f"stderr:\n{shorten(result.stderr, keep_end=True)}")
    if result.stdout.strip():
        parts.append(f"stdout:\n{shorten(result.stdout)}" if parts else shorten(result.stdout))
    elif result.status == "ok":
        parts.append("(The program printed nothing.)")
    if result.truncated:
        parts.append("(The output was cut.)")
    return "\n".join(parts)


def describe_failure(error: RewardError) -> str:
    """Describe why a program was not run, without blaming it for the infrastructure."""
    if isinstance(error, RefusedError) and error.status in _CONTENT_STATUSES:
        return f"The program was not run: {error}"
    if not isinstance(error, NotJudgedError):  # a wrong token or address: someone must see it
        _log.error("the tool does not work: %s", error)
    return (
        "The tool is not available at the moment; the program was not run. This is a fault of the"
        " infrastructure and says nothing about the program."
    )


def shorten(text: str, limit: int = LONGEST, keep_end: bool = False) -> str:
    """Cut a text to ``limit`` characters and say so."""
    text = text.rstrip()
    if len(text) <= limit:
        return text
    return f"…{text[-limit:]}" if keep_end else f"{text[:limit]}…"
