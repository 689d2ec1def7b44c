"""slime's remote reward (``--rm-type remote_rm --rm-url``): one completion, a number back."""

from pydantic import BaseModel, ConfigDict, JsonValue

from services.reward.aliases.base import item_of, without_end
from services.reward.models import ScoreItem


class SlimeRequest(BaseModel):
    """What slime sends of a sample; ``prompt`` is text or messages and not needed here."""

    model_config = ConfigDict(frozen=True)

    response: str
    label: JsonValue
    prompt: JsonValue = None

    def items(self) -> list[ScoreItem]:
        """The completion.

        Raises:
            RefusedError: The label is unusable.
        """
        return [item_of(without_end(self.response), self.label)]
