from hypothesis import given
from hypothesis import strategies as st

from shared.analysis.typical import METRICS, typical_range


@given(st.floats(0.001, 2000), st.sampled_from(METRICS))
def test_ranges_are_shares_in_order(billions, metric):
    for name in ("codecontests_valid", "humaneval", "mbpp_reg"):
        if found := typical_range(billions, name, metric):
            assert 0 <= found.low < found.high <= 1
            assert not found.excludes([found.low, found.high])
            assert found.excludes([found.high + 0.001, 1.1])


def test_where_no_range_is_known():
    assert typical_range(1.5, "codecontests_valid", "accepted_at_1") is None
    assert typical_range(0.1, "humaneval", "accepted_at_1") is None
    assert typical_range(7, "mbpp_reg", "accepted_at_1") is None
