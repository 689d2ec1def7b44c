import json

from services.data.quality import LARGE_OUTPUT_BYTES, audit_lines, audit_problem
from shared.schemas import MbppTests, QualityFinding, StdioTests
from tests.shared.ledgers import problem

_RUN = (QualityFinding.TEST_ERROR, QualityFinding.SHARED_PROCESS)  # of tests that do not run


def found(tests):
    truth = tests.model_dump_json(exclude_defaults=True)
    audited = audit_problem(problem(ground_truth=truth))
    return {kind.value: reason for kind, reason in audited.items() if kind not in _RUN}


def stdio(*pairs, **more):
    inputs, outputs = zip(*pairs, strict=True)
    return StdioTests(inputs=list(inputs), outputs=list(outputs), **more)


def test_standard_input_and_output():
    for tests, expected in (
        (stdio(("1\n", "2\n"), ("2\n", "2\n")), {}),
        (stdio(("1", "2"), ("3", "4"), ("1", "2 \n")), {"duplicate_tests": "tests 1 and 3"}),
        (stdio(("1\n", "2"), ("1", "3")), {"contradicting_tests": "tests 1 and 2 have the same"}),
        (
            stdio(("1", "2 3"), ("1", "3 2"), ("1", "2 3")),
            {"contradicting_tests", "duplicate_tests"},
        ),
        (stdio(("1", "2"), ("1", "3"), checker_source="def check(a, b, c): ..."), {}),
        (stdio(("1", "x" * LARGE_OUTPUT_BYTES)), {}),
        (
            stdio(("1", "é" * (LARGE_OUTPUT_BYTES // 2 + 1))),
            {"large_output": "test 1 expects 131,074"},
        ),
        (
            stdio(*((str(n), "x" * (LARGE_OUTPUT_BYTES + 1)) for n in range(3))),
            {"large_output": "and 2 more expect above 128 KiB"},
        ),
        (
            stdio(("", ""), (" \n", "")),
            {"duplicate_tests": "tests 1 and 2", "blank_output": "test 1 expects no output"},
        ),
    ):
        reasons = found(tests)
        assert set(reasons) == set(expected)
        if isinstance(expected, dict):
            assert all(part in reasons[kind] for kind, part in expected.items())


def test_functions():
    for assertions, kinds in (
        (["assert f(1) == 2", "assert f(2) == 3"], set()),
        (["assert f(1) == 2", "assert f( 1 )==2"], {"duplicate_tests"}),
        (["assert f(1) == 2", "assert f(1) == 3"], {"contradicting_tests"}),
        (["assert f(1)", "assert not f(1)"], set()),
        (["assert f(1) == 2, 'why'", "assert f(1) == 2, 'how'"], {"duplicate_tests"}),
        (["assert 1 == f(1)", "assert 1 == f(2)"], set()),
        (["assert f(", "assert f("], {"duplicate_tests"}),
        (["assert f(1) == '\0'"] * 2, {"duplicate_tests"}),
        (["assert " + "(" * 5000, "x"], set()),
    ):
        assert set(found(MbppTests(test_list=assertions))) == kinds, assertions


def test_blank_outputs_and_an_empty_statement():
    """By the problem's fields: the findings that the audit adds."""
    blank = {"inputs": ["1", "2", "3"], "outputs": ["1", " \n", ""]}
    for changed, added in [
        ({"ground_truth": blank}, {"blank_output"}),
        ({"ground_truth": blank | {"checker_source": "def check(*_): return True"}}, set()),
        ({"ground_truth": blank | {"fn_name": "f"}}, set()),
        ({"prompt": " \n"}, {"empty_statement"}),
        ({}, set()),
    ]:
        tests = changed.pop("ground_truth", {"inputs": ["1"], "outputs": ["1"]})
        audited = audit_problem(problem(ground_truth=json.dumps(tests), **changed))
        assert set(audited) & {"blank_output", "empty_statement"} == added, (tests, changed)
    (line,) = audit_lines([problem(ground_truth=json.dumps(blank))])
    assert line.startswith("1 problem with blank_output, such as ")
    assert "test 2 expects no output" in line


def test_tests_that_cannot_run_or_need_one_process_are_named():
    for setup, test, finding, named in (
        ("", "assert f(1", QualityFinding.TEST_ERROR, "line 1"),
        ("", "assert f(1) == UNDEFINED", QualityFinding.TEST_ERROR, "UNDEFINED"),
        ("", "assert f.calls == 1", QualityFinding.SHARED_PROCESS, "f.calls"),
        ("", "g = f(1)\nassert g.send(2) == 3", QualityFinding.SHARED_PROCESS, "send"),
        ("import math", "assert f(1) == math.pi", None, ""),
    ):
        tests = {"test_list": [test], "test_setup_code": setup}
        audited = audit_problem(problem(ground_truth=json.dumps(tests)))
        assert list(audited) == ([finding] if finding else [])
        assert all(named in reason for reason in audited.values())
