import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shared.config import Config, load_config
from shared.errors import OutputError
from shared.plan import PlannedDataset
from shared.protocol import Protocol
from shared.run_record import (
    VERSION,
    DatasetRecord,
    QaLogRecord,
    RunMeta,
    RunRecord,
    RunState,
    UnjudgedSample,
    WandbRecord,
    read_record,
)
from shared.statuses import FinalStatus

FOLDER = Path(__file__).parents[1] / "fixtures" / "finished_run" / "run.json"
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


def test_a_record_of_a_folder_is_read() -> None:
    record = read_record(json.loads(FOLDER.read_text("utf-8")), "run.json")
    assert (record.name, record.state, record.complete) == ("demo", RunState.COMPLETE, True)
    assert record.protocol == record.config.protocol()
    assert record.model == record.served_model == "replay"
    assert record.statuses[FinalStatus.SUCCESS] == 27
    assert [each.dataset for each in record.datasets][-1] == "mbpp_reg"
    assert record.datasets[0].samples == 14
    assert record.prompts is not None
    assert "{prompt}" in record.prompts["humaneval"].template
    assert record.sandbox is not None
    assert record.sandbox.isolation == "bwrap"
    assert record.data_lock is not None
    assert record.data_lock.canonical_version == "2"
    assert record.qa_logs["humaneval"].chosen[FinalStatus.SUCCESS] == 7


@pytest.mark.parametrize("version", [0, VERSION - 1, VERSION + 1, str(VERSION), None])
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
        ({"samples": "many"}, "samples"),
        ({"statuses": {"lost": 1}}, "statuses.lost"),
        ({"run": None}, "run"),
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


def test_a_record_begins_with_what_is_known() -> None:
    meta = RunMeta(name="n", model="m", publish_error="disk full", sessions=2)
    planned = PlannedDataset(name="d", sha256="f", problems=1, owed=[("p", 0), ("p", 1)])
    record = RunRecord.of("n-1", meta, [planned])
    assert (record.name, record.model, record.sessions, record.samples) == ("n", "m", 2, 2)
    assert record.datasets == [DatasetRecord(dataset="d", sha256="f", problems=1, samples=2)]
    assert not record.complete
    assert "publish_error" not in record.model_dump()


def test_states_are_told_apart() -> None:
    published = ["complete", "incomplete", "untrusted"]
    assert [state for state in RunState if state.published] == published
    assert [state for state in RunState if state.final] == [*published, "failed"]
