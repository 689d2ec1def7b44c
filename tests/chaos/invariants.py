"""Invariants of a run's folder, and the violations that are found in one."""

import fcntl
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
from redis import Redis

from shared.analysis.metrics import SampleResult, run_throughput, summarize
from shared.analysis.slices import slice_summaries
from shared.finished_run import FinishedRun, open_run
from shared.ledger import JudgeQueue, Ledger
from shared.ledger.keys import JUDGE_QUEUE, REWARD_QUEUE, is_reward_run
from shared.ledger.queue import Batch
from shared.outlines import ProblemOutline
from shared.run_record import RunState
from shared.schemas import Generation, SampleId
from tests.chaos.faults import alive
from tests.e2e import plumb
from tests.processes import start_redis

# Not that of an exception that Python ignores, as in the clean-up of what was interrupted.
_TRACEBACK = re.compile(r"(?<!:\n)^Traceback", re.MULTILINE)
# Temporary files that all sandboxes of a user share, and keep.
SHARED_FILES = (".plumbline-sandbox-*", "plumbline-modules-*", "plumbline-root-*")
# Complete, incomplete, a service could not be kept alive, interrupted, and by signal.
_EXPECTED_ENDS = (0, 1, 2, 130, -signal.SIGKILL, -signal.SIGTERM)


class Invariant(StrEnum):
    """Invariants; each value says what holds."""

    PUBLISHED = "the run is complete"
    LOST = "every sample has a verdict"
    DOUBLED = "no sample has two verdicts"
    CHANGED = "completions and verdicts are those of an undisturbed run"
    COUNTERS = "the counters of run.json are those of the files"
    SUMMARY = "summary and slices are those of the files"
    LEDGER = "the ledger has the verdicts of the files"
    INDEX = "the index is whole, with no sample twice"
    HELD = "no job, lease, permit or lock is held for good"
    LOCKS = "no lock file is in use"
    TEMPORARY = "no temporary file is left"
    PROCESSES = "no process is left"
    ANSWER = "a command ends with a line that says why, and never hangs"


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: Invariant
    found: str

    def __str__(self) -> str:
        return f"not true that {self.invariant}: {self.found}"


Samples = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """Completions and verdicts of a run without faults, by sample; times are left out."""

    generations: Samples
    verdicts: Samples

    @classmethod
    def of(cls, folder: Path) -> "Undisturbed":
        numbers = plumb.numbers(folder)
        return cls(_by_sample(numbers["generations"]), _by_sample(numbers["verdicts"]))


def unpublished(folder: Path, expected: Undisturbed) -> list[Violation]:
    """Check what holds at any time while no command runs in a folder."""
    if not (folder / "verdicts.jsonl").exists() or not (folder / "phase0_summary.json").exists():
        return [*_locks(folder)]
    return [*_locks(folder), *_verdicts(folder, expected)]


def published(folder: Path, expected: Undisturbed) -> list[Violation]:
    """Check everything of a run that ended with exit code 0."""
    run = open_run(str(folder))
    with _copied_ledger(folder) as redis:
        in_redis = [*_ledger(redis, run), *_held(redis)]
    return [
        *_verdicts(folder, expected),
        *_lost(folder, expected),
        *_record(run),
        *_summary(run),
        *_temporary_files(folder),
        *in_redis,
        *_index(folder / ".plumbline" / "index", run),
        *_locks(folder),
    ]


def leftovers(folder: Path, expected: Collection[str]) -> list[Violation]:
    """Look for files in a folder for temporary files, but those of ``expected`` patterns."""
    paths = [path for path in sorted(folder.iterdir()) if not any(map(path.match, expected))]
    return [Violation(Invariant.TEMPORARY, path.name) for path in paths]


# Commands


