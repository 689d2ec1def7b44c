"""Items from a trainer's rows: ground truths, completions and responses in their forms."""

import json
import re
from collections.abc import Mapping, Sequence

from plumbline_reward.errors import RefusedError

Completion = str | Sequence[Mapping[str, object]]
"""A text, or chat messages."""

_REFERENCE = "plumbline:"
# A field of every kind of tests.
_TESTS = {"inputs", "entry_point", "test_list", "program_tests", "sandbox_id"}
# A program does not end like this.
_TOKEN = re.compile(r"(?:<[|｜][^|｜<>\s]{1,40}[|｜]>|</s>|<eos>|<pad>|<end_of_turn>)\Z")
_LONGEST_TOKEN = 44


def judged_item(
    ground_truth: object, completion: str, data_source: object = None
) -> dict[str, object]:
    """Make an item of a reference or of inline tests.

    A reference (``plumbline:<dataset>/<id>#<hash>``) stands for itself. For inline tests
    ``data_source`` names the data set whose judge settings apply.

    Raises:
        RefusedError: There is no ground truth.
    """
    ground_truth = _without_verls_column(ground_truth)
    if is_missing(ground_truth):
        raise RefusedError(
            "the ground truth is empty: it must be a reference such as plumbline:<dataset>/<id>"
            "#<hash> (plumb data export) or inline tests"
        )
    item = {"ground_truth": ground_truth, "completion": completion}
    if not _is_reference(ground_truth) and isinstance(data_source, str) and data_source:
        item["dataset"] = data_source
    return item


def is_missing(ground_truth: object) -> bool:
    """Whether there is no ground truth, which may be a numpy array."""
    return ground_truth is None or (isinstance(ground_truth, str) and not ground_truth)


def is_code(ground_truth: object) -> bool:
    """Whether a ground truth is a reference to tests, or tests."""
    ground_truth = _without_verls_column(ground_truth)
    if isinstance(ground_truth, str):
        if not ground_truth.lstrip().startswith("{"):
            return _is_reference(ground_truth)
        try:
            ground_truth = json.loads(ground_truth)
        except (ValueError, RecursionError):
            return False
    return isinstance(ground_truth, Mapping) and bool(_TESTS & set(ground_truth))


def _is_reference(ground_truth: object) -> bool:
    return isinstance(ground_truth, str) and ground_truth.startswith(_REFERENCE)


def _without_verls_column(ground_truth: object) -> object:
    """The ground truth in verl's column ``reward_model``; another value as it is."""
    if isinstance(ground_truth, Mapping) and "ground_truth" in ground_truth:
        return ground_truth["ground_truth"]
    return ground_truth


def completion_text(completion: Completion) -> str:
    """Return a completion's text; of a conversation the last message of the assistant.

    Raises:
        RefusedError: It has another shape.
    """
    if isinstance(completion, str):
        return completion
    try:
        messages = [
            message for message in completion if message.get("role", "assistant") == "assistant"
        ]
    except (TypeError, AttributeError):
        kind = type(completion).__name__
        raise RefusedError(f"a completion is a {kind}, neither a text nor chat messages") from None
    content = messages[-1].get("content") if messages else None
    if content is None:
        return ""  # the model said nothing
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content):
        return "".join(
            str(part.get("text") or "") for part in content if part.get("type") == "text"
        )
    raise RefusedError(f"a message's content is a {type(content).__name__}, not a text")


def without_special_tokens(text: str) -> str:
    """Remove the special tokens at the end of a response, and blanks before them.

    The time is in proportion to what it removes.
    """
    kept = len(text)
    while True:
        end = _before_blanks(text, kept)
        token = _TOKEN.search(text, max(0, end - _LONGEST_TOKEN), end)
        if token is None:
            return text[:kept]
        kept = _before_blanks(text, token.start())


def _before_blanks(text: str, end: int) -> int:
    while end and text[end - 1].isspace():
        end -= 1
    return end
