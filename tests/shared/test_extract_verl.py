"""verl's rule for extracting the program, reproduced exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.extraction import Extraction, extract_verl
from shared.statuses import ExtractionReason as Reason

fence_soup = st.lists(
    st.sampled_from(["```", "```python", "py", "\n", " ", "x = 1", "prose.", "`", "\r\n", "3"])
).map("".join)


def verl_reference(completion: str) -> str | None:
    """The rule as one would write it from its description, by splitting."""
    if "```python" in completion:
        return completion.split("```python")[-1].split("```")[0]
    if "```" not in completion:
        return None
    code = completion.split("```")[1]
    lines = code.split("\n", 1)
    return lines[1] if len(lines) == 2 and lines[0].strip().isalpha() else code


@pytest.mark.parametrize(
    ("completion", "code", "reason"),
    [
        ("a ```python\nx\n``` b ```python\ny\n``` c", "\ny\n", Reason.FENCED),
        ("```python3\nx\n```", "3\nx\n", Reason.FENCED),
        ("```py\nx\n```", "x\n", Reason.UNLABELLED),
        ("``` Python \nx\n```", "x\n", Reason.UNLABELLED),
        ("```\nx\n```", "\nx\n", Reason.UNLABELLED),
        ("```x```", "x", Reason.UNLABELLED),
        ("```python\nx", "\nx", Reason.UNCLOSED_FENCE),
        ("```\nx", "\nx", Reason.UNCLOSED_FENCE),
        ("x = 1", "", Reason.NO_CODE_BLOCK),
        (" \n", "", Reason.EMPTY),
    ],
)
def test_verls_extraction_to_the_letter(completion, code, reason):
    assert extract_verl(completion) == Extraction(code, reason)


@given(fence_soup)
def test_verls_extraction_agrees_with_splitting(completion):
    expected = verl_reference(completion)
    extraction = extract_verl(completion)
    assert extraction.found == (expected is not None)
    assert extraction.code == (expected or "")
