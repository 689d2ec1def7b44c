"""docs/sizing.md: figures match the benchmarks, examples match the formula."""

import math
import re

import pytest

from services.judge.settings import JudgeSettings
from tools.k8s_validate.render import ROOT

SIZING = (ROOT / "docs" / "sizing.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
TOKENS, LENGTH, IN_FLIGHT_PER_CORE = 46_179, 400, 1.25


@pytest.mark.parametrize(
    "figure",
    ["46,179", "2,432", "143", "2.8", "3.6", "5.9", "20.6", "1,400", "2,270", "124 MB", "47 MB"],
)
def test_figures_are_measured_ones(figure: str):
    assert figure in SIZING
    assert figure in BENCHMARKS


@pytest.mark.parametrize(
    ("what", "seconds", "answers", "row"),
    [
        ("HumanEval", 11, 164, "| HumanEval, recorded answers of one model | 164 | 164 | 11 s |"),
        ("MBPP", 39, 974, "| MBPP, reference solutions | 974 | 974 | 39 s |"),
        ("CodeContests with", 304, 91, "| 91 | about 95 (17,948 cases) | 304 s |"),
    ],
)
def test_core_seconds_follow_from_the_benchmarks(what: str, seconds: int, answers: int, row: str):
    assert row in BENCHMARKS
    stated = re.findall(rf"\| {what}[^|]*\| ([\d.]+) \|", SIZING)[0]
    assert float(stated) == pytest.approx(2 * seconds / answers, abs=0.05)


@pytest.mark.parametrize(
    ("problems", "seconds"),
    [
        ("HumanEval", 0.13),
        ("MBPP", 0.08),
        ("CodeContests, public and private tests (20 cases at most)", 0.12),
        ("CodeContests, generated tests", 6.7),
    ],
)
def test_examples_follow_from_the_formula(problems: str, seconds: float):
    pattern = rf"\| {re.escape(problems)} \| (\d+) \| (\d+) \| (\d+) \|"
    cores, processes, sandboxes = map(int, re.findall(pattern, SIZING)[0])
    wanted = TOKENS / LENGTH * seconds
    assert cores == pytest.approx(wanted, rel=0.01, abs=0.5)
    assert processes == math.ceil(cores * IN_FLIGHT_PER_CORE / JudgeSettings().concurrency)
    assert sandboxes == math.ceil(cores / 4)
