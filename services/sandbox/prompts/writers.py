"""Prompts of the dataset classes.

Source of their form: SandboxFusion 469de08, ``sandbox/datasets``. The sentences are our own but
for MBPP's, which clients take apart; those are English whatever the locale.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel

from services.sandbox.prompts.schemas import Prompt
from services.sandbox.submit.errors import refused
from services.sandbox.submit.fields import FromJson, Text
from services.sandbox.submit.records import checked
from services.sandbox.submit.schemas import SubmitConfig

LANGUAGE_NAMES = {"cpp": "C++", "python": "Python", "bash": "Bash"}

Key = int | Text
Labels = Annotated[dict[str, Any], FromJson]

Writer = Callable[[dict[str, Any], SubmitConfig], Prompt]
"""Raises SubmitError (400) for a record that lacks what the class needs."""


class Content(BaseModel):
    id: Key
    content: Text
    labels: Labels


class _MbppRecord(Content):
    test_list: Annotated[list[Text], FromJson]


class _HumanEvalRecord(BaseModel):
    prompt: Text
    task_id: Key | None = None
    name: Key | None = None


def common_oj(record: dict[str, Any], config: SubmitConfig) -> Prompt:
    """The content, and a paragraph that names the language."""
    row = checked(record, Content)
    language = LANGUAGE_NAMES.get(str(config.language), config.language or "a language of choice")
    sentence = (
        f"Write a whole program in {language} that reads standard input and prints the answer."
    )
    return Prompt(id=row.id, prompt=f"{row.content}\n\n{sentence}", labels=row.labels)


def humaneval(record: dict[str, Any], config: SubmitConfig) -> Prompt:
    """The prompt as it is; with ``extra.is_freeform`` in a fence, and a sentence what to do."""
    row = checked(record, _HumanEvalRecord)
    key = row.task_id if row.task_id is not None else row.name
    if key is None:
        raise refused("the record: task_id: Field required")
    prompt = _freeform(row.prompt) if config.extra.get("is_freeform") else row.prompt
    labels = {name: value for name, value in record.items() if name != "prompt"}
    return Prompt(id=key, prompt=prompt, labels=labels)


def evoeval(record: dict[str, Any], config: SubmitConfig) -> Prompt:
    """As HumanEval, also from ``content`` and ``labels``."""
    if "content" not in record:
        return humaneval(record, config)
    row = checked(record, Content)
    prompt = _freeform(row.content) if config.extra.get("is_freeform") else row.content
    return Prompt(id=row.id, prompt=prompt, labels=row.labels)


def mbpp(record: dict[str, Any], config: SubmitConfig) -> Prompt:
    """The sentence around content and tests that clients know."""
    if config.is_fewshot:
        raise refused("config.is_fewshot: this server has no examples to show; ask without")
    row = checked(record, _MbppRecord)
    prompt = (
        f"You are an expert Python programmer, and here is your task: {row.content} "
        "Your code should pass these tests:\n\n"
    )
    return Prompt(id=row.id, prompt=prompt + "\n".join(row.test_list), labels=row.labels)


def _freeform(prompt: str) -> str:
    task = (
        "Complete this function as its docstring says, and answer with all of it in a code block."
    )
    return f"```python\n{prompt}\n```\n\n{task}"
