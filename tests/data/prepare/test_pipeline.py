"""Preparation of data sets: what is published, families, contests selected by day."""

import json
from pathlib import Path

import fsspec
import pytest

from services.data.check import check
from services.data.config import PrepareConfig, families_of
from services.data.prepare.pipeline import prepare
from shared.datasets import read_dataset
from shared.errors import DataError
from tests.data.layouts.rows import humaneval_plus, livecodebench
from tests.data.prepare.support import PROMPTS, Silent, row
from tests.data.support import write_lines


def test_what_is_written(desk):
    desk.source("one", [row(0), row(1)], version="7", licence="MIT", source_url="https://x.test")
    desk.source("two", [row(2)], role="train")
    prepared = desk.prepare(commands=["plumb data prepare --config c.yaml"])
    assert prepared.audit.overlaps == ()
    problems = read_dataset(str(desk.data("one")))
    assert [(problem.dataset, problem.problem_id, problem.quality) for problem in problems] == [
        ("one", "p0", "ok"),
        ("one", "p1", "ok"),
    ]
    first, _ = desk.listed("one")
    assert first == {
        "dataset": "one",
        "split": "test",
        "problem_id": "p0",
        "prompt_sha256": problems[0].prompt_sha256,
        "prompt_length": len(PROMPTS[0]),
        "num_test_cases": 1,
        "version": "7",
        "source_url": "https://x.test",
        "revision": first["revision"],
        "licence": "MIT",
        "quality": "ok",
    }
    assert first["revision"].startswith("sha256:")
    lock = json.loads(Path(prepared.lock).read_text())
    lists = {
        f"{kind}_{name}.jsonl"
        for kind in ("duplicates", "dropped", "quality")
        for name in ("one", "two")
    }
    assert lock["files"].keys() == lists | {
        "one.parquet",
        "two.parquet",
        "one.jsonl",
        "two.jsonl",
        "overlaps.jsonl",
    }
    report = Path(prepared.report).read_text()
    assert "| one | test | eval | 2 | 0 | 0 | 2 |" in report
    assert "plumb data prepare --config c.yaml" in report
    assert "No unreviewed overlap" in report


def test_duplicates_within_a_set_are_taken_out_and_listed(desk):
    again = PROMPTS[0].upper()
    desk.source("one", [row(0), row(1), row(2, prompt=PROMPTS[0] + "  \r\n"), row(3, prompt=again)])
    desk.prepare()
    exact, near = desk.listed("duplicates_one")
    assert (exact["problem_id"], exact["duplicate_of"], exact["kind"]) == ("p2", "p0", "exact")
    assert exact["removed"]
    assert exact["place"].endswith("one.jsonl:3")
    assert (near["problem_id"], near["duplicate_of"], near["removed"]) == ("p3", "p0", False)
    assert [line["problem_id"] for line in desk.listed("one")] == ["p0", "p1", "p3"]


def test_an_overlap_of_two_sets_is_reported_and_everything_written(desk):
    desk.source("train", [row(0), row(1)], role="train")
    desk.source("test", [row(2), row(3, prompt=PROMPTS[1].upper())])
    prepared = desk.prepare()
    (overlap,) = prepared.audit.overlaps
    assert {overlap.a.name, overlap.b.name} == {"train/p1", "test/p3"}
    assert desk.data("train").exists()
    report = Path(prepared.report).read_text()
    assert "**Unreviewed overlaps between sets: 1 (pairs of problems)." in report
    assert "| train | test | 1 | 0 |" in report
    assert Path(prepared.lock).exists()


def test_the_report_has_a_column_for_each_finding_and_names_the_training_set_first(desk):
    same = {"inputs": ["1", "1"], "outputs": ["", ""]}
    desk.source("test", [row(0), row(2, prompt=" ", ground_truth=same)])
    desk.source("train", [row(1, prompt=PROMPTS[0])], role="train")
    lines = Path(desk.prepare().report).read_text().splitlines()
    head = next(line for line in lines if line.startswith("| set | ok |"))
    columns = [word.replace(" ", "_") for word in head.strip("| ").split(" | ")]
    cells = lines[lines.index(head) + 2].strip("| ").split(" | ")
    found = {column for column, cell in zip(columns, cells, strict=True) if cell == "1"}
    assert found == {"ok", "duplicate_tests", "empty_statement", "blank_output"}
    assert "| train | test | 1 | 0 |" in lines


