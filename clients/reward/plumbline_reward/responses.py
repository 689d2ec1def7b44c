"""Strict parsing of the service's answers.

An answer that does not make sense is a failure of infrastructure (:class:`RetryableError`), never
a number.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from plumbline_reward.retries import RetryableError, retry_after_seconds

_SECONDS_LIMIT = 1e9
_COUNT_LIMIT = 10**9
_TEXT_LIMIT = 2000


@dataclass(frozen=True)
class Verdict:
    """The verdict on a completion, and the score that a rule made of it.

    ``status`` is Plumbline's status, such as ``accepted`` or ``wrong_answer``; ``detail`` refines
    it. With ``cases_not_run`` above 0 ``pass_ratio`` is a lower bound. ``judge_seconds`` were spent
    judging, ``queue_seconds`` waiting for it. ``cached`` says that the answer was remembered.
    """

    score: float
    accepted: bool
    pass_ratio: float
    status: str
    detail: str | None
    cases_passed: int
    cases_total: int
    cases_not_run: int
    judge_seconds: float
    queue_seconds: float
    cached: bool


@dataclass(frozen=True)
class Unjudged:
    """An item without a verdict, for a reason of infrastructure."""

    reason: str
    retry_after: float | None


@dataclass(frozen=True)
class ProgramResult:
    """What a program did: ``status`` is ok, error, timeout, memory or compile_error.

    ``truncated`` says that the service cut ``stdout`` or ``stderr``.
    """

    status: str
    stdout: str
    stderr: str
    exit_code: int | None
    seconds: float
    truncated: bool


@dataclass(frozen=True)
class Refusal:
    """A request that the service refuses, in its own words.

    ``items`` are the refused items of a batch, by index, if the service lists them.
    """

    text: str
    status: int
    items: Mapping[int, str] = field(default_factory=dict)


def parse_stream(lines: Iterator[bytes], number: int) -> Iterator[tuple[int, Verdict | Unjudged]]:
    """Parse a stream of answers about ``number`` items, each of which must come exactly once.

    Raises:
        RetryableError: The stream is malformed or was cut.
    """
    missing = set(range(number))
    unjudged = 0
    for line in lines:
        answer = parse_object(line)
        if answer.get("done") is True and "index" not in answer:
            counts = (answer.get("judged"), answer.get("unjudged"))
            if missing or counts != (number - unjudged, unjudged) or next(lines, None) is not None:
                _malformed("the stream's end does not fit")
            return
        index = answer.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or index not in missing:
            _malformed(f"index {str(index)[:40]}")
        outcome = parse_verdict(answer)
        missing.remove(index)
        unjudged += isinstance(outcome, Unjudged)
        yield index, outcome
    raise RetryableError("the stream was cut before its end")


def parse_verdict(answer: Mapping[str, Any]) -> Verdict | Unjudged:
    """Parse the answer about one item.

    Raises:
        RetryableError: The answer is malformed.
    """
    judged = _boolean(answer, "judged")
    if not judged:
        if any(answer.get(name) is not None for name in ("score", "accepted", "pass_ratio")):
            _malformed("an unjudged item with a score")
        wait = answer.get("retry_after")
        return Unjudged(
            reason=_cut(answer.get("reason") or "no reason given"),
            retry_after=None if wait is None else _number(answer, "retry_after", _SECONDS_LIMIT),
        )
    status = answer.get("status")
    if not isinstance(status, str) or not status or status == "api_error":
        _malformed(f"a verdict with status {status!r}")
    detail = answer.get("detail")
    verdict = Verdict(
        score=_number(answer, "score", 1.0),
        accepted=_boolean(answer, "accepted"),
        pass_ratio=_number(answer, "pass_ratio", 1.0),
        status=status,
        detail=None if detail is None else _cut(detail),
        cases_passed=_count(answer, "cases_passed"),
        cases_total=_count(answer, "cases_total"),
        cases_not_run=_count(answer, "cases_not_run") if "cases_not_run" in answer else 0,
        judge_seconds=_number(answer, "judge_seconds", _SECONDS_LIMIT),
        queue_seconds=_number(answer, "queue_seconds", _SECONDS_LIMIT),
        cached=_boolean(answer, "cached") if "cached" in answer else False,
    )
    if verdict.cases_passed > verdict.cases_total:
        _malformed("more passed cases than cases")
    return verdict


def parse_program_result(answer: Mapping[str, Any]) -> ProgramResult:
    """Parse the answer of ``/v1/run``.

    Raises:
        RetryableError: The answer is malformed.
    """
    status = answer.get("status")
    if status not in ("ok", "error", "timeout", "memory", "compile_error"):
        _malformed(f"a program with status {status!r}")
    stdout, stderr = answer.get("stdout"), answer.get("stderr")
    if not isinstance(stdout, str) or not isinstance(stderr, str):
        _malformed("a program without its output")
    exit_code = answer.get("exit_code")
    if exit_code is not None and (not isinstance(exit_code, int) or isinstance(exit_code, bool)):
        _malformed(f"exit_code {exit_code!r}")
    return ProgramResult(
        status=status,
        stdout=stdout,
        stderr=stderr,
        exit_code=exit_code,
        seconds=_number(answer, "seconds", _SECONDS_LIMIT),
        truncated=_boolean(answer, "truncated"),
    )


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object, without NaN, infinities and repeated names.

    Raises:
        RetryableError: It is none.
    """
    try:
        value = json.loads(
            data.decode("utf-8"),
            parse_constant=_malformed,
            object_pairs_hook=_unique,
        )
    except (ValueError, RecursionError):
        _malformed(f"no JSON: {_cut(data[:80].decode('utf-8', 'replace'))!r}")
    if not isinstance(value, dict):
        _malformed(f"JSON that is no object: {_cut(data[:80].decode('utf-8', 'replace'))!r}")
    return value


