"""Bad input: exit code 2, one line that names the cause, and no output files."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.data.records import write_dataset
from shared import artifacts
from tests.cli.commands import MODELS, PING, Outcome, answering, plumb
from tests.runner.generators import refused_url
from tests.shared.ledgers import problem

ARTIFACTS = {artifacts.SUMMARY, artifacts.RUN, artifacts.GENERATIONS, artifacts.VERDICTS}
SECRET = "s3kret-pa55word"


class Desk:
    """A folder with good input, of which each test spoils a part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data.parquet"
        self.completions = folder / "completions.jsonl"
        write_dataset(str(self.data), [problem("p1"), problem("p2")])
        self.completions.write_text('{"problem_id": "p1", "completion": "x"}\n')

    def run(self, *arguments: str, **environment: str) -> Outcome:
        return plumb("run", "--output", "out", *arguments, folder=self.folder, **environment)

    def judge(self, *arguments: str, **environment: str) -> Outcome:
        return plumb("judge", "--output", "out", *arguments, folder=self.folder, **environment)

    def judge_all(self, *arguments: str, **environment: str) -> Outcome:
        given = ("--data", "data.parquet", "--completions", "completions.jsonl")
        return self.judge(*given, *arguments, **environment)

    def run_at(self, generator: str, *arguments: str, **environment: str) -> Outcome:
        given = ("--data", "data.parquet", "--base-url", generator)
        return self.run(*given, *arguments, **environment)

    def write_rows(self, *rows: dict[str, str | None]) -> None:
        pq.write_table(pa.Table.from_pylist(list(rows)), self.data)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.fixture
def generator() -> Iterator[str]:
    with answering(MODELS) as url:
        yield url


@pytest.fixture
def sandbox() -> Iterator[str]:
    with answering(PING) as url:
        yield url


def refused(outcome: Outcome, desk: Desk, *names: str) -> None:
    assert outcome.code == 2, outcome
    assert "Traceback" not in outcome.stderr + outcome.stdout
    assert outcome.line.startswith("plumb: ")
    assert len(outcome.line) > len("plumb: ")
    for name in names:
        assert name in outcome.line
    written = {path.name for path in desk.folder.rglob("*")}
    assert not written & ARTIFACTS


DATA = ("--data", "data.parquet")
BOTH = (*DATA, "--completions", "completions.jsonl")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("run", "--config", "absent.yaml"), ("absent.yaml", "No such file")),
        (("run", *DATA, "judge.wokers=2"), ("'judge.wokers'", "did you mean 'judge.workers'")),
        (("run",), ("--data",)),
        (("judge", "--completions", "completions.jsonl"), ("--data",)),
        (("judge", *DATA), ("--completions",)),
        (("judge", *DATA, "--completions", "none.jsonl"), ("none.jsonl", "no such file")),
        (("run", *DATA), ("--base-url",)),
        (("run", *DATA, "generation.backend=replay"), ("'replay'", "--embedded")),
        (("run", *DATA, "generation.backend=verl"), ("--base-url", "generation.base_urls")),
        (("judge", *BOTH, "sandbox.url=localhost:8080"), ("not an address such as http://",)),
        (("judge", *BOTH, "--embedded", "--output", "data.parquet/out"), ("data.parquet/out",)),
        (("judge", *BOTH, "--output", "nosuch://bucket/x"), ("nosuch://bucket/x",)),
        (("judge", *BOTH, "data.lock=lock.json"), ("lock.json: no such file", "data prepare")),
        (("data", "import", "mbpp", "--source", "absent", "--output", "x"), ("absent",)),
    ],
)
def test_what_is_missing_or_unknown_is_named(
    desk: Desk, arguments: tuple[str, ...], names: tuple[str, ...]
) -> None:
    refused(plumb(*arguments, folder=desk.folder), desk, *names)


# The data


def test_data_that_is_not_there(desk: Desk, generator: str) -> None:
    desk.data.unlink()
    refused(desk.run_at(generator), desk, "data.parquet", "no such file")
    refused(desk.judge_all(), desk, "data.parquet", "no such file")


def test_a_ground_truth_that_cannot_be_used(desk: Desk) -> None:
    for text in ("{", "", "{}", '{"inputs": ["1"], "outputs": []}', '{"test_list": []}'):
        desk.write_rows(problem("p1").model_dump(), problem("p2", ground_truth=text).model_dump())
        refused(desk.judge_all(), desk, "data.parquet: row 2", "'p2'", "ground_truth")


# The generator


@pytest.mark.parametrize("backend", ["openai", "verl"])
def test_samples_that_would_be_copies_of_one_another(
    desk: Desk, generator: str, backend: str
) -> None:
    given = ("actor_rollout_ref.rollout.n=4", f"generation.backend={backend}")
    outcome = desk.run_at(generator, *given)
    refused(outcome, desk, "actor_rollout_ref.rollout.n is 4 at temperature 0")


