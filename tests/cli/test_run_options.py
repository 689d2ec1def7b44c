"""`plumb run` with options for config keys, and with public data sets by name."""

import json

import pytest
import typer
import yaml
from typer.testing import CliRunner

from services.cli.run import run
from services.data.records import write_dataset
from shared.errors import ConfigError
from tests.cli.commands import plumb
from tests.cli.fork_server import ROOT
from tests.data.rows.hub_server import COMMIT, MBPP, serving_mbpp
from tests.shared.ledgers import problem

ANSWER = "```python\ndef double(x):\n    return x + x\n```"
REPLAY = ("--embedded", "generation.backend=replay", "generation.replay.completions=answers.jsonl")


def answers(folder, *ids, samples=1):
    lines = [
        {"problem_id": one, "sample_index": index, "completion": ANSWER}
        for one in ids
        for index in range(samples)
    ]
    (folder / "answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


@pytest.fixture
def hub():
    with serving_mbpp() as hub:
        yield hub


@pytest.mark.e2e
def test_a_public_set_is_fetched_prepared_and_run_and_the_next_time_it_is_there(
    hub, tmp_path, shared_sandbox
):
    source = {"kind": "huggingface", "path": "own/set", "name": "full", "split": "test"}
    sets = {
        "mbpp_reg": {"layout": "mbpp", "ids": "11-210", "source": source | {"revision": "v1.0"}},
        "learned": {"layout": "mbpp", "role": "train", "source": source | {"revision": COMMIT}},
    }
    (tmp_path / "sets.yaml").write_text(yaml.safe_dump({"datasets": sets}))
    answers(tmp_path, "mbpp_11")
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    environment["SANDBOX_URLS"] = shared_sandbox
    command = ("run", "--dataset", "mbpp_reg", "--data-config", "sets.yaml", *REPLAY)
    done = plumb(*command, "--output", "first", folder=tmp_path, **environment)
    assert done.code == 0, done.stderr
    record = json.loads((tmp_path / "first" / "run.json").read_text())
    assert record["statuses"]["success"] == 1
    assert record["data_files"] == ["data/sets/mbpp_reg/mbpp_reg.parquet"]
    assert record["data_lock"]["path"] == "data/sets/mbpp_reg/manifests/manifest.lock.json"
    assert not (tmp_path / "data" / "sets" / "learned").exists()
    manifest = tmp_path / "data" / "sets" / "mbpp_reg" / "manifests" / "mbpp_reg.jsonl"
    line = json.loads(manifest.read_text())
    assert line["revision"] == line["version"] == COMMIT
    assert line["source_url"] == "https://huggingface.co/datasets/own/set"
    file = tmp_path / record["data_files"][0]
    written = file.stat().st_mtime_ns
    stopped = (*command, "generation.replay.completions=none")  # once the data are there
    again = plumb(*stopped, folder=tmp_path)  # without the address of the hub
    assert "none: no such file" in again.line
    assert file.stat().st_mtime_ns == written
    # A file that was changed since is not the public set.
    file.write_bytes(file.read_bytes() + b" ")
    assert "none: no such file" in plumb(*stopped, folder=tmp_path, **environment).line
    assert file.read_bytes()[-1:] != b" "


@pytest.mark.e2e
def test_options_are_recorded_as_the_keys_that_they_stand_for(tmp_path, shared_sandbox):
    truth = json.dumps({"test_list": MBPP["test_list"]})
    problems = [problem(f"p{number}", ground_truth=truth) for number in range(3)]
    write_dataset(str(tmp_path / "d1.parquet"), problems)
    answers(tmp_path, "p0", "p1", "p2", samples=2)
    options = ("--limit", "2", "--n", "2", "--temperature", "0.5", "--top-p", "0.9")
    options += ("--max_tokens", "77", "run.seed=3")
    command = ("run", "--data", "d1.parquet", *REPLAY, *options, "--output", "out")
    done = plumb(*command, folder=tmp_path, SANDBOX_URLS=shared_sandbox)
    assert done.code == 0, done.stderr
    record = json.loads((tmp_path / "out" / "run.json").read_text())
    rollout, data = record["config"]["actor_rollout_ref"]["rollout"], record["config"]["data"]
    given = {"n": 2, "temperature": 0.5, "top_p": 0.9, "response_length": 77}
    assert {key: rollout[key] for key in given} == given
    assert data["limit"] == 2
    lines = (tmp_path / "out" / "verdicts.jsonl").read_text().splitlines()
    assert sorted({json.loads(line)["problem_id"] for line in lines}) == ["p0", "p1"]
    # Summary and list tell that it is a part.
    assert record["name"] == "out"
    part = "a part of the data: the first 2 problems of each set (data.limit)"
    assert part in done.stdout
    assert "pass@2" in done.stdout
    listed = plumb("runs", ".", folder=tmp_path).stdout
    assert "4/4 first 2" in " ".join(listed.split())
    recorded = ("--data", "d1.parquet", "--completions", "answers.jsonl", "--embedded")
    command = ("judge", *recorded, "data.limit=1", "--output", "judged")
    assert plumb(*command, folder=tmp_path, SANDBOX_URLS=shared_sandbox).code == 0
    lines = (tmp_path / "judged" / "verdicts.jsonl").read_text().splitlines()
    assert [json.loads(line)["problem_id"] for line in lines] == ["p0", "p0"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--limit", "2", "data.limit=3"], "--limit 2 and data.limit=3 contradict each other"),
        (["--dataset", "humanevil"], "is not a known data set; choose from "),
        (["--dataset", "codecontests_train"], "--dataset codecontests_train is training data"),
        (["--data-config", "x.yaml"], "--data-config describes the sets of --dataset"),
        (["--dataset", "a", "--data-config", "none.yaml"], "none.yaml"),
        ([], "no data sets: `plumb data prepare --config configs/data.yaml` writes some"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, said, tmp_path, monkeypatch):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(run)
    done = CliRunner().invoke(app, options)
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)
