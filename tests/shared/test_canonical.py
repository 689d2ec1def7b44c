import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.datasets import CANONICAL_VERSION, canonicalize

# Characters that the rules are about, often next to each other.
_TRICKY = st.text(
    st.sampled_from("\r\n\t \x0b\x0c\x85\u2000\u2028ae\u0301\u212b\u0345\ud800`~\ufeff")
)


@pytest.mark.parametrize(
    ("prompt", "canonical"),
    [
        ("a\r\nb\rc\n", "a\nb\nc"),
        ("\n \n\t\na  \n\n b\t\n\n", "a\n\n b"),
        ("    x  =  1\n\ty  =  2", "    x  =  1\n\ty  =  2"),
        ("in  prose \t runs\u00a0\u00a0become one", "in prose runs become one"),
        ("  a  b", "  a b"),
        ("one\n\n \n\ntwo", "one\n\ntwo"),
        ("a  b\n```  py\nx  = 1\n\n\ny\n```\na  b", "a b\n```  py\nx  = 1\n\n\ny\n```\na b"),
        ("~~~\na  b", "~~~\na  b"),
        ("\ufeffa", "a"),
        ("e\u0301", "\u00e9"),
        ("", ""),
        (" \r\n ", ""),
    ],
)
def test_what_it_changes(prompt, canonical):
    assert canonicalize(prompt) == canonical


@given(_TRICKY | st.text())
@example("\r\r\n\n\r")
def test_idempotent(prompt):
    once = canonicalize(prompt)
    assert canonicalize(once) == once


@given(_TRICKY | st.text())
def test_the_result_is_in_canonical_form(prompt):
    canonical = canonicalize(prompt)
    assert "\r" not in canonical
    assert unicodedata.is_normalized("NFC", canonical)
    lines = canonical.split("\n")
    assert all(line == line.rstrip() for line in lines)
    assert canonical == "" or (lines[0] and lines[-1])


def test_the_version_is_pinned_to_the_result():
    """A change of the result needs a new version, and then this test changes too."""
    assert CANONICAL_VERSION == "2"
    assert canonicalize("\n A\u0301  d \r\n\tb  c \r\r\r\re") == " \u00c1 d\n\tb  c\n\ne"
