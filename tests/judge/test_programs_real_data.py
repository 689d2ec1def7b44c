"""Function tests on recorded answers with known verdicts, and on reference solutions."""

import gzip
import json
from pathlib import Path

import pytest

from shared.schemas import HumanEvalTests, MbppTests
from tests.judge.tasks import fenced, make_task, together, verdict_of, with_tests

FOLDER = Path(__file__).parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not FOLDER.is_dir(), reason="the public data is not beside the checkout"),
]


# An answer that does not end is judged three times; the others take a tenth of this.
LIMITS = ("sandbox.timeout=2", "judge.wall_factor=2")


def read_lines(name):
    path = FOLDER / name
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


SHARES = pytest.mark.parametrize(
    "share",
    [
        pytest.param(slice(None, None, 32), id="some"),
        pytest.param(slice(None), id="all", marks=pytest.mark.nightly),
    ],
)


async def accepted(sandbox, rows):
    """Judge pairs of ground truth and completion; return whether each is accepted."""

    async def judge(place):
        truth, completion = rows[place]
        task = make_task(sandbox, with_tests(**truth), completion, *LIMITS)
        return await verdict_of(task)

    return (await together(range(len(rows)), judge, 2)).values()


def truth_of(row, kind):
    return {key: row[key] for key in kind.model_fields if key in row}


@SHARES
@pytest.mark.parametrize("model", ["gemini_direct", "chatgpt_cot"])
async def test_recorded_humaneval_verdicts_apart(sandbox, model, share):
    problems = {row["task_id"]: row for row in read_lines("HumanEval.jsonl.gz")}
    answers = read_lines(f"humaneval_completions_{model}.jsonl.gz")[share]
    rows = [(truth_of(problems[a["task_id"]], HumanEvalTests), a["response"]) for a in answers]
    results = await accepted(sandbox, rows)
    differing = [
        a["task_id"] for a, v in zip(answers, results, strict=True) if a["passed"] != v.accepted
    ]
    assert differing == []
    assert [a["task_id"] for a, v in zip(answers, results, strict=True) if v.shared_process] == []


@SHARES
async def test_mbpp_reference_solutions_apart(sandbox, share):
    """Three problems pass instances of the answer's classes."""
    rows = read_lines("mbpp.jsonl")
    passing_instances = [367, 601, 927]
    problems = [row for row in rows if row in rows[share] or row["task_id"] in passing_instances]
    results = await accepted(
        sandbox, [(truth_of(p, MbppTests), fenced(p["code"])) for p in problems]
    )
    ids = [p["task_id"] for p in problems]
    assert [i for i, v in zip(ids, results, strict=True) if not v.accepted] == []
    assert [i for i, v in zip(ids, results, strict=True) if v.shared_process] == passing_instances
