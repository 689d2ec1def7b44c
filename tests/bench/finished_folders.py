"""Folders of finished runs of realistic size, written directly as `publish` writes them."""

import json
import random
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from shared import artifacts
from shared.analysis.metrics import SampleResult, summarize
from shared.analysis.slices import slice_summaries
from shared.config import Config
from shared.extraction import extract
from shared.outlines import ProblemOutline
from shared.run_record import DatasetRecord, RunRecord, RunState
from shared.schemas import FailedCase, Generation, JudgedCode, SampleId, Verdict, sha256
from shared.statuses import FinalStatus
from tests.shared.ledgers import generation, verdict

_ANSWERS = 10  # of a problem
_BEGAN = 1.7e9
_STATUSES = [status for status in FinalStatus if status is not FinalStatus.API_ERROR]
_CASES = 20


def write_finished(folder: Path, name: str, samples: int, seed: int = 0, begun: float = 0) -> Path:
    """Write a run of ``samples`` completions of 1 to 2 KB, ten per problem, in two data sets.

    Args:
        folder: The run's folder.
        name: Its name, and the begin of its id.
        samples: Number of samples.
        seed: Runs of other seeds have other answers to the same problems.
        begun: Seconds by which it began later than other runs.
    """
    folder.mkdir(parents=True)
    results: dict[str, list[SampleResult]] = {}
    outlines = {(outline.dataset, outline.problem_id): outline for outline in _outlines(samples)}
    with (
        (folder / artifacts.GENERATIONS).open("w") as generations,
        (folder / artifacts.VERDICTS).open("w") as verdicts,
    ):
        for made, judged in finished_records(samples, random.Random(seed), _BEGAN + begun):
            generations.write(made.model_dump_json() + "\n")
            verdicts.write(judged.model_dump_json() + "\n")
            results.setdefault(made.dataset, []).append(SampleResult.of(judged, made))
    with (folder / artifacts.PROBLEMS).open("w") as problems:
        problems.writelines(outline.model_dump_json() + "\n" for outline in outlines.values())
    facts: dict[str, dict[str, object]] = {}
    for (dataset, problem), outline in outlines.items():
        facts.setdefault(dataset, {})[problem] = outline.facts
    summary = {key: summarize(group, samples / 50) for key, group in results.items()}
    slices = {key: slice_summaries(group, facts[key]) for key, group in results.items()}
    (folder / artifacts.SUMMARY).write_text(json.dumps(summary))
    (folder / artifacts.SLICES).write_text(json.dumps(slices))
    record = RunRecord(
        run=f"{name}-{sha256(name)[:12]}",
        name=name,
        model="bench/model",
        state=RunState.COMPLETE,
        complete=True,
        started_at=_BEGAN + begun,
        finished_at=_BEGAN + begun + samples / 50,
        samples=samples,
        samples_judged=samples,
        config=Config(),
        statuses=Counter(result.final_status for group in results.values() for result in group),
        datasets=[
            DatasetRecord(
                dataset=key,
                sha256=sha256(key),
                problems=len(facts[key]),
                samples=len(group),
            )
            for key, group in results.items()
        ],
    )
    (folder / artifacts.RUN).write_text(json.dumps(record.document()))
    return folder


def sample_ids(samples: int) -> Iterator[SampleId]:
    """Yield samples, ten per problem, in two data sets."""
    for number in range(samples):
        dataset = "codecontests_test" if number < samples * 0.7 else "codecontests_valid"
        yield SampleId(dataset, f"p{number // _ANSWERS:05}", number % _ANSWERS)


def _outlines(samples: int) -> Iterator[ProblemOutline]:
    for dataset, problem in dict.fromkeys(
        (sample.dataset, sample.problem_id) for sample in sample_ids(samples)
    ):
        number = int(problem[1:])
        yield ProblemOutline(
            dataset=dataset,
            problem_id=problem,
            prompt=f"Problem {number}. " + "Given a list of values, print the largest sum. " * 25,
            difficulty=("easy", "medium", "hard")[number % 3],
            tags=("dp", "graphs") if number % 3 else ("math",),
            num_tests=_CASES,
            quality="ok",
            digest=sha256(problem),
        )


def finished_records(
    samples: int, chance: random.Random, begun: float
) -> Iterator[tuple[Generation, Verdict]]:
    """Yield completions with verdicts, in the order of ``sample_ids``."""
    program = extract(_completion("pass"))
    assert program.start is not None
    for number, (sample, source) in enumerate(
        zip(sample_ids(samples), _sources(chance), strict=False)
    ):
        completion = _completion(source)
        code = completion[program.start : completion.rindex("```")]
        made = generation(
            sample,
            completion,
            finish_reason="stop",
            prompt_tokens=300,
            output_tokens=len(completion) // 4,
            gen_time=chance.expovariate(0.05),
            replica="127.0.0.1:8000",
            finished_at=begun + number / 50,
        )
        judged_code = JudgedCode.of(code, "fenced", program.start)
        yield made, _verdict(made, chance, begun + number / 50 + 1, judged_code)


def _sources(chance: random.Random) -> Iterator[str]:
    """Parts of 1 to 2 KB of Python's own source, again and again with other cuts."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    while True:
        chance.shuffle(files)
        for file in files:
            source = file.read_text("utf-8", "replace").replace("```", "")
            start = chance.randrange(500)
            while start < len(source):
                end = start + chance.randrange(1000, 2000)
                yield source[start:end]
                start = end


def _completion(source: str) -> str:
    return f"Here is the answer.\n```python\n{source}\n```\n"


def _verdict(made: Generation, chance: random.Random, at: float, code: JudgedCode) -> Verdict:
    status = chance.choice(_STATUSES)
    passed = _CASES if status is FinalStatus.SUCCESS else chance.randrange(_CASES)
    failed = FailedCase(
        case_index=passed, status=status, input="1 2 3\n" * 20, expected="6\n", actual="5\n"
    )
    return verdict(
        made,
        status,
        pass_ratio=passed / _CASES,
        cases_passed=passed,
        cases_total=_CASES,
        case_codes=[1] * passed + [0] * (_CASES - passed),
        total_judge_time=chance.expovariate(1),
        first_failed_case=None if passed == _CASES else failed,
        method="batch",
        checker="tokens",
        cpu_time=chance.expovariate(2),
        worker="judge-1",
        judged_at=at,
        code=code,
    )
