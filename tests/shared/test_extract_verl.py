"""verl's rule for extracting the program, reproduced exactly."""

import pytest

from shared.extraction import Extraction, extract_verl
from shared.statuses import ExtractionReason as Reason


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
