"""Requests, results and refusals of the reward service's API."""

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from shared.ledger.rewards import RewardAnswer
from shared.programs import MAX_CODE, MAX_STDIN, Program
from shared.schemas import without_surrogates
from shared.statuses import FinalStatus

DEADLINE, MAX_DEADLINE = 600.0, 3600.0
INLINE = "inline"
"""Data set of inline tests that name none."""
_MAX_NAME = 500
_MAX_ITEMS = 65_536
MAX_COMPLETION = 1024 * 1024
"""Bytes of one completion."""
MAX_BODY = 256 * 1024 * 1024
"""Bytes of one request for scores."""
MAX_RUN_BODY = 6 * (MAX_CODE + MAX_STDIN) + 4096
"""Bytes of a body with a program: in JSON a byte may take six."""
RETRY_AFTER = 5
"""Seconds after which a client may try again."""


@dataclass(eq=False)
class RefusedError(Exception):
    """A request that is refused with an HTTP status before anything of it is judged.

    ``index`` is the item of a batch that is at fault, if one is; ``retry_after`` the seconds after
    which to try again, None where that cannot help.
    """

    status: HTTPStatus
    message: str
    index: int | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message if self.index is None else f"items[{self.index}]: {self.message}"


class Purpose(StrEnum):
    """Use of a reward: for training, or to validate what was trained."""

    TRAIN = "train"
    VALIDATION = "validation"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Threshold(_Strict):
    """1.0 where the pass ratio is at least ``at``, otherwise 0.0."""

    rule: Literal["threshold"]
    at: float = Field(gt=0, le=1)


ScoreRule = Literal["pass_ratio", "accepted"] | Threshold


def score_of(rule: ScoreRule, answer: RewardAnswer) -> float:
    """The reward of a judged completion, 0 to 1."""
    if isinstance(rule, Threshold):
        return float(answer.pass_ratio >= rule.at)
    return float(answer.accepted) if rule == "accepted" else answer.pass_ratio


def _encodable(value: object) -> object:
    return without_surrogates(value) if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(_encodable)]
_Name = Annotated[str, Field(min_length=1, max_length=_MAX_NAME), BeforeValidator(_encodable)]
_Label = Annotated[str, Field(max_length=_MAX_NAME), BeforeValidator(_encodable)]


def _reference_or_tests(value: object) -> object:
    if isinstance(value, dict | str | None):
        return value
    kind = type(value).__name__
    raise ValueError(f"must be a reference, or tests as an object or its JSON, not a {kind}")


class ScoreItem(_Strict):
    """A completion, and the problem that it answers.

    The problem is named by ``dataset`` and ``problem_id`` (with ``hash``, the digest of a
    reference, its content is checked), by ``ground_truth`` with a reference, or its tests are
    inline in ``ground_truth``; ``dataset`` then says whose judge settings apply. ``id`` is echoed;
    ``group`` names the completions of one prompt in the log of rewards.
    """

    completion: _Text
    dataset: _Name | None = None
    problem_id: _Name | None = None
    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    ground_truth: Annotated[
        dict[str, JsonValue] | str | None, BeforeValidator(_reference_or_tests)
    ] = None
    id: _Label | int | None = None
    group: _Label | int | None = None

    @model_validator(mode="after")
    def _names_a_problem(self) -> Self:
        if self.ground_truth is None and (self.dataset is None or self.problem_id is None):
            raise ValueError("needs dataset and problem_id, or ground_truth")
        if self.ground_truth is not None and (self.problem_id or self.hash) is not None:
            raise ValueError("ground_truth excludes problem_id and hash; give one or the other")
        return self


class ScoreOptions(_Strict):
    """What holds for all items of a request.

    ``deadline`` is in seconds; ``step`` is the trainer's, for the log of rewards.
    """

    score: ScoreRule = "pass_ratio"
    purpose: Purpose = Purpose.TRAIN
    deadline: float = Field(default=DEADLINE, gt=0, le=MAX_DEADLINE)
    step: int | None = None


class SingleRequest(ScoreItem, ScoreOptions):
    """Body of ``/v1/score`` with one completion."""


class BatchRequest(ScoreOptions):
    """Body of ``/v1/score`` with many completions."""

    items: list[ScoreItem] = Field(min_length=1, max_length=_MAX_ITEMS)


def parse_request(document: object) -> SingleRequest | BatchRequest:
    """Validate a decoded body.

    Raises:
        ValidationError: It has another shape.
    """
    batch = isinstance(document, dict) and "items" in document
    kind: type[SingleRequest | BatchRequest] = BatchRequest if batch else SingleRequest
    return kind.model_validate(document)


class RunRequest(Program):
    """Body of ``/v1/run``; ``deadline`` is in seconds, the wait for a sandbox included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deadline: float = Field(default=DEADLINE, gt=0, le=MAX_DEADLINE)


class ScoreResult(_Strict):
    """Result of one completion. Unjudged, it has a ``reason`` and no number to train on.

    ``judge_seconds`` is the sum of the cases' durations, ``queue_seconds`` how long the completion
    waited beside. ``weight`` is the factor in ``score`` by the problem's certificate, absent if it
    is 1; 0 leaves the problem out. ``cached``: remembered from an earlier request.
    ``cases_not_run`` > 0 makes ``pass_ratio`` a lower bound.
    """

    id: str | int | None = None
    score: float | None = None
    weight: float | None = None
    accepted: bool | None = None
    pass_ratio: float | None = None
    status: FinalStatus = FinalStatus.API_ERROR
    detail: str | None = None
    cases_passed: int | None = None
    cases_total: int | None = None
    cases_not_run: int | None = None
    judge_seconds: float | None = None
    queue_seconds: float | None = None
    judged: bool = False
    cached: bool = False
    reference: str | None = None
    reason: str | None = None
    retry_after: int | None = None

    def document(self) -> dict[str, object]:
        """As JSON: a judged one without reason, an unjudged one without figures."""
        left_out = {"reason", "retry_after"} if self.judged else {"detail", *_FIGURES}
        left_out |= {name for name in _IF_KNOWN if getattr(self, name) is None}
        return self.model_dump(mode="json", exclude=left_out)


_FIGURES = ("cases_passed", "cases_total", "cases_not_run", "judge_seconds", "queue_seconds")
_IF_KNOWN = ("id", "weight", "reference", "retry_after")


class BatchResponse(BaseModel):
    """Response to a batch: results in the order of its items."""

    results: list[ScoreResult]


class DatasetFacts(BaseModel):
    """A data set that the service knows."""

    role: str
    problems: int


class ServiceInfo(BaseModel):
    """Body of ``/v1/info``.

    ``environment``: fingerprint of what programs run on; empty if the service does not know it.

    ``distrust``: what sandboxes judged wrongly in the latest rounds of canaries, one line each;
    None while Redis is unavailable. Scores of such sandboxes should not be trained on.
    """

    version: str
    session: str
    fingerprint: str
    environment: str = ""
    protocol: dict[str, JsonValue]
    datasets: dict[str, DatasetFacts]
    distrust: list[str] | None = None