def failure(status: int, retry_after: str | None, body: bytes) -> Refusal:
    """Parse an answer other than 200.

    It is final if it is a 4xx in the service's own form, ``{"error": "..."}``.

    Raises:
        RetryableError: It is not: 408, 425, 429, 5xx, or a 4xx of a proxy in between.
    """
    try:
        answer = parse_object(body)
    except RetryableError:
        answer = {}
    text = answer.get("error")
    said = isinstance(text, str) and bool(text)
    wait = retry_after_seconds(retry_after)
    if not 400 <= status < 500 or status in (408, 425, 429) or not said:
        hint = "" if said or status >= 500 else " without a reason; is it the reward service?"
        reason = f": {_cut(text)}" if said else hint
        raise RetryableError(f"it answered {status}{reason}", wait)
    return Refusal(_cut(text), status, _refused_items(answer))


def _refused_items(answer: Mapping[str, Any]) -> dict[int, str]:
    items = answer.get("items")
    refused: dict[int, str] = {}
    for item in items if isinstance(items, list) else []:
        index = item.get("index") if isinstance(item, dict) else None
        if isinstance(index, int) and not isinstance(index, bool):
            refused[index] = _cut(item.get("error") or answer["error"])
    return refused


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        _malformed("JSON with a repeated name")
    return value


def _number(answer: Mapping[str, Any], name: str, largest: float) -> float:
    value: Any = answer.get(name)
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not known or not 0 <= value <= largest:
        _malformed(f"{name} {_cut(value)!r}")
    return float(value)


def _count(answer: Mapping[str, Any], name: str) -> int:
    value = answer.get(name)
    if type(value) is not int or not 0 <= value <= _COUNT_LIMIT:
        _malformed(f"{name} {_cut(value)!r}")
    return value


def _boolean(answer: Mapping[str, Any], name: str) -> bool:
    value = answer.get(name)
    if not isinstance(value, bool):
        _malformed(f"{name} {_cut(value)!r}")
    return value


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"


def _malformed(what: str) -> NoReturn:
    raise RetryableError(f"its answer is malformed: {what}")