def test_an_engine_replaces_the_servers_of_the_file_and_not_those_of_the_command(
    desk: Desk,
) -> None:
    url = refused_url()
    (desk.folder / "run.yaml").write_text(f"generation: {{base_urls: ['{url}']}}\n")
    given = ("--config", "run.yaml", "--data", "data.parquet", "--rollout", "vllm")
    refused(desk.run(*given, "--model", "folder"), desk, "verl's vllm is to generate")
    refused(desk.run(*given, "--base-url", url), desk, url, "is it running?")


def test_a_generator_that_is_down(desk: Desk) -> None:
    url = refused_url()
    refused(desk.run_at(url), desk, url, "is it running?")
    refused(desk.run_at(f"{url}/v1"), desk, f"{url}/v1/models")


def test_a_generator_that_does_not_help(desk: Desk) -> None:
    cases = [
        (401, '{"error": {"message": "bad key"}}', "bad key"),
        (403, "", "HTTP 403"),
        (404, "", "HTTP 404"),
        (500, "broken\nin two lines", "HTTP 500"),
        (200, "<html>\nhello\n</html>", "OpenAI API"),
        (200, "{}", "OpenAI API"),
        (200, '{"data": []}', "none"),
        (200, '{"data": [{"id": "a"}, {"id": "b"}]}', "a, b"),
    ]
    for status, text, named in cases:
        with answering({"/v1/models": (status, text)}) as url:
            outcome = desk.run_at(url, OPENAI_API_KEY=SECRET)
        refused(outcome, desk, named)
        assert SECRET not in outcome.stderr + outcome.stdout
        assert url in outcome.line or "generation.model" in outcome.line


# The sandbox and Redis


def test_a_sandbox_that_is_away(desk: Desk) -> None:
    url = refused_url()
    refused(desk.judge_all(f"sandbox.url={url}/run_code"), desk, url, "SANDBOX_URLS")
    refused(desk.judge_all(SANDBOX_URLS=url), desk, url, "--embedded")


def test_a_tokenizer_or_an_output_that_cannot_be_used(desk: Desk) -> None:
    (desk.folder / "broken").mkdir()
    (desk.folder / "broken" / "tokenizer.json").write_text("{")
    before = desk.data.read_bytes()
    cases = [
        ("data.tokenizer=absent/folder/of/it", "no such folder"),
        ("data.tokenizer=.", "tokenizer.json"),
        ("data.tokenizer=broken", "broken"),
        ("data.output_path=answers.json", ".parquet"),
        ("data.output_path=broken", "broken"),
        ("data.output_path=./data.parquet", "data.parquet"),
        ("data.output_path=data.parquet/new/answers.parquet", "Not a directory"),
    ]
    for override, named in cases:
        key = override.partition("=")[0]
        refused(desk.judge_all(override, SANDBOX_URLS=refused_url()), desk, key, named)
    refused(desk.judge_all("--embedded", cases[0][0]), desk, "data.tokenizer")
    assert desk.data.read_bytes() == before
    assert not (desk.folder / "out").exists()


def test_redis_that_is_away(desk: Desk, sandbox: str) -> None:
    host = refused_url().removeprefix("http://")
    outcome = desk.judge_all(SANDBOX_URLS=sandbox, REDIS_URL=f"redis://:{SECRET}@{host}/0")
    refused(outcome, desk, host, "not reachable", "REDIS_URL")
    assert SECRET not in outcome.stderr + outcome.stdout


# The output


@pytest.mark.parametrize("embedded", [[], ["--embedded"]], ids=["", "embedded"])
def test_an_output_folder_with_another_runs_results(desk: Desk, embedded: list[str]) -> None:
    out = desk.folder / "out"
    out.mkdir()
    before = {}
    for name in ARTIFACTS:
        before[name] = json.dumps({"fingerprint": "another", "name": name})
        (out / name).write_text(before[name])
    outcome = desk.judge_all(*embedded)
    assert outcome.code == 2
    assert outcome.line.startswith("plumb: out ")
    assert "another run" in outcome.line
    assert "--force" in outcome.line
    assert {path.name: path.read_text() for path in out.iterdir()} == before


@pytest.mark.parametrize("how", ["sandbox", "generator", "redis"])
def test_force_takes_no_results_away_that_cannot_be_replaced(
    desk: Desk, sandbox: str, generator: str, how: str
) -> None:
    """The old results go when the new run begins, and not before it is known that it can."""
    out = desk.folder / "out"
    out.mkdir()
    (out / artifacts.RUN).write_text("{}")
    url = refused_url()
    if how == "sandbox":
        outcome = desk.judge_all("--force", SANDBOX_URLS=url)
    elif how == "generator":
        outcome = desk.run_at(url, "--force", SANDBOX_URLS=sandbox)
    else:
        redis_url = f"redis://{url.removeprefix('http://')}/0"
        outcome = desk.judge_all("--force", SANDBOX_URLS=sandbox, REDIS_URL=redis_url)
    assert outcome.code == 2
    assert outcome.line.startswith("plumb: ")
    assert (out / artifacts.RUN).read_text() == "{}"
