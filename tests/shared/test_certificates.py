"""Certificates beside data, and the scores of runs corrected by them."""

import pytest

from shared.analysis.metrics import SampleResult, certified_metrics
from shared.certificates import (
    Certificate,
    ProblemCertificate,
    certificate_file,
    certified_tests,
)
from shared.config import RULES, load_config
from shared.errors import DataError
from shared.reference import problem_digest
from shared.statuses import FinalStatus
from tests.shared.ledgers import problem

PROBLEMS = [problem(f"p{number}", "one") for number in range(20)]


def counted(one, **counts):
    known = {"right_accepted": 9, "right_rejected": 1, "wrong_rejected": 8, "wrong_accepted": 2}
    return ProblemCertificate(
        problem_id=one.problem_id, digest=problem_digest(one), **{**known, **counts}
    )


def write(tmp_path, problems, **fields):
    known = {"method": "batch", "checker": "tokens", "rules": RULES}
    certificate = Certificate(
        dataset="one", data_sha256="", programs_sha256="", seed=0, mutants=0, inputs=0,
        problems=problems, **{**known, **fields},
    )  # fmt: skip
    file = tmp_path / "one.parquet"
    (tmp_path / "one.certificate.json").write_text(certificate.model_dump_json())
    assert certificate_file(str(file)) == str(tmp_path / "one.certificate.json")
    return str(file)


def known(file, problems=PROBLEMS, *overrides):
    return certified_tests([file], problems, load_config(None, overrides).judge).get("one")


def test_a_certificate_is_of_problems_with_the_same_content(tmp_path):
    changed = PROBLEMS[1].model_copy(update={"ground_truth": "{}"})
    file = write(tmp_path, [*map(counted, PROBLEMS[:10])])
    tests = known(file, [PROBLEMS[0], changed, *PROBLEMS[9:12]])
    assert tests.problems == 2
    assert not tests.why_not
    assert tests.rates.negative.rate == pytest.approx(0.8)
    assert tests.rates.positive.rate == pytest.approx(0.9)
    assert known(str(tmp_path / "other.parquet")) is None


@pytest.mark.parametrize(
    ("problems", "fields", "overrides", "reason"),
    [
        ([counted(PROBLEMS[0])], {"rules": RULES + 1}, (), "rules"),
        ([counted(PROBLEMS[0])], {}, ("judge.checker=exact",), "checker"),
        ([counted(PROBLEMS[0], right_accepted=0, right_rejected=0)], {}, (), "knows no right"),
        ([counted(PROBLEMS[0], wrong_rejected=4, wrong_accepted=6)], {}, (), "1.30, less than"),
    ],
)
def test_a_score_is_not_corrected_by_any_certificate(tmp_path, problems, fields, overrides, reason):
    tests = known(write(tmp_path, problems, **fields), PROBLEMS, *overrides)
    assert reason in tests.why_not
    result = SampleResult("p0", 0, FinalStatus.SUCCESS, True, 1.0, None, None, 1.0)
    assert certified_metrics([result], tests)["accepted_at_1_corrected"] is None


def test_mutants_count_for_a_set_without_enough_other_wrong_programs(tmp_path):
    many = [problem(f"p{number}", "one") for number in range(40)]
    mutants = {"wrong_rejected": 9, "wrong_accepted": 1}
    for others, expected in ((29, 0.9), (30, 0.5)):
        submitted = {"submitted_rejected": 1, "submitted_accepted": 1}
        certified = [
            counted(one, **mutants, **(submitted if n < others else {}))
            for n, one in enumerate(many)
        ]
        tests = known(write(tmp_path, certified), many)
        assert tests.rates.negative.rate == pytest.approx(expected)


def test_a_broken_certificate_is_named(tmp_path):
    (tmp_path / "one.certificate.json").write_text('{"version": 7}')
    with pytest.raises(DataError, match=r"one.certificate.json: not a certificate"):
        known(str(tmp_path / "one.parquet"))
