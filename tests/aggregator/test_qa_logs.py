import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from services.aggregator.publish import publish
from services.aggregator.qa_logs import apportion, choose, file_name
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.config import Config, load_config
from shared.errors import ConfigError
from shared.ledger import Ledger
from shared.run_record import make_plan
from shared.schemas import FailedCase, Problem, SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import enter, generation, problem, put_meta, verdict

STARTED = 1_750_000_000.0
WANTED = {"success": 1, "wrong_answer": 2, "syntax_error": 0, "runtime_error": 0, "timeout": 1}
QUOTAS = {"d1": WANTED}
STATUSES = [FinalStatus.SUCCESS] * 3 + [FinalStatus.WRONG_ANSWER] * 3 + [FinalStatus.API_ERROR] * 2


def open_run(
    redis: Redis, output: str, problems: list[Problem], **sections: Any
) -> tuple[Ledger, Config]:
    """A judged run; problem i ends as ``STATUSES[i]``, with a long text in its failed case."""
    document = {
        "actor_rollout_ref": {"model": {"path": "m"}, "rollout": {"response_length": 99}},
        "qa_logs": {"quotas": QUOTAS},
        **sections,
    }
    config = Config.model_validate(document)
    plan = make_plan(problems, lambda _problem: range(1))
    ledger = Ledger(redis, "run-1")
    meta = {"output": output, "started_at": STARTED, "seed": 3, "state": "judged", "name": "n"}
    enter(ledger, problems, plan, config=config, **meta)
    for sample, status in zip(plan.samples(), STATUSES, strict=False):
        made = generation(sample, f"answer to {sample.problem_id}", output_tokens=7)
        ledger.record(made)
        failed = FailedCase(case_index=4, status=status, input="i" * 5000, actual="", stderr=None)
        breakdown = {"passed": 1, "wrong_answer": 2, "not_run": 3}
        found = {"first_failed_case": failed, "error_breakdown": breakdown, "cases_not_run": 3}
        ledger.record_verdict(verdict(made, status, **found))
    return ledger, config


def problems(count: int = len(STATUSES), dataset: str = "d1", **fields: Any) -> list[Problem]:
    return [problem(f"p{i}", dataset, **fields) for i in range(count)]


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    lines = (folder / artifacts.QA_LOGS / name).read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_record(redis: Redis, tmp_path: Path) -> None:
    ledger, _ = open_run(redis, str(tmp_path), problems())
    publish(ledger)
    record = next(r for r in records(tmp_path, "d1_4.jsonl") if r["final_status"] != "success")
    name = record["problem_id"]
    failed = record["execution_output"]["first_failed_case"]
    assert (failed["case_index"], failed["actual"], failed["stderr"]) == (4, "", None)
    assert len(failed["input"]) < 2100
    assert record | {"execution_output": None} == {
        "problem_id": name,
        "dataset": "d1",
        "sample_index": 0,
        "prompt": f"Solve {name}.",
        "messages": None,
        "response": f"answer to {name}",
        "ground_truth": {"inputs": ["1\n"], "outputs": ["1\n"], "num_test_cases": 1},
        "pass_ratio": 0.0,
        "cases_not_run": 3,
        "accepted": False,
        "final_status": "wrong_answer",
        "detail": None,
        "output_tokens": 7,
        "total_judge_time": 0.5,
        "error_breakdown": {
            "passed": 1,
            "wrong_answer": 2,
            "timeout": 0,
            "runtime_error": 0,
            "syntax_error": 0,
            "not_run": 3,
        },
        "execution_output": None,
        "metadata": {
            "model": "m",
            "temperature": 0.0,
            "max_new_tokens": 99,
            "timestamp": "2025-06-15T15:06:40+00:00",
        },
    }


def test_quotas_and_what_run_json_says_of_them(redis: Redis, tmp_path: Path) -> None:
    ledger, _ = open_run(redis, str(tmp_path), problems())
    publish(ledger)
    statuses = [r["final_status"] for r in records(tmp_path, "d1_4.jsonl")]
    assert len(statuses) == 4
    assert statuses.count("wrong_answer") >= 2
    assert "api_error" not in statuses
    entry = json.loads((tmp_path / artifacts.RUN).read_text())["qa_logs"]["d1"]
    assert entry["file"] == "qa_logs/d1_4.jsonl"
    assert entry["wanted"] == WANTED
    assert sum(entry["chosen"].values()) == 4
    assert sum(entry["filled"].values()) == 1


@pytest.mark.parametrize(
    ("ground_truth", "shown"),
    [
        (
            {"inputs": ["1", "2", "3", "4"], "outputs": ["x" * 2400, "b", "c", "d"]},
            {"inputs": ["1", "2", "3"], "num_test_cases": 4},
        ),
        (
            {"test": "def check(f): pass", "entry_point": "f", "prompt": "def f():"},
            {"test": "def check(f): pass", "entry_point": "f", "num_test_cases": 1},
        ),
        (
            {"test_list": ["a", "b", "c", "d"], "test_setup_code": ""},
            {"test_list": ["a", "b", "c"], "test_setup_code": "", "num_test_cases": 4},
        ),
    ],
)
def test_tests_are_shortened(
    redis: Redis, tmp_path: Path, ground_truth: dict[str, Any], shown: dict[str, Any]
) -> None:
    made = problems(1, ground_truth=json.dumps(ground_truth))
    ledger, _ = open_run(redis, str(tmp_path), made)
    publish(ledger)
    (record,) = records(tmp_path, "d1_4.jsonl")
    long = record["ground_truth"].pop("outputs", [""])
    assert record["ground_truth"] == shown
    assert "400 characters left out" in long[0] or long == [""]
    assert len(long[0]) < 2050


