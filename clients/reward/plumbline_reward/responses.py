"""Answers of the service: strict parsing, and texts for a model about the programs it ran.

An answer that does not make sense is a failure of infrastructure (:class:`RetryableError`), never
a number. Every function that parses raises it for an answer that is malformed.
"""

import json
import logging
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from plumbline_reward.errors import NotJudgedError, RefusedError, RetryableError, RewardError

_TEXT_LIMIT = 2000
_LARGEST = 10**9
Fields = TypeVar("Fields")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a completion, and the score that a rule made of it.

    ``status`` is Plumbline's status, such as ``success`` or ``wrong_answer``; ``detail`` refines
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


Outcome = Verdict | RetryableError | RefusedError


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


def parse_stream(lines: Iterator[bytes], number: int) -> Iterator[tuple[int, Outcome]]:
    """Parse a stream of answers about ``number`` items, each of which must come exactly once."""
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
        if type(index) is not int or index not in missing:
            _malformed(f"index {_cut(index)}")
        outcome = parse_verdict(answer)
        missing.remove(index)
        unjudged += not isinstance(outcome, Verdict)
        yield index, outcome
    raise RetryableError("the stream was cut before its end")


def parse_verdict(answer: Mapping[str, object]) -> Outcome:
    """Parse the answer about one item; an unjudged one is the error that says why."""
    if answer.get("judged") is False:
        if any(answer.get(name) is not None for name in ("score", "accepted", "pass_ratio")):
            _malformed("an unjudged item with a score")
        reason, seconds = answer.get("reason"), answer.get("retry_after")
        if reason == "test_error":
            return RefusedError("its tests cannot run, whatever the completion is", 422)
        wait = float(seconds) if type(seconds) is int and 0 <= seconds < _LARGEST else None
        return RetryableError(_cut(reason or "no reason given"), wait)
    verdict = _parse(Verdict, {"detail": None, "cases_not_run": 0, "cached": False, **answer})
    if answer.get("judged") is not True or verdict.status in ("", "api_error"):
        _malformed(f"a verdict with status {verdict.status!r}")
    if max(verdict.score, verdict.pass_ratio) > 1:
        _malformed("a score above 1")
    if verdict.cases_passed > verdict.cases_total:
        _malformed("more passed cases than cases")
    return verdict


def parse_program_result(answer: Mapping[str, object]) -> ProgramResult:
    """Parse the answer of ``/v1/run``."""
    return _parse(ProgramResult, {"exit_code": None, **answer})


def parse_object(data: bytes) -> dict[str, object]:
    """Parse a JSON object, without NaN and infinities."""
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_malformed)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        _malformed(f"no JSON object: {data[:80].decode('utf-8', 'replace')!r}")
    return value


def failure(url: str, status: int, retry_after: str | None, body: bytes) -> RefusedError:
    """Parse an answer of ``url`` other than 200; raises :class:`RetryableError` unless it is final.

    It is final if it is a 4xx in the service's own form, ``{"error": "..."}``, but not 408, 425 or
    429.
    """
    try:
        answer = parse_object(body)
    except RetryableError:
        answer = {}
    text = answer.get("error")
    if not isinstance(text, str):
        text = ""
    if not 400 <= status < 500 or status in (408, 425, 429) or not text:
        reason = f": {_cut(text)}" if text else ""
        if not text and status < 500:
            reason = " without a reason; is it the reward service?"
        header = (retry_after or "").strip()
        seconds = float(header) if re.fullmatch("[0-9]{1,9}", header) else None
        raise RetryableError(f"it answered {status}{reason}", seconds)
    items = answer.get("items")
    refusal = f"{url} refuses it: "
    refused = {
        item["index"]: refusal + _cut(item.get("error") or text)
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, dict) and type(item.get("index")) is int
    }
    return RefusedError(refusal + _cut(text), status, refused)


def _parse(kind: type[Fields], answer: Mapping[str, object]) -> Fields:
    """Make a dataclass of the fields of its names; seconds, scores and counts are from 0 on."""
    values: dict[str, object] = {}
    for name, expected in typing.get_type_hints(kind).items():
        value: Any = answer.get(name)
        if type(value) is int and isinstance(0.0, expected):
            value = float(min(value, _LARGEST))
        valid = isinstance(value, expected) and (expected is bool or not isinstance(value, bool))
        counts = isinstance(value, float) or expected is int
        if not valid or (counts and not 0 <= value < _LARGEST):
            _malformed(f"{name} {_cut(value)!r}")
        values[name] = _cut(value) if name == "detail" and value else value
    return kind(**values)


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 1] + "…"


def _malformed(what: str) -> NoReturn:
    raise RetryableError(f"its answer is malformed: {what}")


# Texts for a model. The most telling part comes first: trainers cut long texts (verl after 256
# characters unless ``max_tool_response_length`` says otherwise).

_SHOWN = 4000
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


def shorten(text: str, limit: int = _SHOWN, keep_end: bool = False) -> str:
    """Cut a text to ``limit`` characters and say so."""
    text = text.rstrip()
    if len(text) <= limit:
        return text
    return f"…{text[-limit:]}" if keep_end else f"{text[:limit]}…"
