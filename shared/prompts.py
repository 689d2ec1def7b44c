"""Prompts: the chat messages of a problem, from the templates and the system prompt of a config."""

from collections.abc import Iterable

from shared.config import Config, DataConfig
from shared.errors import ConfigError
from shared.harness.languages import LANGUAGES
from shared.run_record import PromptTemplate, Provenance, SystemPrompt
from shared.schemas import (
    ChatMessage,
    GroundTruth,
    HumanEvalTests,
    MbppTests,
    Problem,
    ProgramTests,
    SandboxFusionTests,
    StdioTests,
    sha256,
    without_surrogates,
)

_PLACEHOLDER = "{prompt}"

_STDIO = """\
{prompt}

Write a %s program that reads from standard input and writes the answer to standard output. \
%sGive the whole program in one ```%s code block."""

_COMPLETE = """\
Complete this Python function. Give the whole function, with the imports it needs, in one \
```python code block.

```python
{prompt}
```"""

_WRITE = """\
{prompt}

Write it in Python 3. Give the whole code in one ```python code block."""

_TRANSLATED = """\
Complete this %s function. Give the whole %s in one ```%s code block, with what it imports, and \
write neither tests nor a main function.

```%s
{prompt}
```"""

_FUNCTIONS = {HumanEvalTests: _COMPLETE, MbppTests: _WRITE, StdioTests: _WRITE}


def check_templates(config: DataConfig) -> None:
    """Check that every configured template includes the problem.

    Raises:
        ConfigError: A template lacks ``{prompt}``.
    """
    for dataset, template in config.templates.items():
        if _PLACEHOLDER not in template:
            raise ConfigError(
                f"data.templates.{dataset} lacks {_PLACEHOLDER}; put it where the problem goes"
            )


def chat_messages(problem: Problem, config: Config) -> list[dict[str, str]]:
    """The system message, if configured, and a user message made from the problem's template."""
    text = config.data.system_prompt
    system = [{"role": "system", "content": text}] if text else []
    content = _template(problem, config).replace(_PLACEHOLDER, problem.prompt)
    return [*system, {"role": "user", "content": content}]


def recorded_messages(problem: Problem, run: Provenance) -> tuple[ChatMessage, ...] | None:
    """The messages that a run sent, from the templates that it recorded; None if it recorded none.

    Unlike :func:`chat_messages` it does not depend on the defaults of this version. Lone surrogates
    are replaced.
    """
    prompts = run.prompts or {}
    try:
        of_kind = _name_of(problem.dataset, _kind(problem.tests))
        recorded = prompts.get(problem.dataset) or prompts.get(of_kind)
    except ValueError:  # the tests cannot be read
        return None
    if recorded is None:
        return None
    texts = [("user", recorded.template.replace(_PLACEHOLDER, problem.prompt))]
    if run.system_prompt:
        texts.insert(0, ("system", run.system_prompt.text))
    return tuple(ChatMessage(role=role, content=without_surrogates(text)) for role, text in texts)


def prompt_facts(problems: Iterable[Problem], config: Config) -> Provenance:
    """Collect the templates in use and the system prompt, with their SHA-256.

    A data set whose problems have several kinds of tests, and no template of its own, has one entry
    per kind.
    """
    used: dict[str, dict[str, str]] = {}
    for problem in problems:
        kind = _kind(problem.tests)
        used.setdefault(problem.dataset, {}).setdefault(_template(problem, config), kind)
    prompts = {
        dataset if len(templates) == 1 else _name_of(dataset, kind): PromptTemplate(
            template=template, sha256=sha256(template)
        )
        for dataset, templates in used.items()
        for template, kind in templates.items()
    }
    text = config.data.system_prompt
    system = SystemPrompt(text=text, sha256=sha256(text)) if text else None
    return Provenance(prompts=prompts, system_prompt=system)


def _name_of(dataset: str, kind: str) -> str:
    return f"{dataset} ({kind})"


def _wording(language: str) -> tuple[str, str, str]:
    """A language's name, its label of code blocks, and a sentence about compiling."""
    if language == "typescript":
        return "TypeScript", language, ""
    own = LANGUAGES.get(language)
    return (own.title, own.labels[0], own.hint) if own else (language, language, "")


def _kind(tests: GroundTruth) -> str:
    if isinstance(tests, StdioTests) and tests.fn_name:
        return "calls"
    return type(tests).__name__.removesuffix("Tests").lower()


def _template(problem: Problem, config: Config) -> str:
    """The data set's template, or the default for the problem's tests and the answer's language."""
    if own := config.data.templates.get(problem.dataset):
        return own
    tests = problem.tests
    if isinstance(tests, StdioTests) and not tests.fn_name:
        language = config.judge.for_dataset(problem.dataset).language
        name, label, compiled = _wording(language)
        return _STDIO % (name, compiled, label)
    whole = isinstance(tests, HumanEvalTests) and "```" in problem.prompt
    if whole or isinstance(tests, SandboxFusionTests):  # it has instructions of its own
        return "{prompt}"
    if isinstance(tests, ProgramTests):
        name, label, _ = _wording(tests.language)
        unit = "class" if tests.language == "java" else "function"
        return _TRANSLATED % (name, unit, label, label)
    return _FUNCTIONS[type(tests)]
