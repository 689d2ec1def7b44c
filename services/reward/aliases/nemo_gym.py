"""NeMo-Gym's ``/verify``: a response of the Responses API, and the row that it answers."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from services.reward.aliases.base import figures, item_of
from services.reward.models import ScoreItem, ScoreResult

_MAX_PARTS = 10_000


class _Foreign(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")


class Part(_Foreign):
    """A part of a message; only text is read."""

    type: str = ""
    text: str | None = None


class OutputItem(_Foreign):
    """An item of the output: a message, reasoning, a call of a tool or its result."""

    type: str = ""
    role: str | None = None
    content: list[Part] | str | None = Field(default=None, max_length=_MAX_PARTS)


class Response(_Foreign):
    """A model's response."""

    output: list[OutputItem] = Field(max_length=_MAX_PARTS)

    @property
    def output_text(self) -> str:
        """The texts of all messages, as OpenAI's own property of this name joins them."""
        texts = []
        for item in self.output:
            if item.type != "message" or item.role not in (None, "assistant"):
                continue
            parts = item.content or []
            if isinstance(parts, str):
                texts.append(parts)
            else:
                texts += [part.text or "" for part in parts if part.type == "output_text"]
        return "".join(texts)


class Metadata(_Foreign):
    """The part of a row that is for the verifier.

    ``ground_truth`` is a reference or tests; ``unit_tests`` are the tests of NeMo-Gym's own
    ``code_gen``. ``data_source`` says whose settings apply to tests.
    """

    ground_truth: JsonValue = None
    unit_tests: dict[str, JsonValue] | None = None
    data_source: str | None = None


class VerifyRequest(_Foreign):
    """What an agent sends; fields of the row that are not read here are sent back."""

    response: Response
    verifier_metadata: Metadata

    def items(self) -> list[ScoreItem]:
        """The completion.

        Raises:
            RefusedError: The row has no usable ground truth.
        """
        metadata = self.verifier_metadata
        tests = metadata.unit_tests
        if tests is not None:  # an absent function has null there
            tests = {name: value for name, value in tests.items() if value is not None}
        label = metadata.ground_truth or tests
        return [item_of(self.response.output_text, label, dataset=metadata.data_source)]


class VerifyResponse(_Foreign):
    """The request, the reward, and fields of the result."""

    reward: float


def verified(request: VerifyRequest, result: ScoreResult, reward: float) -> dict[str, Any]:
    """The response, which has all that the request had."""
    document = request.model_dump(mode="json", exclude_unset=True)
    return {**document, **figures(result), "status": result.status.value, "reward": reward}
