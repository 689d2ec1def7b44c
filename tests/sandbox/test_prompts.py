"""Prompts of records, from the real server."""

import json
from typing import Any

import pytest

from tests.sandbox.conftest import Sandbox

MBPP = [
    {
        "id": number,
        "content": f"Write f for {number}.",
        "labels": '{"test_setup_code": "x = 1"}',
        "test_list": [f"assert f(x) == {number}", "assert x"],
    }
    for number in (10, 9, 2)
]
HUMANEVAL = {
    "id": 0,
    "task_id": "Own/0",
    "prompt": 'def double(n):\n    """Twice n."""\n',
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
CONTEST = {
    "id": "sum",
    "content": "Print the sum.",
    "labels": {"difficulty": "EASY"},
    "test": [{"input": {"stdin": "1 2"}, "output": {"stdout": "3"}}],
}


async def ask(sandbox: Sandbox, path: str, dataset: str, **request: Any) -> tuple[int, Any]:
    request = {"dataset": dataset, "config": {}} | request
    return await sandbox.send("POST", path, json.dumps(request).encode())


async def prompt(sandbox: Sandbox, dataset: str, record: Any, **config: Any) -> Any:
    config = {"provided_data": record, **config}
    status, answer = await ask(sandbox, "/get_prompt_by_id", dataset, id=1, config=config)
    assert status == 200, answer
    return answer


async def test_prompts_of_many_records(sandbox: Sandbox):
    config = {"provided_data": MBPP}
    status, answer = await ask(sandbox, "/get_prompts", "mbpp", config=config)
    assert (status, [one["id"] for one in answer]) == (200, [10, 9, 2])
    config |= {"dataset_type": "MBPPDataset"}
    assert await ask(sandbox, "/get_prompts", "mine", config=config) == (200, answer)
    config["provided_data"] = MBPP[1]
    assert await ask(sandbox, "/get_prompt_by_id", "mbpp", id=1, config=config) == (200, answer[1])


async def test_mbpp_has_the_sentence_that_clients_know(sandbox: Sandbox):
    assert await prompt(sandbox, "mbpp", MBPP[1]) == {
        "id": 9,
        "prompt": "You are an expert Python programmer, and here is your task: Write f for 9. "
        "Your code should pass these tests:\n\nassert f(x) == 9\nassert x",
        "labels": {"test_setup_code": "x = 1"},
    }


async def test_humaneval_is_as_it_is_or_in_a_fence(sandbox: Sandbox):
    plain = await prompt(sandbox, "humaneval_python", HUMANEVAL)
    labels = {key: value for key, value in HUMANEVAL.items() if key != "prompt"}
    assert plain == {"id": "Own/0", "prompt": HUMANEVAL["prompt"], "labels": labels}
    assert await prompt(sandbox, "humaneval", HUMANEVAL) == plain
    fenced = await prompt(sandbox, "humaneval_python", HUMANEVAL, extra={"is_freeform": True})
    assert fenced["prompt"].startswith(f"```python\n{HUMANEVAL['prompt']}\n```\n\n")
    assert fenced["labels"] == labels


@pytest.mark.parametrize(
    ("language", "named"), [("cpp", "C++"), ("python", "Python"), ("rust", "rust"), (None, "")]
)
async def test_contests_end_with_a_paragraph_on_the_language(
    sandbox: Sandbox, language: str | None, named: str
):
    found = await prompt(sandbox, "code_contests", CONTEST, language=language)
    content, _, sentence = found["prompt"].rpartition("\n\n")
    assert content == CONTEST["content"]
    assert named in sentence


async def test_records_that_make_no_prompt_are_400(sandbox: Sandbox):
    failures = []
    for dataset, data, config, named in (
        ("mbpp", MBPP[0] | {"test_list": None}, {}, "test_list"),
        ("mbpp", MBPP[0] | {"labels": "["}, {}, "labels"),
        ("mbpp", MBPP[0] | {"content": "\ud800"}, {}, "content"),
        ("mbpp", MBPP[0], {"is_fewshot": True}, "is_fewshot"),
        ("humaneval_python", {"prompt": "x"}, {}, "task_id"),
        ("code_contests", {"id": 1, "labels": {}}, {}, "content"),
        ("other", MBPP[0], {"dataset_type": "Nothing"}, "eval class Nothing not found"),
        ("mbpp", None, {}, "provided_data"),
    ):
        for path, given in (("/get_prompt_by_id", data), ("/get_prompts", data and [data])):
            request = {"id": 1, "config": config | {"provided_data": given}}
            status, answer = await ask(sandbox, path, dataset, **request)
            if status != 400 or named not in answer["detail"]:
                failures.append((path, dataset, named, status, answer))
    assert not failures, failures


async def test_one_record_for_one_prompt_and_a_list_for_a_list(sandbox: Sandbox):
    one = await ask(sandbox, "/get_prompts", "mbpp", config={"provided_data": MBPP[0]})
    many = await ask(sandbox, "/get_prompt_by_id", "mbpp", id=1, config={"provided_data": MBPP})
    assert one == (
        400,
        {"detail": "request.config.provided_data should be a list of str -> str | int"},
    )
    assert many == (
        400,
        {"detail": "request.config.provided_data should be a dict with str -> str | int"},
    )


async def test_prompts_are_counted_by_outcome(sandbox: Sandbox):
    async def counts() -> list[float]:
        name = 'plumbline_sandbox_prompts_total{{outcome="{}"}}'
        return [await sandbox.metric(name.format(outcome)) for outcome in ("answered", "refused")]

    answered, refused = await counts()
    await prompt(sandbox, "mbpp", MBPP[1])
    await ask(sandbox, "/get_prompt_by_id", "mbpp", id=99)
    assert await counts() == [answered + 1, refused + 1]
