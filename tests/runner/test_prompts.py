import json

import pytest

from services.runner.prompts import chat_messages, check_templates
from shared.config import load_config
from shared.errors import ConfigError
from tests.shared.ledgers import problem

TESTS = {
    "standard input": {"inputs": ["1"], "outputs": ["1"]},
    "Complete this": {"test": "t", "entry_point": "f", "prompt": "p"},
    "Write it in Python": {"test_list": ["assert 1"]},
}


@pytest.mark.parametrize("words", TESTS)
def test_each_kind_of_tests_has_its_prompt(words: str) -> None:
    given = problem(prompt="Say {prompt} {0} %s", ground_truth=json.dumps(TESTS[words]))
    (message,) = chat_messages(given, load_config(None).data)
    assert message["role"] == "user"
    assert words in message["content"]
    assert message["content"].count("Say {prompt} {0} %s") == 1
    assert "```python" in message["content"]


def test_a_template_of_ones_own() -> None:
    config = load_config(None, ["data.templates={d1: 'Do: {prompt}!'}"]).data
    check_templates(config)
    assert chat_messages(problem(prompt="x"), config)[0]["content"] == "Do: x!"
    assert chat_messages(problem(prompt="x", dataset="d2"), config)[0]["content"] != "Do: x!"


def test_a_template_that_leaves_the_problem_out() -> None:
    config = load_config(None, ["data.templates={d1: 'Do it'}"]).data
    with pytest.raises(ConfigError, match=r"data\.templates\.d1"):
        check_templates(config)
