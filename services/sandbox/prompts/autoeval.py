"""AutoEvalDataset's prompts: a question, alone or after context and examples, or a template."""

from dataclasses import dataclass
from string import Template
from typing import Any

from services.sandbox.prompts.schemas import Prompt
from services.sandbox.prompts.writers import Content
from services.sandbox.submit.errors import refused
from services.sandbox.submit.records import checked
from services.sandbox.submit.schemas import SubmitConfig

SEPARATOR = "----------------"
HINTS = {"zh": ("问题：", "答案：")}
ENGLISH = ("Question:", "Answer:")


@dataclass(frozen=True)
class _Texts:
    """What surrounds the question; ``extra`` of the request goes before the record's labels."""

    context: str
    fewshot: str
    template: str


def write(record: dict[str, Any], config: SubmitConfig) -> Prompt:
    """The content, with what ``extra`` and labels say should be around it.

    Source of the form: SandboxFusion 469de08, ``sandbox/datasets/autoeval.py``.

    Raises:
        SubmitError: 400.
    """
    row = checked(record, Content)
    texts = _texts(row.labels, config)
    if texts.template:
        prompt = Template(texts.template).safe_substitute(
            question=row.content,
            fewshot=texts.fewshot,
            context=texts.context,
            locale=config.locale,
        )
    else:
        prompt = _plain(row.content, texts, config.locale)
    return Prompt(id=row.id, prompt=prompt, labels=row.labels)


def _texts(labels: dict[str, Any], config: SubmitConfig) -> _Texts:
    given = labels | config.extra
    if config.is_fewshot and given.get("fewshot") is None:
        raise refused("the record: labels.fewshot: is_fewshot needs it")
    fewshot = _text(given, "fewshot") if config.is_fewshot else ""
    return _Texts(_text(given, "context"), fewshot, _text(given, "prompt_template"))


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name) or ""
    if not isinstance(value, str):
        raise refused(f"{name}: Input should be a valid string")
    return value


def _plain(question: str, texts: _Texts, locale: str | None) -> str:
    before = [text for text in (texts.context, texts.fewshot) if text]
    if not before:
        return question
    asks, answers = HINTS.get(locale or "", ENGLISH)
    shown = f"\n\n{SEPARATOR}\n\n".join(before)
    return f"{shown}\n\n{asks}{question}\n\n{answers}\n"
