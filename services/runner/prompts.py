"""From a problem to chat messages."""

from collections.abc import Iterable
from typing import Any

from shared.config import DataConfig
from shared.errors import ConfigError
from shared.schemas import HumanEvalTests, MbppTests, Problem, StdioTests, sha256

_SLOT = "{prompt}"

_STDIO = """\
{prompt}

Write a Python 3 program that reads from standard input and writes the answer to standard output. \
Give the whole program in one ```python code block."""

_COMPLETE = """\
Complete this Python function. Give the whole function, with the imports it needs, in one \
```python code block.

```python
{prompt}
```"""

_WRITE = """\
{prompt}

Write it in Python 3. Give the whole code in one ```python code block."""

_DEFAULTS = {StdioTests: _STDIO, HumanEvalTests: _COMPLETE, MbppTests: _WRITE}


def check_templates(config: DataConfig) -> None:
    """Refuse a template that would leave the problem out.

    Raises:
        ConfigError: A template lacks ``{prompt}``.
    """
    for dataset, template in config.templates.items():
        if _SLOT not in template:
            raise ConfigError(f"data.templates.{dataset} has no {_SLOT} where the problem goes")


def chat_messages(problem: Problem, config: DataConfig) -> list[dict[str, str]]:
    """The system message, if there is one, and a user message made by the problem's template."""
    system = [{"role": "system", "content": config.system_prompt}] if config.system_prompt else []
    content = _template(problem, config).replace(_SLOT, problem.prompt)
    return [*system, {"role": "user", "content": content}]


def prompt_facts(problems: Iterable[Problem], config: DataConfig) -> dict[str, Any]:
    """For ``run.json``: the template of each data set and the system prompt, with their SHA-256.

    A data set whose problems have several kinds of tests, and no template of its own, has one entry
    per kind.
    """
    used: dict[str, dict[str, str]] = {}
    for problem in problems:
        kind = type(problem.tests).__name__.removesuffix("Tests").lower()
        used.setdefault(problem.dataset, {}).setdefault(_template(problem, config), kind)
    prompts = {
        dataset if len(templates) == 1 else f"{dataset} ({kind})": _hashed("template", template)
        for dataset, templates in used.items()
        for template, kind in templates.items()
    }
    system = _hashed("text", config.system_prompt) if config.system_prompt else None
    return {"prompts": prompts, "system_prompt": system}


def _template(problem: Problem, config: DataConfig) -> str:
    """The data set's template, or the default for its kind of tests."""
    return config.templates.get(problem.dataset) or _DEFAULTS[type(problem.tests)]


def _hashed(name: str, text: str) -> dict[str, str]:
    return {name: text, "sha256": sha256(text)}
