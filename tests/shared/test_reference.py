"""References to problems, and the ledger's side of reward sessions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.reference import ProblemReference, is_reference, reference_of
from tests.shared.ledgers import problem

_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
_DIGEST = "0123456789abcdef"


@given(_NAMES, _NAMES)
def test_every_name_survives(dataset: str, problem_id: str) -> None:
    reference = ProblemReference(dataset, problem_id, _DIGEST)
    assert is_reference(reference.text)
    assert not any(blank in reference.text for blank in " \n\t")
    assert ProblemReference.parse(reference.text) == reference


@pytest.mark.parametrize(
    "text",
    [
        "plumbline:a/b",
        "plumbline:a/b#0123",
        "plumbline:a/b/c#0123456789abcdef",
        "plumbline:/b#0123456789abcdef",
        "plumbline:%ff/b#0123456789abcdef",
        " plumbline:a/b#0123456789abcdef",
    ],
)
def test_other_texts_are_no_references(text: str) -> None:
    with pytest.raises(ValueError, match="reference"):
        ProblemReference.parse(text)


def test_the_digest_is_of_prompt_tests_and_limits() -> None:
    one = problem()
    same = one.model_copy(update={"difficulty": "hard", "quality": "ok", "split": "train"})
    assert reference_of(one) == reference_of(same)
    assert reference_of(one).text == "plumbline:d1/p1#a6a588c7c7e2b966"
    for change in (
        {"prompt_sha256": "0"},
        {"ground_truth": one.ground_truth + " "},
        {"extra_info": '{"time_limit": 2}'},
    ):
        changed = one.model_copy(update=change)
        assert reference_of(changed).digest != reference_of(one).digest