def test_another_quota_takes_the_place_of_the_old_log(redis: Redis, tmp_path: Path) -> None:
    ledger, config = open_run(redis, str(tmp_path), problems())
    publish(ledger)
    (tmp_path / artifacts.QA_LOGS / "notes.md").write_text("mine")
    document = config.model_dump(mode="json")
    document["qa_logs"]["quotas"]["d1"]["success"] = 3
    put_meta(ledger, config=document)
    publish(ledger)
    names = sorted(path.name for path in (tmp_path / artifacts.QA_LOGS).iterdir())
    assert names == ["d1_6.jsonl", "notes.md"]
    assert len(records(tmp_path, "d1_6.jsonl")) == 6


def test_a_data_set_with_a_slash_and_a_folder_elsewhere(redis: Redis) -> None:
    made = problems(2, dataset="org/set")
    url = "memory://qa-logs-elsewhere"
    ledger, _ = open_run(redis, url, made)
    publish(ledger)
    folder = OutputFolder(url)
    assert folder.names(artifacts.QA_LOGS) == ["org%2Fset_20.jsonl"]
    run = folder.read_json(artifacts.RUN)
    assert run is not None
    assert run["qa_logs"]["org/set"]["chosen"] == {"success": 2}


# The configuration.


def test_a_data_sets_name_may_be_longer_than_a_files() -> None:
    long = [file_name("ü" * 300 + end, 5) for end in "ab"]
    assert all(len(name) < 240 and name.endswith("_5.jsonl") for name in long)
    assert len(set(long)) == 2
    assert file_name("a/b", 5) == "a%2Fb_5.jsonl"


def test_a_status_without_a_quota_is_named() -> None:
    with pytest.raises(ConfigError, match=r"qa_logs\.quotas\.mine\.api_error"):
        load_config(None, ["qa_logs.quotas.mine.api_error=2"])


# Sampling


ANY_STATUS = st.sampled_from(FinalStatus)
QUOTED = [s for s in FinalStatus if s not in (FinalStatus.EMPTY_OUTPUT, FinalStatus.API_ERROR)]
SAMPLES = st.builds(
    SampleId, st.just("d"), st.text(min_size=1, max_size=3), st.integers(0, 3)
)  # fmt: skip
RUNS = st.dictionaries(SAMPLES, ANY_STATUS, max_size=60)
ANY_QUOTA = st.fixed_dictionaries({status: st.integers(0, 12) for status in QUOTED})
COUNTS = st.dictionaries(ANY_STATUS, st.integers(0, 50))


def answered(**counts: int) -> dict[SampleId, FinalStatus]:
    return {
        SampleId("d", f"{status}{number:02}"): FinalStatus(status)
        for status, count in counts.items()
        for number in range(count)
    }


def quota(**counts: int) -> dict[FinalStatus, int]:
    return {FinalStatus(status): count for status, count in counts.items()}


@given(RUNS, ANY_QUOTA, st.integers(), st.randoms())
def test_a_choice_is_as_large_as_the_quota_or_the_run_and_meets_every_quota_that_it_can(
    statuses: dict[SampleId, FinalStatus], wanted: dict[FinalStatus, int], seed: int, shuffler
) -> None:
    choice = choose(statuses.items(), wanted, seed)
    usable = [sample for sample, s in statuses.items() if s is not FinalStatus.API_ERROR]
    assert len(choice.samples) == min(sum(wanted.values()), len(usable))
    assert len(set(choice.samples)) == len(choice.samples)
    assert set(choice.samples) <= set(usable)
    there = list(statuses.values())
    for status, number in wanted.items():
        chosen = sum(statuses[sample] is status for sample in choice.samples)
        assert chosen >= min(number, there.count(status))
        assert choice.chosen.get(status, 0) == chosen
        assert choice.filled.get(status, 0) == max(0, chosen - number)
    items = list(statuses.items())
    shuffler.shuffle(items)
    assert choose(items, wanted, seed) == choice


@given(st.integers(0, 300), COUNTS)
def test_apportioned_numbers_are_whole_and_near_their_share(
    number: int, available: dict[FinalStatus, int]
) -> None:
    total = sum(available.values())
    counts = apportion(number, available)
    assert sum(counts.values()) == min(number, total)
    for status, there in available.items():
        assert 0 <= counts[status] <= there
        if number < total:
            assert abs(counts[status] - number * there / total) < 1


def test_a_choice_that_is_the_same_everywhere() -> None:
    choice = choose(answered(success=20).items(), quota(success=3), 7)
    assert [s.problem_id for s in choice.samples] == ["success03", "success09", "success12"]
