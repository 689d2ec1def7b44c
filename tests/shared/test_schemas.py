import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.schemas import (
    HumanEvalTests,
    InfraFailure,
    JudgedCode,
    MbppTests,
    SampleId,
    StdioTests,
    parse_ground_truth,
    sha256,
)
from shared.statuses import (
    CASE_STATUS,
    CaseCode,
    Convention,
    ExtractionReason,
    FailureKind,
    FinalStatus,
    aggregate_cases,
)
from tests.shared.ledgers import generation, verdict

TEXT = st.text()


# SampleId


@given(TEXT, TEXT, st.integers(min_value=0))
def test_a_key_says_all_of_a_sample(dataset: str, problem_id: str, index: int) -> None:
    sample = SampleId(dataset, problem_id, index)
    assert SampleId.parse(sample.key) == sample
    assert sample.key.count("/") == 2
    assert sample.key.isascii()
    assert sample.key.isprintable()
    assert " " not in sample.key


# Ground truths


def test_each_kind_of_ground_truth() -> None:
    stdio = {"inputs": ["1"], "outputs": ["2"]}
    assert parse_ground_truth(json.dumps(stdio)) == StdioTests(inputs=["1"], outputs=["2"])
    call = {**stdio, "fn_name": "f"}
    assert parse_ground_truth(json.dumps(call)) == StdioTests(**call)
    humaneval = {"test": "def check(f): pass", "entry_point": "f", "prompt": "def f():"}
    assert parse_ground_truth(json.dumps(humaneval)) == HumanEvalTests(**humaneval)
    mbpp = {"test_list": ["assert f()"], "test_setup_code": "import math"}
    assert parse_ground_truth(json.dumps(mbpp)) == MbppTests(**mbpp)
    assert parse_ground_truth('{"test_list": ["assert f()"]}') == MbppTests(
        test_list=["assert f()"], test_setup_code=""
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"inputs": ["1"]', "JSON"),
        ('{"inputs": ["1", "2"], "outputs": ["1"]}', "2 inputs but 1 outputs"),
        ('{"inputs": [1], "outputs": ["1"]}', "inputs.0"),
        ('{"inputs": ["1"], "outputs": ["1"], "extra": 1}', "extra"),
        ('{"inputs": ["\\ud800"], "outputs": ["1"]}', "hex escape"),
        (
            '{"inputs": ["1"], "outputs": ["1"], "checker": "fuzzy"}',
            "unknown checker 'fuzzy'; valid",
        ),
        (
            '{"inputs": ["1"], "outputs": ["1"], "checker_source": "print(1)"}',
            "must define check(input, output, expected)",
        ),
        ('{"test_list": []}', "test_list"),
    ],
)
def test_a_ground_truth_that_cannot_be_used(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_ground_truth(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, ValidationError)


# Records


@pytest.mark.parametrize(
    ("written", "kind", "text"),
    [
        ("http_503", "http_503", None),
        ("sandbox: http_500: broken", FailureKind.SANDBOX, "http_500: broken"),
        ("unusable answer: <html>", FailureKind.UNUSABLE_ANSWER, "<html>"),
        ("read_timeout: ", FailureKind.READ_TIMEOUT, ""),
    ],
)
def test_a_failure_is_written_as_a_text(written: str, kind: str, text: str | None) -> None:
    record = verdict(generation(), infra_failures=[written])
    assert record.infra_failures == [InfraFailure(kind=kind, text=text)]
    assert json.loads(record.model_dump_json())["infra_failures"] == [written]


@given(TEXT, TEXT, TEXT)
def test_judged_code_reads_itself(before: str, code: str, after: str) -> None:
    for start in (len(before), None):
        record = JudgedCode.of(code, ExtractionReason.FENCED, start)
        assert record.read(before + code + after) == code
        assert record.sha256 == sha256(code)
        assert (record.text is None) == (start is not None)


def test_lists_of_values_are_calls_of_apps() -> None:
    given = {"fn_name": "f", "inputs": [[10**30, "a\n"], [[1], None]], "outputs": [[0], {"1": 2}]}
    tests = parse_ground_truth(json.dumps(given))
    assert isinstance(tests, StdioTests)
    assert tests.inputs == [f'{10**30}\n"a\\n"', "[1]\nnull"]
    assert tests.outputs == ["[0]", '{"1": 2}']
    assert tests.calls is Convention.APPS


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"checker": "tokens"}, "calls of 'f' compare values"),
        ({"checker_source": "def check(input, output, expected): ..."}, "compare values"),
        ({"convention": "other"}, "convention"),
    ],
)
def test_calls_have_no_checker(fields: dict[str, str], said: str) -> None:
    given = {"fn_name": "f", "inputs": ["1"], "outputs": ["1"], **fields}
    with pytest.raises(ValueError, match=said):
        parse_ground_truth(json.dumps(given))


# Statuses


PASSED, WRONG = CaseCode.PASSED, CaseCode.WRONG_ANSWER
RUNTIME, LATE = CaseCode.RUNTIME_ERROR, CaseCode.TIMEOUT
COMPILE, OURS = CaseCode.COMPILE_ERROR, CaseCode.API_ERROR
RAN = [code for code in CaseCode if code is not CaseCode.NOT_RUN]


@given(st.lists(st.sampled_from(RAN), min_size=1))
def test_the_status_is_that_of_a_case_and_the_worst_of_all(codes: list[CaseCode]) -> None:
    severity = [OURS, COMPILE, RUNTIME, LATE, WRONG, PASSED]
    worst = min(codes, key=severity.index)
    assert aggregate_cases(codes) is CASE_STATUS[worst]


@given(st.lists(st.sampled_from(RAN)), st.integers(1, 3))
def test_cases_that_were_not_run_decide_nothing(codes: list[CaseCode], left: int) -> None:
    status = aggregate_cases([*codes, *[CaseCode.NOT_RUN] * left])
    assert status is (aggregate_cases(codes) if LATE in codes else FinalStatus.API_ERROR)
