"""Runs as columns: the rows of a file, whatever their order."""

import random
from pathlib import Path

from shared.analysis.runs import STATUSES, read_runs
from shared.schemas import SampleId
from tests.shared.finished_runs import write_run


def test_rows_are_sorted_and_the_last_verdict_of_a_sample_counts(tmp_path: Path) -> None:
    folder = Path(write_run(tmp_path / "a", {"d1": ["+-t", "e+", "!", "--"], "d2": "+-"}))
    (ordered,) = read_runs([str(folder)])
    lines = (folder / "verdicts.jsonl").read_text().splitlines(keepends=True)
    first = next(line for line in lines if '"d1"' in line)
    outdated = first.replace('"accepted":true', '"accepted":false')
    assert outdated != first
    random.Random(1).shuffle(lines)
    (folder / "verdicts.jsonl").write_text("".join([outdated, *lines]))
    (found,) = read_runs([str(folder)])
    for name in ("d1", "d2"):
        one, other = ordered.verdicts[name], found.verdicts[name]
        assert one.problem_ids == other.problem_ids
        assert [one.sample(name, row) for row in range(len(one))] == sorted(
            other.sample(name, row) for row in range(len(other))
        )
        for row in range(len(one)):
            assert one.verdict(row) == other.verdict(row)
    assert ordered.verdicts["d1"].sample("d1", 3) == SampleId("d1", "p001", 0)
    assert STATUSES[ordered.verdicts["d1"].status[3]] == "empty_output"
