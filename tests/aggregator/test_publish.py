import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from services.aggregator.__main__ import publish_due
from services.aggregator.ingest import Ingester
from services.aggregator.publish import publish
from services.aggregator.report import _frame
from services.aggregator.settings import AggregatorSettings, OutputRoots
from shared import artifacts
from shared.errors import OutputError
from shared.ledger import Ledger
from shared.ledger.ledger import unjudged_verdict
from shared.run_record import RunState, make_plan
from shared.schemas import Generation, Problem, SampleId, Verdict
from shared.statuses import FinalStatus, TokenSource
from tests.aggregator.reports import finished
from tests.aggregator.runs import begin
from tests.disks import files_up_to
from tests.shared.ledgers import generation, problem, put_meta, verdict

PROBLEMS = [problem("p1"), problem("p2"), problem("p3"), problem("q", "d2")]
PLAN = make_plan(PROBLEMS, lambda _problem: range(1))
P1, P2, P3, Q = PLAN.samples()
STATUSES = {
    P1: FinalStatus.SUCCESS,
    P2: FinalStatus.WRONG_ANSWER,
    P3: FinalStatus.TIMEOUT,
    Q: FinalStatus.SUCCESS,
}


@pytest.fixture
def ledger(redis: Redis, tmp_path: Path) -> Ledger:
    """A run with every completion and no verdict."""
    meta = {"output": str(tmp_path), "fingerprint": "f", "name": "n", "state": "judged"}
    ledger = begin(redis, PROBLEMS, **meta)
    for sample in reversed(PLAN.samples()):
        ledger.record(made(sample))
    ledger.add_active_seconds(2.0)
    return ledger


def made(sample: SampleId) -> Generation:
    return generation(sample, f"answer to {sample.problem_id}", output_tokens=100, gen_time=1.0)


def judge_all(ledger: Ledger, *but: SampleId) -> None:
    for sample, status in STATUSES.items():
        if sample not in but:
            failures = ["http_503", "http_500: x"] if sample == P2 else []
            record = verdict(made(sample), status, attempts=3, infra_failures=failures)
            assert ledger.record_verdict(record)


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text("utf-8"))


def test_the_artifacts_of_a_complete_run(ledger: Ledger, tmp_path: Path) -> None:
    judge_all(ledger)
    publish(ledger)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            *(artifacts.SUMMARY, artifacts.RUN, artifacts.GENERATIONS, artifacts.VERDICTS),
            *(artifacts.PROBLEMS, artifacts.SLICES, artifacts.REPORT, artifacts.QA_LOGS),
        ]
    )
    assert ledger.state() is RunState.COMPLETE
    lines = (tmp_path / artifacts.GENERATIONS).read_text().splitlines()
    assert [Generation.model_validate_json(line) for line in lines] == [
        made(sample) for sample in PLAN.samples()
    ]
    lines = (tmp_path / artifacts.VERDICTS).read_text().splitlines()
    verdicts = [Verdict.model_validate_json(line) for line in lines]
    assert {v.sample: v.final_status for v in verdicts} == STATUSES
    assert [v.sample for v in verdicts] == PLAN.samples()


