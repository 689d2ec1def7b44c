"""Rows from a sandbox: this repository's server with records, and a proxy with faults."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from services.data.config import SandboxSource
from services.data.layouts import LAYOUTS
from services.data.layouts.base import Options
from services.data.rows import sandbox_fusion
from services.data.rows.sandbox_fusion import rows
from shared.datasets import read_dataset
from shared.errors import DataError
from tests.data.prepare.support import Desk
from tests.sandbox_records import Answer, behaving, forward, with_records
from tests.sandboxes import own_sandbox


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_fusion, "_SECONDS", 20)
    monkeypatch.setattr(sandbox_fusion, "_FIRST_WAIT", 0.01)


HUMANEVAL = [
    {
        "id": number,
        "task_id": f"Own/{number}",
        "prompt": f'def f{number}(n):\n    """ n + {number} """\n',
        "entry_point": f"f{number}",
        "canonical_solution": f"    return n + {number}\n",
        "test": f"def check(candidate):\n    assert candidate(1) == {number + 1}\n",
    }
    for number in range(3)
]
MBPP = [
    {
        "id": number,
        "content": f"Write a function number {number}. Your code should pass these tests:\n\nall.",
        "labels": {"test_setup_code": "x = 1", "challenge_test_list": ["assert f(0)"]},
        "test_list": [f"assert f({number}) == 1", f"assert f(\n  {number}) ", "assert 1"],
    }
    for number in (2, 11, 1, 30, 4)
]
CONTESTS = [
    {
        "id": "one",
        "content": "First paragraph.\n\nSecond one.\n",
        "labels": json.dumps({"name": "A. Sum", "difficulty": "EASY"}),
        "test": [
            {"input": {"stdin": f"{n}" * 1500}, "output": {"stdout": "1\n" * n}} for n in range(9)
        ],
    },
    {"id": 7, "content": "", "labels": {"difficulty": "B"}, "test": []},
    {
        "id": 8,
        "content": "x",
        "labels": {"difficulty": "UNKNOWN_DIFFICULTY"},
        "test": [{"input": {"stdin": "ä\0"}, "output": {"stdout": ""}}],
    },
]
SUM = {
    "id": 5,
    "content": "Print the sum of two integers that stand on one line.",
    "labels": {"name": "A. Sum", "difficulty": "EASY"},
    "test": [{"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}}],
}
TABLES = {
    "sums": [SUM],
    "humaneval_python": HUMANEVAL,
    "mbpp": MBPP,
    "code_contests": CONTESTS,
    "empty": [],
    "my_mbpp": [MBPP[0] | {"test_list": ["x = 2\nassert f(x)", "assert f('''\nassert''')"]}],
    "not_python": [MBPP[0] | {"test_list": ["print 1"]}],
    "letters": [MBPP[0] | {"id": "a"}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        own_sandbox(tmp_path_factory.mktemp("sandbox")) as sandbox,
        with_records(sandbox, TABLES) as url,
    ):
        yield url


def source(url: str, dataset: str = "mbpp") -> SandboxSource:
    return SandboxSource(kind="sandbox_fusion", url=url, dataset=dataset)


def fetched(where: SandboxSource, layout: str) -> list[Any]:
    return [row for _, row in rows(where, layout, offline=False)]


def failure(where: SandboxSource, layout: str, *, offline: bool = False) -> str:
    answers = rows(where, layout, offline=offline)
    with pytest.raises(DataError) as caught:
        list(LAYOUTS[layout].read(answers, Options(split="test")))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 800
    return message


Forward = Callable[[], Answer]
Behaviour = Callable[[str, dict[str, Any], Forward], Answer]


@contextmanager
def standing_before(server: str, behave: Behaviour) -> Iterator[str]:
    """A server that asks ``behave`` what to answer; ``forward`` is the answer of ``server``."""

    def asked(path: str, body: dict[str, Any]) -> Answer:
        return behave(path, body, lambda: forward(f"{server}{path}", body))

    with behaving(asked) as url:
        yield url


def test_humaneval_rows_are_the_public_ones(server: str):
    assert fetched(source(server, "humaneval_python"), "humaneval") == HUMANEVAL


def test_mbpp_rows_are_the_public_ones(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_fusion, "_PAGE", 2)
    assert fetched(source(f"{server}/"), "mbpp") == [
        {
            "task_id": record["id"],
            "text": record["content"],
            "test_list": record["test_list"],
            **record["labels"],
        }
        for record in sorted(MBPP, key=lambda record: record["id"])
    ]


def test_code_contests_rows_have_every_case_whole(server: str):
    unnamed, unknown, named = fetched(source(server, "code_contests"), "code_contests")
    first = CONTESTS[0]
    assert named["description"] == first["content"]
    assert named["private_tests"] == {
        "input": [case["input"]["stdin"] for case in first["test"]],
        "output": [case["output"]["stdout"] for case in first["test"]],
    }
    assert (named["name"], named["difficulty"]) == ("A. Sum #one", "easy")
    assert (unnamed["name"], unnamed["difficulty"]) == ("code_contests #7", "B")
    assert unnamed["private_tests"] == unnamed["public_tests"] == {"input": [], "output": []}
    assert unknown["private_tests"] == {"input": ["ä\0"], "output": [""]}
    assert unknown["difficulty"] == "unknown"


def test_trouble_that_passes_is_waited_for(server: str):
    turn = count()
    faults: dict[int, Answer] = {0: (500, b"down"), 3: None, 6: (503, b"{}"), 9: (429, b"")}

    def stumble(_path: str, _body: dict[str, Any], forward: Forward) -> Answer:
        number = next(turn)
        return faults[number] if number in faults else forward()

    with standing_before(server, stumble) as url:
        assert len(fetched(source(url, "code_contests"), "code_contests")) == 3
    assert next(turn) > max(faults)


_FOREIGN = "not a response of SandboxFusion"
_FAILURES: list[tuple[Answer, str, int]] = [
    ((500, b'{"detail": "no row\\nof it", "traceback": ["/srv"]}'), "500: no row of it", 5),
    ((502, b"<html>" + b"x" * 10_000), "502: <html>", 5),
    (None, "cannot connect to SandboxFusion", 5),
    ((400, b'{"detail": "no eval class found"}'), "400: no eval class found", 1),
    ((404, b'{"detail": ["a", 1]}'), "404: ['a', 1]", 1),
    ((200, b"<html>"), _FOREIGN, 1),
    ((200, b"5"), _FOREIGN, 1),
    ((200, b"[5]"), _FOREIGN, 1),
    ((200, b"[" * 100_000), _FOREIGN, 1),
    ((200, b'[{"id": 1}]'), _FOREIGN, 1),
    ((200, b'[{"id": 1, "prompt": "", "labels": 5}]'), _FOREIGN, 1),
]


def test_a_server_that_fails():
    for answer, named, requests in _FAILURES:
        asked: list[str] = []

        def behave(path: str, *_: Any, asked: list[str] = asked, answer: Answer = answer) -> Answer:
            asked.append(path)
            return answer

        with standing_before("", behave) as url:
            message = failure(source(url), "mbpp")
        assert message.startswith(f"{url} mbpp: ")
        assert named in message
        assert "/srv" not in message
        assert len(asked) == requests, answer


def test_what_cannot_be_used(server: str):
    assert "offline" in failure(source(server), "mbpp", offline=True)
    for url in ("http://127.0.0.1:1", "nowhere", "http://", "http://a b:80"):
        assert "source.url" in failure(source(url), "mbpp")
    for dataset, layout, named in (
        ("nothing", "mbpp", "no records of nothing"),
        ("mbpp", "humaneval", "mbpp id 1: task_id"),
        ("mbpp", "code_contests", "mbpp id 1: the prompt does not end with a paragraph"),
        ("code_contests", "mbpp", "code_contests id 7: the prompt does not have"),
        ("humaneval_python", "mbpp", "does not have SandboxFusion's format"),
        ("empty", "mbpp", "the data set has no problems"),
        ("not_python", "mbpp", "does not have SandboxFusion's format"),
        ("letters", "mbpp", "task_id"),
        ("mbpp", "jsonl", "no sandbox layout 'jsonl'; choose one of humaneval, mbpp, code"),
    ):
        assert named in failure(source(server, dataset), layout), dataset


def test_an_id_that_comes_twice(server: str):
    """As from a server that knows no offset, and gives its first page for ever."""

    def first_page(_path: str, body: dict[str, Any], _forward: Forward) -> Answer:
        return forward(f"{server}/get_prompts", body | {"offset": 0})

    with standing_before(server, first_page) as url:
        assert "mbpp id 1: the server has this id twice" in failure(source(url), "mbpp")


@pytest.mark.parametrize("flag", ["run_all_cases", "return_full_case"])
def test_a_server_that_shows_not_all_of_the_cases(server: str, flag: str):
    def older(path: str, body: dict[str, Any], _forward: Forward) -> Answer:
        body["config"]["extra"].pop(flag, None)
        return forward(f"{server}{path}", body)

    with standing_before(server, older) as url:
        message = failure(source(url, "code_contests"), "code_contests")
    assert "use a newer SandboxFusion" in message


def test_a_set_of_a_sandbox_is_prepared(server: str, tmp_path: Path):
    desk = Desk(tmp_path)
    where = {"kind": "sandbox_fusion", "url": server, "dataset": "sums"}
    desk.sets["contests"] = {"layout": "code_contests", "split": "test", "source": where}
    desk.prepare()
    (contest,) = read_dataset(str(desk.data("contests")))
    assert (contest.prompt, contest.tests.outputs) == (SUM["content"], ["3\n"])
    with pytest.raises(DataError, match="offline, and rows of a server are not cached"):
        desk.prepare(offline=True)
