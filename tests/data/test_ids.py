import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.data.ids import parse_ids
from shared.errors import DataError


def test_both_ends_are_in():
    ids = parse_ids("11-210")
    assert [number for number in range(300) if number in ids] == list(range(11, 211))


def test_numbers_and_ranges_mix():
    ids = parse_ids("1, 5,20-22")
    assert [number for number in range(30) if number in ids] == [1, 5, 20, 21, 22]
    assert str(ids) == "1,5,20-22"


@pytest.mark.parametrize("text", ["", "a", "5-", "-5", "1--2", "1,", "1.5", "\u0663", "9" * 10])
def test_malformed(text):
    with pytest.raises(DataError, match=r"--ids .* is no number or range; write 11-210"):
        parse_ids(text)


def test_reversed():
    with pytest.raises(DataError, match=r"the range 210-11 ends before it begins"):
        parse_ids("210-11")


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted), min_size=1))
def test_text_round_trip(pairs):
    ids = parse_ids(",".join(f"{first}-{last}" for first, last in pairs))
    assert parse_ids(str(ids)) == ids


@given(st.text())
def test_any_text_gives_ids_or_a_data_error(text):
    try:
        parse_ids(text)
    except DataError as error:
        assert len(str(error).splitlines()) == 1
