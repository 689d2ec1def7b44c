"""The budget of time-outs (`judge.max_timeouts`): what is cut, and that acceptance stays exact."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shared.schemas import Verdict
from shared.statuses import FinalStatus
from tests.judge.stand_ins import BEHAVIOURS, Simulated
from tests.judge.tasks import fenced, make_task, stdio, verdict_of

# The code of each behaviour once its time-out is confirmed.
CODES = dict(zip(BEHAVIOURS, (1, 0, -2, -3, -3, 1, -2), strict=True))
CONFIRMED = {
    "judge.confirm_timeouts=true": CODES,
    "judge.confirm_timeouts=false": {**CODES, "waits": -3},
}
# More time-outs than by chance.
KINDS = st.lists(st.sampled_from([*BEHAVIOURS, "passes", "loops", "slow", "waits"]), min_size=1)


def judged(
    kinds: Sequence[str], budget: int | None, *overrides: str, per_call: int = 1000
) -> Verdict:
    cases = [(f"{kind} {place}", "yes") for place, kind in enumerate(kinds)]
    limit = f"judge.max_timeouts={'null' if budget is None else budget}"
    settings = ("sandbox.timeout=1", *overrides, limit)
    task = make_task(Simulated(per_call), stdio(*cases), fenced("pass"), *settings)  # type: ignore[arg-type]
    return asyncio.run(verdict_of(task))


@example(["slow", "waits", "breaks", "loops"], 2, 1, "judge.confirm_timeouts=true")
@example(["breaks", "loops"], 1, 1, "judge.confirm_timeouts=true")
@example([*["breaks"] * 7, "passes"], 1, 3, "judge.confirm_timeouts=true")
@given(KINDS, st.integers(1, 5), st.integers(1, 8), st.sampled_from(list(CONFIRMED)))
def test_a_cut_answer_is_never_accepted_and_any_other_is_exact(
    kinds: list[str], budget: int, per_call: int, confirm: str
) -> None:
    """Also where a second run refutes time-outs: then the cases behind them have to run."""
    assume(kinds.count("breaks") < 8)  # then the judge gives up
    # What a killed harness has not run by then runs alone, and waits for nothing.
    assume(confirm == "judge.confirm_timeouts=true" or "breaks" not in kinds)
    truth = [CONFIRMED[confirm][kind] for kind in kinds]
    exact = judged(kinds, None, confirm, per_call=per_call)
    assert exact.case_codes == truth
    assert exact.cases_not_run == 0
    found = judged(kinds, budget, confirm, per_call=per_call)
    late = [place for place, code in enumerate(truth) if code == -3]
    end = late[budget - 1] + 1 if len(late) >= budget else len(truth)
    assert found.case_codes == truth[:end] + [-5] * (len(truth) - end)
    assert found.accepted == exact.accepted
    assert not (found.accepted and found.cases_not_run)
    assert found.pass_ratio <= exact.pass_ratio <= found.pass_ratio + found.not_run_ratio + 1e-9
    if found.cases_not_run:
        # All that the cases behind the last time-out could change.
        assert found.final_status in (exact.final_status, FinalStatus.TIMEOUT)
        assert exact.final_status in (FinalStatus.TIMEOUT, FinalStatus.RUNTIME_ERROR)
    else:
        assert (found.final_status, found.pass_ratio) == (exact.final_status, exact.pass_ratio)


def test_what_runs_first_decides_between_time_out_and_other_errors() -> None:
    kinds = ["loops", "crashes", "passes"]
    assert judged(kinds, 1).final_status is FinalStatus.TIMEOUT
    assert judged(kinds, 2).final_status is FinalStatus.RUNTIME_ERROR


@pytest.mark.parametrize(
    ("kinds", "most"),
    [
        (["loops"] * 200, 4),
        # They are counted when their call ends, and confirmed; those that count are measured again.
        (["slow"] * 200, 2 * 10 + 2 * 4),
        (["breaks", *["loops"] * 200], 4 + 4),  # two at a time, and confirmed
    ],
)
async def test_an_endless_answer_costs_few_cases(kinds: list[str], most: int) -> None:
    sandbox = Simulated(per_call=10)
    cases = [(f"{kind} {place}", "yes") for place, kind in enumerate(kinds)]
    task = make_task(sandbox, stdio(*cases), fenced("pass"), "sandbox.timeout=1")  # type: ignore[arg-type]
    verdict = await verdict_of(task)
    late = verdict.case_codes.count(-3)
    assert (late, verdict.cases_not_run) == (4, 196)
    assert len(sandbox.ran) <= most + kinds.count("breaks")


def test_the_score_of_verl_has_no_budget() -> None:
    assert judged(["loops"] * 9, 1, "judge.method=compute_score").case_codes == [-3] * 9
