"""Prompts and records by id, from the real server with test tables."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from services.sandbox.datasets.tables import Tables
from services.sandbox.settings import SandboxSettings
from shared.errors import ConfigError
from tests.sandbox.conftest import Sandbox, StartSandbox
from tests.sandboxes import own_sandbox

ROOT = Path(__file__).parents[2]

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
AUTO = {"id": 5, "content": "Write is_even.", "labels": {"programming_language": "python"}}
TABLES = {
    "mbpp": MBPP,
    "code_eval_humaneval_python": [HUMANEVAL],
    "code_contests": [CONTEST, CONTEST | {"id": 3}, CONTEST | {"id": "a"}],
    "mine": MBPP[:1],
}

WriteTables = Callable[[dict[str, list[Any]]], Path]


def write(folder: Path, tables: dict[str, list[Any]]) -> Path:
    """Write records as JSON lines; bytes are a line of their own."""
    for name, records in tables.items():
        lines = [
            record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n"
            for record in records
        ]
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines))
    return folder


@pytest.fixture
def write_tables(tmp_path: Path) -> WriteTables:
    return partial(write, tmp_path)


@pytest.fixture(scope="module")
def filled_url(temp_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {
        "PLUMBLINE_SANDBOX_DATASETS": str(write(tmp_path_factory.mktemp("filled"), TABLES)),
        "PLUMBLINE_SANDBOX_TEMP_ROOT": str(temp_root),
    }
    with own_sandbox(tmp_path_factory.mktemp("server"), **settings) as url:
        yield url


@pytest.fixture
async def filled(filled_url: str, session: ClientSession) -> Sandbox:
    """A server with all tables, which the tests of this module share."""
    return Sandbox(session, filled_url)


async def ask(sandbox: Sandbox, path: str, dataset: str, **request: Any) -> tuple[int, Any]:
    request = {"dataset": dataset, "config": {}} | request
    return await sandbox.send("POST", path, json.dumps(request).encode())


async def prompts(sandbox: Sandbox, dataset: str, **request: Any) -> Any:
    status, answer = await ask(sandbox, "/get_prompts", dataset, **request)
    assert status == 200, answer
    return answer


async def prompt(sandbox: Sandbox, dataset: str, key: int | str, **config: Any) -> Any:
    status, answer = await ask(sandbox, "/get_prompt_by_id", dataset, id=key, config=config)
    assert status == 200, answer
    return answer


@pytest.mark.parametrize(
    ("request_", "ids"),
    [
        ({}, [2, 9, 10]),
        ({"offset": 1}, [9, 10]),
        ({"offset": 1, "limit": 1}, [9]),
        ({"offset": 3}, []),
        ({"limit": 0}, []),
    ],
)
async def test_pages_are_in_the_order_of_the_ids(filled: Sandbox, request_: Any, ids: list[int]):
    found = await prompts(filled, "mbpp", **request_)
    assert [each["id"] for each in found] == ids
    if len(ids) == 3:
        assert [each["id"] for each in await prompts(filled, "code_contests")] == [3, "a", "sum"]


async def test_mbpp_has_the_sentence_that_clients_know(filled: Sandbox):
    assert await prompt(filled, "mbpp", 9) == {
        "id": 9,
        "prompt": "You are an expert Python programmer, and here is your task: Write f for 9. "
        "Your code should pass these tests:\n\nassert f(x) == 9\nassert x",
        "labels": {"test_setup_code": "x = 1"},
    }


async def test_humaneval_is_as_it_is_or_in_a_fence(filled: Sandbox):
    plain = await prompt(filled, "humaneval_python", "Own/0")
    labels = {key: value for key, value in HUMANEVAL.items() if key != "prompt"}
    assert plain == {"id": "Own/0", "prompt": HUMANEVAL["prompt"], "labels": labels}
    assert await prompt(filled, "humaneval_python", 0) == plain
    assert await prompt(filled, "humaneval", 0) == plain
    fenced = await prompt(filled, "humaneval_python", 0, extra={"is_freeform": True})
    assert fenced["prompt"].startswith(f"```python\n{HUMANEVAL['prompt']}\n```\n\n")
    assert fenced["labels"] == labels


@pytest.mark.parametrize(
    ("language", "named"), [("cpp", "C++"), ("python", "Python"), ("rust", "rust"), (None, "")]
)
async def test_contests_end_with_a_paragraph_on_the_language(
    filled: Sandbox, language: str | None, named: str
):
    content, _, sentence = (await prompt(filled, "code_contests", "sum", language=language))[
        "prompt"
    ].rpartition("\n\n")
    assert content == CONTEST["content"]
    assert named in sentence


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, "Write is_even."),
        ({"extra": {"context": "C"}}, "C\n\nQuestion:Write is_even.\n\nAnswer:\n"),
        ({"extra": {"context": "C"}, "locale": "zh"}, "C\n\n问题：Write is_even.\n\n答案：\n"),
        (
            {"extra": {"context": "C", "fewshot": "F"}, "is_fewshot": True},
            "C\n\n----------------\n\nF\n\nQuestion:Write is_even.\n\nAnswer:\n",
        ),
        ({"extra": {"fewshot": "F"}}, "Write is_even."),
        ({"extra": {"prompt_template": "$context-$question-$$-$x"}}, "-Write is_even.-$-$x"),
    ],
)
async def test_autoeval_surrounds_the_question(sandbox: Sandbox, config: Any, expected: str):
    given = {"dataset_type": "AutoEvalDataset", "provided_data": AUTO} | config
    assert (await prompt(sandbox, "set", 1, **given))["prompt"] == expected
    labels = AUTO["labels"] | config.get("extra", {})
    given = given | {"extra": {}, "provided_data": AUTO | {"labels": labels}}
    assert (await prompt(sandbox, "set", 1, **given))["prompt"] == expected


async def test_a_table_of_any_name_is_served_by_its_class(filled: Sandbox):
    config = {"dataset_type": "MBPPDataset"}
    assert [each["id"] for each in await prompts(filled, "mine", config=config)] == [10]


async def test_submits_by_id_are_judged_by_the_table(filled: Sandbox):
    right = "```python\nf = lambda n: 9\n```"
    for completion, accepted in ((right, True), (right.replace("9", "8"), False)):
        status, answer = await filled.submit(dataset="mbpp", id=9, completion=completion, config={})
        assert (status, answer.get("accepted"), answer.get("id")) == (200, accepted, 9), answer
    status, answer = await filled.submit(
        dataset="humaneval_python", id="Own/0", completion="    return 2 * n\n", config={}
    )
    assert (status, answer.get("accepted")) == (200, True), answer
    own = MBPP[0] | {"test_list": ["assert f(x) == 8"]}
    config = {"provided_data": own}
    _, answer = await filled.submit(
        dataset="mbpp", id=9, completion=right.replace("9", "8"), config=config
    )
    assert answer["accepted"] is True


@pytest.mark.parametrize("path", ["/get_prompt_by_id", "/submit"])
@pytest.mark.parametrize(
    ("dataset", "key", "status", "named"),
    [
        ("mbpp", 11, 404, "mbpp has no record with the id 11"),
        ("mbpp", "x' OR 1=1 --", 404, "OR 1=1"),
        ("shadow_humaneval_python", 1, 400, "no table of records for shadow_humaneval_python"),
        ("mine", 10, 400, "no eval class found for dataset mine"),
        ("../tables/mbpp", 10, 400, "no eval class"),
    ],
)
async def test_what_no_table_has(
    filled: Sandbox, path: str, dataset: str, key: Any, status: int, named: str
):
    answer = await ask(filled, path, dataset, id=key, completion="x")
    assert answer[0] == status
    assert named in answer[1]["detail"]


@pytest.mark.parametrize(
    ("dataset", "data", "config", "named"),
    [
        ("mbpp", MBPP[0] | {"test_list": None}, {}, "test_list"),
        ("mbpp", MBPP[0] | {"labels": "["}, {}, "labels"),
        ("mbpp", MBPP[0] | {"labels": []}, {}, "labels"),
        ("mbpp", MBPP[0] | {"content": "\ud800"}, {}, "content"),
        ("mbpp", {"content": "x"}, {}, "id"),
        ("mbpp", MBPP[0], {"is_fewshot": True}, "is_fewshot"),
        ("humaneval_python", {"prompt": "x"}, {}, "task_id"),
        ("humaneval_python", {"task_id": 1}, {}, "prompt"),
        ("code_contests", {"id": 1, "labels": {}}, {}, "content"),
        ("set", AUTO, {"is_fewshot": True}, "fewshot"),
        ("set", AUTO, {"extra": {"context": 1}}, "context"),
        ("other", AUTO, {"dataset_type": "Nothing"}, "eval class Nothing not found"),
    ],
)
async def test_records_that_make_no_prompt_are_400(
    sandbox: Sandbox, dataset: str, data: Any, config: dict[str, Any], named: str
):
    config = {"dataset_type": "AutoEvalDataset"} | config
    for path, given in (("/get_prompt_by_id", data), ("/get_prompts", [data])):
        request = {"id": 1, "config": config | {"provided_data": given}}
        status, answer = await ask(sandbox, path, dataset, **request)
        assert status == 400
        assert named in answer["detail"]


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


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        ({"config": None}, "config"),
        ({"offset": -1}, "offset"),
        ({"limit": -1}, "limit"),
        ({"limit": "all"}, "limit"),
        ({"dataset": 5}, "dataset"),
    ],
)
async def test_wrong_requests_are_422(filled: Sandbox, request_: Any, place: str):
    status, answer = await ask(filled, "/get_prompts", **({"dataset": "mbpp"} | request_))
    assert (status, answer["detail"][0]["loc"]) == (422, ["body", place])


async def test_prompts_are_counted_by_outcome(filled: Sandbox):
    async def counts() -> list[float]:
        name = 'plumbline_sandbox_prompts_total{{outcome="{}"}}'
        return [await filled.metric(name.format(outcome)) for outcome in ("answered", "refused")]

    answered, refused = await counts()
    await prompts(filled, "mbpp")
    await prompt(filled, "mbpp", 9)
    await ask(filled, "/get_prompt_by_id", "mbpp", id=99)
    assert await counts() == [answered + 2, refused + 1]


async def test_a_table_that_has_changed_is_an_error_of_the_server(
    start_sandbox: StartSandbox, write_tables: WriteTables
):
    folder = write_tables(TABLES)
    sandbox = await start_sandbox(datasets=folder)
    (folder / "mbpp.jsonl").write_text("{}")
    assert (await ask(sandbox, "/get_prompts", "mbpp"))[0] == 500
    (folder / "mbpp.jsonl").unlink()
    status, answer = await ask(sandbox, "/get_prompts", "mbpp")
    assert status == 500
    assert "mbpp.jsonl has changed" in answer["detail"]
    assert str(folder) not in answer["detail"]


@pytest.mark.parametrize(
    ("tables", "named"),
    [
        ({"a": [MBPP[0], b"{\n"]}, "a.jsonl: line 2"),
        ({"a": [b"\xff\n"]}, "a.jsonl: line 1"),
        ({"a": [b"[" * 100_000]}, "a.jsonl: line 1: nested too deep"),
        ({"a": [[1]]}, "a.jsonl: line 1: not a JSON object"),
        ({"a": [{"content": "x"}]}, "line 1 has none of id, task_id, name"),
        ({"a": [MBPP[0], MBPP[1], MBPP[0] | {"id": "10"}]}, "line 3 has the id '10' again"),
        ({"a": [], "code_eval_a": []}, "the dataset a has two files"),
    ],
)
def test_tables_that_cannot_be_used(
    write_tables: WriteTables, tables: dict[str, list[Any]], named: str
):
    with pytest.raises(ConfigError) as caught:
        Tables(write_tables(tables))
    assert named in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_unusable_folder_ends_the_start_in_one_line(tmp_path: Path):
    environment = {**os.environ, "PORT": "0", "PLUMBLINE_SANDBOX_DATASETS": str(tmp_path / "no")}
    ended = subprocess.run(
        [sys.executable, "-m", "services.sandbox"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == (
        f"sandbox: PLUMBLINE_SANDBOX_DATASETS: {tmp_path / 'no'} is not a folder; name one\n"
    )


def test_an_empty_setting_is_no_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLUMBLINE_SANDBOX_DATASETS", "")
    assert SandboxSettings().datasets is None
