"""A closing fence as a stop string: the extracted program is the same as without it."""

from hypothesis import given
from hypothesis import strategies as st

from shared.extraction import extract
from shared.statuses import ExtractionReason

STOP = "\n```\n"
SOLVE = "def solve(n):\n    return n + 1"
programs = st.lists(
    st.sampled_from(
        [
            SOLVE,
            "import sys\nfrom math import gcd",
            "print(solve(int(input())))",
            "for _ in range(3):\n    pass",
            "TEXT = '```'",
            'DOC = """```python\nsolve(1)\n"""',
            "# ```\nTHREE = 3",
            "",
        ]
    ),
    min_size=1,
    max_size=4,
).map(lambda parts: "\n\n".join([SOLVE, *parts]))
before = st.sampled_from(["", "Sure.\n", "First, think: `n + 1`.\n\n", "1. Read\n2. Write\n\n"])
after = st.sampled_from(["", "It adds one.", "\nIt adds one, as `solve(1)` shows.\n", "\n\n"])


def stopped(text: str, *, kept: bool) -> str:
    """What an engine gives that ends at the first ``STOP``, which it leaves there or not."""
    head, found, _ = text.partition(STOP)
    return head + found if kept else head


@given(before, programs, after, st.sampled_from(["python", "py", "Python"]))
def test_the_program_is_the_same(head: str, program: str, tail: str, label: str) -> None:
    whole = f"{head}```{label}\n{program}\n```\n{tail}"
    expected = extract(whole)
    assert expected.reason is ExtractionReason.FENCED
    assert extract(stopped(whole, kept=True)) == expected
    # Where a server takes the stop string off all the same, the block is unclosed.
    cut = extract(stopped(whole, kept=False))
    assert (cut.code.rstrip(), cut.reason) == (
        expected.code.rstrip(),
        ExtractionReason.UNCLOSED_FENCE,
    )
