"""From a problem to chat messages."""

from shared.config import DataConfig
from shared.errors import ConfigError
from shared.schemas import HumanEvalTests, MbppTests, Problem, StdioTests

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
    """One user message: the data set's template, or the default for its kind of tests."""
    template = config.templates.get(problem.dataset) or _DEFAULTS[type(problem.tests)]
    return [{"role": "user", "content": template.replace(_SLOT, problem.prompt)}]
