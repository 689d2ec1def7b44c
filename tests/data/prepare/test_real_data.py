"""Preparation of the public files: counts, findings, and detection of planted leaks."""

import pytest

from tests.data.prepare.support import Desk

pytestmark = pytest.mark.real_data


@pytest.fixture(scope="module")
def prepared(real_data, tmp_path_factory):
    desk = Desk(tmp_path_factory.mktemp("real"))
    files = {
        "codecontests_test": ("code_contests", "code_contests_test_40.jsonl.gz"),
        "humaneval": ("humaneval", "HumanEval.jsonl.gz"),
        "mbpp_reg": ("mbpp", "mbpp.jsonl"),
    }
    for name, (layout, file) in files.items():
        source = {"kind": "local", "path": str(real_data / file)}
        desk.sets[name] = {"layout": layout, "source": source}
    desk.sets["codecontests_test"] |= {"split": "test", "generated_tests": True}
    desk.sets["mbpp_reg"] |= {"ids": "11-210"}
    desk.sets["mbpp"] = desk.sets["mbpp_reg"] | {"ids": None, "role": "train"}
    return desk, desk.prepare().audit


def test_counts(prepared):
    _, audit = prepared
    counts = {
        dataset.name: (dataset.rows, dataset.problems, len(dataset.dropped))
        for dataset in audit.datasets
    }
    assert counts == {
        "codecontests_test": (40, 40, 0),
        "humaneval": (164, 164, 0),
        "mbpp_reg": (200, 200, 0),
        "mbpp": (974, 974, 0),
    }
    reg = next(dataset for dataset in audit.datasets if dataset.name == "mbpp_reg")
    assert list(reg.problem_ids) == [f"mbpp_{number}" for number in range(11, 211)]


def test_the_public_sets_are_apart_and_a_set_with_its_own_part_is_not(prepared):
    _, audit = prepared
    found = {(pair.first, pair.second): pair for pair in audit.pairs if pair.open}
    assert found.keys() == {("mbpp_reg", "mbpp")}
    assert found["mbpp_reg", "mbpp"].kinds["exact"] == 200
    assert [(pair.first, pair.second) for pair in audit.leaks if pair.open] == [
        ("mbpp", "mbpp_reg")
    ]


def test_findings_on_tests(prepared):
    desk, audit = prepared
    quality = {dataset.name: dict(dataset.quality) for dataset in audit.datasets}
    assert quality["humaneval"] == {"ok": 149, "duplicate_tests": 15}
    assert quality["mbpp"] == {"ok": 966, "duplicate_tests": 5, "shared_process": 3}
    assert quality["codecontests_test"] == {"ok": 36, "duplicate_tests": 3, "large_output": 1}
    (large,) = [
        entry for entry in desk.listed("quality_codecontests_test") if "bytes" in entry["reason"]
    ]
    assert large["reason"].startswith("test 18 expects 175,982 bytes")
