"""Properties of parsing: whatever comes, it is a valid verdict or a failure of infrastructure."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plumbline_reward.errors import RetryableError
from plumbline_reward.requests import delay
from plumbline_reward.responses import (
    Verdict,
    failure,
    parse_object,
    parse_stream,
    parse_verdict,
)

from tests.clients.stand_in import UNJUDGED, verdict_of

_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab1.é", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=5,
)
_GOOD = verdict_of({"completion": "pass 0.5"})


def check(verdict: Verdict) -> None:
    for number in (verdict.score, verdict.pass_ratio):
        assert type(number) is float
        assert 0 <= number <= 1
    assert type(verdict.accepted) is bool
    assert verdict.status not in ("", "api_error")
    assert 0 <= verdict.cases_passed <= verdict.cases_total
    assert math.isfinite(verdict.judge_seconds + verdict.queue_seconds)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_an_error(data: bytes) -> None:
    try:
        assert isinstance(parse_object(data), dict)
    except RetryableError as error:
        assert "malformed" in str(error)


@given(
    st.dictionaries(st.sampled_from(sorted(_GOOD)), _ANYTHING),
    st.sets(st.sampled_from(sorted(_GOOD))),
)
def test_any_change_of_a_verdict_is_valid_or_an_error(
    changes: dict[str, Any], removed: set[str]
) -> None:
    answer = {name: value for name, value in (_GOOD | changes).items() if name not in removed}
    try:
        outcome = parse_verdict(answer)
    except RetryableError as error:
        assert "malformed" in str(error)
        return
    if isinstance(outcome, Verdict):
        check(outcome)
        assert answer["judged"] is True
    else:
        assert answer["judged"] is False
        assert answer.get("score") is None


@given(
    st.integers(0, 8),
    st.lists(
        st.one_of(
            st.builds(lambda i: {"index": i, **_GOOD}, st.integers(-1, 8)),
            st.builds(
                lambda i: {"index": i, **UNJUDGED},
                st.integers(-1, 8),
            ),
            st.builds(
                lambda j, u: {"done": True, "judged": j, "unjudged": u},
                st.integers(0, 8),
                st.integers(0, 8),
            ),
            _ANYTHING,
        ),
        max_size=10,
    ),
)
def test_any_stream_answers_each_item_once_or_is_cut(number: int, lines: list[Any]) -> None:
    data = iter([json.dumps(line).encode() for line in lines])
    seen: list[int] = []
    judged = 0
    try:
        for index, outcome in parse_stream(data, number):
            seen.append(index)
            judged += isinstance(outcome, Verdict)
    except RetryableError:
        assert len(seen) == len(set(seen))
    else:
        assert sorted(seen) == list(range(number))
        assert lines[-1] == {"done": True, "judged": judged, "unjudged": number - judged}
    assert set(seen) <= set(range(number))


@given(st.integers(201, 599), st.none() | st.text(max_size=12), st.binary(max_size=60))
def test_only_the_services_own_4xx_is_final(status: int, header: str | None, body: bytes) -> None:
    with pytest.raises(RetryableError):
        failure("http://a", status, header, body)
    final = 400 <= status < 500 and status not in (408, 425, 429)
    try:
        refusal = failure("http://a", status, header, b'{"error": "unknown"}')
        assert str(refusal) == "http://a refuses it: unknown"
        assert final
    except RetryableError as error:
        assert "unknown" in str(error)
        assert not final


@given(st.integers(1, 10**6), st.none() | st.floats(0, 1e9))
def test_delays_are_bounded(attempts: int, retry_after: float | None) -> None:
    seconds = delay(attempts, retry_after)
    assert 0 <= seconds <= 75
    if retry_after is not None and retry_after <= 60:
        assert seconds >= retry_after
