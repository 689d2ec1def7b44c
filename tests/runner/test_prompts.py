import hashlib
import json

import pytest

from services.runner.prompts import chat_messages, check_templates, prompt_facts
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


def test_a_system_message_goes_before() -> None:
    config = load_config(None, ["data.system_prompt=Be brief. {prompt}"]).data
    system, user = chat_messages(problem(prompt="x"), config)
    assert system == {"role": "system", "content": "Be brief. {prompt}"}
    assert user["role"] == "user"


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_templates_that_were_used_are_told_with_their_hashes() -> None:
    config = load_config(None, ["data.templates={d1: 'Do: {prompt}!', d9: 'Not {prompt}'}"]).data
    other = problem(dataset="d2", ground_truth=json.dumps(TESTS["Complete this"]))
    facts = prompt_facts([problem("p1"), problem("p2"), other], config)
    assert list(facts["prompts"]) == ["d1", "d2"]
    assert facts["prompts"]["d1"] == {
        "template": "Do: {prompt}!",
        "sha256": hashed("Do: {prompt}!"),
    }
    default = facts["prompts"]["d2"]
    assert (
        default["template"].replace("{prompt}", other.prompt)
        == (chat_messages(other, config)[0]["content"])
    )
    assert default["sha256"] == hashed(default["template"])
    assert facts["system_prompt"] is None


def test_the_system_prompt_is_told_too() -> None:
    config = load_config(None, ["data.system_prompt=Be brief."]).data
    told = prompt_facts([problem()], config)["system_prompt"]
    assert told == {"text": "Be brief.", "sha256": hashed("Be brief.")}


def test_a_data_set_of_several_kinds_has_a_template_for_each() -> None:
    problems = [
        problem(str(number), ground_truth=json.dumps(truth))
        for number, truth in enumerate(TESTS.values())
    ]
    prompts = prompt_facts(problems, load_config(None).data)["prompts"]
    assert list(prompts) == ["d1 (stdio)", "d1 (humaneval)", "d1 (mbpp)"]
    assert len({entry["sha256"] for entry in prompts.values()}) == 3
