"""The wire format of SandboxFusion's ``/get_prompts`` and ``/get_prompt_by_id``."""

from typing import Any

from pydantic import BaseModel, Field, RootModel

from services.sandbox.submit.fields import Text
from services.sandbox.submit.schemas import SubmitConfig


class GetPromptsRequest(BaseModel):
    """``offset`` and ``limit`` are for the server's tables, and count in the order of the ids."""

    dataset: Text
    config: SubmitConfig
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1_000_000, ge=0)


class GetPromptByIdRequest(BaseModel):
    dataset: Text
    config: SubmitConfig
    id: int | Text


class Prompt(BaseModel):
    """``labels`` are the record's own, or HumanEval's record without its prompt."""

    id: int | Text
    prompt: Text
    labels: dict[str, Any]


class Prompts(RootModel[list[Prompt]]):
    """A JSON list."""
