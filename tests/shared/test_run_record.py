import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.config import Config, load_config
from shared.errors import OutputError
from shared.protocol import Protocol
from shared.run_record import (
    VERSION,
    DatasetRecord,
    QaLogRecord,
    RunPlan,
    RunRecord,
    RunState,
    UnjudgedSample,
    WandbRecord,
    make_plan,
    read_record,
)
from shared.schemas import Problem, SampleId
from shared.statuses import FinalStatus
from tests.shared.ledgers import problem

NAMES = st.text(max_size=8)
COUNTS = st.integers(0, 10**6)
RECORDS = st.builds(
    RunRecord,
    run=NAMES,
    name=NAMES,
    config=st.sampled_from([Config(), load_config(None, ["judge.datasets.d.checker=exact"])]),
    protocol=st.builds(Protocol, leaves=st.dictionaries(NAMES, COUNTS | NAMES | st.none())),
    state=st.sampled_from(RunState),
    started_at=st.none() | st.floats(0, 1e10),
    generator=st.none() | st.dictionaries(NAMES, st.dictionaries(NAMES, NAMES | COUNTS)),
    statuses=st.dictionaries(st.sampled_from(FinalStatus), COUNTS),
    unjudged=st.lists(st.builds(UnjudgedSample, sample=NAMES, reason=st.none() | NAMES)),
    datasets=st.lists(
        st.builds(DatasetRecord, dataset=NAMES, sha256=NAMES, problems=COUNTS, samples=COUNTS)
    ),
    qa_logs=st.dictionaries(NAMES, st.builds(QaLogRecord, file=NAMES)),
    wandb=st.none() | st.builds(WandbRecord, mode=st.just("offline"), path=st.none() | NAMES),
)


@settings(max_examples=50)
@given(record=RECORDS)
@example(  # a sample whose id looks like an address with a password
    RunRecord(
        run="r",
        protocol=Config().protocol(),
        unjudged=[UnjudgedSample(sample=":@", reason="http://u:p@h/")],
    )
)
def test_a_record_written_is_read_back(record: RunRecord) -> None:
    written = json.loads(json.dumps(record.model_dump(mode="json"), allow_nan=False))
    assert read_record(written, "run.json") == record


def document(**changes: Any) -> dict[str, Any]:
    return {**RunRecord(run="r", protocol=Config().protocol()).model_dump(mode="json"), **changes}


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1, str(VERSION), None])
def test_an_unknown_version_is_refused_by_name(version: object) -> None:
    with pytest.raises(OutputError, match="run record of version") as caught:
        read_record(document(version=version), "a/run.json")
    assert str(caught.value).startswith(f"a/run.json: run record of version {version!r}")
    assert f"reads version {VERSION}" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"state": "paused"}, "state: Input should be 'running', 'judged', 'complete'"),
        ({"config": {"judge": {"mystery": 1}}}, "config.judge.mystery"),
        ({"statuses": {"lost": 1}}, "statuses.lost"),
    ],
)
def test_a_field_that_cannot_be_used_is_refused_by_name(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(OutputError) as caught:
        read_record(document(**changes), "run.json")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, [], "text", 3, {}, {"run": "r"}])
def test_what_is_no_record_is_refused(content: object) -> None:
    with pytest.raises(OutputError, match="not a run record"):
        read_record(content, "run.json")


# Plans


PROBLEMS = [problem("b", "d1"), problem("x", "d2"), problem("a", "d1")]


def plan_of(problems: list[Problem], n: int = 1) -> RunPlan:
    return make_plan(problems, lambda _problem: range(n))


def test_data_sets_and_problems_keep_their_order() -> None:
    plan = plan_of(PROBLEMS, 2)
    assert [d.name for d in plan.datasets] == ["d1", "d2"]
    names = [("d1", "b"), ("d1", "a"), ("d2", "x")]
    assert plan.samples() == [SampleId(*name, index) for name in names for index in (0, 1)]


def test_a_problem_gets_the_samples_it_is_given() -> None:
    plan = make_plan(PROBLEMS, lambda p: {"b": [3], "x": [0, 5], "a": []}[p.problem_id])
    assert plan.samples() == [
        SampleId("d1", "b", 3),
        SampleId("d2", "x", 0),
        SampleId("d2", "x", 5),
    ]
    assert [(d.problems, len(d.owed)) for d in plan.datasets] == [(2, 1), (1, 2)]


@pytest.mark.parametrize(
    "other",
    [
        plan_of(PROBLEMS, 2),
        plan_of(PROBLEMS[:2]),
        plan_of([PROBLEMS[2], *PROBLEMS[:2]]),
        plan_of([problem("b", "d1", prompt="another"), *PROBLEMS[1:]]),
        plan_of([problem("b", "d3"), *PROBLEMS[1:]]),
        plan_of(
            [problem("b", "d1", ground_truth='{"inputs": ["2"], "outputs": ["2"]}'), *PROBLEMS[1:]]
        ),
    ],
    ids=["more samples", "fewer problems", "other order", "prompt", "data set", "tests"],
)
def test_the_fingerprint_tells_plans_apart(other: RunPlan) -> None:
    assert other.fingerprint() != plan_of(PROBLEMS).fingerprint()


def test_a_lone_surrogate_in_a_prompt_counts_as_it_is() -> None:
    assert plan_of([problem(prompt="\ud800")]).datasets[0].sha256