def answered(process: subprocess.Popen[str], log: Path, seconds: float) -> list[Violation]:
    """Wait for the end of a command, and check its exit code and its last line."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return [Violation(Invariant.ANSWER, f"{log.name}: no end")]
    text = log.read_text()
    silent = 0 < code < 128 + signal.SIGKILL and not text.strip()
    if code in _EXPECTED_ENDS and not _TRACEBACK.search(text) and not silent:
        return []
    return [Violation(Invariant.ANSWER, f"{log.name}: exit code {code}: {last_line(log)}")]


def last_line(log: Path) -> str:
    lines = log.read_text().splitlines()
    return lines[-1] if lines else ""


def nobody_left(seconds: float) -> list[Violation]:
    """Wait until no process is left below this one."""
    ends = time.monotonic() + seconds
    while (left := alive()) and time.monotonic() < ends:
        time.sleep(0.02)
    return [Violation(Invariant.PROCESSES, _named(process)) for process in left]


def _named(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:200]}"
    except psutil.Error:
        return str(process.pid)


# Verdicts


def _verdicts(folder: Path, expected: Undisturbed) -> Iterator[Violation]:
    disturbed = Undisturbed.of(folder)
    for sample, verdicts in disturbed.verdicts.items():
        if len(verdicts) > 1:
            yield Violation(Invariant.DOUBLED, f"{sample} has {len(verdicts)}")
    # No verdict on an answer, which may never have come; an incomplete run is published with them.
    unjudged = {
        sample for sample, (v, *_) in disturbed.verdicts.items() if v["final_status"] == "api_error"
    }
    for ours, theirs in (
        (expected.verdicts, disturbed.verdicts),
        (expected.generations, disturbed.generations),
    ):
        for sample in theirs.keys() - unjudged:
            yield from _changed(sample, ours.get(sample), theirs[sample])


def _changed(
    sample: str, expected: list[dict[str, Any]] | None, records: list[dict[str, Any]]
) -> Iterator[Violation]:
    if expected is None:
        yield Violation(Invariant.CHANGED, f"{sample} is not in the plan")
    elif records[0] != expected[0]:
        differing = [name for name in expected[0] if expected[0][name] != records[0][name]]
        shown = ", ".join(f"{n} {expected[0][n]!r} -> {records[0][n]!r}" for n in differing)
        yield Violation(Invariant.CHANGED, f"{sample}: {shown}")


def _lost(folder: Path, expected: Undisturbed) -> Iterator[Violation]:
    disturbed = Undisturbed.of(folder)
    for sample in expected.verdicts.keys() - disturbed.verdicts.keys():
        yield Violation(Invariant.LOST, f"{sample} has none")
    for sample in expected.generations.keys() - disturbed.generations.keys():
        yield Violation(Invariant.LOST, f"{sample} has no completion")


def _by_sample(records: Sequence[dict[str, Any]]) -> Samples:
    samples: Samples = defaultdict(list)
    for record in records:
        samples[f"{record['dataset']}/{record['problem_id']}/{record['sample_index']}"].append(
            record
        )
    return dict(samples)


# Figures


def _record(run: FinishedRun) -> Iterator[Violation]:
    record, verdicts = run.record, list(run.verdicts())
    if record.state is not RunState.COMPLETE or not record.complete:
        yield Violation(Invariant.PUBLISHED, f"its state is {record.state}")
    judged = sum(verdict.judged for verdict in verdicts)
    statuses = Counter(verdict.final_status for verdict in verdicts)
    for name, recorded, counted in (
        ("samples", record.samples, len(verdicts)),
        ("samples_judged", record.samples_judged, judged),
        ("samples_unjudged", record.samples_unjudged, len(verdicts) - judged),
        ("statuses", {k: v for k, v in record.statuses.items() if v}, dict(statuses)),
        ("sandbox_requests", record.sandbox_requests, sum(v.attempts for v in verdicts)),
    ):
        if recorded != counted:
            yield Violation(Invariant.COUNTERS, f"{name} is {recorded}, not {counted}")


def _summary(run: FinishedRun) -> Iterator[Violation]:
    results: dict[str, list[SampleResult]] = defaultdict(list)
    for verdict, generation in run.judged_samples():
        generation = generation or Generation.missing(verdict.sample)
        results[verdict.dataset].append(SampleResult.of(verdict, generation))
    facts = defaultdict(dict)
    for line in plumb.read_jsonl(Path(run.folder.path) / "problems.jsonl"):
        outline = ProblemOutline.model_validate(line)
        facts[outline.dataset][outline.problem_id] = outline.facts
    slices = run.folder.read_json("slices.json")
    per_second = run_throughput(results.values(), run.record.active_seconds)
    for dataset, samples in results.items():
        many = {name for name, problem in facts[dataset].items() if problem.many_answers}
        summary = summarize(samples, run.record.active_seconds, many)
        summary["run_throughput"] = per_second
        if _json(summary) != run.summary.get(dataset):
            yield Violation(Invariant.SUMMARY, f"the summary of {dataset} differs")
        if _json(slice_summaries(samples, facts[dataset])) != slices.get(dataset):
            yield Violation(Invariant.SUMMARY, f"the slices of {dataset} differ")


def _json(document: object) -> Any:
    return json.loads(json.dumps(document))


def _index(folder: Path, run: FinishedRun) -> Iterator[Violation]:
    """Check what the index in a folder has of a run."""
    path = folder / "index.sqlite"
    counted = "SELECT COUNT(*) FROM samples WHERE run_id IN (SELECT id FROM runs WHERE run = ?)"
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            (state,) = database.execute("PRAGMA integrity_check").fetchone()
            (rows,) = database.execute(counted, [run.record.run]).fetchone()
    except sqlite3.DatabaseError as error:
        state, rows = str(error), 0
    if state != "ok":
        yield Violation(Invariant.INDEX, state)
    # The last rows are missing where the run was published before they were read.
    if rows > run.record.samples:
        yield Violation(Invariant.INDEX, f"{rows} rows of {run.record.samples} samples")


# Ledger

_FOR_GOOD = -1  # Redis' TTL of a key that does not expire


def _ledger(redis: Redis, run: FinishedRun) -> Iterator[Violation]:
    """Compare what a Redis has of a run with the run's files."""
    keys = f"plumbline:run:{run.record.run}"
    stored_run = Ledger(redis, run.record.run)
    samples = [SampleId.parse(key.decode()) for key in redis.hkeys(f"{keys}:verdicts")]
    stored = {v.sample.key: v.model_dump(mode="json") for v in stored_run.verdicts(samples)}
    written = {verdict.sample.key: verdict.model_dump(mode="json") for verdict in run.verdicts()}
    for sample in written.keys() ^ stored.keys():
        yield Violation(Invariant.LEDGER, f"{sample} is in one of them only")
    for sample in written.keys() & stored.keys():
        if written[sample] != stored[sample]:
            yield Violation(Invariant.LEDGER, f"{sample} differs")
    counted = int(redis.hget(f"{keys}:meta", "verdicts_written") or 0)
    for name, other in (
        ("entries of the stream", redis.xlen(f"{keys}:events")),
        ("verdicts_written of run.json", run.record.verdicts_written),
    ):
        if counted != other:
            yield Violation(Invariant.COUNTERS, f"verdicts_written is {counted}, {name} {other}")


