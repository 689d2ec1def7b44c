"""OpenRLHF's remote reward (``--reward.remote_url``): queries with prompts and labels."""

from http import HTTPStatus
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from services.reward.aliases.base import figures, item_of, without_end
from services.reward.errors import RefusedError
from services.reward.models import ScoreItem, ScoreResult

_MOST = 65_536


class OpenRlhfRequest(BaseModel):
    """What OpenRLHF sends. A query is prompt and completion as decoded, with special tokens."""

    model_config = ConfigDict(frozen=True)

    query: list[str] = Field(min_length=1, max_length=_MOST)
    prompts: list[str] = Field(min_length=1, max_length=_MOST)
    labels: list[JsonValue] = Field(min_length=1, max_length=_MOST)

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        if not len(self.query) == len(self.prompts) == len(self.labels):
            raise ValueError("query, prompts and labels must have the same length")
        return self

    def items(self) -> list[ScoreItem]:
        """The completions.

        Raises:
            RefusedError: A query does not begin with its prompt, or a label is unusable.
        """
        given = zip(self.query, self.prompts, self.labels, strict=True)
        return [
            item_of(_completion(query, prompt, index), label, index=index)
            for index, (query, prompt, label) in enumerate(given)
        ]


class OpenRlhfResponse(BaseModel):
    """What OpenRLHF reads: rewards, scores in [0, 1] for dynamic filtering, and what it logs."""

    rewards: list[float]
    scores: list[float]
    extra_logs: dict[str, list[JsonValue]]

    @classmethod
    def of(cls, results: list[ScoreResult], scores: list[float]) -> Self:
        logs = [figures(result) for result in results]
        return cls(
            rewards=scores,
            scores=scores,
            extra_logs={name: [one[name] for one in logs] for name in logs[0]},
        )


def _completion(query: str, prompt: str, index: int) -> str:
    # Some tokenizers drop or add a blank at the beginning.
    text, start = query.lstrip(), prompt.lstrip()
    if not text.startswith(start):
        raise RefusedError(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "the query does not begin with its prompt; if OpenRLHF cut the prompt, raise its "
            "maximum length",
            index=index,
        )
    return without_end(text[len(start) :])
