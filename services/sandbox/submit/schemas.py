"""The wire format of SandboxFusion's ``/submit``."""

from typing import Any

from pydantic import BaseModel, Field

from services.sandbox.schemas import Language, RunCodeResponse
from services.sandbox.submit.fields import Text


class SubmitConfig(BaseModel):
    dataset_type: Text | None = None
    language: Language | None = None
    locale: str | None = None
    is_fewshot: bool | None = None
    compile_timeout: float | None = None
    run_timeout: float | None = None
    custom_extract_logic: str | None = None
    provided_data: list[dict[str, Any]] | dict[str, Any] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class SubmitRequest(BaseModel):
    dataset: Text
    id: int | Text
    completion: Text
    config: SubmitConfig


class StdioCase(BaseModel):
    """What goes in and has to come out: ``stdin`` and ``stdout``; other keys are only echoed."""

    input: dict[Text, Text]
    output: dict[Text, Text]


class EvalTest(BaseModel):
    passed: bool
    exec_info: RunCodeResponse
    test_info: StdioCase | None = None


class EvalResult(BaseModel):
    """``test_code`` and ``extracted_type`` are always null, as in the original."""

    id: int | str
    accepted: bool
    extracted_code: str
    full_code: str | None = None
    test_code: None = None
    tests: list[EvalTest]
    extracted_type: None = None
    extra: dict[str, Any] | None = None