def _held(redis: Redis) -> Iterator[Violation]:
    """Look for what would keep a later run from working: all of it must expire by itself."""
    expiring: set[str] = set()
    for queue in (JudgeQueue(name, redis) for name in (JUDGE_QUEUE, REWARD_QUEUE)):
        # RQ gives the next judge what a killed one left. A failed job expires.
        expiring |= {*queue.present(), *queue.failed_job_registry.get_job_ids(cleanup=False)}
        unfinished = [job for name in queue.present() if (job := queue.fetch_job(name))]
        if jobs := [job for job in unfinished if _is_owed(redis, job.batch)]:
            yield Violation(Invariant.HELD, f"{len(jobs)} jobs have something to judge")
    for pattern in ("plumbline:run:*:lock", "rq:job:*"):
        for key in redis.scan_iter(pattern):
            name = key.decode()
            if redis.ttl(key) == _FOR_GOOD and name.removeprefix("rq:job:") not in expiring:
                yield Violation(Invariant.HELD, name)
    for key in redis.scan_iter("plumbline:permits:held:*"):
        if late := redis.zcount(key, time.time() + 60, "+inf"):
            yield Violation(Invariant.HELD, f"{late} permits do not expire")


def _is_owed(redis: Redis, batch: Batch) -> bool:
    """Whether a batch has something to judge. A reward session goes on with its service."""
    ledger = Ledger(redis, batch.run)
    judged, completed = ledger.judged(), ledger.completed()
    return not is_reward_run(batch.run) and any(
        completed.get(sample) == sha256 and sample not in judged
        for sample, sha256 in batch.completions
    )


@contextmanager
def _copied_ledger(folder: Path) -> Iterator[Redis]:
    """Start a Redis over a copy of a run's data, which stay as they are."""
    copy = folder.with_name(f"{folder.name}.ledger")
    shutil.copytree(folder / ".plumbline" / "redis", copy / "redis")
    lock = os.open(copy / "lock", os.O_CREAT | os.O_RDWR)
    try:
        child, url = start_redis(copy / "redis", copy / "log", plumb.environment(), lock)
        try:
            with closing(Redis.from_url(url)) as redis:
                yield redis
        finally:
            child.stop(5.0)
    finally:
        os.close(lock)
        shutil.rmtree(copy)


# Files


def _locks(folder: Path) -> Iterator[Violation]:
    for path in sorted((folder / ".plumbline").rglob("lock")):
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield Violation(Invariant.LOCKS, str(path.relative_to(folder)))


def _temporary_files(folder: Path) -> Iterator[Violation]:
    for path in sorted(folder.rglob("*.tmp")):
        yield Violation(Invariant.TEMPORARY, str(path.relative_to(folder)))
