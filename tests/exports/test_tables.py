import csv
import json
from typing import Any

import pyarrow.parquet as pq
import pytest

from services.exports import ExportFormat
from shared.errors import DataError
from shared.schemas import CaseRecord
from tests.exports.conftest import ODD, Exported


def parquet_rows(finished: Exported) -> list[dict[str, Any]]:
    path = finished.export(ExportFormat.HF_PARQUET) / "samples.parquet"
    return pq.read_table(path).to_pylist()


def csv_rows(finished: Exported) -> list[dict[str, str]]:
    path = finished.export(ExportFormat.CSV) / "samples.csv"
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_parquet_row_per_sample(finished: Exported) -> None:
    rows = parquet_rows(finished)
    assert [(r["dataset"], r["problem_id"], r["sample_index"]) for r in rows] == [
        ("humaneval", "HumanEval/0", 0),
        ("humaneval", "HumanEval/1", 0),
        ("mbpp_reg", "mbpp_11", 0),
        ("mbpp_reg", "mbpp_11", 1),
        ("code-contests test", "cc 1", 0),
        ("code-contests test", "cc 2", 0),
    ]
    odd = rows[4]
    assert (odd["completion"], odd["prompt"]) == (ODD, "Solve cc 1.")
    assert odd["first_failed_case"]["stderr"] == '"oh"\n'
    assert (odd["case_codes"], odd["accepted"], odd["pass_ratio"]) == ([0], False, 0.0)
    assert (odd["cases_not_run"], odd["error_breakdown"]["not_run"]) == (2, 2)
    assert (rows[0]["cases_not_run"], rows[0]["error_breakdown"]["not_run"]) == (0, 0)
    assert (odd["model"], odd["gen_time"], odd["output_tokens"]) == ("org/model-7B", 1.5, 5)


def test_what_nobody_could_judge_is_null(finished: Exported) -> None:
    lost = parquet_rows(finished)[5]
    assert (lost["accepted"], lost["pass_ratio"]) == (None, None)
    assert (lost["final_status"], lost["detail"]) == ("api_error", "sandbox: http_503")


def test_csv_says_the_same_as_parquet(finished: Exported) -> None:
    for text, values in zip(csv_rows(finished), parquet_rows(finished), strict=True):
        assert list(text) == list(values)
        for name, value in values.items():
            if value is None:
                assert text[name] == ""
            elif isinstance(value, list | dict):
                assert _kept(json.loads(text[name])) == _kept(value)
            else:
                assert text[name] == str(value)


def _kept(value: Any) -> Any:
    """Without what is null: parquet has every field of a record, JSON those that were given."""
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if part is not None}
    return value


def test_the_library_reads_them(finished: Exported) -> None:
    datasets = pytest.importorskip("datasets")
    cache = str(finished.run.parent / "cache")
    folder = finished.export(ExportFormat.HF_PARQUET)
    table = datasets.load_dataset(str(folder), cache_dir=cache)["train"]
    assert table.num_rows == 6
    assert table[4]["completion"] == ODD
    files = str(folder / "samples.parquet")
    same = datasets.load_dataset("parquet", data_files=files, cache_dir=cache)["train"]
    assert same[4] == table[4]
    path = str(finished.export(ExportFormat.CSV) / "samples.csv")
    assert datasets.load_dataset("csv", data_files=path, cache_dir=cache)["train"].num_rows == 6


def case(index: int, status: str, **fields: Any) -> CaseRecord:
    sample = {"dataset": "code-contests test", "problem_id": "cc 1", "sample_index": 0}
    return CaseRecord.model_validate({**sample, "case_index": index, "status": status, **fields})


def test_a_row_per_recorded_case(finished: Exported) -> None:
    cases = [case(index, "success", exit_code=0, memory_mb=8.5) for index in range(300)]
    finished.record(*cases, case(300, "wrong_answer", expected="1", actual=ODD))
    table = pq.read_table(finished.export_cases(ExportFormat.HF_PARQUET))
    assert table.column_names == ["run", *CaseRecord.model_fields]
    rows = table.to_pylist()
    assert [row["case_index"] for row in rows] == list(range(301))
    assert {name: value for name, value in rows[300].items() if value is not None} == {
        "run": "mine-0123",
        "dataset": "code-contests test",
        "problem_id": "cc 1",
        "sample_index": 0,
        "case_index": 300,
        "status": "wrong_answer",
        "expected": "1",
        "actual": ODD,
    }
    with finished.export_cases(ExportFormat.CSV).open(newline="", encoding="utf-8") as file:
        texts = list(csv.DictReader(file))
    assert texts == [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in rows
    ]


def test_a_run_without_a_record_of_cases(finished: Exported) -> None:
    with pytest.raises(DataError, match=r"no cases; .* plumb rejudge \S+run output\.cases=all"):
        finished.export_cases(ExportFormat.CSV)
    assert not list(finished.run.parent.rglob("cases.*"))
