"""The page's line diff and its numbers in a browser, against the definition and Python."""

import random

import pytest
from playwright.sync_api import Page

from services.aggregator.app import STATIC
from tests.page.conftest import Visit

pytestmark = pytest.mark.browser


@pytest.fixture
def page(visit: Visit) -> Page:
    page, _watch = visit()
    page.goto("about:blank")
    return page


def run(page: Page, module: str, call: str, argument: object) -> object:
    source = (STATIC / module).read_text(encoding="utf-8")
    lines = [line.removeprefix("export ") for line in source.splitlines()]
    body = "\n".join(line for line in lines if not line.startswith("import "))
    return page.evaluate(f"(given) => {{ {body}\n return given.map((one) => {call}); }}", argument)


def test_lines_are_aligned_as_well_as_they_can_be(page: Page) -> None:
    source = random.Random(3)
    texts = [
        ["\n".join(source.choices("abc", k=source.randrange(9))) for _ in range(2)]
        for _ in range(300)
    ]
    for (one, other), rows in zip(
        texts, run(page, "diff.js", "aligned(...one)", texts), strict=True
    ):
        assert "\n".join(left for left, _ in rows if left is not None) == one
        assert "\n".join(right for _, right in rows if right is not None) == other
        equal = sum(left == right for left, right in rows)
        assert equal == _longest_common(one.split("\n"), other.split("\n"))


def _longest_common(one: list[str], other: list[str]) -> int:
    best = [0] * (len(other) + 1)
    for mine in one:
        before = best[:]
        for place, theirs in enumerate(other):
            best[place + 1] = (
                before[place] + 1 if mine == theirs else max(best[place], before[place + 1])
            )
    return best[-1]


def test_texts_with_nothing_in_common_take_bounded_time(page: Page) -> None:
    source = random.Random(4)
    texts = [["\n".join(str(source.random()) for _ in range(50_000)) for _ in range(2)]]
    (rows,) = run(page, "diff.js", "aligned(...one)", texts)
    assert len(rows) == 4000


def test_points_are_rounded_as_python_rounds_them(page: Page) -> None:
    values = [place / 64 for place in range(-300, 300)]  # halves, which go to the even digit
    printed = run(page, "numbers.js", "points(one)", values)
    assert printed == [f"{100 * value:+.1f}" for value in values]
