"""Parts that the aliases share: a trainer's label as an item, and the options of the URL."""

import re
from collections.abc import Mapping
from http import HTTPStatus

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from services.reward.errors import RETRY_AFTER, RefusedError
from services.reward.models import DEADLINE, Purpose, ScoreItem, ScoreOptions, ScoreResult
from services.reward.scorer import TEST_ERROR, why_not_judged
from shared.reference import is_reference
from shared.schemas import describe

_THRESHOLD = "threshold:"
# A special token at the end of a text that was decoded with them. No program ends like this. The
# client's openrlhf_reward has the same rule; a test compares them.
_TOKEN = re.compile(r"(?:<[|｜][^|｜<>\s]{1,40}[|｜]>|</s>|<eos>|<pad>|<end_of_turn>)\Z")
_LONGEST_TOKEN = 44


class AliasOptions(BaseModel):
    """Options in a URL, because these trainers let their users set nothing else.

    ``score`` is ``pass_ratio``, ``accepted`` or ``threshold:<ratio>``; ``deadline`` is in seconds.
    """

    model_config = ConfigDict(extra="forbid")

    score: str = "pass_ratio"
    purpose: Purpose = Purpose.TRAIN
    deadline: float = DEADLINE


def options_of(query: Mapping[str, str]) -> ScoreOptions:
    """The options in a URL, see :class:`AliasOptions`.

    Raises:
        RefusedError: One is unknown or has another form.
    """
    if unknown := sorted(set(query) - set(AliasOptions.model_fields)):
        known = ", ".join(AliasOptions.model_fields)
        raise _shape(f"unknown option {unknown[0][:80]!r} in the URL; it may have {known}")
    given: dict[str, object] = dict(query)
    score = query.get("score", "")
    if score.startswith(_THRESHOLD):
        given["score"] = {"rule": "threshold", "at": score.removeprefix(_THRESHOLD)}
    try:
        return ScoreOptions.model_validate(given)
    except ValidationError as error:
        raise _shape("in the URL: " + describe(error)) from None


def item_of(
    completion: str, label: object, *, index: int | None = None, dataset: str | None = None
) -> ScoreItem:
    """A completion with its label: a reference to a problem, or inline tests.

    Raises:
        RefusedError: The label is neither.
    """
    if not isinstance(label, str | dict) or not label:
        text = "the label must be a reference (plumbline:…) or tests; export the data again"
        raise _shape(text, index)
    given: dict[str, object] = {"completion": completion, "ground_truth": label}
    if dataset is not None and not (isinstance(label, str) and is_reference(label)):
        given["dataset"] = dataset
    try:
        return ScoreItem.model_validate(given)
    except ValidationError as error:
        raise _shape(describe(error), index) from None


def without_end(text: str) -> str:
    """Remove special tokens at the end of a text, which are no part of the completion.

    Blanks before and between them go as well. Takes time in proportion to what it removes.
    """
    kept = len(text)
    while True:
        end = _before_blanks(text, kept)
        found = _TOKEN.search(text, max(0, end - _LONGEST_TOKEN), end)
        if found is None:
            return text[:kept]
        kept = _before_blanks(text, found.start())


def _before_blanks(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end


def require_judged(results: list[ScoreResult], deadline: float) -> list[float]:
    """The scores of a request whose completions must all be judged.

    Raises:
        RefusedError: One was not; there is no number for it.
    """
    for index, result in enumerate(results):
        if result.score is None or not result.judged:
            raise _not_judged(result, index if len(results) > 1 else None, deadline)
    return [result.score for result in results if result.score is not None]


def figures(result: ScoreResult) -> dict[str, JsonValue]:
    """The numbers of a judged result, which trainers log."""
    return {
        "accepted": float(bool(result.accepted)),
        "pass_ratio": result.pass_ratio,
        "judge_seconds": result.judge_seconds,
        "queue_seconds": result.queue_seconds,
        "cached": float(result.cached),
    }


def _not_judged(result: ScoreResult, index: int | None, deadline: float) -> RefusedError:
    text = why_not_judged(result, deadline)
    if result.reason == TEST_ERROR:
        return _shape(text, index)
    seconds = result.retry_after or RETRY_AFTER
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return RefusedError(status, text, index=index, retry_after=seconds)


def _shape(message: str, index: int | None = None) -> RefusedError:
    return RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, message, index=index)