def test_what_a_killed_aggregator_left_of_its_report_is_removed(
    ledger: Ledger, tmp_path: Path
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = tmp_path / f".{artifacts.REPORT}.{socket.gethostname()}.{ended.pid}.tmp"
    left.touch()
    judge_all(ledger)
    publish(ledger)
    assert not left.exists()


def test_tokens_that_no_engine_counted_are_counted_in_the_record(
    ledger: Ledger, tmp_path: Path
) -> None:
    for sample, source in zip(PLAN.samples()[:2], ("tokenizer", "estimate"), strict=True):
        ledger.record(made(sample).model_copy(update={"output_tokens_from": TokenSource(source)}))
    judge_all(ledger)
    publish(ledger)
    assert read(tmp_path, artifacts.RUN)["output_tokens_from"] == {"tokenizer": 1, "estimate": 1}


def test_the_summary(ledger: Ledger, tmp_path: Path) -> None:
    judge_all(ledger)
    publish(ledger)
    summary = read(tmp_path, artifacts.SUMMARY)
    assert list(summary) == ["d1", "d2"]
    assert {
        *("accepted_at_1", "pass_ratio_mean", "pass_ratio_p50", "pass_ratio_p90"),
        *("exec_success_rate", "wrong_answer_rate", "runtime_error_rate", "timeout_rate"),
        *("syntax_error_rate", "empty_output_rate", "avg_total_gen_tokens", "avg_gen_time"),
        *("avg_total_judge_time", "p95_total_judge_time", "throughput"),
        *("cost_per_solved_tokens", "cost_per_solved_judge_time", "accepted_at_1_ci95"),
        *("total_spend_per_solved_tokens", "coverage", "accepted_at_1_bounds", "api_errors"),
    } <= summary["d1"].keys()
    d1 = summary["d1"]
    assert (d1["total_problems"], d1["total_samples"], d1["api_errors"]) == (3, 3, 0)
    assert d1["accepted_at_1"] == pytest.approx(1 / 3)
    assert d1["exec_success_rate"] == pytest.approx(2 / 3)
    assert d1["timeout_rate"] == pytest.approx(1 / 3)
    assert d1["avg_total_gen_tokens"] == 100
    assert d1["throughput"] == pytest.approx(1.5)
    assert d1["cost_per_solved_tokens"] == 100
    assert d1["total_spend_per_solved_tokens"] == 300
    assert summary["d2"]["accepted_at_1"] == 1


def test_slices_and_problems(redis: Redis, tmp_path: Path) -> None:
    publish(finished(redis, str(tmp_path)))
    slices = read(tmp_path, artifacts.SLICES)
    assert list(slices) == ["d1", "d2"]
    assert list(slices["d1"]) == ["difficulty", "tag", "tests", "prompt_length"]
    assert {name: part["n"] for name, part in slices["d1"]["tag"].items()} == {
        "dp": 2,
        "graphs": 2,
        "untagged": 1,
    }
    assert slices["d1"]["difficulty"]["easy"]["accepted_at_1"] == 0.5
    assert slices["d1"]["prompt_length"]["500-999"]["problems"] == 1
    lines = (tmp_path / artifacts.PROBLEMS).read_bytes().splitlines()
    problems = [json.loads(line) for line in lines]
    assert [(p["problem_id"], p["num_tests"], p["tags"]) for p in problems] == [
        ("p1", 1, ["dp", "graphs"]),
        ("p2", 1, []),
        ("q", 1, []),
    ]
    assert "ground_truth" not in problems[0]


def test_run_json_of_a_complete_run(ledger: Ledger, tmp_path: Path) -> None:
    judge_all(ledger)
    ledger.record_verdict(verdict(made(P1), FinalStatus.TIMEOUT))
    publish(ledger)
    run = read(tmp_path, artifacts.RUN)
    assert (run["run"], run["name"], run["fingerprint"]) == ("run-1", "n", "f")
    assert (run["state"], run["complete"]) == ("complete", True)
    assert (run["samples"], run["samples_judged"], run["samples_unjudged"]) == (4, 4, 0)
    assert run["unjudged"] == []
    assert run["statuses"] == {
        **{status.value: 0 for status in FinalStatus},
        "success": 2,
        "wrong_answer": 1,
        "timeout": 1,
    }
    assert run["sandbox_requests"] == 12
    assert run["infra_failures"] == {"http_503": 1, "http_500": 1}
    assert run["duplicate_verdicts"] == 1
    assert run["jobs_redelivered"] == 0
    assert [(d["dataset"], d["samples"]) for d in run["datasets"]] == [("d1", 3), ("d2", 1)]
    assert run["active_seconds"] == 2.0
    assert "plan" not in run


def test_a_missing_verdict_or_an_api_error_makes_the_run_incomplete(
    ledger: Ledger, tmp_path: Path
) -> None:
    judge_all(ledger, P3)
    publish(ledger)
    run = read(tmp_path, artifacts.RUN)
    assert (run["complete"], run["samples_unjudged"]) == (False, 1)
    reason = "sandbox: http_503"
    ledger.record_verdict(unjudged_verdict(P3, made(P3).completion_sha256, reason))
    publish(ledger)
    run = read(tmp_path, artifacts.RUN)
    assert (run["state"], run["complete"]) == ("incomplete", False)
    assert (run["samples"], run["samples_judged"], run["samples_unjudged"]) == (4, 3, 1)
    assert run["unjudged"] == [{"sample": P3.key, "reason": reason}]
    assert run["statuses"]["api_error"] == 1
    assert run["infra_failures"]["sandbox"] == 1
    d1 = read(tmp_path, artifacts.SUMMARY)["d1"]
    assert d1["api_errors"] == 1
    assert d1["accepted_at_1"] == 0.5
    assert d1["accepted_at_1_bounds"] == pytest.approx([1 / 3, 2 / 3])
    assert d1["coverage"] == pytest.approx(2 / 3)


def test_publishing_twice_writes_the_same(ledger: Ledger, tmp_path: Path) -> None:
    judge_all(ledger)
    publish(ledger)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    publish(ledger)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


def test_a_folder_that_cannot_be_written(ledger: Ledger, redis: Redis, tmp_path: Path) -> None:
    judge_all(ledger)
    (tmp_path / "file").write_text("")
    put_meta(ledger, output=str(tmp_path / "file" / "out"))
    with pytest.raises(OutputError):
        publish(ledger)
    assert ledger.state() is RunState.JUDGED
    ingester = Ingester(redis)
    ingester.catch_up()
    publish_due(ingester)
    assert ledger.state() is RunState.FAILED
    assert "cannot write" in ledger.meta().publish_error
    assert list(ingester.unpublished()) == []


def test_files_of_the_program_that_are_gone_fail_the_run_alone(
    ledger: Ledger, redis: Redis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As during an upgrade."""
    judge_all(ledger)
    monkeypatch.setattr("services.aggregator.report._API", tmp_path / "report.js")
    _frame.cache_clear()
    publish_due(Ingester(redis))
    assert ledger.state() is RunState.FAILED
    assert "report.js" in (ledger.meta().publish_error or "")


class CountingLedger(Ledger):
    """Counts what is read of completions, verdicts and problems."""

    def __init__(self, redis: Redis, run: str) -> None:
        super().__init__(redis, run)
        self.read: Counter[str] = Counter()

    def completions(self, samples: Sequence[SampleId]) -> Iterator[Generation]:
        self.read.update(f"completion {sample.key}" for sample in samples)
        return super().completions(samples)

    def verdicts(self, samples: Sequence[SampleId]) -> Iterator[Verdict]:
        self.read.update(f"verdict {sample.key}" for sample in samples)
        return super().verdicts(samples)

    def problem(self, dataset: str, problem_id: str) -> Problem | None:
        self.read[f"problem {dataset}/{problem_id}"] += 1
        return super().problem(dataset, problem_id)

    def completion(self, sample: SampleId) -> Generation | None:
        return next(self.completions([sample]), None)

    def verdict(self, sample: SampleId) -> Verdict | None:
        return next(self.verdicts([sample]), None)


def test_the_ledger_is_read_once(redis: Redis, tmp_path: Path) -> None:
    """And the chosen samples of the QA logs once more; the report comes from the files."""
    finished(redis, str(tmp_path))
    ledger = CountingLedger(redis, "run-1")
    publish(ledger)
    assert len(ledger.read) == 4 + 4 + 3
    assert max(many for name, many in ledger.read.items() if not name.startswith("problem")) == 2
    assert len(list((tmp_path / artifacts.QA_LOGS).iterdir())) == 2


@pytest.mark.parametrize("key", ["plan", "verdict"])
def test_records_of_another_version_fail_their_run_alone(
    ledger: Ledger, redis: Redis, tmp_path: Path, key: str
) -> None:
    judge_all(ledger)
    if key == "plan":
        put_meta(ledger, plan={"samples": 3})
    else:
        redis.hset("plumbline:run:run-1:verdicts", P1.key, "{}")
    other = finished(redis, str(tmp_path / "other"), "run-2")
    ingester = Ingester(redis)
    ingester.catch_up()
    assert publish_due(ingester)
    assert ledger.state() is RunState.FAILED
    assert "of run run-1 in Redis cannot be read" in ledger.meta().publish_error
    assert other.state() is RunState.COMPLETE


# A full disk: old artifacts stay intact, and nothing is lost


AGAIN = SampleId("d1", "p1", 1)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def answer_again(ledger: Ledger, size: int) -> None:
    """Another, long answer of one sample."""
    made = generation(AGAIN, "x" * size)
    ledger.record(made)
    assert ledger.record_verdict(verdict(made))
    ledger.set_state(RunState.JUDGED)


def test_a_file_that_cannot_be_written_leaves_the_old_one(redis: Redis, tmp_path: Path) -> None:
    ledger = finished(redis, str(tmp_path / "run"))
    publish(ledger)
    before = contents(tmp_path / "run")
    answer_again(ledger, 300_000)
    with files_up_to(200_000), pytest.raises(OutputError, match=r"generations\.jsonl"):
        publish(ledger)
    assert contents(tmp_path / "run") == before
    assert ledger.state() is RunState.JUDGED


def test_a_report_that_cannot_be_written_stands_alone(redis: Redis, tmp_path: Path) -> None:
    """All other artifacts are there; only the page is not, and the next try makes it."""
    ledger = finished(redis, str(tmp_path / "run"))
    ingester = Ingester(redis)
    with files_up_to(30_000):
        publish_due(ingester)
    assert ledger.state() is RunState.FAILED
    assert artifacts.REPORT in ledger.meta().publish_error
    there = contents(tmp_path / "run")
    assert artifacts.REPORT not in there
    assert not [name for name in there if name.endswith(".tmp")]
    assert json.loads(there[artifacts.RUN])["complete"] is True
    assert {artifacts.SUMMARY, artifacts.SLICES, artifacts.VERDICTS} < there.keys()
    ledger.set_state(RunState.JUDGED)
    publish_due(ingester)
    assert ledger.state() is RunState.COMPLETE
    assert (tmp_path / "run" / artifacts.REPORT).exists()


# Artifacts are written where the operator allows it, whatever is stored in Redis


INSIDE = [
    *("/outputs", "/outputs/", "/outputs/a", "file:///outputs/a", "/outputs/../outputs/a"),
    *("s3://bucket/runs", "s3://bucket/runs/a/b", "local:///outputs/x", "/outputs/a..b"),
]
OUTSIDE = [
    *("/", "/etc", "/outputs2", "/outputs/../etc", "file:///etc", "file:/etc", "local:/etc"),
    *("etc", "~/x", "~root/x", "s3://bucket", "s3://bucket/runs2", "s3://bucket/runs/../other"),
    *("s3://other/runs", "s3://me:key@bucket/runs", "s3://bucket/runs?x=1"),
    *("s3://bucket/runs#x", "s3://bucket/runs/%2e%2e/x", "S3://bucket/runs"),
    *("simplecache::s3://bucket/runs", "s3://bucket/runs::file:///etc", "FILE:///outputs"),
    *("ssh://host/outputs", "memory://outputs", "https://host/s3://bucket/runs"),
    *("github://org:repo@/outputs", "/outputs/\0", ""),
]


def test_folders_inside_and_outside_the_roots() -> None:
    roots = OutputRoots(["/outputs", "s3://bucket/runs/"])

    def is_inside(url: str) -> bool:
        try:
            roots.check(url)
        except OutputError:
            return False
        return True

    assert [url for url in INSIDE if not is_inside(url)] == []
    assert [url for url in OUTSIDE if is_inside(url)] == []


def test_links_are_followed(tmp_path: Path) -> None:
    root = tmp_path / "outputs"
    root.mkdir()
    (root / "out").symlink_to("/etc")
    (tmp_path / "link").symlink_to(root)
    OutputRoots([str(root)]).check(f"{tmp_path}/link/run")
    OutputRoots([str(tmp_path / "link")]).check(f"{root}/run")
    with pytest.raises(OutputError):
        OutputRoots([str(root)]).check(f"{root}/out/run")


def test_without_roots_a_run_may_name_any_folder() -> None:
    AggregatorSettings().roots.check("/anywhere")
    assert AggregatorSettings(output_roots=" /a, s3://b ").roots.check("s3://b/x") is None


def test_nothing_is_written_outside(redis: Redis, tmp_path: Path) -> None:
    roots = OutputRoots([str(tmp_path / "allowed")])
    bad = finished(redis, str(tmp_path / "elsewhere"), run="bad")
    good = finished(redis, str(tmp_path / "allowed" / "good"), run="good")
    publish_due(Ingester(redis), roots)
    assert not (tmp_path / "elsewhere").exists()
    assert bad.state() is RunState.FAILED
    assert "outside PLUMBLINE_OUTPUT_ROOTS" in (bad.meta().publish_error or "")
    assert good.state() is RunState.COMPLETE
    assert (tmp_path / "allowed" / "good" / "run.json").exists()
