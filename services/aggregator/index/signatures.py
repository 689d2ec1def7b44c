"""Signature of a failure: a short text that samples share if they failed in the same way.

It is what a verdict says of the failure (status, detail, extraction reason, the exception with its
line, the value of a failed assertion or the first differing output), with numbers, addresses and
long literals replaced.
"""

import re
from collections.abc import Callable

from shared.schemas import FailedCase, Verdict, sha256, without_surrogates
from shared.statuses import ExtractionReason, FinalStatus, JudgeMethod
from shared.text import shorten_end

_LONGEST = 240  # characters of a signature
_LONGEST_LINE = 80  # of an output's line in it
_READ = 2000  # characters that are looked at, of each text
_EXCERPT = 400
ID_LENGTH = 16  # hex digits

# The line of code of a frame of a Python traceback.
_FRAME = re.compile(r'^ *File ".*", line \d+.*\n +(\S.*)$', re.MULTILINE)
# A literal is kept if it may be a name: short, of one word, without a number.
_LITERAL = re.compile(r"'[^'\n]*'")
_MAY_BE_NAME = re.compile(r"'[^\s\d]{1,30}'")
# In this order: an address and a literal contain numbers.
_REPLACED: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"0[xX][0-9a-fA-F]+"), "ADDRESS"),
    (re.compile(r'"[^"\n]*/[^"/\n]*"'), '"PATH"'),
    (_LITERAL, lambda match: match[0] if _MAY_BE_NAME.fullmatch(match[0]) else "'…'"),
    (re.compile(r"[-+]?\b\d+(?:\.\d*)?(?:[eE][-+]?\d+)?\b"), "N"),
    (re.compile(r"N(?:[\s,;]+N)+"), "N …"),
    (re.compile(r"\s+"), " "),
)


def signature(verdict: Verdict) -> str | None:
    """Build the signature of a verdict, at most 240 characters; None if the sample is accepted."""
    if verdict.accepted:
        return None
    parts: list[str] = [verdict.final_status]
    if verdict.detail:
        parts.append(normalized(verdict.detail))
    if verdict.code and verdict.code.reason is not ExtractionReason.FENCED:
        parts.append(f"code: {verdict.code.reason}")
    if cause := _cause(verdict):
        parts.append(cause)
    return shorten_end("; ".join(parts), _LONGEST)


def signature_id(text: str) -> str:
    """The id of a signature: the first 16 hex digits of its SHA-256."""
    return sha256(text)[:ID_LENGTH]


def normalized(text: str) -> str:
    """Replace what differs between failures of one kind: addresses, paths, numbers, literals."""
    text = without_surrogates(text[:_READ])
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text.strip()


def excerpt(stderr: str | None) -> str | None:
    """The end of a standard error, where a traceback names its exception; None if it is empty."""
    text = without_surrogates(stderr or "").rstrip()
    return (text if len(text) <= _EXCERPT else f"…{text[1 - _EXCERPT :]}") or None


def _cause(verdict: Verdict) -> str:
    case = verdict.first_failed_case
    if verdict.final_status is FinalStatus.API_ERROR:
        return verdict.infra_failures[-1].kind if verdict.infra_failures else ""
    if case is None or verdict.final_status in (FinalStatus.TIMEOUT, FinalStatus.EMPTY_OUTPUT):
        return ""
    if verdict.final_status is FinalStatus.WRONG_ANSWER and verdict.method != JudgeMethod.FUNCTION:
        return _difference(case) or _exception(case)
    return _exception(case)


def _exception(case: FailedCase) -> str:
    """The last line of the standard error (a traceback's exception, or what a compiler said), the
    line of code that raised it, and what a failed test's call returned."""
    text = (case.stderr or "")[-_READ:].rstrip()
    parts = [_short(text.rpartition("\n")[2])]
    if lines := _FRAME.findall(text):
        parts.append(f"at `{_short(lines[-1])}`")
        if case.input is None and case.actual:
            parts.append(f"got `{_short(case.actual)}`")
    return ", ".join(filter(None, parts))


def _short(text: str) -> str:
    return shorten_end(normalized(text), _LONGEST_LINE)


def _difference(case: FailedCase) -> str:
    """The first line in which the outputs differ; empty if they are not known or do not differ."""
    if case.expected is None or case.actual is None:
        return ""
    expected, actual = _lines(case.expected), _lines(case.actual)
    for number in range(max(len(expected), len(actual))):
        wanted, got = _shown(expected, number), _shown(actual, number)
        if expected[number : number + 1] != actual[number : number + 1]:
            return f"expected {wanted}, got {got}"
    return ""


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")] if text.strip() else []


def _shown(lines: list[str], number: int) -> str:
    if number >= len(lines):
        return "nothing more" if number else "nothing"
    return f"`{_short(lines[number])}`"