def test_a_reviewed_overlap_is_none(desk, tmp_path):
    desk.source("train", [row(1)], role="train")
    desk.source("test", [row(3, prompt=PROMPTS[1])])
    allowed = tmp_path / "allowed.yaml"
    allowed.write_text(
        "- {a: test/p3, b: train/p1, reason: the same on purpose}\n"
        "- {a: test/p3, b: train/p9, reason: was one}\n"
    )
    desk.keys = {"allow": str(allowed)}
    prepared = desk.prepare()
    assert prepared.audit.overlaps == ()
    report = Path(prepared.report).read_text()
    assert "the same on purpose" in report
    assert "Reviews without a matching overlap" in report


def test_the_same_data_give_the_same_manifests(desk):
    desk.source("one", [row(0)])
    desk.prepare()
    before = {path: path.read_bytes() for path in desk.manifests.iterdir()}
    desk.prepare()
    assert {path: path.read_bytes() for path in desk.manifests.iterdir()} == before


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(0), b"{"], "one.jsonl:2: not JSON"),
        ([row(0), b'{"prompt": "\xff"}'], "one.jsonl:2: not UTF-8"),
        ([row(0), {**row(1), "prompt": 7}], "one.jsonl:2: prompt: "),
        ([row(0), row(1, problem_id="p0")], "one.jsonl:2: another problem 'p0' is at "),
        (
            [row(0), row(1, ground_truth={"inputs": ["1"], "outputs": []})],
            "one.jsonl:2: problem 'p1' cannot be used: ",
        ),
        ([], "no problem"),
    ],
)
def test_bad_input_leaves_what_was_there(desk, rows, said):
    desk.source("one", [row(0)])
    desk.prepare()
    before = {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()}
    desk.source("one", rows)
    with pytest.raises(DataError, match=said.replace("(", r"\(")) as caught:
        desk.prepare()
    assert len(str(caught.value).splitlines()) == 1
    before.pop(desk.folder / "one.jsonl")
    after = {path: path.read_bytes() for path in desk.folder.rglob("*") if path.is_file()}
    after.pop(desk.folder / "one.jsonl")
    assert after == before


def test_no_source_is_replaced(desk):
    path = desk.source("set", [row(0)])
    before = path.read_bytes()
    desk.keys["manifests"] = str(desk.folder)
    with pytest.raises(DataError, match="the source is this file"):
        desk.prepare()
    assert path.read_bytes() == before


def test_secrets_of_a_source_are_not_published(desk):
    path = desk.source("one", [row(0), row(1, prompt=PROMPTS[0])])
    fsspec.filesystem("memory").pipe("/user:topsecret@bucket/one.jsonl", path.read_bytes())
    desk.sets["one"]["source"]["path"] = "memory://user:topsecret@bucket/one.jsonl"
    desk.prepare()
    assert desk.listed("one")[0]["source_url"] == "memory://***@bucket/one.jsonl"
    assert not [file for file in desk.manifests.iterdir() if b"topsecret" in file.read_bytes()]


def test_the_text_of_data_is_no_markup_in_the_report(desk):
    evil = "<script>alert(1)</script> | `x` **bold** \u202e [a](b)"
    same = {"inputs": ["1", "1"], "outputs": ["2", "2"]}
    desk.source("one", [row(0, problem_id=evil, ground_truth=same), row(1)])
    report = Path(desk.prepare().report).read_text()
    assert [line for line in report.splitlines() if line.startswith("| one ")]
    assert "\\<script\\>" in report


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
    report = check(files, None, None, families_of(config.datasets))
    assert len(report.reviewed.open) == overlaps
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
