"""verl's own rule for finding the program."""

from shared.extraction.result import Extraction, Reason


def extract_verl(completion: str) -> Extraction:
    """Extract as verl 0.9.1 does before it runs test cases, to the letter.

    The last "```python" up to the next fence; else what is between the first two fences, less a
    first line of letters only; without any fence there is no code. No fence has to stand on a line
    of its own. Source: ``verl/utils/reward_score/sandbox_fusion/__init__.py``, ``compute_score``.
    """
    if "```python" in completion:
        code, fence, _ = completion.rpartition("```python")[2].partition("```")
        return Extraction(code, Reason.FENCED if fence else Reason.UNCLOSED_FENCE)
    if "```" not in completion:
        return Extraction("", Reason.NO_CODE_BLOCK if completion.strip() else Reason.EMPTY)
    code, fence, _ = completion.partition("```")[2].partition("```")
    first_line, newline, rest = code.partition("\n")
    if newline and first_line.strip().isalpha():
        code = rest
    return Extraction(code, Reason.UNLABELLED if fence else Reason.UNCLOSED_FENCE)
