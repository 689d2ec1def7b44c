from typing import Any

import pytest

from shared.config import Config
from shared.errors import OutputError
from shared.run_record import (
    VERSION,
    RunRecord,
    read_record,
)


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
