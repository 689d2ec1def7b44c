"""`plumb data prepare` from a hub and from a sandbox, online and offline."""

import json

import pytest
import yaml

from shared.datasets import read_dataset
from tests.cli.commands import plumb
from tests.data.rows.hub_server import COMMIT, serving_mbpp
from tests.sandbox_records import with_records
from tests.sandboxes import own_sandbox

CONTEST = {
    "id": 5,
    "content": "Print the sum of two integers that stand on one line.",
    "labels": {"name": "A. Sum", "difficulty": "EASY"},
    "test": [{"input": {"stdin": "1 2\n"}, "output": {"stdout": "3\n"}}],
}


@pytest.fixture
def hub():
    with serving_mbpp() as hub:
        yield hub


def test_sets_of_a_hub_and_of_a_sandbox(hub, tmp_path):
    source = {"kind": "huggingface", "path": "own/set", "name": "full", "split": "test"}
    with (
        own_sandbox(tmp_path) as sandbox,
        with_records(sandbox, {"code_contests": [CONTEST]}) as url,
    ):
        sets = {
            "mbpp_reg": {
                "layout": "mbpp",
                "ids": "11-210",
                "source": source | {"revision": COMMIT},
            },
            "contests": {
                "layout": "code_contests",
                "split": "test",
                "source": {"kind": "sandbox_fusion", "url": url, "dataset": "code_contests"},
            },
        }
        (tmp_path / "data.yaml").write_text(yaml.safe_dump({"datasets": sets}, sort_keys=False))
        environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hub")}
        prepare = ("data", "prepare", "--config", "data.yaml")
        done = plumb(*prepare, folder=tmp_path, **environment)
    assert done.code == 0, done.stderr
    (mbpp,) = read_dataset(str(tmp_path / "data" / "eval" / "mbpp_reg.parquet"))
    assert (mbpp.problem_id, mbpp.tests.cases) == ("mbpp_11", 2)
    (contest,) = read_dataset(str(tmp_path / "data" / "eval" / "contests.parquet"))
    assert contest.tests.outputs == ["3\n"]
    assert contest.prompt == CONTEST["content"]
    line = json.loads((tmp_path / "data_manifests" / "mbpp_reg.jsonl").read_text())
    assert line["revision"] == line["version"] == COMMIT
    assert line["source_url"] == "https://huggingface.co/datasets/own/set"
    # The hub is gone; only its files are cached.
    hub.shutdown()
    hub.server_close()
    again = plumb(*prepare, "--offline", folder=tmp_path, **environment)
    assert again.code == 2
    assert "mbpp_reg: 1 rows" in again.stdout
    assert "offline, and rows of a server are not cached" in again.line
