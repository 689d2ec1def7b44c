from typing import Any

import pyarrow.parquet as pq
import pytest

from services.exports import ExportFormat
from shared import artifacts
from shared.errors import OutputError
from tests.exports.conftest import ODD, Exported


def parquet_rows(finished: Exported) -> list[dict[str, Any]]:
    path = finished.export(ExportFormat.HF_PARQUET) / "samples.parquet"
    return pq.read_table(path).to_pylist()


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


def test_a_run_without_its_file_of_problems(finished: Exported) -> None:
    (finished.run / artifacts.PROBLEMS).unlink()
    with pytest.raises(OutputError, match=r"problems\.jsonl: no problem humaneval/HumanEval/0"):
        finished.load()
