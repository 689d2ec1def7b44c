"""Prompts: messages, templates and their record."""

import hashlib
import json

import pytest

from shared.config import load_config
from shared.prompts import chat_messages, prompt_facts, recorded_messages
from shared.run_record import PromptTemplate, Provenance
from tests.shared.ledgers import problem

TESTS = {
    "standard input": {"inputs": ["1"], "outputs": ["1"]},
    "Complete this": {"test": "t", "entry_point": "f", "prompt": "p"},
    "Write it in Python": {"test_list": ["assert 1"]},
}


@pytest.mark.parametrize("words", TESTS)
def test_each_kind_of_tests_has_its_prompt(words: str) -> None:
    given = problem(prompt="Say {prompt} {0} %s", ground_truth=json.dumps(TESTS[words]))
    (message,) = chat_messages(given, load_config(None))
    assert message["role"] == "user"
    assert words in message["content"]
    assert message["content"].count("Say {prompt} {0} %s") == 1
    assert "```python" in message["content"]


@pytest.mark.parametrize(
    ("language", "words"),
    [("cpp", ("C++17", "g++ -std=c++17 -O2", "```cpp")), ("python", ("Python 3", "```python"))],
)
def test_a_program_is_asked_for_in_the_language_of_its_data_set(
    language: str, words: tuple[str, ...]
) -> None:
    given = problem(prompt="Add.", ground_truth=json.dumps(TESTS["standard input"]))
    other = problem("p2", dataset="d2", ground_truth=json.dumps(TESTS["standard input"]))
    config = load_config(None, [f"judge.datasets={{d1: {{language: {language}}}}}"])
    content = chat_messages(given, config)[0]["content"]
    assert all(word in content for word in words)
    assert "```python" in chat_messages(other, config)[0]["content"]
    prompts = prompt_facts([given, other], config).prompts
    assert prompts["d1"].template.replace("{prompt}", "Add.") == content


def test_calls_of_a_function_do_not_ask_for_standard_input() -> None:
    calls = {"inputs": ["1"], "outputs": ["1"], "fn_name": "f"}
    given = problem(ground_truth=json.dumps(calls))
    stdio = problem("p2", ground_truth=json.dumps(TESTS["standard input"]))
    config = load_config(None)
    assert "standard input" not in chat_messages(given, config)[0]["content"]
    assert list(prompt_facts([given, stdio], config).prompts) == ["d1 (calls)", "d1 (stdio)"]


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_the_templates_that_were_used_are_told_with_their_hashes() -> None:
    config = load_config(None, ["data.templates={d1: 'Do: {prompt}!', d9: 'Not {prompt}'}"])
    other = problem(dataset="d2", ground_truth=json.dumps(TESTS["Complete this"]))
    facts = prompt_facts([problem("p1"), problem("p2"), other], config)
    assert list(facts.prompts) == ["d1", "d2"]
    assert facts.prompts["d1"] == PromptTemplate(
        template="Do: {prompt}!", sha256=hashed("Do: {prompt}!")
    )
    default = facts.prompts["d2"]
    assert (
        default.template.replace("{prompt}", other.prompt)
        == (chat_messages(other, config)[0]["content"])
    )
    assert default.sha256 == hashed(default.template)
    assert facts.system_prompt is None


@pytest.mark.parametrize("system", ["", "Be brief."])
@pytest.mark.parametrize("kinds", [["Complete this"], list(TESTS)])
def test_the_messages_of_a_run_are_those_that_it_sent(system: str, kinds: list[str]) -> None:
    config = load_config(None, [f"data.system_prompt={system!r}"])
    problems = [problem(kind, ground_truth=json.dumps(TESTS[kind])) for kind in kinds]
    facts = prompt_facts(problems, config)
    run = Provenance(prompts=facts.prompts, system_prompt=facts.system_prompt)
    for one in problems:
        messages = recorded_messages(one, run)
        assert messages is not None
        assert [message.model_dump() for message in messages] == chat_messages(one, config)
    assert recorded_messages(problem(dataset="other"), run) is None
    assert recorded_messages(problems[0], Provenance()) is None
