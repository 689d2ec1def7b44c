"""Fixtures: a finished run with every special case for exports."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.exports import ExportFormat, export_samples
from services.exports.samples import RunSamples, load_samples
from shared import artifacts
from shared.artifacts import OutputFolder
from shared.config import Config
from shared.finished_run import open_run
from shared.outlines import ProblemOutline
from shared.run_record import DatasetRecord, RunRecord, make_plan
from shared.schemas import FailedCase, Generation, Problem, SampleId, Verdict
from shared.statuses import FinalStatus
from tests.shared.finished_runs import as_recorded
from tests.shared.ledgers import generation, problem, verdict

STARTED = 1_750_000_000.0
HUMANEVAL = {"test": "def check(f): pass", "entry_point": "f", "prompt": "def f():\n"}
MBPP = {"test_list": ["assert g() == 1"], "test_setup_code": ""}
FENCED = "Here:\n```python\ndef f():\n    return 1\n```\n"
BODY = "    return 1\n"
ODD = 'a "quoted", text\r\nwith ünïcödé, = and \u2028'


ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".venv-exports" / "bin" / "python"


def run_tool(program: str, *arguments: str, **variables: str) -> str:
    """Run a program with the tools that read exports; returns what it prints.

    Skips the test where they are not installed.
    """
    if not TOOLS.exists():
        pytest.skip("`make install-exports` was not run here")
    done = subprocess.run(
        [TOOLS, "-c", program, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass(frozen=True)
class Answered:
    completion: str
    status: FinalStatus
    index: int = 0
    finish_reason: str = "stop"


ANSWERS = {
    "HumanEval/0": [Answered(FENCED, FinalStatus.SUCCESS)],
    "HumanEval/1": [Answered(BODY, FinalStatus.WRONG_ANSWER, finish_reason="length")],
    "mbpp_11": [
        Answered(FENCED, FinalStatus.SUCCESS),
        Answered("no code here.", FinalStatus.SYNTAX_ERROR, 1),
    ],
    "cc 1": [Answered(ODD, FinalStatus.RUNTIME_ERROR)],
    "cc 2": [Answered("", FinalStatus.API_ERROR)],
}


def problems() -> list[Problem]:
    return [
        problem("HumanEval/0", "humaneval", ground_truth=json.dumps(HUMANEVAL)),
        problem("HumanEval/1", "humaneval", ground_truth=json.dumps(HUMANEVAL)),
        problem("mbpp_11", "mbpp_reg", ground_truth=json.dumps(MBPP)),
        problem("cc 1", "code-contests test"),
        problem("cc 2", "code-contests test"),
    ]


@dataclass(frozen=True)
class Exported:
    """A run's folder; exports go beside it."""

    run: Path

    def load(self) -> RunSamples:
        return load_samples(open_run(str(self.run)))

    def export(self, kind: ExportFormat) -> Path:
        folder = self.run.parent / kind.value
        names = export_samples(kind, self.load(), OutputFolder(str(folder)))
        files = [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]
        assert sorted(names) == sorted(files)
        return folder


@pytest.fixture
def finished(tmp_path: Path) -> Exported:
    folder = tmp_path / "run"
    rollout = {"temperature": 0.5, "n": 2, "response_length": 64}
    config = Config.model_validate({"actor_rollout_ref": {"rollout": rollout}})
    run = {
        "run": "mine-0123",
        "name": "mine",
        "model": "org/model-7B",
        "config": config.model_dump(mode="json"),
        "started_at": STARTED,
        "finished_at": STARTED + 5,
        "complete": False,
        "prompts": {"humaneval": {"template": "Complete:\n{prompt}", "sha256": ""}},
        "system_prompt": {"text": "Be terse.", "sha256": ""},
        "datasets": [
            DatasetRecord.of(planned).model_dump()
            for planned in make_plan(problems(), _indices).datasets
        ],
    }
    out = OutputFolder(str(folder))
    document = as_recorded(run)
    out.write_json(artifacts.RUN, document)
    record = RunRecord.model_validate(document)
    out.write_jsonl(artifacts.PROBLEMS, [ProblemOutline.of(one, record) for one in problems()])
    out.write_json(artifacts.SUMMARY, _summary())
    pairs = [_pair(p, answer) for p in problems() for answer in ANSWERS[p.problem_id]]
    out.write_jsonl(artifacts.GENERATIONS, [made for made, _ in pairs if made.completion])
    out.write_jsonl(artifacts.VERDICTS, [judged for _, judged in pairs])
    return Exported(folder)


def _indices(problem: Problem) -> list[int]:
    return [answer.index for answer in ANSWERS[problem.problem_id]]


def _pair(problem: Problem, answer: Answered) -> tuple[Generation, Verdict]:
    sample = SampleId(problem.dataset, problem.problem_id, answer.index)
    made = generation(
        sample,
        answer.completion,
        finish_reason=answer.finish_reason,
        prompt_tokens=10,
        output_tokens=5,
        gen_time=1.5,
    )
    failed = FailedCase(case_index=0, status=answer.status, input="1\n", stderr='"oh"\n')
    accepted = answer.status is FinalStatus.SUCCESS
    judged = verdict(
        made,
        answer.status,
        detail="sandbox: http_503" if answer.status is FinalStatus.API_ERROR else None,
        first_failed_case=None if accepted else failed,
        case_codes=[1 if accepted else 0],
        cases_not_run=0 if accepted else 2,
        error_breakdown={"passed": 1} if accepted else {"timeout": 1, "not_run": 2},
    )
    return made, judged


def _summary() -> dict[str, dict[str, Any]]:
    metrics = {
        "total_problems": 2,
        "accepted_at_1": 0.5,
        "accepted_at_1_ci95": [0.1, 0.9],
        "cost": None,
        "api_errors": 0,
    }
    return dict.fromkeys(("humaneval", "mbpp_reg", "code-contests test"), metrics)
