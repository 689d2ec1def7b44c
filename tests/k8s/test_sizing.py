"""docs/sizing.md: figures match the benchmarks, examples match the formula."""

import math
import re

import pytest

from services.judge.settings import JudgeSettings
from tools.k8s_validate import ROOT

SIZING = (ROOT / "docs" / "sizing.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
TOKENS, LENGTH, IN_FLIGHT_PER_CORE = 46_179, 400, 1.25


FIGURES = (
    "46,179",
    "2,432",
    "2.1",
    "3.1",
    "66 MB",
    "18.6",
    "22.1",
    "107 µs",
    "53 to 61 µs",
    "124 MB",
    "47 MB",
)


def test_figures_are_measured_ones():
    for text in (SIZING, BENCHMARKS):
        assert [figure for figure in FIGURES if figure not in " ".join(text.split())] == []


@pytest.mark.parametrize(
    ("what", "seconds", "answers", "row"),
    [
        ("HumanEval", 1.68, 164, "97.6 (96.2-98.7) answers/s"),
        ("MBPP", 12.6, 974, "| MBPP, reference solutions | 974 | 974 | 12.6 s |"),
        ("CodeContests with", 59.7, 91, "| 91 | about 95 (17,948 cases) | 59.7 s |"),
    ],
)
def test_core_seconds_follow_from_the_benchmarks(what: str, seconds: int, answers: int, row: str):
    assert row in BENCHMARKS
    stated = re.findall(rf"\| {what}[^|]*\| ([\d.]+) \|", SIZING)[0]
    assert float(stated) == pytest.approx(2 * seconds / answers, rel=0.02)


def test_what_one_redis_feeds_follows_from_the_core_seconds():
    """Two tables with the same problems in the same order: core-seconds, and cores for 3,000."""
    numbers = re.findall(r"^\| [^|]+ \| ([\d.,]+) \|$", SIZING, re.M)
    seconds = [float(number) for number in numbers if "." in number]
    cores = [int(number.replace(",", "")) for number in numbers if "." not in number]
    assert cores == [pytest.approx(3000 * each, rel=0.05) for each in seconds]


@pytest.mark.parametrize(
    ("problems", "seconds"),
    [
        ("HumanEval", 0.02),
        ("MBPP", 0.026),
        ("CodeContests, public and private tests (20 cases at most)", 0.055),
        ("CodeContests, generated tests", 1.3),
    ],
)
def test_examples_follow_from_the_formula(problems: str, seconds: float):
    pattern = rf"\| {re.escape(problems)} \| (\d+) \| (\d+) \| (\d+) \|"
    cores, processes, sandboxes = map(int, re.findall(pattern, SIZING)[0])
    wanted = TOKENS / LENGTH * seconds
    assert cores == pytest.approx(wanted, rel=0.01, abs=0.5)
    assert processes == math.ceil(cores * IN_FLIGHT_PER_CORE / JudgeSettings().concurrency)
    assert sandboxes == math.ceil(cores / 4)
