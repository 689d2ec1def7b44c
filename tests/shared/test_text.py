from hypothesis import given
from hypothesis import strategies as st

from shared.text import shorten_end, shorten_middle


@given(st.text(max_size=300), st.integers(100, 200))
def test_a_shortened_text_keeps_its_ends(text: str, limit: int) -> None:
    short = shorten_middle(text, limit)
    if len(text) <= limit:
        assert short == text
        return
    head, rest = short.split("\n… ", 1)
    number, tail = rest.split(" characters left out …\n", 1)
    assert (text.startswith(head), text.endswith(tail)) == (True, True)
    assert len(head) + len(tail) == limit
    assert len(head) + int(number) + len(tail) == len(text)


@given(st.text(max_size=300), st.integers(1, 200))
def test_the_end_of_a_long_text_is_cut(text: str, limit: int) -> None:
    short = shorten_end(text, limit)
    if len(text) <= limit:
        assert short == text
    else:
        assert short == text[: limit - 1] + "…"
