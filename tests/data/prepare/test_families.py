"""Data sets of one family, and contests selected by day, in a whole preparation."""

import json

import pytest

from services.data.check import check
from services.data.config import PrepareConfig, families_of
from services.data.prepare.pipeline import prepare
from tests.data.layouts.rows import humaneval_plus, livecodebench
from tests.data.prepare.support import Silent
from tests.data.support import write_lines


def prepared(folder, datasets):
    paths = {name: str(folder / name) for name in ("output", "manifests", "raw")}
    config = PrepareConfig.model_validate({**paths, "datasets": datasets})
    return config, prepare(config, Silent()).audit


def local(path, layout, **options):
    return {"layout": layout, "source": {"kind": "local", "path": path}, **options}


@pytest.mark.parametrize(
    ("first", "second", "overlaps"),
    [("", "", 1), ("h", "h", 0), ("h", "", 1), ("h", "other", 1), ("b", "", 0)],
)
def test_sets_of_one_family_may_overlap(tmp_path, first, second, overlaps):
    source = write_lines(tmp_path / "plus.jsonl", [humaneval_plus()])
    config, audit = prepared(
        tmp_path,
        {
            "a": local(source, "humaneval_plus", family=first),
            "b": local(source, "humaneval_plus", family=second),
        },
    )
    assert len(audit.overlaps) == overlaps
    files = [str(tmp_path / "output" / f"{name}.parquet") for name in config.datasets]
    found = check(files, None, None, families_of(config.datasets))
    assert len(found.reviewed.open) == overlaps
    assert len(check(files, None, None).reviewed.open) == 1


def test_the_days_of_contests_are_recorded(tmp_path):
    rows = [livecodebench(), livecodebench(question_id="old", contest_date="2020-01-01")]
    source = write_lines(tmp_path / "lcb.jsonl", rows)
    days = {"since": "2024-01-01", "until": "2024-12-31"}
    _, audit = prepared(tmp_path, {"lcb": local(source, "livecodebench", contest_dates=days)})
    (dataset,) = audit.datasets
    assert dataset.problem_ids == ("abc999_a",)
    assert dataset.source.endswith("contests since 2024-01-01 until 2024-12-31")
    (line,) = (tmp_path / "manifests" / "lcb.jsonl").read_text().splitlines()
    assert json.loads(line)["contest_date"] == "2024-09-07"
