import json

import pytest

from services.data.config import DatasetConfig
from services.data.prepare import stages
from services.data.prepare.stages import stage_dataset
from tests.data.prepare.support import row

FIRST = "1" * 40


@pytest.fixture
def hub(monkeypatch):
    """A hub whose branch is at ``commits[-1]``; notes the revision that rows are read from."""

    class Hub:
        def __init__(self):
            self.commits = [FIRST]
            self.read = []

        def resolve_revision(self, source, *, offline):
            given = source.revision
            return given if len(given) == 40 else self.commits[-1]

        def rows(self, source, _columns, *, offline):
            self.read.append(source.revision)
            yield "hub:1", {**row(0), "ground_truth": json.dumps(row(0)["ground_truth"])}

    made = Hub()
    monkeypatch.setattr(stages.hub, "resolve_revision", made.resolve_revision)
    monkeypatch.setattr(stages.hub, "rows", made.rows)
    return made


def from_hub(revision):
    source = {"kind": "huggingface", "path": "a/b", "split": "test", "revision": revision}
    return DatasetConfig.model_validate({"layout": "jsonl", "source": source})


def staged(folder, dataset, *, offline):
    return stage_dataset("set", dataset, folder, lambda: None, offline=offline)


def test_rows_are_read_from_the_commit_that_is_recorded(hub, tmp_path):
    """The branch may move between the two."""
    assert staged(tmp_path, from_hub("main"), offline=False).revision == FIRST
    assert hub.read == [FIRST]
